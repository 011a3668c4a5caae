"""What was asked: the prompt from the command line or standard input, with files attached.

`@PATH` in the prompt and `--file PATH` attach: pictures and PDF files as such, text as text. All
input has to be UTF-8; anything else is said with its place and never guessed at. What was piped or
stands in a file may hold a key by accident; what somebody typed is meant.
"""

from __future__ import annotations

import os
import re
import select
import stat
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from treadle.apps.assembly.redaction import find_environment_secrets, redact
from treadle.apps.cli.console import print_error
from treadle.apps.cli.options import UsageError
from treadle.apps.services.attachments import find_outside_target, format_symlink_refusal
from treadle.core.sanitize import escape_invisible
from treadle.core.transcript.content import Document, Image, Text, UserContent

STDIN_WAIT_SECONDS = 0.5  # seconds that a pipe beside a prompt may take to say something
MAX_TEXT_CHARS = 200_000  # characters of a text file that are attached; a longer one is only named
MAX_FILE_BYTES = 32 << 20
MAX_STDIN_BYTES = 64 << 20

_MENTION = re.compile(r"(?<![\w@])@(\"[^\"]+\"|[^\s\"@]+)")
_IMAGE_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


def read_prompt(
    typed: str | None,
    files: Iterable[str],
    folder: Path,
    *,
    added_folders: Sequence[Path] = (),
    optional: bool = False,
) -> tuple[UserContent, ...]:
    """The parts of the message; none if nobody said anything, which may be `optional`.

    `added` are folders beside this one that links may lead to.
    """
    files = list(files)
    if typed is not None:
        _check_utf8(typed)
    from_input = typed == "-" or (typed is None and not optional) or "-" in files
    words = "" if typed in (None, "-") else typed or ""
    piped = read_stdin(wait=from_input)
    if piped.strip():
        piped = redact(find_environment_secrets(), piped)
        words = f"{words}\n\n<stdin>\n{piped}\n</stdin>" if words else piped
    parts: list[UserContent] = [Text(words)] if words.strip() else []
    parts += [attach_file(folder / name, name, required=True) for name in files if name != "-"]
    for name in find_mentions(typed or ""):
        path = folder / name
        if os.path.isfile(path):  # noqa: PTH113 - a word too long for a name is no error
            parts.append(_attach_mention(path, name, folder, added_folders))
    return tuple(parts)


def read_stdin(*, wait: bool) -> str:
    """Standard input, if somebody writes to it. One who only left it open is not waited for."""
    kind = os.fstat(0).st_mode
    if stat.S_ISCHR(kind):  # a terminal, or nothing
        return ""
    if not wait and not stat.S_ISREG(kind):
        poll = select.poll()
        poll.register(0, select.POLLIN)
        if not poll.poll(STDIN_WAIT_SECONDS * 1_000):
            return ""
    data = bytearray()
    while piece := os.read(0, 1 << 20):
        data += piece
        if len(data) > MAX_STDIN_BYTES:
            raise UsageError(
                f"standard input has more than {MAX_STDIN_BYTES >> 20} MB; give it as files"
            )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"standard input is not UTF-8: byte 0x{data[error.start]:02x} at {error.start:,}. "
            "Convert it (iconv), or attach it as a file"
        ) from error


def _check_utf8(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(f"the prompt is not UTF-8 at character {error.start:,}") from error


def find_mentions(text: str) -> list[str]:
    """The paths that a prompt names with @, each once."""
    names = (match.group(1).strip('"') for match in _MENTION.finditer(text))
    return list(dict.fromkeys(name.rstrip(".,;:!?)") or name for name in names))


def _attach_mention(
    path: Path, name: str, folder: Path, added_folders: Sequence[Path]
) -> UserContent:
    """A file that the prompt names; not what a link of the folder leads to elsewhere."""
    real = find_outside_target(name, folder, lambda: added_folders)
    if real is None:
        return attach_file(path, name, required=False)
    words = format_symlink_refusal(name, real)
    print_error(f"treadle: {escape_invisible(words)}")
    return Text(f"[{words}]")


def attach_file(path: Path, name: str, *, required: bool) -> UserContent:
    """A file as a part of a message."""
    try:
        with path.open("rb") as file:  # a pipe is read, too: `--file <(git diff)`
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        if required:
            raise UsageError(f"{name} cannot be attached: {error.strerror}") from error
        return Text(f"[{name} could not be read: {error.strerror}]")
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{name} has more than {MAX_FILE_BYTES >> 20} MB; name it in the prompt")
    media_type = detect_media_type(data)
    if media_type == "application/pdf":
        return Document(media_type, data, title=path.name)
    if media_type:
        return Image(media_type, data)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        if required:
            raise UsageError(f"{name} is neither UTF-8 text nor a picture nor a PDF") from error
        return Text(f"[{name} is not text; its content is not attached]")
    if len(text) > MAX_TEXT_CHARS:
        return Text(f"[{name} has {len(text):,} characters: read what you need of it]")
    return Text(f'<file path="{name}">\n{redact(find_environment_secrets(), text)}\n</file>')


def detect_media_type(data: bytes) -> str:
    """By its first bytes, not by its name; nothing for anything else."""
    for sign, media_type in _IMAGE_SIGNATURES:
        if data.startswith(sign):
            return media_type
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return "application/pdf" if data.startswith(b"%PDF-") else ""


def is_stdin_piped() -> bool:
    """Whether standard input may hold a prompt."""
    return sys.stdin is not None and not stat.S_ISCHR(os.fstat(0).st_mode)
