"""The tokens of servers that the user logged in to.

One record a server, found by its name and URL: a server of the same name at another URL has none.
A running session finds the tokens of a login in another terminal. Used by oauth.py; `treadle mcp
login` writes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from treadle.core.secret_store import Keyring, SecretStore
from treadle.lib.files.flock import wait_for_lock
from treadle.lib.files.private_files import make_private_folder


class LoginRecord(msgspec.Struct, frozen=True):
    """What a login left: as JSON of the SDK's values, so that nothing here needs the SDK.

    `server` and `resource` are the metadata of the authorization server and of the resource: a
    refresh needs them, and must not depend on a new discovery. `expires_at` is a Unix time.
    `wanted_scope` is what the server missed: the next login asks for it.
    """

    tokens: dict[str, Any] | None = None
    client: dict[str, Any] | None = None
    server: dict[str, Any] | None = None
    resource: dict[str, Any] | None = None
    expires_at: float | None = None
    wanted_scope: str | None = None


class TokenStore:
    """The records of all servers. Without a keyring the file has them."""

    def __init__(
        self, file: Path, find_keyring: Callable[[], Keyring | None] = lambda: None
    ) -> None:
        self.file = file
        self._secrets = SecretStore(
            file, "treadle-mcp", find_keyring, log_in_again="treadle mcp login NAME"
        )

    def load(self, name: str, url: str) -> LoginRecord | None:
        record = self._secrets.load(make_record_key(name, url))
        return None if record is None else msgspec.convert(record, LoginRecord)

    def save(self, name: str, url: str, record: LoginRecord) -> None:
        self._secrets.save(make_record_key(name, url), msgspec.to_builtins(record))

    def remove(self, name: str, url: str) -> bool:
        """Forget a login; whether there was one."""
        return self._secrets.remove(make_record_key(name, url))

    def has_login(self, name: str, url: str) -> bool:
        return make_record_key(name, url) in self._secrets.names()

    @asynccontextmanager
    async def hold(self, name: str, url: str) -> AsyncIterator[None]:
        """While this program refreshes a login, the others wait: a refresh token works once."""
        digest = hashlib.sha256(make_record_key(name, url).encode()).hexdigest()[:16]
        make_private_folder(self.file.parent)
        async with wait_for_lock(self.file.with_name(f".login-{digest}.lock")):
            yield


def make_record_key(name: str, url: str) -> str:
    return f"{name} {url}"
