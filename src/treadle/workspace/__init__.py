"""Where the agent works: files and processes of this machine, and the sandbox around them.

local               the Workspace contract, made of the other modules
workspace_files     reading and writing beneath the roots: files; temporary ones: temp_files
processes           the client of the fork server (supervisor/), which owns process trees
background_command  a command that continues in the background
pipe_reader         the output of a program as it is; output: the same as safe text
environment         the environment variables of a command
command_limits      processes, memory and denied files of a command
landlock            which files our own read-only programs may open
sandbox/            bubblewrap, Landlock, seccomp, protected paths
checkpoints/        the files of a folder before and after each call
worktrees/          git worktrees of child agents
container           commands in containers of podman or docker

The names below load at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.lib.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from treadle.workspace.checkpoints.checkpoints import Checkpoints
    from treadle.workspace.checkpoints.recorder import CheckpointRecorder
    from treadle.workspace.container import ContainerOptions, ContainerWorkspace
    from treadle.workspace.local import LocalWorkspace
    from treadle.workspace.options import WorkspaceOptions
    from treadle.workspace.worktrees.worktrees import Worktrees

__all__ = [
    "CheckpointRecorder",
    "Checkpoints",
    "ContainerOptions",
    "ContainerWorkspace",
    "LocalWorkspace",
    "WorkspaceOptions",
    "Worktrees",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "CheckpointRecorder": "checkpoints.recorder",
        "Checkpoints": "checkpoints.checkpoints",
        "ContainerOptions": "container",
        "ContainerWorkspace": "container",
        "LocalWorkspace": "local",
        "WorkspaceOptions": "options",
        "Worktrees": "worktrees.worktrees",
    },
)
