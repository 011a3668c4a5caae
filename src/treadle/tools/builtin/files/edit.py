"""`edit`: exact replacements in one file, all of them or none.

The old text has to be in the file, once unless `replace_all` is set. One that differs only in its
white space, or in the line numbers that `read` shows, is found if it is there once, and that is
said; another near match is not edited but explained, with the nearest lines.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from treadle.core.contracts.tool import RepairedArguments
from treadle.core.errors import ToolError
from treadle.core.transcript.content import Arguments
from treadle.tools.builtin.base import FILE_ALIASES, describe
from treadle.tools.builtin.file_text import (
    DecodedText,
    find_occurrences,
    line_number_at,
    replace_occurrences,
)
from treadle.tools.builtin.files.file_changes import (
    FileChangeTool,
    PlannedChange,
    encode_like,
    encode_utf8,
    format_changed_lines,
    read_editable_text,
    run_in_thread_if_long,
)
from treadle.tools.builtin.files.read import read_range
from treadle.tools.builtin.session_memory import CallSite

WHITESPACE_NOTE = "old_string differed in white space; the file's indentation is kept"
NUMBERS_NOTE = "old_string began with line numbers, which are left out"


class Replacement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    old_string: str
    new_string: str
    replace_all: bool = False


class EditArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    file_path: str
    old_string: Annotated[str | UnsetType, describe("Text to replace")] = UNSET
    new_string: Annotated[str | UnsetType, describe("New text")] = UNSET
    replace_all: Annotated[bool, describe("Every occurrence")] = False
    edits: Annotated[list[Replacement], describe("Instead of one")] = []

    @property
    def replacements(self) -> list[Replacement]:
        if isinstance(self.old_string, str) and isinstance(self.new_string, str):
            return [Replacement(self.old_string, self.new_string, self.replace_all), *self.edits]
        return self.edits


class EditTool(FileChangeTool[EditArguments]):
    name = "edit"
    arguments_type = EditArguments
    aliases = (
        "multi_edit", "edit_file", "str_replace", "search_replace", "replace", "file_edit",
        "str_replace_based_edit_tool", "str_replace_editor",
    )  # fmt: skip
    argument_aliases: ClassVar = {
        **FILE_ALIASES, "old_str": "old_string", "new_str": "new_string",
        "old_text": "old_string", "new_text": "new_string", "old": "old_string",
        "new": "new_string", "search": "old_string", "find": "old_string",
        "replacement": "new_string", "replacements": "edits", "changes": "edits",
    }  # fmt: skip

    def repair(self, arguments: Arguments) -> RepairedArguments:
        """Also for the editor of Claude's models, one tool with a `command`."""
        rest = {name: value for name, value in arguments.items() if name != "command"}
        path = rest.get("path", rest.get("file_path"))
        match arguments.get("command"):
            case "str_replace":
                meant = super().repair(rest)
                notes = ("`command` is left out", *meant.notes)
                return msgspec.structs.replace(meant, notes=notes)
            case "create":
                given = {"file_path": path, "content": rest.get("file_text", "")}
                return RepairedArguments(arguments, tool="write", tool_arguments=given)
            case "view":
                given = {"file_path": path, **read_range(rest.get("view_range"))}
                return RepairedArguments(arguments, tool="read", tool_arguments=given)
        return super().repair(arguments)

    def validate(self, args: EditArguments) -> str | None:
        if not args.file_path:
            return "file_path is empty"
        if isinstance(args.old_string, str) != isinstance(args.new_string, str):
            missing = "new_string" if isinstance(args.old_string, str) else "old_string"
            return f"{missing} is missing; an edit needs both texts"
        if not args.replacements:
            return "there is nothing to edit: give old_string and new_string, or edits"
        if any(one.old_string == one.new_string for one in args.replacements):
            return "old_string and new_string are the same; there is nothing to change"
        return None

    @classmethod
    def write_paths(cls, args: EditArguments) -> tuple[str, ...]:
        return (args.file_path,)

    @classmethod
    def changed_paths(cls, args: EditArguments) -> tuple[str, ...]:
        return (args.file_path,)

    async def plan(self, args: EditArguments, site: CallSite) -> list[PlannedChange]:
        path = site.resolve(args.file_path, for_write=True)
        if created := await _plan_new_file(args, site, path):
            return [created]
        content, before = await read_editable_text(site, path, args.file_path)
        edited = await run_in_thread_if_long(lambda: _apply_edits(before, args), before.text)
        text = edited.text
        data = encode_like(before, text, args.file_path)
        if data == content.data:
            raise ToolError("the edits together change nothing")
        name = site.display_path(path)
        return [PlannedChange(path, name, content, data, before.text, text, note=edited.note)]

    def format_confirmation(self, args: EditArguments, changes: Sequence[PlannedChange]) -> str:
        (change,) = changes
        if change.before is None:
            return f"Created {change.display_path}."
        lines = format_changed_lines(change)
        return f"Edited {change.display_path}. It now reads:\n{lines}"


