"""Where a symbol is in a file, for a language server, and where a server's places are.

Servers count columns in UTF-16 code units, from 0. Used by `find_symbol` and `rename_symbol`.
"""

from __future__ import annotations

import re
from pathlib import Path

from treadle.core.errors import ToolError
from treadle.tools.builtin.file_text import decode_text
from treadle.tools.builtin.session_memory import CallSite
from treadle.tools.language_servers.server import CodePosition, LanguageServer
from treadle.tools.language_servers.servers import LanguageServers

MAX_BYTES = 2 << 20


def find_position(text: str, symbol: str, line: int, given_path: str) -> CodePosition:
    """The first place of a symbol, in the line if one is given (from 1)."""
    if not symbol:
        raise ToolError("`symbol` is missing: the name as it is written in the file")
    word = re.compile(rf"(?<!\w){re.escape(symbol)}(?!\w)")
    lines = text.splitlines()
    numbers = range(len(lines)) if not line else range(line - 1, min(line, len(lines)))
    for number in numbers:
        if match := word.search(lines[number]):
            return CodePosition(number, count_units(lines[number][: match.start()]))
    where = f"line {line} of {given_path}" if line else given_path
    raise ToolError(f"`{symbol}` is not in {where}; give the line in which it is written")


def count_units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def find_index(line: str, units: int) -> int:
    """The index in a text of a column in code units."""
    data = line.encode("utf-16-le", "surrogatepass")[: 2 * units]
    return len(data.decode("utf-16-le", "replace"))


async def open_file(
    servers: LanguageServers, site: CallSite, given: str
) -> tuple[LanguageServer, Path, str]:
    """The server for a file, its path and its text; ToolError if there is none."""
    path = site.resolve(given)
    server = servers.find_server(path)
    if server is None:
        raise ToolError(f"no language server is installed for {given}; use grep")
    content = await site.read_if_exists(path, MAX_BYTES)
    if content is None:
        raise await site.make_not_found_error(given, path)
    text = decode_text(content.data)
    if text is None or content.is_truncated:
        raise ToolError(f"{given} is no text, or too long for a language server")
    return server, path, text.text
