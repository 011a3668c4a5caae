"""What bisect.py and whatif.py share: files of a checkpoint in another folder, and the check."""

from __future__ import annotations

from pathlib import Path

from treadle.apps.console.console import UsageError
from treadle.apps.settings.folder_rules import is_trusted
from treadle.apps.settings.load import load_settings
from treadle.core.contracts.workspace import CommandResult
from treadle.core.errors import WorkspaceError
from treadle.lib.text.sanitize import escape_invisible
from treadle.sessions.library import Library

MAX_LINES = 5  # of the output of a check
NOT_RUN = (126, 127)  # exit codes of a shell: the command cannot be run, or is not found
FOLDER_VARIABLE = "TREADLE_FOLDER"  # the folder of the session, for a check in another one


async def write_files(library: Library, folder: Path, root: Path, tree: str) -> None:
    """Give `root` the files that a checkpoint of `folder` has."""
    from treadle.workspace.checkpoints.checkpoints import Checkpoints

    checkpoints = Checkpoints(root, library.checkpoint_dir(folder))
    try:
        result = await checkpoints.apply((await checkpoints.take()).tree, tree)
    finally:
        checkpoints.close()
    if result.skipped:
        paths = ", ".join(one.path for one in result.skipped)
        raise WorkspaceError(f"{root}: cannot be written: {paths}")


class CheckNotRun(UsageError):
    """The check did not run to its end, so it says nothing about the files."""


async def run_check(folder: Path, root: Path, command: str, timeout: float) -> CommandResult:
    """Run the command in `root`, in the sandbox of the settings of `folder`. Raises CheckNotRun if
    it cannot be run, or reaches its limit."""
    from treadle.apps.assembly.lazy import LazyWorkspace
    from treadle.workspace.options import WorkspaceOptions

    settings = load_settings(folder, {}, is_trusted=lambda: is_trusted(folder))
    options = WorkspaceOptions(sandbox=settings.sandbox, network=settings.network, env=settings.env)
    workspace = LazyWorkspace(root, lambda: options)
    try:
        # Not by the options: those are filtered, as what the user's shell has.
        environment = {FOLDER_VARIABLE: str(folder)}
        done = await workspace.run(command, env=environment, timeout=timeout)
    finally:
        await workspace.aclose()
    if done.timed_out or done.exit_code in NOT_RUN:
        raise CheckNotRun(f"({done.describe_failure()}){format_output(done)}")
    return done


def format_output(check: CommandResult) -> str:
    """The last lines of its output, each on a line of its own."""
    lines = [f"    {escape_invisible(line)}" for line in check.output.splitlines()]
    return "\n".join(["", *lines[-MAX_LINES:]])
