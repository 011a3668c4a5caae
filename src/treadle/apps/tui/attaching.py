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

from treadle.apps.wiring.leading import leads_out, refusal
from treadle.core.errors import ConfigError
from treadle.core.textfile import read_beginning
from treadle.core.transcript.content import Document, Image, Text, UserContent
from treadle.core.transcript.items import UserItem

LONG_LINES = 8
LONG_CHARS = 1_000
MOST_BYTES = 20 << 20
MOST_PASTED = 10_000_000

IMAGES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
DOCUMENTS = {".pdf": "application/pdf"}
_MARK = re.compile(r"\[(?:paste|image|document) (\d+)(?:: [^\]]*)?\]")
_MENTION = re.compile(r"(?<!\S)@(?:\"([^\"]+)\"|(\S+))")


class Attachments:
    """What the marks of one prompt stand for. `added` are folders that links may lead to, too."""

    def __init__(self, folder: Path, added: Callable[[], Sequence[Path]] = tuple) -> None:
        self._folder = folder
        self._added = added
        self._kept: dict[int, str | Path | Image] = {}

    def pasted(self, text: str) -> str:
        """What to put into the prompt for a paste."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        files = self._files(text)
        if files:
            return " ".join(self._mark(file) for file in files) + " "
        if text.count("\n") < LONG_LINES and len(text) <= LONG_CHARS:
            return text
        number = self._keep(text[:MOST_PASTED])
        lines = text.count("\n") + 1
        size = f"{lines} lines" if lines > 1 else f"{len(text):,} characters"
        return f"[paste {number}: {size}]"

    def pictured(self, image: Image) -> str:
        """What to put into the prompt for a picture from the clipboard."""
        return f"[image {self._keep(image)}: {len(image.data):,} bytes] "

    def expanded(self, text: str) -> str:
        """The text with the pastes in their places."""

        def put(mark: re.Match[str]) -> str:
            kept = self._kept.get(int(mark[1]))
            return kept if isinstance(kept, str) else mark[0]

        return _MARK.sub(put, text)

    def item(self, text: str) -> UserItem:
        """The message: words, and what is attached. A file that cannot be read stays a word; one
        that is a link to elsewhere is not followed, which is said."""
        parts: list[UserContent] = [Text(self.expanded(text))]
        marked = [self._kept.get(int(mark[1])) for mark in _MARK.finditer(text)]
        named = [Path(m[1] or m[2]) for m in _MENTION.finditer(text)]
        for one in [*(one for one in marked if not isinstance(one, str)), *named]:
            part = self._part(one) if isinstance(one, Path) else one
            if part is not None:
                parts.append(part)
        return UserItem(tuple(parts))

    def _part(self, path: Path) -> UserContent | None:
        part = _read(self._folder / path)
        if part is not None:
            real = leads_out(str(path), self._folder, self._added)
            if real is not None:
                return Text(f"[{refusal(str(path), real)}]")
        return part

    def clear(self) -> None:
        self._kept.clear()

    def _keep(self, what: str | Path | Image) -> int:
        number = len(self._kept) + 1
        self._kept[number] = what
        return number

    def _mark(self, file: Path) -> str:
        kind = "image" if file.suffix.lower() in IMAGES else "document"
        return f"[{kind} {self._keep(file)}: {file.name}]"

    def _files(self, text: str) -> list[Path]:
        """The pictures and documents, if the paste is nothing but paths of such, as a terminal
        pastes files that are dropped on it."""
        if len(text) > 4_000 or not text.strip():
            return []
        try:
            words = shlex.split(text.strip())
        except ValueError:
            return []
        whole = Path(text.strip().strip("'\""))
        paths = [whole] if whole.suffix.lower() in IMAGES and _is_file(whole) else []
        paths = paths or [Path(unquote(word.removeprefix("file://"))) for word in words]
        known = {**IMAGES, **DOCUMENTS}
        found = [path for path in paths if path.suffix.lower() in known]
        are_files = all(_is_file(self._folder / path) for path in found)
        return found if len(found) == len(paths) and are_files else []


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _read(path: Path) -> UserContent | None:
    kind = path.suffix.lower()
    if kind not in IMAGES and kind not in DOCUMENTS:
        return None
    try:
        data = read_beginning(path, MOST_BYTES + 1, within=None)
    except (ConfigError, FileNotFoundError):
        return None
    if len(data) > MOST_BYTES:
        return None
    if kind in IMAGES:
        return Image(IMAGES[kind], data)
    return Document(DOCUMENTS[kind], data, title=path.name)
