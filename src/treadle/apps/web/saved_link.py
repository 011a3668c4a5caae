"""The token and the port of the last server, so that an open page finds the next one."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import msgspec

from treadle.apps.settings.settings import treadle_home
from treadle.lib.files.private_folder import make_private_folder


class SavedLink(msgspec.Struct, frozen=True):
    token: str
    port: int = 0


def read_link(*, is_new: bool = False) -> SavedLink:
    """The saved link, or a new one that is not saved yet."""
    try:
        data = b"" if is_new else _find_file().read_bytes()
        return msgspec.json.decode(data, type=SavedLink)
    except (OSError, msgspec.DecodeError):
        return SavedLink(secrets.token_urlsafe(24))


def save_link(link: SavedLink) -> None:
    """Keep the link; only the user can read the file."""
    file = _find_file()
    make_private_folder(file.parent)
    part = file.with_name(f"{file.name}.{os.getpid()}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as output:
        output.write(msgspec.json.encode(link))
    part.replace(file)


def _find_file() -> Path:
    return treadle_home() / "web.json"