async def _plan_new_file(args: EditArguments, site: CallSite, path: Path) -> PlannedChange | None:
    """An edit with an empty old text creates a missing file."""
    if len(args.replacements) != 1 or args.replacements[0].old_string:
        return None
    content = await site.read_if_exists(path, 1)
    if content is not None and content.size:
        name = args.file_path
        raise ToolError(f"old_string is empty, and {name} is not; name the text to replace")
    text = args.replacements[0].new_string
    return PlannedChange(path, site.display_path(path), content, encode_utf8(text), "", text)


class EditedText(msgspec.Struct, frozen=True):
    """The text after the edits. `note`: how one of them was found that is not there exactly."""

    text: str
    note: str = ""


def _apply_edits(before: DecodedText, args: EditArguments) -> EditedText:
    edited, edits = EditedText(before.text), args.replacements
    for number, edit in enumerate(edits, start=1):
        try:
            edited = _apply_edit(edited, edit, args.file_path, before.line_ending)
        except ToolError as error:
            if len(edits) == 1:
                raise
            raise ToolError(f"edit {number} of {len(edits)}: {error}") from error
    return edited


def _apply_edit(
    edited: EditedText, edit: Replacement, name: str, default_line_ending: str
) -> EditedText:
    text = edited.text
    if not edit.old_string:
        raise ToolError("old_string is empty; name the text to replace")
    found = find_occurrences(text, edit.old_string, default_line_ending)
    if not found:
        from treadle.tools.builtin.files.near_match import explain_no_match
        from treadle.tools.builtin.files.whitespace_match import find_whitespace_match

        plain = _leave_out_numbers(text, edit, default_line_ending)
        if plain is not None:
            return EditedText(plain, NUMBERS_NOTE)
        loose = find_whitespace_match(text, edit.old_string, edit.new_string)
        if loose is not None and text[loose.start : loose.end] != loose.new:
            changed = f"{text[: loose.start]}{loose.new}{text[loose.end :]}"
            return EditedText(changed, WHITESPACE_NOTE)
        raise ToolError(explain_no_match(text, edit.old_string, edit.new_string, name))
    if len(found) > 1 and not edit.replace_all:
        lines = [str(line_number_at(text, occurrence.start)) for occurrence in found[:10]]
        more = f" and {len(found) - 10} more" if len(found) > 10 else ""
        raise ToolError(
            f"old_string is in {name} {len(found)} times, in lines {', '.join(lines)}{more}. "
            "Give more of the lines around the one you mean, or set replace_all"
        )
    return EditedText(replace_occurrences(text, found, edit.new_string), edited.note)


def _leave_out_numbers(text: str, edit: Replacement, default_line_ending: str) -> str | None:
    """The text after an edit whose old text is there once without its line numbers."""
    from treadle.tools.builtin.files.near_match import strip_line_numbers

    old = strip_line_numbers(edit.old_string)
    found = find_occurrences(text, old, default_line_ending) if old else []
    if len(found) != 1:
        return None
    return replace_occurrences(text, found, strip_line_numbers(edit.new_string) or edit.new_string)
