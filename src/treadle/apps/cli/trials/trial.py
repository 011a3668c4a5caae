"""What bisect.py and whatif.py share: files of a checkpoint in another folder, and the check."""

from __future__ import annotations

from pathlib import Path

from treadle.apps.settings.folder_rules import is_trusted
from treadle.apps.settings.load import load_settings
from treadle.core.contracts.workspace import CommandResult
from treadle.core.errors import WorkspaceError
from treadle.sessions.library import Library

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


async def run_check(folder: Path, root: Path, command: str, timeout: float) -> CommandResult:
    """Run the command in `root`, in the sandbox of the settings of `folder`."""
    from treadle.apps.assembly.lazy import LazyWorkspace
    from treadle.workspace.options import WorkspaceOptions

    settings = load_settings(folder, {}, is_trusted=lambda: is_trusted(folder))
    options = WorkspaceOptions(sandbox=settings.sandbox, network=settings.network, env=settings.env)
    workspace = LazyWorkspace(root, lambda: options)
    try:
        # Not by the options: those are filtered, as what the user's shell has.
        environment = {FOLDER_VARIABLE: str(folder)}
        return await workspace.run(command, env=environment, timeout=timeout)
    finally:
        await workspace.aclose()


def has_passed(check: CommandResult) -> bool:
    return check.exit_code == 0 and not check.timed_out
