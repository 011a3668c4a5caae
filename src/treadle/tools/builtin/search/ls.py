"""`ls`: the names in one folder, folders with a slash.

For models that would rather look around than match patterns; `glob` finds deeper ones.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec

from treadle.core.contracts.tool import ToolOutput
from treadle.core.errors import ToolError
from treadle.tools.builtin.base import BuiltinTool, escape_multiline
from treadle.tools.builtin.session import CallSite

MAX_ENTRIES = 500


class LsArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[
        str, msgspec.Meta(description="The folder; the working directory if left out")
    ] = ""


class LsTool(BuiltinTool[LsArguments]):
    name = "ls"
    arguments_type = LsArguments
    argument_aliases: ClassVar[Mapping[str, str]] = {"directory": "path"}

    def read_paths(self, args: LsArguments) -> tuple[str, ...]:
        return (args.path or ".",)

    async def run(self, args: LsArguments, site: CallSite) -> ToolOutput:
        place = site.resolve(args.path or ".")
        # By its trailing slash the folder itself is meant, and a file there is an error.
        done = await site.execute(["ls", "-1Ap", "--", f"{place}/"], timeout=10, limit=1 << 20)
        if done.exit_code != 0:
            why = done.stderr.decode(errors="replace").strip().rpartition(": ")[2]
            if why == "Not a directory":
                raise ToolError(f"{args.path} is a file; read it")
            if why == "No such file or directory":
                raise await site.make_not_found_error(args.path, place)
            raise ToolError(f"{args.path or place} cannot be listed: {why}")
        names = [
            escape_multiline(name) for name in done.stdout.decode(errors="replace").split("\n")[:-1]
        ]
        shown = site.display_path(place)
        if not names:
            return ToolOutput(f"{shown} is empty.", display=f"{shown} is empty")
        more = len(names) - MAX_ENTRIES
        rest = f"\n({more} more; use glob)" if more > 0 else ""
        entries = "1 entry" if len(names) == 1 else f"{len(names)} entries"
        return ToolOutput("\n".join(names[:MAX_ENTRIES]) + rest, f"{shown}: {entries}")
