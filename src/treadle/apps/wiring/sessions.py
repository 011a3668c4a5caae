"""Which session is meant: a new one, the last one here, or one by its id.

The sessions themselves are treadle.sessions' business.
"""

from __future__ import annotations

import os
from pathlib import Path

from treadle.core.contracts.store import Store
from treadle.core.errors import SessionUnknown
from treadle.core.transcript.entries import View


def open_session(resume: str | None, folder: Path) -> tuple[Store, View | None, tuple[str, ...]]:
    """The session's log, what it holds, and notes for the person.

    `resume` is an id or its beginning, "" for the last one of this folder, None for a new one.
    """
    from treadle.sessions.library import Library

    library = Library()
    if resume is None:
        return library.create(folder), None, ()
    if not resume:
        last = library.latest(folder)
        if last is None:
            raise SessionUnknown(f"there is no session to continue in {folder}")
        resume = last.name
    resumed = library.resume(resume, folder=folder)
    return resumed.journal, resumed.view, resumed.notes


def child_store(folder: Path, store: Store, call_id: str) -> Store:
    """Where a child agent's session is kept: within its parent's."""
    from treadle.sessions.journal import Journal

    assert isinstance(store, Journal), "sessions of the wiring are journals"
    word = "".join(c if c.isalnum() or c in "-_" else "-" for c in call_id)[:80]
    place = store.place / "children" / f"{word}-{os.urandom(3).hex()}"
    return Journal.create(place, folder=str(folder))
