"""Secrets that the user gave: in the keyring of the system, else in a file of mode 0600.

The file names every secret; where there is a keyring they are in it, and the file only says so.
Nothing is kept in memory: what another program stores or removes counts at once. Used for the keys
of providers and the logins to MCP servers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import msgspec

from treadle.core.errors import ConfigError
from treadle.lib.files.private_files import locked_update


class Keyring(Protocol):
    """The functions of the module `keyring` that are used."""

    def get_password(self, service: str, name: str, /) -> str | None: ...

    def set_password(self, service: str, name: str, secret: str, /) -> None: ...

    def delete_password(self, service: str, name: str, /) -> None: ...


class StoredSecret(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the file says of a secret: the place "file", with its JSON value, or "keyring"."""

    place: str
    record: Any = None


class SecretStore:
    """The secrets of one kind, by name. `find_keyring` is called when one is used: finding the
    system's takes a moment. A keyring that does not answer has none."""

    def __init__(
        self,
        file: Path,
        service: str,
        find_keyring: Callable[[], Keyring | None],
        *,
        log_in_again: str,
    ) -> None:
        self.file = file
        self._service = service
        self._find_keyring = find_keyring
        self._log_in_again = log_in_again

    @cached_property
    def _keyring(self) -> Keyring | None:
        return self._find_keyring()

    def names(self) -> list[str]:
        """Does not ask the keyring, which may ask the user."""
        return list(self._read())

    def load(self, name: str) -> Any:
        """The JSON value; None if there is none."""
        stored = self._read().get(name)
        if stored is None or stored.place != "keyring":
            return stored and stored.record
        try:
            secret = self._keyring.get_password(self._service, name) if self._keyring else None
        except Exception:  # noqa: BLE001 - a locked keyring raises what its backend likes
            return None
        return None if secret is None else msgspec.json.decode(secret)

    def save(self, name: str, value: Any) -> str:
        """Keep or replace a secret; where it is kept, in words."""
        stored, where = StoredSecret("file", value), f"{self.file} (readable by you only)"
        if self._keyring is not None:
            try:
                secret = msgspec.json.encode(value).decode()
                self._keyring.set_password(self._service, name, secret)
                stored, where = StoredSecret("keyring"), "the keyring of this system"
            except Exception:  # noqa: BLE001 - a locked or broken keyring: the file is used
                pass
        self._change(lambda secrets: secrets.update({name: stored}))
        return where

    def remove(self, name: str) -> bool:
        """Whether there was one."""
        stored = self._read().get(name)
        if stored is None:
            return False
        self._change(lambda secrets: secrets.pop(name, None))
        if stored.place == "keyring" and self._keyring is not None:
            try:
                self._keyring.delete_password(self._service, name)
            except Exception:  # noqa: BLE001 - it is gone already, or the keyring is
                pass
        return True

    def _read(self) -> dict[str, StoredSecret]:
        try:
            return msgspec.json.decode(self.file.read_bytes(), type=dict[str, StoredSecret])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(
                f"{self.file} cannot be read ({error}): remove it and log in again with "
                f"`{self._log_in_again}`"
            ) from error

    def _change(self, change: Callable[[dict[str, StoredSecret]], object]) -> None:
        def update() -> bytes:
            secrets = self._read()
            change(secrets)
            return msgspec.json.format(msgspec.json.encode(secrets), indent=1)

        locked_update(self.file, update)


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
