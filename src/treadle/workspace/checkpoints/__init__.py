"""Checkpoints of the files in a folder: taken, compared, restored.

    checkpoints   the operations on one folder: take, diff, restore, apply, prune
    gitignore     which files the project ignores
    object_store  contents by hash; the same content is stored once
    safe_tree     access to the folder by descriptors: no symlink is followed
    scanner       the current files as a tree; unchanged files are not read again
    restore       from one tree to another, changing only what differs
    recorder      a checkpoint before and after each turn, as a hook and a mutator

It does not need git and never touches `.git`. Changes of shell commands are seen like any others.
Used by the hosts; the log holds only the hashes of trees.
"""

from treadle.workspace.checkpoints.checkpoints import Checkpoints, FileSnapshot
from treadle.workspace.checkpoints.recorder import CheckpointRecorder
from treadle.workspace.checkpoints.restore import RestoreResult
from treadle.workspace.checkpoints.scanner import SkippedPath

__all__ = ["Checkpoints", "CheckpointRecorder", "RestoreResult", "SkippedPath", "FileSnapshot"]
