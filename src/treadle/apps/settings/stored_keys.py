"""Keys of providers that the user gave to `treadle login`: in the system's keyring, else in a file.

The file has mode 0600 and names each variable; where there is a keyring the keys are there and the
file only says so. The program puts them into its own environment when it starts, as if the user had
exported them: commands do not get them (workspace/environment), and they are redacted.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path

import msgspec

from treadle.core.errors import ConfigError

KEYRING_SERVICE = "treadle-keys"
IN_KEYRING = ""  # in the file, in place of a key


def find_key_file() -> Path:
    return Path.home() / ".treadle" / "keys.json"


def load_keys(environ: MutableMapping[str, str]) -> None:
    """Set the variables of the stored keys, unless they are set. A keyring that does not answer is
    no error: the model then says that it has no key."""
    for variable, key in _read().items():
        if environ.get(variable, "").strip():
            continue
        found = key or _read_keyring(variable)
        if found:
            environ[variable] = found


def store_key(variable: str, key: str) -> str:
    """Keep a key; where it is kept, in words."""
    from treadle.tools.mcp.token_store import find_keyring

    keyring = find_keyring()
    if keyring is not None:
        try:
            keyring.set_password(KEYRING_SERVICE, variable, key)
        except Exception:  # noqa: BLE001 - backends raise their own; the file is there
            keyring = None
    _update({variable: key if keyring is None else IN_KEYRING})
    where = f"{find_key_file()} (readable by you only)"
    return where if keyring is None else "the keyring of this system"


def remove_key(variable: str) -> bool:
    """Forget a stored key; False if there is none."""
    from treadle.tools.mcp.token_store import find_keyring

    if variable not in (stored := _read()):
        return False
    if stored[variable] == IN_KEYRING and (keyring := find_keyring()) is not None:
        keyring.delete_password(KEYRING_SERVICE, variable)
    _update({variable: None})
    return True


def _read_keyring(variable: str) -> str:
    from treadle.tools.mcp.token_store import find_keyring

    keyring = find_keyring()
    try:
        return (keyring.get_password(KEYRING_SERVICE, variable) or "") if keyring else ""
    except Exception:  # noqa: BLE001 - a locked keyring raises what its backend likes
        return ""


def _read() -> dict[str, str]:
    try:
        return _decode(find_key_file().read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"the stored keys cannot be read: {error}") from error


def _decode(data: bytes) -> dict[str, str]:
    try:
        return msgspec.json.decode(data, type=dict[str, str])
    except msgspec.MsgspecError as error:
        file = find_key_file()
        raise ConfigError(
            f"{file} cannot be read ({error}): remove it, then treadle login"
        ) from error


def _update(changes: dict[str, str | None]) -> None:
    from treadle.lib.files.private_files import locked_update

    def update() -> bytes:
        stored = {**_read(), **changes}
        return msgspec.json.encode({name: key for name, key in stored.items() if key is not None})

    locked_update(find_key_file(), update)
