"""Attachments of a message: files (`@PATH` in the text, `--file PATH`, dropped ones), long pastes,
images, documents.

In the prompt of a screen each is a short placeholder, `[paste 1: 312 lines]` or
`[image 2: plan.png]`, which is replaced when the message is sent. The media type is detected from
the content. `@PATH` does not follow symlinks that leave the project or an added folder: the author
of the project chose the target, not the user. A path that leaves the folder by itself, absolute or
with `..`, is the user's choice. Used by the hosts.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from treadle.apps.assembly.redaction import find_environment_secrets, redact
from treadle.core.errors import ConfigError, MissingExtra
from treadle.core.transcript import Document, Image, Text, UserContent, UserItem
from treadle.core.untrusted_files import read_prefix
from treadle.lib.files.media_types import detect_media_type
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.lib.text.text import plural

MAX_FILE_BYTES = 32 << 20
MAX_TEXT_CHARS = 200_000  # of a text file; a longer one is only named

_SIGNATURE_BYTES = 16
_MENTION = compile_lazily(r"(?<![\w@])@(\"[^\"]+\"|[^\s\"@]+)")
_PICTURE = compile_lazily(  # bare, with `\ ` for blanks, or in quotes
    r"(?<![\w@\"'/.~-])(?P<quote>[\"'])?"
    r"((?(quote)[^\n\"'@]|(?:\\ |[^\s\"'@]))+\.(?:png|jpe?g|gif|webp))\b(?(quote)(?P=quote))",
    re.IGNORECASE,
)
LONG_PASTE_LINES = 8
LONG_PASTE_CHARS = 1_000
MAX_RESTORED_CHARS = 10_000  # a longer text of a restored message becomes a placeholder

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
DOCUMENT_SUFFIXES = (".pdf",)
_PLACEHOLDER = compile_lazily(r"\[(?:paste|image|document) (\d+)(?:: [^\]]*)?\]")


class Attachments:
    """The contents behind the placeholders of one prompt. Symlinks may also point into the folders
    of `list_added_folders`."""

    def __init__(
        self, folder: Path, list_added_folders: Callable[[], Sequence[Path]] = tuple
    ) -> None:
        self._folder = folder
        self._list_added_folders = list_added_folders
        self._contents: dict[int, str | Path | Image | Document] = {}

    def add_paste(self, text: str) -> str:
        """The text to insert into the prompt for a paste."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        files = self._parse_dropped_paths(text)
        if files:
            return " ".join(self._add_file(file) for file in files) + " "
        return self.shorten(text)

    def shorten(
        self, text: str, max_lines: int = LONG_PASTE_LINES, max_chars: int = LONG_PASTE_CHARS
    ) -> str:
        """The text, or a placeholder if it is longer."""
        if text.count("\n") < max_lines and len(text) <= max_chars:
            return text
        known = (number for number, content in self._contents.items() if content == text)
        number = next(known, None) or self._store(text)
        lines = len(text.splitlines())
        size = plural(lines, "line") if lines > 1 else plural(len(text), "character")
        return f"[paste {number}: {size}]"

    def add_image(self, image: Image) -> str:
        """The text to insert into the prompt for an image from the clipboard."""
        return f"[image {self._store(image)}: {len(image.data):,} bytes] "

    def expand_pastes(self, text: str) -> str:
        """The text with the pasted texts in place of their placeholders."""

        def expand(placeholder: re.Match[str]) -> str:
            content = self._contents.get(int(placeholder[1]))
            return content if isinstance(content, str) else placeholder[0]

        return _PLACEHOLDER.sub(expand, text)

    def find_contents(self, text: str) -> dict[int, str | Path | Image | Document]:
        """The contents of the placeholders in a text, by their numbers."""
        numbers = (int(match[1]) for match in _PLACEHOLDER.finditer(text))
        return {number: self._contents[number] for number in numbers if number in self._contents}

    def put_back(self, text: str, contents: Mapping[int, str | Path]) -> tuple[str, list[str]]:
        """Add contents that belong to the placeholders of a text; the text with their new numbers,
        and the placeholders that have no content and were removed."""
        lost: list[str] = []

        def renumber(placeholder: re.Match[str]) -> str:
            content = contents.get(int(placeholder[1]))
            if content is None:
                lost.append(placeholder[0])
                return ""
            return placeholder[0].replace(placeholder[1], str(self._store(content)), 1)

        return _PLACEHOLDER.sub(renumber, text), lost

    def build_item(self, text: str) -> UserItem:
        """The message: the text, its images and documents. Mentioned text files are not attached:
        the model reads them itself."""
        parts: list[UserContent] = [Text(self.expand_pastes(text))]
        inserted = [self._contents.get(int(match[1])) for match in _PLACEHOLDER.finditer(text)]
        mentioned = self._find_files(text)
        for content in [*(one for one in inserted if not isinstance(one, str)), *mentioned]:
            part = self._attach(content) if isinstance(content, Path) else content
            if part is not None:
                parts.append(part)
        return UserItem(tuple(parts))

    def restore(self, item: UserItem) -> str:
        """The prompt text of a message that was not sent after all, with its attachments."""
        texts = [part.text for part in item.content if isinstance(part, Text)]
        text, outputs = (texts[0], texts[1:]) if texts else ("", [])
        mentioned = [self._attach(path) for path in self._find_files(text)]
        media = [part for part in item.content if isinstance(part, Image | Document)]
        media = [part for part in media if part not in mentioned]

        def renumber(placeholder: re.Match[str]) -> str:
            if not media or placeholder[0].startswith("[paste"):
                return placeholder[0]
            number = str(self._store(media.pop(0)))
            return placeholder[0].replace(placeholder[1], number, 1)

        text = _PLACEHOLDER.sub(renumber, text)
        text = text if len(text) <= MAX_RESTORED_CHARS else self.add_paste(text)
        placeholders = [f"[image {self._store(part)}]" for part in media]
        return "\n".join([text, *placeholders, *map(self.add_paste, outputs)])

    def _find_files(self, text: str) -> list[Path]:
        """Those that a text mentions with @, and pictures whose path it has."""
        words = _PLACEHOLDER.sub("", text)
        names = [match[2].replace("\\ ", " ") for match in _PICTURE.finditer(words)]
        typed = [Path(name).expanduser() for name in names]
        pictures = [path for path in typed if _is_file(self._folder / path)]
        return list(dict.fromkeys([*map(Path, find_mentions(text)), *pictures]))

    def _attach(self, path: Path) -> UserContent | None:
        added = self._list_added_folders
        attachment = attach_mention(str(path), self._folder, added, include_text=False)
        return attachment.content if attachment is not None else None

    def clear(self) -> None:
        self._contents.clear()

    def _store(self, content: str | Path | Image | Document) -> int:
        number = len(self._contents) + 1
        self._contents[number] = content
        return number

    def _add_file(self, file: Path) -> str:
        kind = "image" if file.suffix.lower() in IMAGE_SUFFIXES else "document"
        return f"[{kind} {self._store(file)}: {file.name}]"

    def _parse_dropped_paths(self, text: str) -> list[Path]:
        """The images and documents, if the paste consists only of their paths: terminals paste
        files that are dropped on them this way."""
        if len(text) > 4_000 or not text.strip():
            return []
        try:
            words = shlex.split(text.strip())
        except ValueError:
            return []
        whole = Path(text.strip().strip("'\""))
        paths = [whole] if whole.suffix.lower() in IMAGE_SUFFIXES and _is_file(whole) else []
        paths = paths or [Path(unquote(word.removeprefix("file://"))) for word in words]
        known = IMAGE_SUFFIXES + DOCUMENT_SUFFIXES
        is_known = all(path.suffix.lower() in known for path in paths)
        return paths if is_known and all(_is_file(self._folder / path) for path in paths) else []


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


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
