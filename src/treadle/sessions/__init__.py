"""Sessions on disk: their logs, and what can be done with them.

    log/        the log of one session: written, locked, read back, loaded into a view
    library     all sessions of this machine: find, list, remove; search finds text in them
    session_place  those of a folder or a database of a program; export makes texts of them
    history     fork and rewind
    detached/   sessions that no window has: suspended, in the background, sent elsewhere
    replay      runs a session again, and finds the first difference of two sessions
    imports/    transcripts of Claude Code and Codex become sessions
    summaries   for lists              cost      costs of past sessions

Uses the Store contract of the core; used by the agents and the hosts. Changes that a session made
to files are in workspace/checkpoints. The names below load at first use: a list of sessions needs
no event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.lib.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from treadle.core.errors import SessionInOtherFolder
    from treadle.sessions.history import fork, list_turns, rewind
    from treadle.sessions.library import Library
    from treadle.sessions.log.journal import Journal, ResumedSession, resume
    from treadle.sessions.log.reader import Damage
    from treadle.sessions.sqlite_store import SqliteStore

__all__ = [
    "Damage",
    "Journal",
    "Library",
    "ResumedSession",
    "SessionInOtherFolder",
    "SqliteStore",
    "fork",
    "list_turns",
    "resume",
    "rewind",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Damage": "log.reader",
        "Journal": "log.journal",
        "Library": "library",
        "ResumedSession": "log.journal",
        "SessionInOtherFolder": "treadle.core.errors",
        "SqliteStore": "sqlite_store",
        "fork": "history",
        "list_turns": "history",
        "resume": "log.journal",
        "rewind": "history",
    },
)
