"""WHAT IS KEPT: a session's log on disk, and what can be done with it.

    journal     the log of one session: a file of lines, appended and never rewritten
    reading     lines back to entries, whatever happened to the file
    folding     lines to the view that a driver goes on from, without holding the whole log
    library     all sessions of this machine: found, listed, removed; searching for their text
    travel      fork and rewind        parking    a turn that waits, on disk
    replay      a session run again    comparing  where two sessions part
    export      a session for people: Markdown, a page, JSON

Below stands the Store contract of the core; above, the agents and the hosts. What a session did
to the files is workspace/checkpoints. The names below are imported when they are used: a list of
sessions needs no event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle._lazy_exports import lazy_exports

if TYPE_CHECKING:
    from treadle.core.errors import SessionInOtherFolder
    from treadle.sessions.library import Library
    from treadle.sessions.log.journal import Journal, ResumedSession, resume
    from treadle.sessions.log.reader import Damage

__all__ = ["Damage", "Journal", "Library", "ResumedSession", "SessionInOtherFolder", "resume"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Damage": "log.reader",
        "Journal": "log.journal",
        "Library": "library",
        "ResumedSession": "log.journal",
        "SessionInOtherFolder": "library",
        "resume": "log.journal",
    },
)
