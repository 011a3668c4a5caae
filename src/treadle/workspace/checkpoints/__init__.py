"""Checkpoints of the files in a folder: taken, compared, gone back to.

    ignoring    which files the project itself does not want kept (.gitignore)
    objects     contents by their hash; the same content is kept once
    ground      the folder by descriptors: no link leads out of it
    scanning    a folder as it is now, to a tree; what did not change is not read again
    restoring   from one tree to another, touching only what differs
    keeping     a checkpoint before and after each turn, as a hook and a mutator

It does not need git, and never touches a repository's own files (.git). What a shell command
changed is seen like any other change. Above: the hosts; the log knows trees only by their names.
"""

from treadle.workspace.checkpoints.checkpoints import Checkpoints, FileSnapshot
from treadle.workspace.checkpoints.recorder import CheckpointRecorder
from treadle.workspace.checkpoints.restore import RestoreResult
from treadle.workspace.checkpoints.scanner import SkippedPath

__all__ = ["Checkpoints", "CheckpointRecorder", "RestoreResult", "SkippedPath", "FileSnapshot"]
