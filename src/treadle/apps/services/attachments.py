"""Files that are sent with a message: `@PATH` in the text, `--file PATH`, dropped files.

The media type is detected from the content. `@PATH` does not follow symlinks that leave the
project or an added folder: the author of the project chose the target, not the user. A path that
leaves the folder by itself, absolute or with `..`, is the user's choice. Used by the hosts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from treadle.apps.assembly.redaction import find_environment_secrets, redact
from treadle.core.errors import ConfigError, MissingExtra
from treadle.core.transcript.content import Document, Image, Text, UserContent
from treadle.core.untrusted_files import read_prefix
from treadle.lib.files.media_types import detect_media_type

MAX_FILE_BYTES = 32 << 20
MAX_TEXT_CHARS = 200_000  # of a text file; a longer one is only named

_SIGNATURE_BYTES = 16
_MENTION = re.compile(r"(?<![\w@])@(\"[^\"]+\"|[^\s\"@]+)")


class AttachmentError(Exception):
    """A file cannot be attached; the message says which and why."""


class Attachment(NamedTuple):
    """A part of a message. `problem` is why it is only a remark instead of the file."""

    content: UserContent
    problem: str = ""


def find_mentions(text: str) -> list[str]:
    """The paths that a text mentions with @, each once."""
    names = (match.group(1).strip('"') for match in _MENTION.finditer(text))
    return list(dict.fromkeys(name.rstrip(".,;:!?)") or name for name in names))


def attach_mention(
    name: str, folder: Path, list_added_folders: Callable[[], Sequence[Path]], *, include_text: bool
) -> Attachment | None:
    """The file that a text mentions; None if there is none, or it is text and that is not wanted.

    A file that must not or cannot be attached becomes a remark that the model reads.
    """
    path = folder / name
    if not os.path.isfile(path):  # noqa: PTH113 - a word too long for a file name is no error
        return None
    try:
        if not include_text and not detect_media_type(_read(path, name, _SIGNATURE_BYTES)):
            return None
        target = find_outside_target(name, folder, list_added_folders)
        if target is None:
            data = _read(path, name, MAX_FILE_BYTES + 1)
            return Attachment(make_attachment(name, data))
        problem = f"{name} is not attached: it is a symlink to {target}; use that path instead"
    except AttachmentError as error:
        problem = str(error)
    return Attachment(Text(f"[{problem}]"), problem)


def attach_file(path: Path, name: str) -> UserContent:
    """A file that the user chose. It may be a pipe, as in `--file <(git diff)`."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise AttachmentError(f"{name} cannot be attached: {error.strerror}") from error
    return make_attachment(name, data)


def make_attachment(name: str, data: bytes) -> UserContent:
    """The content of a file as a part of a message; secrets of this process are redacted."""
    if len(data) > MAX_FILE_BYTES:
        limit = MAX_FILE_BYTES >> 20
        raise AttachmentError(f"{name} is not attached: it is larger than {limit} MiB")
    media_type = detect_media_type(data)
    if media_type == "application/pdf":
        return Document(media_type, data, title=Path(name).name)
    if media_type:
        return _attach_picture(name, media_type, data)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = "it is neither UTF-8 text nor an image nor a PDF"
        raise AttachmentError(f"{name} is not attached: {problem}") from error
    if len(text) > MAX_TEXT_CHARS:
        return Text(f"[{name} is not attached: {len(text):,} characters; read the parts you need]")
    return Text(f'<file path="{name}">\n{redact(find_environment_secrets(), text)}\n</file>')


def _attach_picture(name: str, media_type: str, data: bytes) -> Image:
    from treadle.core.shrink_image import UnreadableImage, shrink_image

    try:
        small = shrink_image(media_type, data)
    except (MissingExtra, UnreadableImage) as error:
        raise AttachmentError(f"{name} is not attached: {error}") from error
    return Image(small.media_type, small.data)


def find_outside_target(
    name: str, folder: Path, list_added_folders: Callable[[], Sequence[Path]]
) -> Path | None:
    """The target of a symlink in the folder that leaves it and every added folder."""
    path = folder / name
    if Path(name).is_absolute() or not Path(os.path.normpath(path)).is_relative_to(folder):
        return None
    real = Path(os.path.realpath(path))
    allowed = [os.path.realpath(one) for one in (folder, *list_added_folders())]
    return None if any(map(real.is_relative_to, allowed)) else real


def _read(path: Path, name: str, max_bytes: int) -> bytes:
    try:
        return read_prefix(path, max_bytes, within=None)
    except (ConfigError, FileNotFoundError) as error:
        raise AttachmentError(f"{name} is not attached: {error}") from error
