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
from treadle.core.transcript.entries import Parked, Wake
from treadle.sessions.library import Library
from treadle.sessions.summary import Summary


class Waiting(msgspec.Struct, frozen=True):
    """A session that waits, and whether what it waits for has come."""

    summary: Summary
    parked: Parked
    is_due: bool


async def park(store: Store, parked: Parked) -> None:
    """Write down that the turn waits. When this returns, the process may end.

    Close the driver afterwards without interrupting it: an interrupted turn is over.
    """
    store.append(parked)
    await store.flush()


def until(moment: float) -> Wake:
    """A moment, in seconds since 1970."""
    return Wake("time", at=moment)


def is_due(wake: Wake, *, now: float | None = None) -> bool:
    """Whether what was waited for is there. Answers and money come from a person: always due
    to be asked for, never by themselves."""
    match wake.on:
        case "time":
            return (time.time() if now is None else now) >= wake.at
        case "file":
            return Path(wake.path).exists()
        case _:
            return False


def waiting(library: Library, *, now: float | None = None) -> list[Waiting]:
    """Every parked session, those that are due first, the oldest first among them."""
    found = [
        Waiting(summary, summary.parked, is_due(summary.parked.wake, now=now))
        for summary in library.summaries()
        if summary.parked is not None
    ]
    return sorted(found, key=lambda one: (not one.is_due, one.summary.updated))
