"""`glob`: files by name, in the order of their paths; ignored ones are left out.

The order is the same every time, whichever of ripgrep's threads is the first.
"""

import re
from collections.abc import Mapping
from heapq import nsmallest
from typing import Annotated, ClassVar

import msgspec

from treadle.core.contracts.tool import ToolOutput
from treadle.core.errors import ToolError
from treadle.tools.builtin.desk import Seat
from treadle.tools.builtin.form import BuiltinTool
from treadle.tools.builtin.rg import Names, search, warning

MOST_SHOWN = 200


class GlobArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: Annotated[str, msgspec.Meta(description="Such as `**/*.py` or `src/**/test_*.ts`")]
    path: Annotated[
        str, msgspec.Meta(description="The folder to look in; the working directory if left out")
    ] = ""


class GlobTool(BuiltinTool[GlobArguments]):
    name = "glob"
    form = GlobArguments
    synonyms: ClassVar[Mapping[str, str]] = {"directory": "path"}

    def objection(self, given: GlobArguments) -> str | None:
        if not given.pattern:
            return "the pattern is empty"
        if ".." in given.pattern.split("/"):
            return "the pattern leads out of its folder; name the folder as `path`"
        return None

    def reads(self, given: GlobArguments) -> tuple[str, ...]:
        return (_folder(given)[0],)

    async def run(self, given: GlobArguments, seat: Seat) -> ToolOutput:
        folder, pattern = _folder(given)
        place = seat.resolve(folder)
        pattern = pattern.removeprefix("./")
        done, top = await search(seat, ["--files", "--null", f"--glob={pattern}"], place)
        found = done.stdout.split(b"\0")[:-1]
        if not found:
            return ToolOutput(f"No files match {given.pattern}.{warning(done)}", "No files")
        shown = Names(top, seat).shown
        names = [shown(name) for name in nsmallest(MOST_SHOWN, found)]
        more = len(found) - len(names)
        rest = f"\n({more} more; narrow the pattern or the path)" if more > 0 else ""
        count = "1 file" if len(found) == 1 else f"{len(found)} files"
        return ToolOutput("\n".join(names) + rest + warning(done), display=f"Found {count}")


def _folder(given: GlobArguments) -> tuple[str, str]:
    """The folder to look in, and the pattern below it: an absolute pattern names both."""
    if not given.pattern.startswith(("/", "~")):
        return given.path or ".", given.pattern
    if given.path:
        raise ToolError("the pattern is absolute; leave out `path`")
    fixed = re.split(r"[*?\[{]", given.pattern)[0].rpartition("/")[0] or "/"
    return fixed, given.pattern[len(fixed) :].lstrip("/")
