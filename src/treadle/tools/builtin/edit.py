"""`edit`: exact replacements in one file, all of them or none.

The old text has to be there, once unless all are meant. A near miss is not guessed at but
explained, with the lines that come closest.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from treadle.core.errors import ToolError
from treadle.tools.builtin.changes import (
    Change,
    ChangingTool,
    aside,
    changed_lines,
    encoded_like,
    text_to_change,
)
from treadle.tools.builtin.desk import Seat
from treadle.tools.builtin.nearest import near_miss
from treadle.tools.builtin.text import Decoded, find_all, line_of, replaced


class Replacement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    old_string: str
    new_string: str
    replace_all: bool = False


class EditArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    file_path: Annotated[str, msgspec.Meta(description="The file to change")]
    old_string: Annotated[
        str | msgspec.UnsetType,
        msgspec.Meta(description="The exact text to replace, without line numbers"),
    ] = msgspec.UNSET
    new_string: Annotated[
        str | msgspec.UnsetType, msgspec.Meta(description="What stands there then")
    ] = msgspec.UNSET
    replace_all: Annotated[
        bool, msgspec.Meta(description="Replace every occurrence; otherwise there must be one")
    ] = False
    edits: Annotated[
        list[Replacement],
        msgspec.Meta(description="Several replacements, one after the other, instead of one"),
    ] = []

    @property
    def all(self) -> list[Replacement]:
        if isinstance(self.old_string, str) and isinstance(self.new_string, str):
            return [Replacement(self.old_string, self.new_string, self.replace_all), *self.edits]
        return self.edits


class EditTool(ChangingTool[EditArguments]):
    name = "edit"
    form = EditArguments
    synonyms: ClassVar[Mapping[str, str]] = {
        "path": "file_path",
        "file": "file_path",
        "old_str": "old_string",
        "new_str": "new_string",
        "old_text": "old_string",
        "new_text": "new_string",
    }

    def objection(self, given: EditArguments) -> str | None:
        if not given.file_path:
            return "file_path is empty"
        if isinstance(given.old_string, str) != isinstance(given.new_string, str):
            missing = "new_string" if isinstance(given.old_string, str) else "old_string"
            return f"{missing} is missing; an edit needs both texts"
        if not given.all:
            return "there is nothing to edit: give old_string and new_string, or edits"
        if any(one.old_string == one.new_string for one in given.all):
            return "old_string and new_string are the same; there is nothing to change"
        return None

    def writes(self, given: EditArguments) -> tuple[str, ...]:
        return (given.file_path,)

    async def plan(self, given: EditArguments, seat: Seat) -> list[Change]:
        path = seat.resolve(given.file_path, changing=True)
        if created := await _created(given, seat, path):
            return [created]
        content, before = await text_to_change(seat, path, given.file_path)
        text = await aside(lambda: _all_edited(before, given), before.text)
        data = encoded_like(before, text, given.file_path)
        if data == content.data:
            raise ToolError("the edits together change nothing")
        return [Change(path, seat.shown(path), content, data, before.text, text)]

    def confirmation(self, given: EditArguments, changes: Sequence[Change]) -> str:
        (change,) = changes
        if change.before is None:
            return f"Created {change.shown}."
        return f"Edited {change.shown}. It now reads:\n{changed_lines(change)}"


async def _created(given: EditArguments, seat: Seat, path: Path) -> Change | None:
    """An edit of nothing into something makes a file that is not there."""
    if len(given.all) != 1 or given.all[0].old_string:
        return None
    content = await seat.look(path, 1)
    if content is not None and content.size:
        raise ToolError(
            f"old_string is empty, and {given.file_path} is not; name the text to replace"
        )
    text = given.all[0].new_string
    return Change(path, seat.shown(path), content, text.encode(), "", text)


def _all_edited(before: Decoded, given: EditArguments) -> str:
    text, edits = before.text, given.all
    for number, edit in enumerate(edits, start=1):
        try:
            text = _edited(text, edit, given.file_path, before.line_end)
        except ToolError as error:
            if len(edits) == 1:
                raise
            raise ToolError(f"edit {number} of {len(edits)}: {error}") from error
    return text


def _edited(text: str, edit: Replacement, name: str, usual: str) -> str:
    if not edit.old_string:
        raise ToolError("old_string is empty; name the text to replace")
    places = find_all(text, edit.old_string, usual)
    if not places:
        raise ToolError(near_miss(text, edit.old_string, edit.new_string, name))
    if len(places) > 1 and not edit.replace_all:
        lines = [str(line_of(text, place.start)) for place in places[:10]]
        more = f" and {len(places) - 10} more" if len(places) > 10 else ""
        raise ToolError(
            f"old_string stands {len(places)} times in {name}, in lines {', '.join(lines)}{more}. "
            "Give more of the lines around the one you mean, or set replace_all"
        )
    return replaced(text, places, edit.new_string)
