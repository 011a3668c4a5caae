"""The law of the state, checked in every test that has a session: live equals the fold of the log.

After each step of a driver with a store in memory, and when a session is closed, whatever its
store. Used by conftest.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from treadle.core.contracts.store import Store
from treadle.core.contracts.wrapped import find_innermost
from treadle.core.errors import StoreError
from treadle.core.loop.driver import Driver
from treadle.core.loop.session_log import SessionLog
from treadle.core.steps import Step
from treadle.core.transcript.entries import Entry
from treadle.core.transcript.state import SessionState, find_differences, fold_entries
from treadle.testing.stores import MemoryStore


class LawCheck:
    """The problems that were found; a test with one fails."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def compare(self, log: SessionLog, entries: Sequence[Entry], when: str) -> None:
        differences = find_differences(log.state, fold_entries(entries))
        if differences:
            names = ", ".join(differences)
            self.problems.append(f"session {log.session_id}, {when}: the log differs in {names}")

    def install(self, patch: pytest.MonkeyPatch) -> None:
        make, step, close = SessionLog.__init__, Driver.next, SessionLog.aclose

        def checked_make(
            log: SessionLog, store: Store | None, state: SessionState | None = None
        ) -> None:
            make(log, store, state)
            vars(log)["is_checked"] = store is not None and _is_fold(store, log.state)

        async def checked_step(driver: Driver) -> Step:
            try:
                return await step(driver)
            finally:
                log = driver.log
                store = find_innermost(log) if vars(log).get("is_checked") else None
                if isinstance(store, MemoryStore):
                    self.compare(log, store.entries, "after a step")

        async def checked_close(log: SessionLog) -> None:
            if vars(log).get("is_checked") and not vars(log).get("_is_closed"):
                store: Any = find_innermost(log)
                try:
                    await log.wrapped.flush()
                    self.compare(log, await store.load(), "at its close")
                except StoreError:
                    pass  # a test about stores that fail
            await close(log)

        patch.setattr(SessionLog, "__init__", checked_make)
        patch.setattr(Driver, "next", checked_step)
        patch.setattr(SessionLog, "aclose", checked_close)


def _is_fold(store: Store, state: SessionState) -> bool:
    """Whether the state can be that of the log: tests may begin with another one, and secrets are
    not written."""
    inner: Any = find_innermost(store)
    redactor = getattr(inner, "redactor", None)
    if redactor is not None and redactor.has_secrets:
        return False
    if isinstance(inner, MemoryStore):
        return not find_differences(fold_entries(inner.entries), state)
    is_empty = getattr(inner, "is_empty", None)
    return is_empty is not None and bool(is_empty) == (state == SessionState())
