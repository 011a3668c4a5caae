"""Opens the session of an agent: a new one, the last one of the folder, or one by its id.

Also where its long outputs, its checkpoints and the sessions of its subagents are stored. Uses
treadle.sessions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.assembly.lazy import Lazy
from treadle.context.cache_monitor import CACHE_SECONDS, HeadLog, count_cached
from treadle.core.contracts.store import Store
from treadle.core.contracts.wrapped import find_innermost
from treadle.core.errors import SessionNotFound, WorkspaceError
from treadle.core.loop.session_log import SessionLog
from treadle.core.transcript.pending import last_reply
from treadle.core.transcript.state import SessionState
from treadle.core.transcript.usage import Usage
from treadle.lib.files.private_files import make_private_folder

if TYPE_CHECKING:
    from treadle.agents.child_agents import ChildAgents
    from treadle.sessions.log.journal import Journal
    from treadle.workspace.checkpoints.checkpoints import Checkpoints, FileSnapshot


def open_session(
    resume: str | None, folder: Path, secrets: Sequence[str] = (), origin: str = ""
) -> tuple[SessionLog, SessionState | None, tuple[str, ...]]:
    """The store of the session, its view, and notes for the user.

    `resume` is an id, or its beginning or end, "" for the last session of the folder, None for a
    new one. `secrets` are not written to its log. `origin`: see JournalHeader.
    """
    from treadle.sessions.library import Library
    from treadle.sessions.log.entry_redaction import EntryRedactor

    library = Library()
    if resume is None:
        journal = library.create(folder, origin=origin)
        journal.redactor = EntryRedactor(secrets)
        return SessionLog(journal), None, ()
    if not resume:
        last = library.find_latest(folder)
        if last is None:
            raise SessionNotFound(f"no session to continue in {folder}")
        resume = last.name
    resumed = library.resume(resume, folder=folder)
    resumed.journal.redactor = EntryRedactor(secrets)
    return SessionLog(resumed.journal, resumed.state), resumed.state, resumed.warnings


def load_earlier_usage(store: Store | None, view: SessionState | None) -> Usage:
    """What a resumed session and its subagents used before; a fork starts at zero."""
    if view is None or store is None:
        return Usage()
    from treadle.sessions.children import ChildSessions
    from treadle.sessions.library import Library
    from treadle.sessions.summaries import summarize_session

    session_dir = get_session_dir(store)
    own = view.usage
    if _as_journal(store).header.parent is not None and not view.origins:
        own = summarize_session(session_dir).usage  # a fork of an earlier version has its parent's
    children = ChildSessions(Library().root).walk(session_dir)
    return sum((child.summary.usage for child in children), own)


def make_head_log(store: Store, view: SessionState | None, *, memory_chars: int = 0) -> HeadLog:
    """Where the head of each request is recorded, with the last one of a resumed session."""
    head = view.request_head if view is not None else None
    reply = last_reply(view.transcript) if view is not None else None
    tokens, until = 0, 0.0
    if head is not None and reply is not None:
        tokens, until = count_cached(reply.usage), _get_last_change(store) + CACHE_SECONDS
    return HeadLog(store.session_id, store.append, head, tokens, until, memory_chars)


def _get_last_change(store: Store) -> float:
    """When the session was written."""
    files = get_session_dir(store).glob("journal*.jsonl")
    return max([file.stat().st_mtime for file in files], default=0.0)


def get_outputs_dir(store: Store | None) -> Path:
    """The folder for the full text of truncated outputs, which the model can read.

    Without a session it is a temporary one, not made yet.
    """
    if store is None:
        import tempfile

        return Path(tempfile.gettempdir()) / f"treadle-outputs-{os.urandom(8).hex()}"
    return get_session_dir(store) / "outputs"


def make_output_saver(outputs: Path) -> Callable[[str, str], str]:
    """A function that stores the full text of a truncated output and returns its path."""

    def save(call_id: str, text: str) -> str:
        make_private_folder(outputs)
        file = outputs / f"{_make_file_name(call_id)}.txt"
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8", errors="replace") as out:
            out.write(text)
        return str(file)

    return save


def make_child_agents(store: Store, origins: Sequence[str]) -> ChildAgents:
    """The subagents of a session, which are stored inside its folder; those of the sessions that it
    was forked from can be continued."""
    from treadle.agents.child_agents import ChildAgents
    from treadle.sessions.children import CHILDREN_DIR
    from treadle.sessions.log.reader import find_session_dir

    session_dir, known = get_session_dir(store), list[tuple[str, Path]]()
    for origin in origins:
        with suppress(SessionNotFound):
            known.append((origin, find_session_dir(session_dir, origin) / CHILDREN_DIR))
    return ChildAgents(session_dir / CHILDREN_DIR, known, store)


def get_session_dir(store: Store) -> Path:
    return _as_journal(store).session_dir


def _as_journal(store: Store) -> Journal:
    from treadle.sessions.log.journal import Journal

    journal = find_innermost(store)
    assert isinstance(journal, Journal), "open_session returns journals"
    return journal


def _make_file_name(call_id: str) -> str:
    """The id of a call, which the provider chose, as a file name."""
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in call_id)[:80]


def may_take_checkpoints(folder: Path) -> bool:
    """Whether a folder gets checkpoints: not the home folder or one above it, too much to copy."""
    return not Path.home().resolve().is_relative_to(folder)


class LazyCheckpoints:
    """Takes checkpoints of a folder, if it may have any."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.is_possible = may_take_checkpoints(folder)
        self._checkpoints = Lazy(self._make)

    async def take(self, named: Collection[str] = ()) -> FileSnapshot:
        if not self.is_possible:
            raise WorkspaceError(f"{self.root} contains your home folder, which is not copied")
        return await self._checkpoints.get().take(named)

    def leaves_out(self, named: Collection[str]) -> bool:
        return self.is_possible and self._checkpoints.get().leaves_out(named)

    def close(self) -> None:
        if self._checkpoints.is_made:
            self._checkpoints.get().close()

    def _make(self) -> Checkpoints:
        from treadle.sessions.library import Library
        from treadle.workspace.checkpoints.checkpoints import Checkpoints

        return Checkpoints(self.root, Library().checkpoint_dir(self.root))
