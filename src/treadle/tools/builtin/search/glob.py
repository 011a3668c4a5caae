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
from treadle.tools.builtin.base import BuiltinTool
from treadle.tools.builtin.search.ripgrep import PathFormatter, incomplete_warning, run_ripgrep
from treadle.tools.builtin.session import CallSite

MAX_RESULTS = 200


class GlobArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: Annotated[str, msgspec.Meta(description="Such as `**/*.py` or `src/**/test_*.ts`")]
    path: Annotated[
        str, msgspec.Meta(description="The folder to look in; the working directory if left out")
    ] = ""


class GlobTool(BuiltinTool[GlobArguments]):
    name = "glob"
    arguments_type = GlobArguments
    argument_aliases: ClassVar[Mapping[str, str]] = {"directory": "path"}

    def validate(self, args: GlobArguments) -> str | None:
        if not args.pattern:
            return "the pattern is empty"
        if ".." in args.pattern.split("/"):
            return "the pattern leads out of its folder; name the folder as `path`"
        return None

    def read_paths(self, args: GlobArguments) -> tuple[str, ...]:
        return (_split_pattern(args)[0],)

    async def run(self, args: GlobArguments, site: CallSite) -> ToolOutput:
        folder, pattern = _split_pattern(args)
        place = site.resolve(folder)
        pattern = pattern.removeprefix("./")
        done, top = await run_ripgrep(site, ["--files", "--null", f"--glob={pattern}"], place)
        found = done.stdout.split(b"\0")[:-1]
        if not found:
            return ToolOutput(
                f"No files match {args.pattern}.{incomplete_warning(done)}", "No files"
            )
        shown = PathFormatter(top, site).format_path
        names = [shown(name) for name in nsmallest(MAX_RESULTS, found)]
        more = len(found) - len(names)
        rest = f"\n({more} more; narrow the pattern or the path)" if more > 0 else ""
        count = "1 file" if len(found) == 1 else f"{len(found)} files"
        return ToolOutput(
            "\n".join(names) + rest + incomplete_warning(done), display=f"Found {count}"
        )


def _split_pattern(args: GlobArguments) -> tuple[str, str]:
    """The folder to look in, and the pattern below it: an absolute pattern names both."""
    if not args.pattern.startswith(("/", "~")):
        return args.path or ".", args.pattern
    if args.path:
        raise ToolError("the pattern is absolute; leave out `path`")
    fixed = re.split(r"[*?\[{]", args.pattern)[0].rpartition("/")[0] or "/"
    return fixed, args.pattern[len(fixed) :].lstrip("/")
