"""`grep`: search in the contents of files with ripgrep; sorted by path.

Supports the options of ripgrep that models use, under the names that models use.
"""

import re
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from operator import itemgetter
from typing import Annotated, ClassVar, Literal

import msgspec

from treadle.core.contracts.tool import ToolOutput
from treadle.core.text import plural
from treadle.tools.builtin.base import BuiltinTool, describe
from treadle.tools.builtin.search.ripgrep import (
    find_left_out,
    incomplete_warning,
    make_formatter,
    run_ripgrep,
)
from treadle.tools.builtin.session import CallSite

DEFAULT_HEAD_LIMIT = 250
MAX_COLUMNS = 500
GrepOutputMode = Literal["files_with_matches", "content", "count"]
# Names of arguments as models know them from ripgrep.
FLAGS = {
    "ignore_case": "-i", "line_numbers": "-n",
    "after_context": "-A", "before_context": "-B", "context": "-C",
}  # fmt: skip


class GrepArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=FLAGS):
    pattern: Annotated[str, describe("A regular expression as ripgrep knows it")]
    path: Annotated[str, describe("File or folder; the working directory if left out")] = ""
    glob: Annotated[str, describe("Only files like this, such as `*.{ts,tsx}`")] = ""
    type: Annotated[str, describe("Only files of a type: py, js, rust, go ...")] = ""
    output_mode: Annotated[
        GrepOutputMode, describe("`files_with_matches` (default), `content` for lines, `count`")
    ] = "files_with_matches"
    ignore_case: Annotated[bool, describe("Also other cases of letters")] = False
    line_numbers: Annotated[bool, describe("Line numbers with content")] = True
    after_context: Annotated[int, describe("Lines to show after a match")] = 0
    before_context: Annotated[int, describe("Lines to show before a match")] = 0
    context: Annotated[int, describe("Lines to show around a match")] = 0
    multiline: Annotated[bool, describe("A match may span lines")] = False
    head_limit: Annotated[int, describe("How many lines or files at most")] = DEFAULT_HEAD_LIMIT
    offset: Annotated[int, describe("How many to pass over first")] = 0


class GrepTool(BuiltinTool[GrepArguments]):
    name = "grep"
    is_recursive = True
    arguments_type = GrepArguments
    argument_aliases: ClassVar = {
        "directory": "path", "include": "glob",
        "context": "-C", "case_insensitive": "-i", "ignore_case": "-i",
    }  # fmt: skip

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
        filters = list(_build_filters(args))
        left_out, note = await find_left_out(site, filters, args.path or ".")
        options = [*_build_options(args, limit), *filters, *left_out, f"--regexp={args.pattern}"]
        done, top = await run_ripgrep(site, options, args.path or ".")
        note = incomplete_warning(done) + note
        total, matches = _select_first(done.stdout, args.output_mode, args.offset + limit)
        if not total:
            return ToolOutput(f"No matches.{note}", display="No matches")
        format_path = make_formatter(top, site)
        shown = matches[args.offset :]
        lines = [_format_line(format_path(name), rest, args) for name, rest in shown]
        left = total - args.offset - len(lines)
        more = f"\n({left} more; continue with offset={args.offset + limit})" if left > 0 else ""
        count = plural(total, "line" if args.output_mode == "content" else "file")
        return ToolOutput("\n".join(lines) + more + note, count)


def _build_options(args: GrepArguments, limit: int) -> Iterator[str]:
    if args.output_mode == "files_with_matches":
        yield from ("--files-with-matches", "--null")
    elif args.output_mode == "count":
        yield from ("--count", "--null", "--with-filename")
    else:
        yield from ("--no-heading", "--with-filename", "--line-number", "--null")
        # Of a very long line only the match is shown.
        yield from (f"--max-columns={MAX_COLUMNS}", "--max-columns-preview")
        yield f"--max-count={args.offset + limit + 1}"
        yield f"--after-context={args.after_context or args.context}"
        yield f"--before-context={args.before_context or args.context}"
    if args.ignore_case:
        yield "--ignore-case"
    if args.multiline:
        yield from ("--multiline", "--multiline-dotall")


def _build_filters(args: GrepArguments) -> Iterator[str]:
    if args.glob:
        yield f"--glob={args.glob}"
    if args.type:
        yield f"--type={args.type}"


def _select_first(
    output: bytes, mode: GrepOutputMode, limit: int
) -> tuple[int, list[tuple[bytes, bytes]]]:
    """The number of matches, and the first `limit` of them by path.

    There may be a hundred thousand: only those that are shown are split and sorted.
    """
    if mode == "files_with_matches":
        names = output.split(b"\0")[:-1]
        return len(names), [(name, b"") for name in nsmallest(limit, names)]
    lines = output.split(b"\n")[:-1]
    total = len(lines)
    if output.count(b"\0") != total:
        matches = sorted(_split_matches(lines), key=itemgetter(0))
        return len(matches), matches[:limit]
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
    line = match_text.decode(errors="replace").removesuffix("\r")
    if args.output_mode == "files_with_matches":
        return name
    if args.output_mode == "count":
        return f"{name}:{line}"
    prefix = re.match(r"(\d+)([:-])", line)
    if prefix is None:
        return line
    number, mark, rest = prefix.group(1), prefix.group(2), line[prefix.end() :]
    return f"{name}{mark}{number}{mark}{rest}" if args.line_numbers else f"{name}{mark}{rest}"
