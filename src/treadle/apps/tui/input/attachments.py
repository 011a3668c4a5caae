"""What a message carries beside its words: long pastes, pictures, documents.

A long paste and a file are shown in the prompt as a short mark, `[paste 1: 312 lines]` or
`[image 2: plan.png]`, and put in its place when the message is sent. Pure but for reading files.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import unquote

from treadle.apps.services.attachments import find_outside_target, format_symlink_refusal
from treadle.core.errors import ConfigError
from treadle.core.transcript.content import Document, Image, Text, UserContent
from treadle.core.transcript.items import UserItem
from treadle.core.untrusted_files import read_prefix

LONG_PASTE_LINES = 8
LONG_PASTE_CHARS = 1_000
MAX_BYTES = 20 << 20
MAX_PASTE_CHARS = 10_000_000

IMAGE_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
DOCUMENT_TYPES = {".pdf": "application/pdf"}
_PLACEHOLDER = re.compile(r"\[(?:paste|image|document) (\d+)(?:: [^\]]*)?\]")
_MENTION = re.compile(r"(?<!\S)@(?:\"([^\"]+)\"|(\S+))")


class Attachments:
    """What the marks of one prompt stand for. `added` are folders that links may lead to, too."""

    def __init__(
        self, folder: Path, list_added_folders: Callable[[], Sequence[Path]] = tuple
    ) -> None:
        self._folder = folder
        self._list_added_folders = list_added_folders
        self._contents: dict[int, str | Path | Image] = {}

    def add_paste(self, text: str) -> str:
        """What to put into the prompt for a paste."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        files = self._parse_dropped_paths(text)
        if files:
            return " ".join(self._add_file(file) for file in files) + " "
        if text.count("\n") < LONG_PASTE_LINES and len(text) <= LONG_PASTE_CHARS:
            return text
        number = self._store(text[:MAX_PASTE_CHARS])
        lines = text.count("\n") + 1
        size = f"{lines} lines" if lines > 1 else f"{len(text):,} characters"
        return f"[paste {number}: {size}]"

    def add_image(self, image: Image) -> str:
        """What to put into the prompt for a picture from the clipboard."""
        return f"[image {self._store(image)}: {len(image.data):,} bytes] "

    def expand_pastes(self, text: str) -> str:
        """The text with the pastes in their places."""

        def put(mark: re.Match[str]) -> str:
            kept = self._contents.get(int(mark[1]))
            return kept if isinstance(kept, str) else mark[0]

        return _PLACEHOLDER.sub(put, text)

    def build_item(self, text: str) -> UserItem:
        """The message: words, and what is attached. A file that cannot be read stays a word; one
        that is a link to elsewhere is not followed, which is said."""
        parts: list[UserContent] = [Text(self.expand_pastes(text))]
        marked = [self._contents.get(int(mark[1])) for mark in _PLACEHOLDER.finditer(text)]
        named = [Path(m[1] or m[2]) for m in _MENTION.finditer(text)]
        for one in [*(one for one in marked if not isinstance(one, str)), *named]:
            part = self._read_mention(one) if isinstance(one, Path) else one
            if part is not None:
                parts.append(part)
        return UserItem(tuple(parts))

    def _read_mention(self, path: Path) -> UserContent | None:
        part = _read_attachment(self._folder / path)
        if part is not None:
            real = find_outside_target(str(path), self._folder, self._list_added_folders)
            if real is not None:
                return Text(f"[{format_symlink_refusal(str(path), real)}]")
        return part

    def clear(self) -> None:
        self._contents.clear()

    def _store(self, content: str | Path | Image) -> int:
        number = len(self._contents) + 1
        self._contents[number] = content
        return number

    def _add_file(self, file: Path) -> str:
        kind = "image" if file.suffix.lower() in IMAGE_TYPES else "document"
        return f"[{kind} {self._store(file)}: {file.name}]"

    def _parse_dropped_paths(self, text: str) -> list[Path]:
        """The pictures and documents, if the paste is nothing but paths of such, as a terminal
        pastes files that are dropped on it."""
        if len(text) > 4_000 or not text.strip():
            return []
        try:
            words = shlex.split(text.strip())
        except ValueError:
            return []
        whole = Path(text.strip().strip("'\""))
        paths = [whole] if whole.suffix.lower() in IMAGE_TYPES and _is_file(whole) else []
        paths = paths or [Path(unquote(word.removeprefix("file://"))) for word in words]
        known = {**IMAGE_TYPES, **DOCUMENT_TYPES}
        found = [path for path in paths if path.suffix.lower() in known]
        are_files = all(_is_file(self._folder / path) for path in found)
        return found if len(found) == len(paths) and are_files else []


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _read_attachment(path: Path) -> UserContent | None:
    kind = path.suffix.lower()
    if kind not in IMAGE_TYPES and kind not in DOCUMENT_TYPES:
        return None
    try:
        data = read_prefix(path, MAX_BYTES + 1, within=None)
    except (ConfigError, FileNotFoundError):
        return None
    if len(data) > MAX_BYTES:
        return None
    if kind in IMAGE_TYPES:
        return Image(IMAGE_TYPES[kind], data)
    return Document(DOCUMENT_TYPES[kind], data, title=path.name)
