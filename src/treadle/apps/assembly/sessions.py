"""Which session is meant: a new one, the last one here, or one by its id.

The sessions themselves are treadle.sessions' business.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.core.contracts.store import Store
from treadle.core.errors import SessionNotFound
from treadle.core.transcript.entries import NoticeShown, View
from treadle.core.transcript.usage import Usage

if TYPE_CHECKING:
    from treadle.sessions.log.journal import Journal


def open_session(resume: str | None, folder: Path) -> tuple[Store, View | None, tuple[str, ...]]:
    """The session's log, what it holds, and notes for the person.

    `resume` is an id or its beginning, "" for the last one of this folder, None for a new one.
    """
    from treadle.sessions.library import Library

    library = Library()
    if resume is None:
        return library.create(folder), None, ()
    if not resume:
        last = library.find_latest(folder)
        if last is None:
            raise SessionNotFound(f"there is no session to continue in {folder}")
        resume = last.name
    resumed = library.resume(resume, folder=folder)
    return resumed.journal, resumed.view, resumed.warnings


def load_earlier_usage(store: Store, view: View | None) -> Usage:
    """What a session that goes on has used, with its child agents; a fork begins with nothing."""
    if view is None:
        return Usage()
    from treadle.sessions.children import ChildSessions
    from treadle.sessions.index import summarize_session
    from treadle.sessions.library import Library

    place = get_session_dir(store)
    # A fork's view holds what it was forked from.
    own = view.usage if _as_journal(store).header.parent is None else summarize_session(place).usage
    return sum((kin.summary.usage for kin in ChildSessions(Library().root).walk(place)), own)


def get_outputs_dir(store: Store) -> Path:
    """Where a session keeps the whole of long outputs, for the model to read on."""
    return get_session_dir(store) / "outputs"


def make_output_saver(outputs: Path) -> Callable[[str, str], str]:
    """Keeps the whole text of an answer that was cut, and says where."""

    def keep(call_id: str, text: str) -> str:
        outputs.mkdir(parents=True, exist_ok=True)
        file = outputs / f"{_make_file_name(call_id)}.txt"
        file.write_text(text, encoding="utf-8", errors="replace")
        return str(file)

    return keep


def create_child_store(folder: Path, store: Store, parent_id: str, call_id: str) -> Store:
    """Where a child agent's session is kept: within that of the session it works for."""
    from treadle.sessions.children import CHILDREN_DIR, list_descendants
    from treadle.sessions.log.journal import Journal

    home = get_session_dir(store)
    if parent_id != store.session_id:  # a child of a child
        home = next((one for one in list_descendants(home) if one.name == parent_id), home)
    place = home / CHILDREN_DIR / f"{_make_file_name(call_id)}-{os.urandom(3).hex()}"
    journal = Journal.create(place, folder=str(folder))
    journal.append(NoticeShown(f"started by call {call_id} of session {parent_id}"))
    return journal


def get_session_dir(store: Store) -> Path:
    """The folder of a session."""
    return _as_journal(store).session_dir


def _as_journal(store: Store) -> Journal:
    from treadle.sessions.log.journal import Journal

    assert isinstance(store, Journal), "sessions of the wiring are journals"
    return store


def _make_file_name(call_id: str) -> str:
    """An id that a provider made up, as a file name."""
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in call_id)[:80]
