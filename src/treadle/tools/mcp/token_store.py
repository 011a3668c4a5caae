"""The tokens of servers that the user logged in to: in the system keyring, else in a file.

One record a server, found by its name and URL: a server of the same name at another URL has none.
The file has mode 0600 and names every record; where there is a keyring the secrets are there and
the file only says so. A running session finds the tokens of a login in another terminal, because
nothing is kept in memory. Used by oauth.py; `treadle mcp login` writes them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import msgspec

from treadle.core.errors import ConfigError
from treadle.lib.files.flock import wait_for_lock
from treadle.lib.files.private_files import locked_update, make_private_folder

KEYRING_SERVICE = "treadle-mcp"

LoginEntries = dict[str, dict[str, Any]]


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


class Keyring(Protocol):
    """The functions of the module `keyring` that are used."""

    def get_password(self, service: str, name: str, /) -> str | None: ...

    def set_password(self, service: str, name: str, secret: str, /) -> None: ...

    def delete_password(self, service: str, name: str, /) -> None: ...


class TokenStore:
    """The records of all servers. `find_keyring` is called when a login is used: finding the
    system's takes a moment. Without it the file has them."""

    def __init__(
        self, file: Path, find_keyring: Callable[[], Keyring | None] = lambda: None
    ) -> None:
        self.file = file
        self._find_keyring = find_keyring

    @cached_property
    def _keyring(self) -> Keyring | None:
        return self._find_keyring()

    def load(self, name: str, url: str) -> LoginRecord | None:
        key = make_record_key(name, url)
        entry = self._read().get(key)
        if entry is None:
            return None
        if entry.get("place") == "keyring":
            secret = self._keyring.get_password(KEYRING_SERVICE, key) if self._keyring else None
            if secret is None:
                return None
            return msgspec.json.decode(secret, type=LoginRecord)
        return msgspec.convert(entry.get("record") or {}, LoginRecord)

    def save(self, name: str, url: str, record: LoginRecord) -> None:
        key = make_record_key(name, url)
        entry: dict[str, Any] = {"place": "file", "record": msgspec.to_builtins(record)}
        if self._keyring is not None:
            try:
                self._keyring.set_password(
                    KEYRING_SERVICE, key, msgspec.json.encode(record).decode()
                )
                entry = {"place": "keyring"}
            except Exception:  # noqa: BLE001 - a locked or broken keyring: the file is used
                pass
        self._change(lambda entries: entries.update({key: entry}))

    def remove(self, name: str, url: str) -> bool:
        """Forget a login; whether there was one."""
        key = make_record_key(name, url)
        entry = self._read().get(key)
        if entry is None:
            return False
        self._change(lambda entries: entries.pop(key, None))
        if entry.get("place") == "keyring" and self._keyring is not None:
            try:
                self._keyring.delete_password(KEYRING_SERVICE, key)
            except Exception:  # noqa: BLE001 - it is gone already, or the keyring is
                pass
        return True

    @asynccontextmanager
    async def hold(self, name: str, url: str) -> AsyncIterator[None]:
        """While this program refreshes a login, the others wait: a refresh token works once."""
        digest = hashlib.sha256(make_record_key(name, url).encode()).hexdigest()[:16]
        make_private_folder(self.file.parent)
        async with wait_for_lock(self.file.with_name(f".login-{digest}.lock")):
            yield

    def has_login(self, name: str, url: str) -> bool:
        """Whether there is a record; does not ask the keyring, which may ask the user."""
        return make_record_key(name, url) in self._read()

    def _read(self) -> LoginEntries:
        try:
            return self._decode(self.file.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._make_error(error) from error

    def _change(self, change: Callable[[LoginEntries], object]) -> None:
        def update() -> bytes:
            entries = self._read()
            change(entries)
            return msgspec.json.format(msgspec.json.encode(entries), indent=1)

        locked_update(self.file, update)

    def _decode(self, data: bytes) -> LoginEntries:
        try:
            entries = json.loads(data)
        except ValueError as error:
            raise self._make_error(error) from error
        return entries if isinstance(entries, dict) else {}

    def _make_error(self, error: Exception) -> ConfigError:
        return ConfigError(
            f"{self.file} cannot be read ({error}): remove it and log in again with "
            "`treadle mcp login NAME`"
        )


def make_record_key(name: str, url: str) -> str:
    return f"{name} {url}"


def find_keyring() -> Keyring | None:
    """The keyring of the system, if the package `keyring` is installed and finds one."""
    try:
        import keyring
        from keyring.backends import fail, null
    except ImportError:
        return None
    backend = keyring.get_keyring()
    if isinstance(backend, fail.Keyring | null.Keyring) or backend.priority <= 0:
        return None
    return backend
