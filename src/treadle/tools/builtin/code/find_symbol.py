"""`find_symbol`: definitions, references and symbols, by the language server of the file.

A server that just starts is waited for: the model has asked. Files that a rule denies to read are
left out of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec

from treadle.core.contracts.tool import ToolOutput
from treadle.core.errors import WorkspaceError
from treadle.tools.builtin.base import FILE_ALIASES, BuiltinTool
from treadle.tools.builtin.code.positions import find_position, open_file
from treadle.tools.builtin.session_memory import CallSite, ToolSessions
from treadle.tools.language_servers.server import CodeRange, convert_items, parse_uri
from treadle.tools.language_servers.servers import LanguageServers

MAX_SHOWN = 50
MAX_LINE_CHARS = 120
MAX_DEPTH = 8
# The kinds of the protocol that have a name for the model.
_KINDS = {2: "module", 5: "class", 6: "method", 9: "constructor", 10: "enum", 11: "interface",
          12: "function", 13: "variable", 14: "constant", 23: "struct"}  # fmt: skip


class FindSymbolArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    action: Literal["definition", "references", "symbols"]
    file_path: str = ""
    symbol: str = ""
    line: int = 0


class Location(msgspec.Struct, frozen=True, rename="camel"):
    """A place; as a link it has the names of the `target`."""

    uri: str = ""
    range: CodeRange | None = None
    target_uri: str = ""
    target_selection_range: CodeRange | None = None

    def split(self) -> tuple[Path | None, int]:
        """The file, and the line from 0."""
        place = self.range or self.target_selection_range
        return parse_uri(self.uri or self.target_uri), place.start.line if place is not None else 0


class Symbol(msgspec.Struct, frozen=True, rename="camel"):
    """A symbol of a file, or of the project if it has a `location`."""

    name: str
    kind: int = 0
    selection_range: CodeRange | None = None
    location: Location | None = None
    children: list[Any] | None = None


class FindSymbolTool(BuiltinTool[FindSymbolArguments]):
    name = "find_symbol"
    arguments_type = FindSymbolArguments
    kind = "search"
    aliases = ("lsp", "language_server", "code_navigation")
    argument_aliases: ClassVar = {**FILE_ALIASES, "name": "symbol", "query": "symbol"}
    timeout = 120.0

    def __init__(self, sessions: ToolSessions, servers: Callable[[], LanguageServers]) -> None:
        super().__init__(sessions)
        self._get_servers = servers

    def validate(self, args: FindSymbolArguments) -> str | None:
        if args.action != "symbols" and not (args.file_path and args.symbol):
            return f"`{args.action}` needs `symbol`, and a `file_path` in which it is used"
        if not (args.file_path or args.symbol):
            return "`symbols` needs a `file_path`, or a `symbol` to find in the project"
        return None

    @classmethod
    def read_paths(cls, args: FindSymbolArguments) -> tuple[str, ...]:
        return (args.file_path or ".",)

    async def run(self, args: FindSymbolArguments, site: CallSite) -> ToolOutput:
        servers = self._get_servers()
        if not args.file_path:
            symbols: list[Symbol] = []
            for one in servers.list_project_servers():
                found = await one.ask("workspace/symbol", None, "", query=args.symbol)
                symbols += convert_items(found, Symbol)
            places = [(one.location, _describe(one)) for one in symbols if one.location]
            return await _show([(*place.split(), what) for place, what in places], site)
        server, path, text = await open_file(servers, site, args.file_path)
        if args.action == "symbols":
            symbols = convert_items(
                await server.ask("textDocument/documentSymbol", path, text), Symbol
            )
            lines = list(_outline(symbols, args.symbol))
            return ToolOutput(_join(lines) if lines else "The file has no such symbols.")
        place = find_position(text, args.symbol, args.line, args.file_path)
        position = msgspec.to_builtins(place)
        more = {"context": {"includeDeclaration": True}} if args.action == "references" else {}
        method = f"textDocument/{args.action}"
        found = await server.ask(method, path, text, position=position, **more)
        return await _show([(*one.split(), "") for one in convert_items(found, Location)], site)


async def _show(places: list[tuple[Path | None, int, str]], site: CallSite) -> ToolOutput:
    """The places, each with its line of the file."""
    paths = list(dict.fromkeys(str(path) for path, _, _ in places if path is not None))
    get_find_denied = site.sessions.get_find_denied
    find_denied = await get_find_denied() if get_find_denied is not None else None
    denied = set(find_denied(paths)) if find_denied is not None and paths else set()
    texts: dict[Path, list[str]] = {}
    lines: list[str] = []
    for path, number, what in places[:MAX_SHOWN]:
        if path is None or str(path) in denied:
            continue
        if path not in texts:
            texts[path] = await _read_lines(path, site)
        known = texts[path]
        source = what or (known[number].strip() if 0 <= number < len(known) else "")
        lines.append(f"{site.display_path(path)}:{number + 1}: {source[:MAX_LINE_CHARS]}")
    rest = len(places) - MAX_SHOWN
    lines += [f"... {rest} more"] if rest > 0 else []
    return ToolOutput("\n".join(lines) if lines else "The language server found nothing.")


async def _read_lines(path: Path, site: CallSite) -> list[str]:
    """The lines of a file of the workspace; of another one, such as a library's, none."""
    try:
        content = await site.read_if_exists(site.resolve(str(path)), 2 << 20)
    except WorkspaceError:
        return []
    return content.data.decode(errors="replace").splitlines() if content is not None else []


def _describe(symbol: Symbol) -> str:
    return f"{_KINDS.get(symbol.kind, 'symbol')} {symbol.name}"


def _outline(symbols: list[Symbol], name: str, depth: int = 0) -> Iterator[str]:
    for one in symbols:
        place = one.selection_range or (one.location.range if one.location is not None else None)
        if place is not None and name in one.name:
            yield f"{place.start.line + 1}: {'  ' * depth}{_describe(one)}"
        if one.children and depth < MAX_DEPTH and one.kind in (2, 5, 10, 11, 23):
            yield from _outline(convert_items(one.children, Symbol), name, depth + 1)


def _join(lines: list[str]) -> str:
    rest = len(lines) - 4 * MAX_SHOWN
    return "\n".join([*lines[: 4 * MAX_SHOWN], *([f"... {rest} more"] if rest > 0 else [])])
