"""`grep`: what stands in files, by ripgrep; files in the order of their paths.

Not a parser of ripgrep's every option: the ones that models use, under the names they use.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest
from operator import itemgetter
from typing import Annotated, ClassVar, Literal

import msgspec

from treadle.core.contracts.tool import ToolOutput
from treadle.core.errors import ToolError
from treadle.tools.builtin.desk import Seat
from treadle.tools.builtin.form import BuiltinTool
from treadle.tools.builtin.rg import Names, search, warning

MOST_LINES = 250
MOST_COLUMNS = 500
Mode = Literal["files_with_matches", "content", "count"]


class GrepArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: Annotated[str, msgspec.Meta(description="A regular expression as ripgrep knows it")]
    path: Annotated[
        str, msgspec.Meta(description="File or folder; the working directory if left out")
    ] = ""
    glob: Annotated[str, msgspec.Meta(description="Only files like this, such as `*.{ts,tsx}`")] = (
        ""
    )
    type: Annotated[str, msgspec.Meta(description="Only files of a type: py, js, rust, go ...")] = (
        ""
    )
    output_mode: Annotated[
        Mode,
        msgspec.Meta(description="`files_with_matches` (default), `content` for lines, `count`"),
    ] = "files_with_matches"
    ignore_case: Annotated[bool, msgspec.Meta(description="Also other cases of letters")] = (
        msgspec.field(default=False, name="-i")
    )
    numbers: Annotated[bool, msgspec.Meta(description="Line numbers with content")] = msgspec.field(
        default=True, name="-n"
    )
    after: Annotated[int, msgspec.Meta(description="Lines to show after a match")] = msgspec.field(
        default=0, name="-A"
    )
    before: Annotated[int, msgspec.Meta(description="Lines to show before a match")] = (
        msgspec.field(default=0, name="-B")
    )
    around: Annotated[int, msgspec.Meta(description="Lines to show around a match")] = (
        msgspec.field(default=0, name="-C")
    )
    multiline: Annotated[bool, msgspec.Meta(description="A match may span lines")] = False
    head_limit: Annotated[int, msgspec.Meta(description="How many lines or files at most")] = (
        MOST_LINES
    )
    offset: Annotated[int, msgspec.Meta(description="How many to pass over first")] = 0


class GrepTool(BuiltinTool[GrepArguments]):
    name = "grep"
    form = GrepArguments
    synonyms: ClassVar[Mapping[str, str]] = {
        "directory": "path",
        "include": "glob",
        "context": "-C",
        "case_insensitive": "-i",
        "ignore_case": "-i",
    }

    def objection(self, given: GrepArguments) -> str | None:
        if not given.pattern:
            return "the pattern is empty"
        numbers = (given.after, given.before, given.around, given.head_limit, given.offset)
        return "numbers of lines cannot be negative" if min(numbers) < 0 else None

    def reads(self, given: GrepArguments) -> tuple[str, ...]:
        return (given.path or ".",)

    async def run(self, given: GrepArguments, seat: Seat) -> ToolOutput:
        place = seat.resolve(given.path or ".")
        most = given.head_limit or MOST_LINES
        try:
            options = [*_options(given, most), f"--regexp={given.pattern}"]
            done, top = await search(seat, options, place)
        except ToolError as error:
            if "No such file" in str(error):
                raise await seat.missing(given.path, place) from error
            raise
        total, found = _first(done.stdout, given.output_mode, given.offset + most)
        if not total:
            return ToolOutput(f"No matches.{warning(done)}", display="No matches")
        names = Names(top, seat)
        lines = [_line(names.shown(name), rest, given) for name, rest in found[given.offset :]]
        left = total - given.offset - len(lines)
        more = f"\n({left} more; go on with offset={given.offset + most})" if left > 0 else ""
        what = "lines" if given.output_mode == "content" else "files"
        return ToolOutput("\n".join(lines) + more + warning(done), f"{total} {what}")


def _options(given: GrepArguments, most: int) -> Iterator[str]:
    if given.output_mode == "files_with_matches":
        yield from ("--files-with-matches", "--null")
    elif given.output_mode == "count":
        yield from ("--count", "--null", "--with-filename")
    else:
        yield from ("--no-heading", "--with-filename", "--line-number", "--null")
        # In a file of one endless line, the match is shown, not the line.
        yield from (f"--max-columns={MOST_COLUMNS}", "--max-columns-preview")
        yield f"--max-count={given.offset + most + 1}"
        yield f"--after-context={given.after or given.around}"
        yield f"--before-context={given.before or given.around}"
    if given.ignore_case:
        yield "--ignore-case"
    if given.multiline:
        yield from ("--multiline", "--multiline-dotall")
    if given.glob:
        yield f"--glob={given.glob}"
    if given.type:
        yield f"--type={given.type}"


def _first(output: bytes, mode: Mode, wanted: int) -> tuple[int, list[tuple[bytes, bytes]]]:
    """How many there are, and as many as are wanted by the order of files; all as bytes.

    There may be a hundred thousand of which few are shown: only those are taken apart and sorted.
    """
    if mode == "files_with_matches":
        names = output.split(b"\0")[:-1]
        return len(names), [(name, b"") for name in nsmallest(wanted, names)]
    lines = output.split(b"\n")[:-1]
    total = len(lines)
    if output.count(b"\0") != total:
        found = sorted(_matches(lines), key=itemgetter(0))
        return len(found), found[:wanted]
    # Each line begins with its file, and as bytes the lines of a file stand together.
    if total > wanted:
        last = nsmallest(wanted, lines)[-1].partition(b"\0")[0] + b"\1"
        lines = [line for line in lines if line < last]
    return total, sorted(_matches(lines), key=itemgetter(0))[:wanted]


def _matches(lines: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Each line with the file that it belongs to."""
    last = b""
    for line in lines:
        name, zero, rest = line.partition(b"\0")
        if zero:
            last = name
            yield name, rest
        elif line != b"--":
            yield last, line  # the rest of a match over several lines


def _line(name: str, found: bytes, given: GrepArguments) -> str:
    """`path:12:text` for a match, `path-11-text` for what is around it."""
    line = found.decode(errors="replace").removesuffix("\r")
    if given.output_mode == "files_with_matches":
        return name
    if given.output_mode == "count":
        return f"{name}:{line}"
    place = re.match(r"(\d+)([:-])", line)
    if place is None:
        return line
    number, mark, rest = place.group(1), place.group(2), line[place.end() :]
    return f"{name}{mark}{number}{mark}{rest}" if given.numbers else f"{name}{mark}{rest}"
