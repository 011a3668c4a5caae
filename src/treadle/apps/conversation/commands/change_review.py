"""The changes of a turn, of the session, or against git, as files with their diffs.

One value for all hosts (`/diff`): the terminal (tui/widgets/review_view.py) and the page
(web/panes.py) draw it, others show its text. `drop_hunk` takes one hunk back. What an undo
would do is undo.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from difflib import unified_diff
from io import StringIO
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from treadle.apps.conversation.commands.review import NO_REPOSITORY, read_git, run_git
from treadle.apps.conversation.diff_rows import DiffHunk, DiffRow, count_changes, list_hunks
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.core.errors import ConfigError, SessionNotFound
from treadle.core.transcript.entries import Checkpoint, Restore
from treadle.lib.git.diff import DIFF
from treadle.lib.text.text import plural

if TYPE_CHECKING:
    from treadle.sessions.file_history import PastRestore, WorkSpan
    from treadle.workspace.checkpoints.checkpoints import Checkpoints
    from treadle.workspace.checkpoints.object_store import TreeNode

ReviewScope = Literal["turn", "session", "git"]
SCOPES: tuple[ReviewScope, ...] = get_args(ReviewScope)
_TITLES = {"turn": "the last turn", "session": "this session", "git": "the last commit"}
LAST_TURN = 0
_GIT_DIFF = " ".join((*DIFF, "HEAD"))
_NO_END = "\\ No newline at end of file"
NO_TURN = 0  # the first entry of no turn
_MAX_NEW_FILES = 200  # that git does not know, with their contents

ContentChange = Literal["added", "removed", "changed"]


class ReviewFile(msgspec.Struct, frozen=True):
    """A changed file; `diff` is unified, "" if no line is changed (but the name or the mode), or if
    it is no text (`is_binary`). `old_path`: it was renamed."""

    path: str
    kind: ContentChange | Literal["renamed"]
    diff: str = ""
    old_path: str = ""
    is_binary: bool = False

    @property
    def sign(self) -> str:
        return {"added": "A", "removed": "D", "changed": "M", "renamed": "R"}[self.kind]

    @property
    def title(self) -> str:
        return f"{self.old_path} → {self.path}" if self.old_path else self.path

    @property
    def counts(self) -> str:
        if not self.diff:
            return "no text" if self.is_binary else "the same lines"
        added, removed = count_changes(self.diff)
        return f"+{added} −{removed}"

    def list_hunks(self) -> list[list[DiffRow]]:
        """The rows of each hunk, without its heading."""
        return [hunk.rows for hunk in list_hunks(self.diff) if isinstance(hunk, DiffHunk)]


def make_hunk_key(path: str, rows: Sequence[DiffRow]) -> str:
    """Names a hunk by its file and lines: the same after the file has grown above it."""
    text = "\n".join([path, *(f"{row.kind} {row.text}" for row in rows)])
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


class ReviewTurn(msgspec.Struct, frozen=True):
    """A turn that changed files; `seq` is its first entry."""

    seq: int
    number: int
    text: str


class ChangeReview(msgspec.Struct, frozen=True):
    """`turns` are all that changed files and are not undone, `turn` is the one that is shown."""

    scope: ReviewScope
    files: tuple[ReviewFile, ...] = ()
    turns: tuple[ReviewTurn, ...] = ()
    turn: int = LAST_TURN

    @property
    def title(self) -> str:
        return f"Changes {'since' if self.scope == 'git' else 'of'} {self.subject}: {self.counts}"

    @property
    def subject(self) -> str:
        numbers = [one.number for one in self.turns[:-1] if one.seq == self.turn]
        return f"turn {numbers[0]}" if self.scope == "turn" and numbers else _TITLES[self.scope]

    @property
    def counts(self) -> str:
        counts = [count_changes(file.diff) for file in self.files]
        lines = f"+{sum(one[0] for one in counts)} −{sum(one[1] for one in counts)}"
        return f"{plural(len(self.files), 'file')}, {lines}"

    def find_hunk(self, key: str, number: int) -> tuple[ReviewFile, int]:
        """A hunk by its key: its file, and its number there, from 0. Of several with the same lines
        it is that with the given number. Raises ConfigError if it is not there any more."""
        for file in self.files:
            keys = [make_hunk_key(file.path, rows) for rows in file.list_hunks()]
            places = [at for at, one in enumerate(keys) if one == key]
            if len(places) == 1 or number in places:
                return file, number if number in places else places[0]
        raise ConfigError("the file has changed since: /diff shows it as it is")

    def format_text(self) -> str:
        """All of it as one unified diff."""
        return "\n".join(
            file.diff.rstrip("\n") or f"{file.sign} {file.title} ({file.counts})"
            for file in self.files
        )


async def build_review(
    session: HostedSession, scope: ReviewScope, turn: int = LAST_TURN
) -> ChangeReview:
    """`turn` is the first entry of a turn."""
    if scope == "git":
        return ChangeReview(scope, tuple(await _read_git_files(session)))
    return await _read_own_changes(session, scope, turn)


async def find_review(session: HostedSession) -> ChangeReview:
    """The changes of the last turn, else of the session, else against git: the first that has
    some."""
    for scope in SCOPES[:2]:
        review = await build_review(session, scope)
        if review.files:
            return review
    return await build_review(session, "git")


# --- files of the agent ----------------------------------------------------------------------


async def _read_own_changes(session: HostedSession, scope: ReviewScope, turn: int) -> ChangeReview:
    from treadle.apps.conversation.undo import open_checkpoints
    from treadle.sessions.file_history import read_file_history
    from treadle.sessions.history import list_turns

    try:
        session_dir = await session.flush()
        history = read_file_history(session_dir)
    except SessionNotFound:  # it is on disk from its first message on
        return ChangeReview(scope)
    spans = [one for one in history.list_spans(0) if one.after and one.seq != NO_TURN]
    if not spans:
        return ChangeReview(scope)
    seqs = {one.seq for one in spans}
    turns = tuple(
        ReviewTurn(one.seq, one.number, one.text)
        for one in list_turns(session_dir)
        if one.seq in seqs
    )
    turn = turn if turn in seqs else spans[-1].seq
    if scope == "turn":
        spans = [one for one in spans if one.seq == turn]
    drops = [one for one in history.restores if one.restore.seq == NO_TURN]
    checkpoints = open_checkpoints(session.library, session.folder)
    files = await _compare_spans(checkpoints, spans, drops)
    return ChangeReview(scope, tuple(files), turns, turn)


async def _compare_spans(
    checkpoints: Checkpoints, spans: Sequence[WorkSpan], drops: Sequence[PastRestore]
) -> list[ReviewFile]:
    """What the spans changed, each file from its first state to its last one, without the hunks
    that were dropped since."""
    trees: dict[str, tuple[str, WorkSpan]] = {}
    for span in spans:
        for change in await checkpoints.diff(span.before, span.after):
            trees[change.path] = trees.get(change.path, (span.before, span))[0], span
    files = []
    for path, (before, last) in sorted(trees.items()):
        nodes = await checkpoints.find_file([before, last.after], path)
        old, new = [await _read_node(checkpoints, one) for one in nodes]
        has_hunks = old != new
        for past in drops:
            if past.entry_seq > last.seq:
                new = await _apply_drop(checkpoints, path, new, past)
        if old == new and (has_hunks or nodes[0] == nodes[1]):
            continue
        kind: ContentChange = "changed"
        if old is None or new is None:
            kind = "added" if old is None else "removed"
        files.append(_compare_contents(path, kind, old or b"", new or b""))
    return files


async def _read_node(checkpoints: Checkpoints, node: TreeNode | None) -> bytes | None:
    return None if node is None else await checkpoints.read_content(node)


async def _apply_drop(
    checkpoints: Checkpoints, path: str, content: bytes | None, past: PastRestore
) -> bytes | None:
    """The file without a hunk that was dropped; as it is if it does not have these lines."""
    nodes = await checkpoints.find_file([past.tree_before, past.restore.tree], path)
    whole, left = [await _read_node(checkpoints, one) for one in nodes]
    if content is None or whole == left:
        return content
    text = content.decode(errors="surrogateescape")
    dropped = _compare_contents(path, "changed", left or b"", whole or b"")
    for hunk in dropped.list_hunks():
        shorter = _drop_lines(text, hunk)
        text = text if shorter is None else shorter
    return None if left is None and not text else text.encode(errors="surrogateescape")


def _compare_contents(path: str, kind: ContentChange, old: bytes, new: bytes) -> ReviewFile:
    if b"\0" in old + new:
        return ReviewFile(path, kind, is_binary=True)
    return ReviewFile(path, kind, _make_diff(path, old, new))


def _make_diff(path: str, old: bytes, new: bytes) -> str:
    before, after = (_split_lines(side.decode(errors="replace")) for side in (old, new))
    old_name = f"a/{path}" if old else "/dev/null"
    new_name = f"b/{path}" if new else "/dev/null"
    lines = unified_diff(before, after, old_name, new_name)
    return "".join(one if one.endswith("\n") else f"{one}\n{_NO_END}\n" for one in lines)


def _split_lines(text: str) -> list[str]:
    """The lines with their ends; a carriage return is part of its line."""
    return list(StringIO(text))


# --- git -------------------------------------------------------------------------------------


async def _read_git_files(session: HostedSession) -> list[ReviewFile]:
    if await read_git(session, "rev-parse --git-dir") is None:
        raise ConfigError(NO_REPOSITORY)
    result = await run_git(session, _GIT_DIFF)
    if result.exit_code != 0:
        raise ConfigError(result.output.strip() or f"git diff failed: {result.exit_code}")
    files = [_parse_git_file(part) for part in f"\n{result.output}".split("\ndiff --git ")[1:]]
    listed = await read_git(session, "-c core.quotePath=off ls-files --others --exclude-standard")
    for path in (listed or "").split("\n")[:_MAX_NEW_FILES]:
        try:
            content = (session.folder / path).read_bytes()
        except OSError:
            continue  # none, gone, or a symlink that leads nowhere
        files.append(_compare_contents(path, "added", b"", content))
    return files


def _parse_git_file(part: str) -> ReviewFile:
    """One file of the output of git, without the words `diff --git`."""
    head, _, hunks = part.partition("\n@@ ")
    first, *lines = head.split("\n")
    path = first.rpartition(" b/")[2]
    diff = f"diff --git {part}" if hunks else ""

    def find(prefix: str) -> str | None:
        return next((one.removeprefix(prefix) for one in lines if one.startswith(prefix)), None)

    is_binary = find("Binary files ") is not None
    if (old_path := find("rename from ")) is not None:
        return ReviewFile(path, "renamed", diff, old_path, is_binary)
    kind: ContentChange = "changed" if find("deleted file ") is None else "removed"
    if find("new file ") is not None:
        kind = "added"
    return ReviewFile(path, kind, diff, is_binary=is_binary)


# --- hunks -----------------------------------------------------------------------------------


async def drop_hunk(session: HostedSession, file: ReviewFile, number: int) -> str:
    """Take back one hunk of a file, counted from 0; a line about it. `/redo` brings it back. Raises
    ConfigError if the lines are not there any more."""
    from treadle.apps.conversation.undo import open_checkpoints

    session.require_idle("dropping a hunk")
    checkpoints = open_checkpoints(session.library, session.folder)
    before = (await checkpoints.take()).tree
    [node] = await checkpoints.find_file([before], file.path)
    content = b"" if node is None else await checkpoints.read_content(node)
    text = _drop_lines(content.decode(errors="surrogateescape"), file.list_hunks()[number])
    if text is None or (node is not None and node.kind != "file"):
        raise ConfigError(f"{file.path} has changed since: /diff shows it as it is")
    is_removed = file.kind == "added" and not text
    new = None if is_removed else text.encode(errors="surrogateescape")
    after = await checkpoints.replace_file(before, file.path, new)
    store = session.agent_session.store
    store.append(Checkpoint("", before, restore=Restore("undo", NO_TURN, after)))
    await store.flush()  # before the file changes, so that redo is possible whatever happens
    restored = await checkpoints.apply(before, after)
    if restored.skipped:
        raise ConfigError(f"{file.path} was not changed: {restored.skipped[0].reason}")
    what = f"removed {file.path}" if is_removed else f"dropped hunk {number + 1} of {file.path}"
    return f"{what}; /redo brings it back"


def _drop_lines(text: str, hunk: Sequence[DiffRow]) -> str | None:
    """The text with the old lines of a hunk in place of the new ones; None if it has them not."""
    lines = _split_lines(text)
    old, new = (
        [row.text + "\n" * row.has_end for row in hunk if row.kind != other]
        for other in ("add", "del")
    )
    at = _find_lines(lines, new, next((row.new for row in hunk if row.new), 1) - 1)
    return None if at is None else "".join([*lines[:at], *old, *lines[at + len(new) :]])


def _find_lines(lines: Sequence[str], wanted: Sequence[str], expected: int) -> int | None:
    """Where these lines are: at the expected place, else at the only other one."""
    size = len(wanted)
    if list(lines[expected : expected + size]) == list(wanted):
        return expected
    places = [
        at for at in range(len(lines) - size + 1) if list(lines[at : at + size]) == list(wanted)
    ]
    return places[0] if len(places) == 1 else None
