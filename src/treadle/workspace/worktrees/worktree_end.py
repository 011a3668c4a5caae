"""What became of a worktree, as a value and as a text for the model and the user."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Literal

import msgspec

from treadle.lib.text.text import plural

MAX_LISTED = 20
COMMIT_CHARS = 12


class WorktreeEnd(msgspec.Struct, frozen=True):
    """What became of a worktree.

    unchanged  there was no change         merged  its changes are in the folder
    kept       they are in `branch`        left    the worktree is still at `path`
    `base` is the commit that the branch is compared with, `refused` are the paths that kept the
    changes from being merged, `top` is the way to the top of the repository if that is not the
    folder.
    """

    status: Literal["unchanged", "merged", "kept", "left"]
    files: tuple[str, ...] = ()
    branch: str = ""
    base: str = ""
    top: str = ""
    refused: tuple[str, ...] = ()
    path: str = ""


def describe_end(end: WorktreeEnd) -> str:
    """What became of the changes, and what to do with them."""
    files = _list_names(end.files)
    if end.status == "unchanged":
        return "It changed no files."
    if end.status == "merged":
        return f"Its changes are in the folder now, not committed: {files}"
    if end.status == "left":
        inner = _list_names(end.refused)
        return f"Its worktree stays at {end.path}, because of the repositories in it: {inner}"
    why = "It did not finish, so nothing is merged."
    if end.refused:
        refused = _list_names(end.refused)
        why = (
            f"Nothing is merged: changed in the folder meanwhile, or not to be written: {refused}."
        )
    advice = advise(end.branch, end.base, end.top)
    return f"{why} All its changes are in the branch {end.branch}: {files}. {advice}"


def advise(branch: str, base: str, top: str = "") -> str:
    """What to do with a branch that has the changes of an agent.

    `git merge` and `git cherry-pick` refuse while the user has uncommitted changes in the same
    files. `git apply` changes the files themselves: all that is asked, or nothing.
    """
    commits = f"{base[:COMMIT_CHARS]} {branch}"
    apply = f"git -C {shlex.quote(top)} apply" if top else "git apply"
    return (
        f"See them with `git diff {commits}`, take them over with "
        f"`git diff --binary {commits} | {apply}` (if git refuses that, commit your own changes "
        f"and add `--3way`), delete them with `git branch -D {branch}`."
    )


def _list_names(names: Sequence[str]) -> str:
    more = f" and {plural(len(names) - MAX_LISTED, 'more file')}" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more
