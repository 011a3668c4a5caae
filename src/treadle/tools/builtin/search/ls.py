"""`ls`: the names in one folder, folders with a slash. `glob` finds files in deeper folders."""

from functools import partial
from pathlib import Path
from typing import ClassVar

import msgspec

from treadle.core.contracts.tool import ToolOutput
from treadle.core.contracts.workspace import ProgramResult
from treadle.core.errors import ToolError, WorkspaceError
from treadle.lib.text.text import plural
from treadle.tools.builtin.base import FOLDER_ALIASES, BuiltinTool, escape_multiline
from treadle.tools.builtin.session_memory import CallSite

MAX_ENTRIES = 500


class LsArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str = ""


class LsTool(BuiltinTool[LsArguments]):
    name = "ls"
    kind = "read"
    arguments_type = LsArguments
    aliases = ("list", "list_dir", "list_directory", "list_files", "dir", "read_folder")
    argument_aliases: ClassVar = FOLDER_ALIASES

    @classmethod
    def read_paths(cls, args: LsArguments) -> tuple[str, ...]:
        return (args.path or ".",)

    async def run(self, args: LsArguments, site: CallSite) -> ToolOutput:
        folder, is_outside = site.resolve_readable(args.path or ".")
        # With a trailing slash, `ls` fails for a file.
        argv, root = ["ls", "-1Ap", "--", f"{folder}/"], Path(site.workspace.root)
        execute = partial(site.execute_on, folder) if is_outside else site.execute
        done = await execute(argv, timeout=10, limit=1 << 20, cwd=root)
        if done.exit_code != 0 and is_outside:
            raise ToolError(f"{args.path} is no folder, or cannot be listed")
        if done.exit_code != 0:
            raise await _explain_failure(args.path or str(folder), folder, done, site)
        listed = done.stdout.decode(errors="replace").split("\n")[:-1]
        names = [escape_multiline(name) for name in listed]
        shown = site.display_path(folder)
        if not names:
            return ToolOutput(f"{shown} is empty.", display=f"{shown} is empty")
        more = len(names) - MAX_ENTRIES
        rest = f"\n({more} more; use glob)" if more > 0 else ""
        entries = plural(len(names), "entry", "entries")
        return ToolOutput("\n".join(names[:MAX_ENTRIES]) + rest, f"{shown}: {entries}")


async def _explain_failure(
    given_path: str, folder: Path, done: ProgramResult, site: CallSite
) -> ToolError:
    """Why a folder cannot be listed. The text of `ls` depends on the locale: it is only shown."""
    try:
        content = await site.read_if_exists(folder, 0)
    except WorkspaceError as error:
        if error.kind != "is_folder":
            return ToolError(str(error))
        reason = done.stderr.decode(errors="replace").strip().rpartition(": ")[2]
        return ToolError(f"{given_path} cannot be listed: {reason}")
    if content is None:
        return await site.make_not_found_error(given_path, folder)
    return ToolError(f"{given_path} is a file; read it")
