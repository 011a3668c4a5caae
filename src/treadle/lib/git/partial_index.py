"""A copy of an index for a part of a worktree. Used where git sees only that part.

git writes it, in a plain repository (run.py): it is quicker than we are, and knows every version.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from treadle.lib.git.run import GitError, find_git, plain_repository


def copy_partial_index(index: Path, copy: Path, folders: Iterable[str], not_in: Path) -> bool:
    """Copy an index, with the paths outside of `folders` marked as not checked out: git does not
    call them deleted where it does not see them. False if git does not understand the index.
    `not_in` is a folder from which no program is run."""
    shown = [f":(exclude,literal){folder}" for folder in folders]
    try:
        program = find_git(not_in)
        shutil.copyfile(index, copy)
        with plain_repository(GIT_INDEX_FILE=str(copy)) as environment:

            def run(*words: str, stdin: bytes = b"") -> bytes:
                return subprocess.run(
                    (program, *words),
                    input=stdin,
                    env=environment,
                    cwd=environment["GIT_WORK_TREE"],
                    capture_output=True,
                    check=True,
                ).stdout

            listed = [line.partition(b"\t") for line in run("ls-files", "-sz", *shown).split(b"\0")]
            names = [name for head, _, name in listed if head.endswith(b" 0")]  # no conflict
            marked = b"".join(name + b"\0" for name in names)
            run("update-index", "-z", "--skip-worktree", "--stdin", stdin=marked)
    except (OSError, GitError, subprocess.CalledProcessError):
        return False
    return True
