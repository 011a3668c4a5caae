"""What the model is told about git and the sandbox, as notices that keep the cached prefix.

    environment   once, with the first message: branch, changes, last commits
    sandbox       once, if commands run without the sandbox that the instructions speak of

In a folder that is not trusted git is not run, because the settings of a repository can name
programs; then only the branch is told. Used by coding_agent.py.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from treadle.apps.assembly.lazy import LazyWorkspace
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.errors import WorkspaceError
from treadle.core.transcript.items import NoticeItem, UserItem
from treadle.core.transcript.transcript import Transcript
from treadle.lib.git.repository import find_own_repository, find_repository, read_head
from treadle.lib.text.text import plural

MAX_CHANGES = 20
NO_COMMITS = "No commits yet on "  # what `git status` says instead of a branch
MAX_COMMITS = 5
MAX_LINE_CHARS = 120
GIT_SECONDS = 2.0
MAX_FIRST_ITEMS = 8  # the first message, and what hooks and reminders add to it


class EnvironmentNotices:
    """A Mutator before each model call."""

    name = "environment"
    for_children = False
    points: frozenset[MutationPoint] = frozenset({"before_model"})

    def __init__(self, folder: Path, workspace: LazyWorkspace, *, trusted: bool) -> None:
        self._folder = folder
        self._workspace = workspace
        self._trusted = trusted
        self._is_corrected = False

    async def mutate(self, context: MutationContext) -> Transcript | None:
        view, due = context.transcript, ""
        if _is_first_request(view):
            due = await describe_git(self._folder, trusted=self._trusted)
        notices = [NoticeItem(due, "environment")] if due else []
        problem = "" if self._is_corrected else self._workspace.sandbox_problem
        if problem:
            self._is_corrected = True
            text = f"Commands run without a sandbox ({problem}), with the rights of the user."
            notices.append(NoticeItem(text, "sandbox"))
        return Transcript([*view, *notices]) if notices else None


def _is_first_request(view: Transcript) -> bool:
    if len(view) > MAX_FIRST_ITEMS or not all(isinstance(i, UserItem | NoticeItem) for i in view):
        return False
    return not any(isinstance(item, NoticeItem) and item.kind == "environment" for item in view)


async def describe_git(folder: Path, *, trusted: bool) -> str:
    """Branch, changes and last commits of the repository that the folder is in; "" without one."""
    top = find_repository(folder)
    if top is None:
        return ""
    if not trusted:
        repository = find_own_repository(top / ".git")
        branch = _cut(read_head(repository)[0]) if repository is not None else ""
        return f"Git, when the session began: branch {branch}." if branch else ""
    from treadle.workspace.worktrees.git import run_git  # starts a process

    status = ("--no-optional-locks", "status", "--porcelain", "--branch")
    log = ("log", f"-{MAX_COMMITS}", "--format=%h %s")
    try:
        async with asyncio.timeout(GIT_SECONDS):
            shown = await asyncio.gather(
                run_git(folder, *status), run_git(folder, *log), return_exceptions=True
            )
    except TimeoutError:
        return ""
    texts = [one if isinstance(one, str) else "" for one in shown]
    if any(not isinstance(one, str | WorkspaceError) for one in shown) or not texts[0]:
        return ""
    return _format_git(texts[0].splitlines(), texts[1].splitlines())


def _format_git(status: list[str], commits: list[str]) -> str:
    branch, changes = status[0].removeprefix("## "), status[1:]
    if branch.startswith(NO_COMMITS):
        branch = f"{branch.removeprefix(NO_COMMITS)}, which has no commits yet"
    lines = [f"Git, when the session began: branch {_cut(branch)}."]
    if changes:
        count = plural(len(changes), "change")
        lines.append(f"{count} of the user, not committed; do not revert them:")
        lines += [_cut(change) for change in changes[:MAX_CHANGES]]
        left = len(changes) - MAX_CHANGES
        lines += [f"... and {left} more"] if left > 0 else []
    else:
        lines.append("No uncommitted changes.")
    lines += ["Last commits:", *map(_cut, commits)] if commits else []
    return "\n".join(lines)


def _cut(line: str) -> str:
    text = line.encode("utf-8", "replace").decode()
    return text if len(text) <= MAX_LINE_CHARS else text[:MAX_LINE_CHARS] + "..."
