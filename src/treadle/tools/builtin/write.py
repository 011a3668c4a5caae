"""`write`: a whole file, new or instead of one that was read.

A file that is there and was not read is not overwritten: nobody knows what would be lost. The
clothes of the old one (mode, encoding, line ends) stay.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from treadle.core.contracts.workspace import FileContent
from treadle.core.errors import ToolError
from treadle.tools.builtin.changes import (
    MOST_EDITED,
    Change,
    ChangingTool,
    encoded_like,
    refuse_if_changed,
)
from treadle.tools.builtin.desk import Seat
from treadle.tools.builtin.text import Decoded, decoded, lines_of


class WriteArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    file_path: Annotated[str, msgspec.Meta(description="The file to write")]
    content: Annotated[str, msgspec.Meta(description="The whole new content of the file")]


class WriteTool(ChangingTool[WriteArguments]):
    name = "write"
    form = WriteArguments
    synonyms: ClassVar[Mapping[str, str]] = {
        "path": "file_path",
        "file": "file_path",
        "contents": "content",
        "text": "content",
    }

    def objection(self, given: WriteArguments) -> str | None:
        return None if given.file_path else "file_path is empty"

    def writes(self, given: WriteArguments) -> tuple[str, ...]:
        return (given.file_path,)

    async def plan(self, given: WriteArguments, seat: Seat) -> list[Change]:
        path = seat.resolve(given.file_path, changing=True)
        before = await seat.look(path, MOST_EDITED)
        if before is None:
            data = _utf8(given.content)
            return [Change(path, seat.shown(path), None, data, "", given.content)]
        _refuse_unread(seat, path, before, given.file_path)
        old = decoded(before.data) if not before.is_truncated else None
        clothes = old or Decoded("")
        content = given.content
        if old is not None and old.line_end == "\r\n":
            content = content.replace("\r\n", "\n").replace("\n", "\r\n")
        data = encoded_like(clothes, content, given.file_path)
        return [Change(path, seat.shown(path), before, data, clothes.text, content)]

    def confirmation(self, given: WriteArguments, changes: Sequence[Change]) -> str:
        (change,) = changes
        count = len(lines_of(change.new_text))
        lines = "1 line" if count == 1 else f"{count} lines"
        if change.before is None:
            return f"Created {change.shown} with {lines}."
        kept = " Its line ends stay CRLF." if "\r\n" in change.new_text else ""
        return f"Wrote {change.shown}, now {lines}.{kept}"


def _refuse_unread(seat: Seat, path: Path, content: FileContent, given: str) -> None:
    seen = seat.notes.seen.get(path)
    if seen is None:
        raise ToolError(
            f"{given} exists and was not read in this session, so it was not overwritten. "
            "Read it first, or change only a part of it with edit"
        )
    refuse_if_changed(seat, path, content, given)
    if not seen.is_whole:
        raise ToolError(
            f"only a part of {given} was read, so it was not overwritten: what was not seen would "
            "be lost. Read the rest of it, or change a part with edit"
        )


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"the content has half a character in it: {error}") from error
