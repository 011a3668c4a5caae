"""`rename_symbol`: an edit of several files, computed by the language server of the first one.

The files that may change are arguments, so that the policy, the preview and the order of calls know
them before it runs: a rename that needs another file changes nothing and names it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec

from treadle.core.errors import ToolError
from treadle.tools.builtin.base import FILE_ALIASES, describe
from treadle.tools.builtin.code.positions import find_index, find_position, open_file
from treadle.tools.builtin.files.file_changes import (
    FileChangeTool,
    PlannedChange,
    encode_like,
    read_editable_text,
)
from treadle.tools.builtin.session_memory import CallSite, ToolSessions
from treadle.tools.language_servers.server import CodeRange, convert_items, parse_uri
from treadle.tools.language_servers.servers import LanguageServers

STALE = (
    "the language server sees another text in {path} than is there; nothing was changed. Use edit, "
    "or grep for the name"
)


class RenameArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    file_path: Annotated[str, describe("A file in which it is used")]
    symbol: str
    new_name: str
    line: int = 0
    files: list[str] = []


class TextEdit(msgspec.Struct, frozen=True, rename="camel"):
    range: CodeRange
    new_text: str


class FileEdits(msgspec.Struct, frozen=True, rename="camel"):
    """The edits of one file; a file that is to be created, moved or removed has none."""

    text_document: dict[str, Any]
    edits: list[TextEdit]


class RenameSymbolTool(FileChangeTool[RenameArguments]):
    name = "rename_symbol"
    arguments_type = RenameArguments
    aliases = ("rename",)
    argument_aliases: ClassVar = {**FILE_ALIASES, "paths": "files", "old_name": "symbol"}
    timeout = 120.0

    def __init__(self, sessions: ToolSessions, servers: Callable[[], LanguageServers]) -> None:
        super().__init__(sessions)
        self._get_servers = servers

    @classmethod
    def write_paths(cls, args: RenameArguments) -> tuple[str, ...]:
        return tuple(dict.fromkeys((args.file_path, *args.files)))

    changed_paths = write_paths

    async def plan(self, args: RenameArguments, site: CallSite) -> list[PlannedChange]:
        server, path, text = await open_file(self._get_servers(), site, args.file_path)
        place = find_position(text, args.symbol, args.line, args.file_path)
        position = msgspec.to_builtins(place)
        reply = await server.ask(
            "textDocument/rename", path, text, position=position, newName=args.new_name
        )
        edits = _parse_edits(reply)
        if not edits:
            raise ToolError(f"the language server cannot rename `{args.symbol}` there")
        allowed = {site.resolve(given, for_write=True): given for given in self.write_paths(args)}
        if missing := [site.display_path(one) for one in edits if one not in allowed]:
            needed = [one for one in map(site.display_path, edits) if one != args.file_path]
            raise ToolError(
                f"nothing was changed: the rename also changes {', '.join(missing)}. "
                f"Call it again with files: {msgspec.json.encode(needed).decode()}"
            )
        return [await _plan_file(site, one, edits[one], allowed[one], args) for one in edits]

    def format_confirmation(self, args: RenameArguments, changes: Sequence[PlannedChange]) -> str:
        names = ", ".join(change.display_path for change in changes)
        return f"Renamed {args.symbol} to {args.new_name} in {names}"


def _parse_edits(reply: Any) -> dict[Path, list[TextEdit]]:
    """The edits of a WorkspaceEdit, by file."""
    found: dict[Path, list[TextEdit]] = {}
    given = reply if isinstance(reply, dict) else {}
    pairs = [*(given.get("changes") or {}).items()]
    for change in convert_items(given.get("documentChanges"), dict[str, Any]):
        if "kind" in change:
            raise ToolError("the rename would create, move or remove files; nothing was changed")
        (one,) = convert_items(change, FileEdits)
        pairs.append((one.text_document.get("uri"), msgspec.to_builtins(one.edits)))
    for uri, edits in pairs:
        path = parse_uri(str(uri))
        if path is not None and edits:
            found.setdefault(path, []).extend(convert_items(edits, TextEdit))
    return found


async def _plan_file(
    site: CallSite, path: Path, edits: Sequence[TextEdit], given: str, args: RenameArguments
) -> PlannedChange:
    content, before = await read_editable_text(site, path, given)
    lines, stale = before.text.splitlines(keepends=True), ToolError(STALE.format(path=given))
    for one in sorted(edits, key=lambda one: one.range.start.character, reverse=True):
        start, end = one.range.start, one.range.end
        if start.line != end.line or not 0 <= start.line < len(lines):
            raise stale
        line = lines[start.line]
        first, last = find_index(line, start.character), find_index(line, end.character)
        if line[first:last] != args.symbol:
            raise stale
        lines[start.line] = line[:first] + one.new_text + line[last:]
    text = "".join(lines)
    data, shown = encode_like(before, text, given), site.display_path(path)
    return PlannedChange(path, shown, content, data, before.text, text)
