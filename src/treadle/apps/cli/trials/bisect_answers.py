"""`treadle bisect --ask`: since which point of a session the answer to a question fails a check.

A point is after a turn, before or after a compaction, or where another model takes over. At each
one a fork of the session answers the question, with the files and the model of that point, in one
git worktree; half of what is left is ruled out by each answer. The session does not change.
"""

from __future__ import annotations

import argparse
import secrets
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from treadle.apps.cli.session_worktree import WORKTREES_DIR
from treadle.apps.cli.trials.trial import (
    CheckNotRun,
    find_first,
    load_trial_settings,
    remove_worktree,
    run_agent,
    run_check,
    shorten,
    write_files,
)
from treadle.apps.console.console import UsageError, print_line
from treadle.apps.console.exit_codes import ERROR, SUCCESS
from treadle.apps.console.variants import CHECK_RESULTS
from treadle.apps.settings.folder_rules import open_trust_store
from treadle.core.errors import StoreError
from treadle.core.transcript.entries import TurnBegan, TurnEnded, UsageRecorded, ViewRewritten
from treadle.lib.files.private_files import find_state_dir
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import format_dollars, plural
from treadle.sessions.history import TurnInfo, find_turn, list_turns
from treadle.sessions.library import Library
from treadle.sessions.log.journal import read_records
from treadle.workspace.worktrees.session_worktrees import SessionWorktrees
from treadle.workspace.worktrees.worktrees import Worktree

MAX_ANSWER = 100_000  # characters that a check gets
NO_COMPACTION = "100%"  # of the window: it would hide what the point before it answers


class Point(msgspec.Struct, frozen=True):
    """The session up to the entry `seq`, its files then, and the model that answers. `cause` is
    what is new here."""

    name: str
    cause: str
    seq: int
    tree: str
    model: str


def list_points(session_dir: Path, model: str = "") -> list[Point]:
    """All points in their order; with `model` it answers everywhere."""
    turns = {one.seq: one for one in list_turns(session_dir)}
    points: list[Point] = []
    turn: TurnInfo | None = None
    tree, used, is_open = "", model, False
    for record, entry in read_records(session_dir, kinds=("turn", "end", "usage", "compaction")):
        if isinstance(entry, TurnBegan) and not entry.continues:
            turn, is_open = turns.get(record.seq), True  # None: it was rewound
        if turn is None:
            continue
        broke, last = f"turn {turn.number} broke it", points[-1] if points else None
        match entry:
            case TurnBegan():
                tree = turn.checkpoint_before or tree
            case UsageRecorded(purpose="turn" | "", model=name) if name != used and not model:
                if last is not None:
                    cause = f"the change of the model to {name} broke it"
                    points.append(
                        Point(f"with {name} {last.name}", cause, last.seq, last.tree, name)
                    )
                used = name
            case ViewRewritten(start=start, stop=stop, is_repair=False) if last and start < stop:
                where = f"the compaction {'in' if is_open else 'after'} turn {turn.number}"
                if is_open:
                    cause = f"{broke}, before its compaction"
                    points.append(Point(f"before {where}", cause, record.seq - 1, tree, used))
                points.append(Point(f"after {where}", f"{where} broke it", record.seq, tree, used))
            case TurnEnded():
                is_open, tree = False, turn.checkpoint_after or tree
                name = f"after turn {turn.number}"
                if last is not None and last.name == name:  # it was continued
                    points.pop()
                points.append(Point(name, f"{broke}: {shorten(turn.text)}", record.seq, tree, used))
            case _:
                pass
    return points


async def bisect_answers(options: argparse.Namespace, rest: Sequence[str]) -> int:
    library = Library()
    session_dir = library.find(options.id, by_words=True)
    folder = Path(library.get_summary(session_dir).folder)
    _, limit = load_trial_settings(folder, options.max_cost)
    first = find_turn(session_dir, options.first or "1").number
    points = list_points(session_dir, options.model)
    names = [one.name for one in points]
    begin = f"after turn {first}"
    points = points[names.index(begin) :] if begin in names else []
    if len(points) < 2:
        raise StoreError(f"session {session_dir.name} has nothing {begin}")
    worktrees = SessionWorktrees(folder, find_state_dir() / WORKTREES_DIR)
    worktree = await worktrees.enter(f"bisect-{secrets.token_hex(2)}")
    try:
        open_trust_store().copy_decision(folder, worktree.root)
        search = _Search(library, session_dir, folder, worktree, options, rest, limit)
        found = await find_first(
            len(points), lambda at: search.passes(points[at]), f"{begin} already"
        )
    finally:
        worktree.release()
        await remove_worktree(worktree)
    count = f"{plural(search.answers, 'answer')}, {format_dollars(search.cost)}"
    print_line(f"{points[found[1]].cause} ({count})" if found else count)
    return SUCCESS if found else ERROR


class _Search(msgspec.Struct):
    library: Library
    session_dir: Path
    folder: Path
    worktree: Worktree
    options: argparse.Namespace
    rest: Sequence[str]
    max_cost: float
    cost: float = 0.0
    answers: int = 0

    async def passes(self, point: Point) -> bool:
        answer = await self._ask(point)
        # The answer is the input of the check.
        command = f"printf '%s\\n' {shlex.quote(answer)} | (\n{self.options.check}\n)"
        root, timeout = self.worktree.root, self.options.timeout
        try:
            done = await run_check(self.folder, root, command, timeout)
        except CheckNotRun as error:
            raise UsageError(f"the check did not run to its end {point.name} {error}") from error
        passed = done.exit_code == 0
        how = "" if passed else f" ({done.describe_failure()})"
        print_line(f"{point.name}: {CHECK_RESULTS[passed]}{how}: {shorten(answer)}")
        return passed

    async def _ask(self, point: Point) -> str:
        from treadle.apps.conversation.undo import fork_session

        root = self.worktree.root
        if point.tree:
            await write_files(self.library, self.folder, root, point.tree)
        session = await fork_session(self.library, self.session_dir, root, last_seq=point.seq)
        words = (*self.rest, *(("--model", point.model) if point.model else ()))
        left = max(self.max_cost - self.cost, 0.0)
        ask, late = self.options.ask, NO_COMPACTION
        report = await run_agent(root, session, words, ask, left, TREADLE_COMPACT_AT=late)
        self.cost += report["usage"].get("cost") or 0.0
        self.answers += 1
        text: str = report["text"]
        if report["reason"] != "end_turn":
            why = report["error"] or report["detail"] or report["reason"]
            raise UsageError(f"there is no answer {point.name}: {escape_invisible(why)}")
        if len(text) > MAX_ANSWER:
            raise UsageError(f"the answer {point.name} is too long for a check")
        return text
