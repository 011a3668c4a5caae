"""`grep`: search in the contents of files with ripgrep; sorted by path.

Supports the options of ripgrep that models use, under the names that models use.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from heapq import nsmallest
from operator import itemgetter
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import msgspec

from treadle.core.arguments.fit_names import Report
from treadle.core.contracts.tool import ToolOutput
from treadle.core.contracts.workspace import ProgramResult
from treadle.core.errors import ToolError
from treadle.core.transcript.content import Arguments
from treadle.lib.text.text import plural
from treadle.tools.builtin.base import BuiltinTool, describe
from treadle.tools.builtin.search.ripgrep import (
    explain_sentence,
    find_left_out,
    incomplete_warning,
    make_formatter,
    run_ripgrep,
    run_with_glob,
)
from treadle.tools.builtin.session_memory import CallSite

DEFAULT_HEAD_LIMIT = 250
MAX_COLUMNS = 500
BYTES_BEFORE_MATCH = 100  # that are shown of a very long line
# Tried in this order if a pattern is no regular expression of ripgrep: with look-around, else text.
_OTHER_DIALECTS = (
    ("--pcre2", ""),
    ("--fixed-strings", "the pattern is no valid regular expression; it was searched as text"),
)
GrepOutputMode = Literal["files_with_matches", "content", "count"]
# Names of arguments as models know them from ripgrep.
FLAGS = {
    "ignore_case": "-i", "line_numbers": "-n",
    "after_context": "-A", "before_context": "-B", "context": "-C",
}  # fmt: skip


class GrepArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=FLAGS):
    pattern: Annotated[str, describe("Regular expression")]
    path: Annotated[str, describe("File or folder")] = ""
    glob: Annotated[str, describe("Such as `*.{ts,tsx}`")] = ""
    type: Annotated[str, describe("Of files: py, js, rust")] = ""
    output_mode: GrepOutputMode = "files_with_matches"
    ignore_case: Annotated[bool, describe("Ignore case")] = False
    line_numbers: Annotated[bool, describe("Line numbers")] = True
    after_context: Annotated[int, describe("Lines after")] = 0
    before_context: Annotated[int, describe("Lines before")] = 0
    context: Annotated[int, describe("Lines around")] = 0
    multiline: Annotated[bool, describe("May span lines")] = False
    head_limit: Annotated[int, describe("At most")] = DEFAULT_HEAD_LIMIT
    offset: Annotated[int, describe("Pass over first")] = 0


class GrepTool(BuiltinTool[GrepArguments]):
    name = "grep"
    kind = "search"
    is_recursive = True
    arguments_type = GrepArguments
    aliases = (
        "search", "search_file_content", "grep_search", "search_files", "ripgrep", "rg",
        "search_code", "file_search", "codebase_search",
    )  # fmt: skip
    argument_aliases: ClassVar = {
        "directory": "path", "dir_path": "path", "target_directories": "path",
        "include": "glob", "include_pattern": "glob",
        "file_pattern": "glob", "file_type": "type", "query": "pattern", "regex": "pattern",
        "context": "-C", "case_insensitive": "-i", "ignore_case": "-i", "line_numbers": "-n",
        "after_context": "-A", "before_context": "-B", "max_results": "head_limit",
        "mode": "output_mode",
    }  # fmt: skip
    value_aliases: ClassVar = {
        "output_mode": {
            "files": "files_with_matches", "files_only": "files_with_matches",
            "paths": "files_with_matches", "lines": "content", "matches": "content",
            "text": "content", "counts": "count",
        }
    }  # fmt: skip

    @classmethod
    def repair_values(cls, arguments: Arguments, report: Report) -> Arguments:
        """No folder in a list of folders means all of them."""
        if arguments.get("path") != []:
            return arguments
        report("`path` is left out, because it was an empty list")
        return {name: value for name, value in arguments.items() if name != "path"}

    def validate(self, args: GrepArguments) -> str | None:
        if not args.pattern:
            return "the pattern is empty"
        contexts = (args.after_context, args.before_context, args.context)
        is_negative = min(*contexts, args.head_limit, args.offset) < 0
        return "numbers of lines cannot be negative" if is_negative else None

    @classmethod
    def read_paths(cls, args: GrepArguments) -> tuple[str, ...]:
        return (args.path or ".",)

    async def run(self, args: GrepArguments, site: CallSite) -> ToolOutput:
        limit = args.head_limit or DEFAULT_HEAD_LIMIT
        left_out, left_out_note = await find_left_out(site, _build_filters(args), args.path or ".")
        options = [*_build_options(args, limit), *left_out, f"--regexp={args.pattern}"]
        output, reading = await _search_any_dialect(site, options, args)
        done, top = output.result, output.folder
        note, notes = incomplete_warning(done) + left_out_note, (reading,) if reading else ()
        total, matches = _select_first(output, args.output_mode, args.offset + limit)
        if not total:
            advice = explain_sentence(args.pattern, "one text")
            return ToolOutput(f"No matches.{advice}{note}", display="No matches", notes=notes)
        format_path = make_formatter(top, site)
        shown = matches[args.offset :]
        lines = [_format_line(format_path(name), rest, args) for name, rest in shown]
        left = total - args.offset - len(lines)
        number = "" if _is_capped(done.stdout, args, limit) else f"{left} "
        rest = f"\n({number}more; continue with offset={args.offset + limit})" if left > 0 else ""
        count = plural(total, "line" if args.output_mode == "content" else "file")
        return ToolOutput("\n".join(lines) + rest + note, count, notes=notes)


class SearchOutput(msgspec.Struct, frozen=True):
    """What ripgrep found, and the folder that its paths start from.

    `counted`: the files that count, if they are not all.
    """

    result: ProgramResult
    folder: Path
    counted: Container[bytes] | None = None


async def _search_any_dialect(
    site: CallSite, options: Sequence[str], args: GrepArguments
) -> tuple[SearchOutput, str]:
    """What was found, and how the pattern was read if ripgrep's own dialect does not know it."""
    try:
        return await _search(site, options, args), ""
    except ToolError as error:
        for option, reading in _OTHER_DIALECTS:
            with contextlib.suppress(ToolError):
                return await _search(site, [option, *options], args), reading
        raise error


