"""The contract of a run engine: it brings the id of a job to a worker that is alive.

An engine knows nothing of agents, sessions or money: a job is an id. What the id stands for, and
that two deliveries of it have one effect, is the caller's (a fleet: its record of the run and the
epoch, apps/fleet). Implementations: apps/fleet/engines. Suite: `treadle.testing.check_run_engine`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

JobState = Literal["delayed", "queued", "delivered"]
Deliver = Callable[[str], Awaitable[None]]


class RunJob(msgspec.Struct, frozen=True):
    """A job to deliver, not before `delay` seconds have passed.

    `resources` is what its worker needs for it: `cpus`, `memory` (bytes), `gpus`. An engine that
    chooses between machines heeds it; others need not.
    """

    id: str
    delay: float = 0.0
    resources: Mapping[str, float] = {}


class JobRecord(msgspec.Struct, frozen=True):
    """A job that has not ended; `worker` is the one that has it, "" if none has."""

    id: str
    state: JobState
    worker: str = ""


class RunEngine(Protocol):
    """Delivers jobs to workers, in this process and in others, on one or more machines.

    Promises:
    - A job is durable when `submit` returns. The same id twice, while the job has not ended, is one
      job.
    - Each job is delivered at least once to a worker that is alive, the oldest first, and to no
      second worker before `abandon` or `stop` of the first.
    - A job ends when `deliver` returns. If it raises, the job is delivered again, anywhere.
    - A worker is given at most `concurrency` jobs at once. An engine may have one number for all
      workers, that of the last start: then jobs above its own number wait in a worker.
    - A database or cluster that is gone for a while is waited for; what was submitted is not lost.
    An engine has no record of steps or results, and does not decide which worker is dead: the
    caller knows that, and calls `abandon`.
    """

    name: str
    is_remote: bool  # whether other processes call `deliver`: then it has to be picklable
    default_concurrency: int  # of a worker that does not say it

    async def submit(self, jobs: Sequence[RunJob]) -> None: ...

    async def start(
        self, worker: str, concurrency: int, deliver: Deliver, *, poll: float = 1.0
    ) -> None:
        """Deliver jobs to this worker from now on, until `stop`; one worker of an engine. `poll`:
        seconds between two looks, for an engine that has to look."""

    async def stop(self) -> None:
        """Deliver nothing more here. Jobs whose `deliver` has not returned go to other workers."""

    async def abandon(self, worker: str) -> None:
        """This worker is dead: its jobs go to others. Harmless if it has none."""

    async def cancel(self, ids: Collection[str]) -> None:
        """Jobs that wait are not delivered any more; what is delivered goes on."""

    async def delete(self, ids: Collection[str]) -> None:
        """Keep nothing of these jobs, which have ended or are cancelled: an id may come again."""

    async def list(self) -> Sequence[JobRecord]:
        """The jobs that have not ended, the oldest first."""

    async def aclose(self) -> None: ...
