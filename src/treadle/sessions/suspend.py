"""Turns that wait on disk: the process may end, and another goes on exactly there.

A turn is parked by an entry that says why and what wakes it. It stays open: who resumes the
session has the same pending move before him, so nothing needs to be restored. Hosts decide when
to park and whether to wake by themselves what costs money.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from treadle.core.contracts.store import Store
from treadle.core.transcript.entries import Suspended, WakeCondition
from treadle.sessions.index import SessionSummary
from treadle.sessions.library import Library


class SuspendedSession(msgspec.Struct, frozen=True):
    """A session that waits, and whether what it waits for has come."""

    summary: SessionSummary
    entry: Suspended
    is_due: bool


async def suspend_turn(store: Store, entry: Suspended) -> None:
    """Write down that the turn waits. When this returns, the process may end.

    Close the driver afterwards without interrupting it: an interrupted turn is over.
    """
    store.append(entry)
    await store.flush()


def wake_at(timestamp: float) -> WakeCondition:
    """A moment, in seconds since 1970."""
    return WakeCondition("time", at=timestamp)


def is_due(wake: WakeCondition, *, now: float | None = None) -> bool:
    """Whether what was waited for is there. Answers and money come from a person: always due
    to be asked for, never by themselves."""
    match wake.on:
        case "time":
            return (time.time() if now is None else now) >= wake.at
        case "file":
            return Path(wake.path).exists()
        case _:
            return False


def list_suspended(library: Library, *, now: float | None = None) -> list[SuspendedSession]:
    """Every parked session, those that are due first, the oldest first among them."""
    found = [
        SuspendedSession(summary, summary.suspended, is_due(summary.suspended.wake, now=now))
        for summary in library.list_summaries()
        if summary.suspended is not None
    ]
    return sorted(found, key=lambda one: (not one.is_due, one.summary.updated))
