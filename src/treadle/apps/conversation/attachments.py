"""Attachments of a message: long pastes, images, documents.

In the prompt each is a short placeholder, `[paste 1: 312 lines]` or `[image 2: plan.png]`, which is
replaced when the message is sent. Files are read by services/attachments.py.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from treadle.apps.services.attachments import attach_mention, find_mentions
from treadle.core.transcript import Document, Image, Text, UserContent, UserItem
from treadle.lib.text.text import plural

LONG_PASTE_LINES = 8
LONG_PASTE_CHARS = 1_000
MAX_RESTORED_CHARS = 10_000  # a longer text of a restored message becomes a placeholder

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
DOCUMENT_SUFFIXES = (".pdf",)
_PLACEHOLDER = re.compile(r"\[(?:paste|image|document) (\d+)(?:: [^\]]*)?\]")


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
        mentioned = [Path(name) for name in find_mentions(text)]
        for content in [*(one for one in inserted if not isinstance(one, str)), *mentioned]:
            part = self._attach(content) if isinstance(content, Path) else content
            if part is not None:
                parts.append(part)
        return UserItem(tuple(parts))

    def restore(self, item: UserItem) -> str:
        """The prompt text of a message that was not sent after all, with its attachments."""
        texts = [part.text for part in item.content if isinstance(part, Text)]
        text, outputs = (texts[0], texts[1:]) if texts else ("", [])
        mentioned = [self._attach(Path(name)) for name in find_mentions(text)]
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
