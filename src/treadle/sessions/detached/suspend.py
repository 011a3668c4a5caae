"""Suspended turns: they wait on disk, and another process can continue them.

An entry in the log gives the reason and the condition to wake. The turn stays open: a resumed
session has the same pending move, so nothing needs to be restored. The hosts decide when to suspend
a turn and whether to resume one without the user.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from treadle.core.contracts.store import Store
from treadle.core.transcript.entries import Suspended, WakeCondition
from treadle.sessions.library import Library
from treadle.sessions.summaries import SessionSummary


class SuspendedSession(msgspec.Struct, frozen=True):
    """A suspended session, and whether its condition to wake is met."""

    summary: SessionSummary
    entry: Suspended
    is_due: bool


async def suspend_turn(store: Store, entry: Suspended) -> None:
    """Record durably that the turn waits; after that the process may end.

    Close the driver afterwards without interrupting it: an interrupted turn is over.
    """
    store.append(entry)
    await store.flush()


def is_due(wake: WakeCondition, *, now: float | None = None) -> bool:
    """Whether the condition is met. Answers and budgets come from the user, so never by itself."""
    match wake.on:
        case "time":
            return (time.time() if now is None else now) >= wake.at
        case "file":
            return Path(wake.path).exists()
        case _:
            return False


def list_suspended(library: Library, *, now: float | None = None) -> list[SuspendedSession]:
    """Every suspended session: due ones first, then the oldest first."""
    sessions = [
        SuspendedSession(summary, summary.suspended, is_due(summary.suspended.wake, now=now))
        for summary in library.list_summaries()
        if summary.suspended is not None
    ]
    return sorted(sessions, key=lambda session: (not session.is_due, session.summary.updated))
