"""What a worker holds of one of its runs: whether it still has it, and how to let go of it.

    RunControl     one run      Lease   until when no other worker can have taken it
    FenceHook      before each tool: does this worker still have the run?
    GuardedStore   the log of the run; after `abandon` it takes nothing more

The store in the database refuses the entries of a worker that lost the run (queued_store.py). The
hook does the same before a tool that writes no entry first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Coroutine
from typing import Any, TypeVar

from treadle.agents.session import Session
from treadle.apps.fleet.run_record import FleetRun
from treadle.apps.fleet.worker_runs import WorkerRuns
from treadle.core.contracts.hook import Block, HookAnswer, HookInput, HookPoint
from treadle.core.contracts.store import Store
from treadle.core.contracts.wrapped import WrappedStore
from treadle.core.errors import SessionBusy, StoreError, error_message
from treadle.core.transcript.entries import Entry
from treadle.core.transcript.usage import Usage

T = TypeVar("T")
AGAIN_SECONDS = 1.0


async def cancel_tasks(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel the tasks, again if need be, until each has ended."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=AGAIN_SECONDS)


class Lease:
    """How long the last heartbeat of a worker is good for."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._confirmed = -seconds

    def confirm(self, sent: float) -> None:
        """The database has the heartbeat that was sent at this monotonic time."""
        self._confirmed = max(self._confirmed, sent)

    @property
    def is_fresh(self) -> bool:
        """No other worker can have taken a run yet: with half of the lease in reserve."""
        return time.monotonic() - self._confirmed < self.seconds / 2


class RunControl:
    """One run in the hands of a worker."""

    def __init__(self, run: FleetRun, runs: WorkerRuns, lease: Lease) -> None:
        self.run = run
        self.session: Session[Any, Any] | None = None
        self.usage: Usage | None = None  # of the session, after its last step
        self.calls = 0  # of models, in this attempt
        self.is_stopping = False  # the worker stops: let go of the run at the next step
        self._began = time.monotonic()
        self._runs = runs
        self._lease = lease
        self._store: GuardedStore | None = None
        self._check: asyncio.Task[Any] | None = None
        self._has_completed_step = False
        self._lost = ""

    @property
    def seconds(self) -> float:
        """Of work on the run so far, those of earlier workers included."""
        return self.run.seconds + time.monotonic() - self._began

    @property
    def cost(self) -> float | None:
        """Of the run so far; None if it is not known."""
        usage = self.session.usage if self.session is not None else self.usage
        return usage.cost if usage is not None else None

    def guard(self, store: Store) -> Store:
        self._store = GuardedStore(store)
        if self._lost:
            self._store.abandon(self._lost)
        return self._store

    @property
    def store(self) -> Store:
        assert self._store is not None, "the session is open"
        return self._store

    def append(self, entry: Entry) -> None:
        self.store.append(entry)

    async def check_lease(self) -> None:
        """SessionBusy if another worker has the run, StoreError if that cannot be known."""
        if self._lost:
            raise SessionBusy(self._lost)
        if not self._lease.is_fresh and not await self._runs.is_mine(self.run):
            self.lose_to_other()
            raise SessionBusy(self._lost)

    async def note_step(self) -> None:
        """A step was completed. The first attempt needs no row for that."""
        if not self._has_completed_step and self.run.attempts > 1:
            await self._runs.note_step(self.run)
        self._has_completed_step = True

    async def run_check(self, check: Coroutine[Any, Any, T]) -> T:
        """Run what follows the turn; SessionBusy if the run is lost meanwhile: then it is stopped,
        with its processes."""
        task = asyncio.create_task(check)
        self._check = task
        try:
            if self._lost:
                task.cancel()
            return await task
        except asyncio.CancelledError:
            if self._lost and task.cancelled():
                raise SessionBusy(self._lost) from None
            raise
        finally:
            await cancel_tasks([task])
            self._check = None

    def lose_to_other(self) -> None:
        self.lose(f"another worker has the run {self.run.id}, or it was cancelled")

    def lose(self, why: str) -> None:
        """Write nothing more, and stop the model, every tool and the check."""
        self._lost = why
        if self._store is not None:
            self._store.abandon(why)
        if self.session is not None:
            self.session.interrupt(why)
        if self._check is not None:
            self._check.cancel()


class GuardedStore(WrappedStore):
    """The log of a run. After `abandon` entries are dropped, and a flush says why."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._abandoned = ""

    def abandon(self, why: str) -> None:
        self._abandoned = self._abandoned or why

    def append(self, entry: Entry) -> None:
        if not self._abandoned:
            super().append(entry)

    async def flush(self) -> None:
        if self._abandoned:
            raise SessionBusy(self._abandoned)
        await super().flush()

    async def aclose(self) -> None:
        try:
            await super().aclose()
        except StoreError:
            # What could not be written is not there; the next worker continues before it.
            if not self._abandoned:
                raise


class FenceHook:
    """Stops the run before a tool if this worker does not have it any more."""

    points: frozenset[HookPoint] = frozenset({"pre_tool_use"})
    timeout = None  # the database is waited for as long as the store waits

    def __init__(self, control: RunControl) -> None:
        self._control = control

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        try:
            await self._control.check_lease()
        except StoreError as error:
            self._control.lose(error_message(error))
            return Block(error_message(error))
        return None
