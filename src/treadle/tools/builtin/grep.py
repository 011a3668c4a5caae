"""`grep`: what stands in files, by ripgrep; files in the order of their paths.

Not a parser of ripgrep's every option: the ones that models use, under the names they use.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import msgspec

from treadle.core.contracts.tool import ToolOutput
from treadle.core.errors import ToolError
from treadle.tools.builtin.desk import Seat
from treadle.tools.builtin.form import BuiltinTool
from treadle.tools.builtin.rg import search, shown, warning

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
        if given.output_mode == "content":
            lines = list(_content(done.stdout, top, seat, given.numbers))
        elif given.output_mode == "count":
            lines = sorted(_counts(done.stdout, top, seat))
        else:
            lines = [shown(name, top, seat) for name in sorted(done.stdout.split(b"\0")[:-1])]
        if not lines:
            return ToolOutput(f"No matches.{warning(done)}", display="No matches")
        part = lines[given.offset : given.offset + most]
        left = len(lines) - given.offset - len(part)
        more = f"\n({left} more; go on with offset={given.offset + most})" if left > 0 else ""
        what = "lines" if given.output_mode == "content" else "files"
        return ToolOutput("\n".join(part) + more + warning(done), f"{len(lines)} {what}")


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


def _content(output: bytes, top: Path, seat: Seat, numbers: bool) -> Iterator[str]:
    """Lines as `path:12:text`, context as `path-11-text`; each file's lines together, in order."""
    files: dict[bytes, list[bytes]] = {}
    last = b""
    for line in output.split(b"\n")[:-1]:
        name, zero, rest = line.partition(b"\0")
        if zero:
            last = name
            files.setdefault(name, []).append(rest)
        elif last and line != b"--":
            files[last].append(line)  # the rest of a match over several lines
        elif last:
            files[last].append(b"--")
    for name in sorted(files):
        path = shown(name, top, seat)
        lines = files[name]
        if lines[-1] == b"--":
            lines.pop()
        for line in lines:
            yield _line(path, line.decode(errors="replace"), numbers)


def _line(name: str, line: str, numbers: bool) -> str:
    place = re.match(r"(\d+)([:-])", line)
    if place is None:
        return line
    rest = line[place.end() :].removesuffix("\r")
    mark = place.group(2)
    return f"{name}{mark}{place.group(1)}{mark}{rest}" if numbers else f"{name}{mark}{rest}"


def _counts(output: bytes, top: Path, seat: Seat) -> Iterator[str]:
    for line in output.split(b"\n")[:-1]:
        name, _, count = line.partition(b"\0")
        yield f"{shown(name, top, seat)}:{count.decode(errors='replace')}"
