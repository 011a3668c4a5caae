"""What the cost of the sessions of a folder belongs to: files, commits, issues.

The cost of a turn, with its child agents, is shared evenly by the files that it changed (by their
checkpoints), and belongs to the next commit that has one of these files; that of a turn without
changes to the commit of the next turn with some. An issue is what the message of the commit names:
`#12`, or `ABC-12` if the user says that ABC is the key of a project. Nothing is guessed: the rest
is "no file", "no commit" or "no issue". Used by `treadle cost --by`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from treadle.apps.console.variants import BRANCH_PREFIX
from treadle.core.errors import StoreError, WorkspaceError
from treadle.core.transcript.entries import (
    Checkpoint,
    ChildUsageRecorded,
    Forked,
    TurnBegan,
    UsageRecorded,
)
from treadle.lib.git.run import GitError, run_git
from treadle.sessions.library import Library, list_journals, project_name
from treadle.sessions.log.journal import read_records
from treadle.workspace.worktrees.worktrees import format_ref

Owner = Literal["file", "commit", "issue"]
NUMBER = r"(?<![\w#])#\d+\b"
_KINDS = ("turn", "usage", "child_usage", "checkpoint", "fork")


class OwnedCost(msgspec.Struct):
    """A sum; `unpriced_calls` are model calls without a known price, which are not in `cost`."""

    key: str
    cost: float = 0.0
    turns: int = 0
    unpriced_calls: int = 0


class _Turn(msgspec.Struct):
    began: float
    cost: float = 0.0
    unpriced_calls: int = 0
    spans: list[Checkpoint] = []
    files: frozenset[str] = frozenset()


class _Commit(msgspec.Struct, frozen=True):
    name: str
    time: int
    message: str
    files: frozenset[str]


def load_owned_costs(
    folder: Path, by: Owner, since: float | None, issue_keys: Sequence[str] = ()
) -> list[OwnedCost]:
    """The sums of the sessions of this folder, the highest first. Raises StoreError."""
    issue = re.compile("|".join((NUMBER, *(rf"\b{re.escape(key)}-\d+\b" for key in issue_keys))))
    return asyncio.run(_load(Library(), folder, by, since, issue))


async def _load(
    library: Library, folder: Path, by: Owner, since: float | None, issue: re.Pattern[str]
) -> list[OwnedCost]:
    commits = [] if by == "file" else await _read_commits(folder)
    totals: dict[str, OwnedCost] = {}
    for path, _ in list_journals(str(library.root / project_name(folder))):
        turns = [one for one in _read_turns(Path(path)) if since is None or one.began >= since]
        await _find_files(library, folder, turns)
        owner: _Commit | None = None
        for turn in reversed(turns):
            owner = _find_commit(turn, commits) if turn.files else owner
            keys = _list_keys(by, turn, owner, issue)
            for key in keys:
                total = totals.setdefault(key, OwnedCost(key))
                total.cost += turn.cost / len(keys)
                total.turns += 1
                total.unpriced_calls += turn.unpriced_calls
    return sorted(totals.values(), key=lambda one: (-one.cost, one.key))


def _list_keys(
    by: Owner, turn: _Turn, commit: _Commit | None, issue: re.Pattern[str]
) -> Sequence[str]:
    if by == "file":
        return sorted(turn.files) or ["no file"]
    if commit is None:
        return [f"no {by}"]
    if by == "commit":
        return [f"{commit.name[:8]} {commit.message.partition(chr(10))[0]}"]
    return sorted(set(issue.findall(commit.message))) or ["no issue"]


def _read_turns(session_dir: Path) -> list[_Turn]:
    """Those of the session itself, not what a fork has from its parent."""
    turns: list[_Turn] = []
    with contextlib.suppress(StoreError):  # not readable, or removed meanwhile
        for record, entry in read_records(session_dir, kinds=_KINDS):
            match entry:
                case Forked():
                    turns.clear()
                case TurnBegan(continues=False):
                    turns.append(_Turn(record.time))
                case UsageRecorded(usage=usage) | ChildUsageRecorded(usage=usage) if turns:
                    turns[-1].cost += usage.cost or usage.known_cost
                    turns[-1].unpriced_calls += usage.cost is None
                case Checkpoint(restore=None) if turns:
                    turns[-1].spans.append(entry)
                case _:
                    pass
    return turns


async def _find_files(library: Library, folder: Path, turns: Sequence[_Turn]) -> None:
    from treadle.workspace.checkpoints.checkpoints import Checkpoints

    checkpoints = Checkpoints(folder, library.checkpoint_dir(folder))
    for turn in turns:
        files: set[str] = set()
        for before, after in zip(turn.spans, turn.spans[1:], strict=False):
            if (before.side, after.side) == ("before", "after") and before.tree != after.tree:
                with contextlib.suppress(WorkspaceError):  # pruned
                    files |= {one.path for one in await checkpoints.diff(before.tree, after.tree)}
        turn.files = frozenset(files)


def _find_commit(turn: _Turn, commits: Sequence[_Commit]) -> _Commit | None:
    """The first one since the turn began that has one of its files; times of git are seconds."""
    later = (one for one in commits if one.time >= int(turn.began))
    return next((one for one in later if not turn.files.isdisjoint(one.files)), None)


async def _read_commits(folder: Path) -> list[_Commit]:
    """Those of all branches, oldest first, with the files below the folder; not the variants of
    `treadle whatif`, whose files and times are those of earlier turns."""
    environment = {**os.environ, "GIT_NO_LAZY_FETCH": "1"}
    branches = ("--single-worktree", f"--exclude={format_ref(BRANCH_PREFIX)}*", "--all")
    query = ("log", *branches, "--no-merges", "--name-only", "-z", "--relative", "--no-renames")
    form = ("--no-show-signature", "--format=%x01%H%x02%ct%x02%B%x02")
    try:
        text = await run_git(folder, *query, *form, environment=environment)
    except GitError as error:
        raise StoreError(f"commits and issues need a git repository: {error}") from error
    commits = []
    for part in text.split("\x01")[1:]:
        name, time, message, files = part.split("\x02", 3)
        names = frozenset(one.strip("\n") for one in files.split("\0") if one.strip("\n"))
        commits.append(_Commit(name, int(time), message.strip(), names))
    return sorted(commits, key=lambda one: one.time)