async def _search(site: CallSite, options: Sequence[str], args: GrepArguments) -> SearchOutput:
    if not args.glob:
        return SearchOutput(*await run_ripgrep(site, options, args.path or "."))
    return SearchOutput(*await run_with_glob(site, options, args.glob, args.path or "."))


def _max_count(args: GrepArguments, limit: int) -> int:
    """How many matches of one file ripgrep shows at most."""
    return args.offset + limit + 1


def _is_capped(output: bytes, args: GrepArguments, limit: int) -> bool:
    """Whether a file may have more matches than ripgrep was asked for."""
    if args.output_mode != "content" or output.count(b"\0") < _max_count(args, limit):
        return False
    names = Counter(line.partition(b"\0")[0] for line in output.split(b"\n"))
    return max(names.values()) >= _max_count(args, limit)


def _build_options(args: GrepArguments, limit: int) -> Iterator[str]:
    if args.output_mode == "files_with_matches":
        yield from ("--files-with-matches", "--null")
    elif args.output_mode == "count":
        yield from ("--count", "--null", "--with-filename")
    else:
        yield from ("--no-heading", "--with-filename", "--line-number", "--null")
        yield from ("--column", f"--max-count={_max_count(args, limit)}")
        yield f"--after-context={args.after_context or args.context}"
        yield f"--before-context={args.before_context or args.context}"
    if args.ignore_case:
        yield "--ignore-case"
    if args.multiline:
        yield from ("--multiline", "--multiline-dotall")
    if args.type:
        yield f"--type={args.type}"


def _build_filters(args: GrepArguments) -> list[str]:
    """Options that say which files are searched."""
    glob = [f"--glob={args.glob}"] if args.glob else []
    return [*glob, f"--type={args.type}"] if args.type else glob


def _select_first(
    found: SearchOutput, mode: GrepOutputMode, limit: int
) -> tuple[int, list[tuple[bytes, bytes]]]:
    """The number of matches, and the first `limit` of them by path.

    There may be a hundred thousand: only those that are shown are split and sorted.
    """
    output, counted = found.result.stdout, found.counted
    if mode == "files_with_matches":
        names = output.split(b"\0")[:-1]
        names = names if counted is None else [name for name in names if name in counted]
        return len(names), [(name, b"") for name in nsmallest(limit, names)]
    lines = output.split(b"\n")[:-1]
    total = len(lines)
    if counted is not None or output.count(b"\0") != total:
        matches = [one for one in _split_matches(lines) if counted is None or one[0] in counted]
        return len(matches), sorted(matches, key=itemgetter(0))[:limit]
    # Each line begins with its file, so in byte order the lines of a file are together.
    if total > limit:
        last = nsmallest(limit, lines)[-1].partition(b"\0")[0] + b"\1"
        lines = [line for line in lines if line < last]
    return total, sorted(_split_matches(lines), key=itemgetter(0))[:limit]


def _split_matches(lines: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Each line with its file."""
    last = b""
    for line in lines:
        name, zero, rest = line.partition(b"\0")
        if zero:
            last = name
            yield name, rest
        elif line != b"--":
            yield last, line  # the rest of a match over several lines


def _format_line(name: str, match_text: bytes, args: GrepArguments) -> str:
    """`path:12:text` for a match, `path-11-text` for a line of context."""
    if args.output_mode == "files_with_matches":
        return name
    if args.output_mode == "count":
        return f"{name}:{match_text.decode(errors='replace')}"
    prefix = re.match(rb"(\d+)(?:-|:(\d+):)", match_text)
    if prefix is None:
        return _show_around(match_text, 0)
    number, column = prefix.group(1).decode(), int(prefix.group(2) or 1) - 1
    mark = "-" if prefix.group(2) is None else ":"
    rest = _show_around(match_text[prefix.end() :], column)
    return f"{name}{mark}{number}{mark}{rest}" if args.line_numbers else f"{name}{mark}{rest}"


def _show_around(line: bytes, column: int) -> str:
    """A line, or of a very long one the part with the match."""
    line = line.removesuffix(b"\r")
    if len(line) <= MAX_COLUMNS:
        return line.decode(errors="replace")
    start = max(0, min(column - BYTES_BEFORE_MATCH, len(line) - MAX_COLUMNS))
    end = start + MAX_COLUMNS
    before = f"[{start} bytes] ..." if start else ""
    after = f"... [{len(line) - end} more bytes]" if end < len(line) else ""
    return f"{before}{line[start:end].decode(errors='ignore')}{after}"
