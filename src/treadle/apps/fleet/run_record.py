"""The records of a fleet: runs, results, approvals and workers, as values.

    queued ──▶ running ──▶ done | failed
      ▲          │  └────▶ waiting (for an approval) ──▶ queued
      │          └───────▶ parked (until a time)     ──▶ queued
      └── the worker died; after too many attempts: set_aside
    cancelled: from every state that is not an end

The database (database.py) reads and writes them. They know nothing of storage and display.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from treadle.apps.fleet.task import FleetTask
from treadle.core.transcript.usage import Usage

RunState = Literal[
    "queued", "running", "waiting", "parked", "done", "failed", "cancelled", "set_aside"
]
END_STATES: frozenset[RunState] = frozenset({"done", "failed", "cancelled", "set_aside"})


class FleetCheck(msgspec.Struct, frozen=True):
    """What the check command of a task said. `output` is the end of what it printed."""

    passed: bool
    exit_code: int
    output: str = ""


def describe_check(check: FleetCheck) -> str:
    if check.exit_code < 0:
        return "the check was stopped, or could not be run"
    return f"the check ended with exit code {check.exit_code}"


class FleetResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a run ended. `reason` is the terminal reason of the turn; `cost` is in USD, None if a
    price is not known; `check` is None if the task has no check. `cause` groups failures: "" for
    a run that passed, otherwise a short name such as `check_failed`, `max_turns` or `timeout`.
    `turns` is how many turns the session had then; `attempts` counts those of earlier ends, too."""

    reason: str
    text: str = ""
    cost: float | None = 0.0
    usage: Usage = Usage()
    seconds: float = 0.0
    check: FleetCheck | None = None
    cause: str = ""
    turns: int = 0
    attempts: int = 1

    @property
    def passed(self) -> bool:
        return not self.cause


class FleetRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run as the database has it. Times are seconds since 1970.

    `epoch` grows with each worker that takes the run: only the latest may write. `job` is the epoch
    at which the run was queued last: run and job are the id that an engine delivers. `session` is
    the id of its log. `error` says why a run failed or was set aside. `wake` is when a parked run
    continues. `seconds` is how long workers have worked on it, in all attempts and without waits;
    `cost` is what that has cost, in USD, None if it is not known. `earlier_seconds` are those
    before the last retry.
    """

    id: str
    task: FleetTask
    state: RunState = "queued"
    attempts: int = 0
    worker: str = ""
    epoch: int = 0
    session: str = ""
    result: FleetResult | None = None
    error: str = ""
    created: float = 0.0
    started: float | None = None
    ended: float | None = None
    wake: float | None = None
    version: str = ""  # of the program that began the run
    seconds: float = 0.0
    cost: float | None = None
    job: int = 0
    earlier_seconds: float = 0.0

    @property
    def job_id(self) -> str:
        """What an engine knows of the run."""
        return make_job_id(self.id, self.job)

    @property
    def has_ended(self) -> bool:
        return self.state in END_STATES

    @property
    def all_attempts(self) -> int:
        """With those before a retry."""
        if self.result is None:
            return self.attempts
        is_its_end = self.state in ("done", "failed")
        return self.result.attempts + (0 if is_its_end else self.attempts)


def make_job_id(run_id: str, job: int) -> str:
    return f"{run_id}/{job}"


def parse_job_id(job_id: str) -> tuple[str, int]:
    run_id, _, job = job_id.rpartition("/")
    return run_id, int(job)


class FleetApproval(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of a run that waits for a decision. `arguments` is a summary for a person.

    `expires` is when the call is denied if there is no decision; None: never.
    """

    id: str
    run: str
    tool: str
    arguments: str
    created: float = 0.0
    expires: float | None = None


class WorkerRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process that works for the fleet. `heartbeat` is the time of its last heartbeat."""

    id: str
    host: str
    pid: int
    version: str
    heartbeat: float = 0.0
    runs: int = 0


class FleetLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits for all runs together; None: no limit.

    `concurrent_calls`, `requests_per_minute` and `tokens_per_minute` are for each provider;
    `providers` has other ones by the provider's name. `max_cost` is in USD, of all runs.
    """

    concurrent_calls: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_cost: float | None = None
    providers: dict[str, FleetLimits] = {}

    def for_provider(self, provider: str) -> FleetLimits:
        return self.providers.get(provider, self)


class FleetTotals(msgspec.Struct, frozen=True):
    """How many runs are in each state (each state that there is), and what all runs cost so far
    (known prices only). `queue_age` is for how many seconds the oldest queued run is there."""

    states: dict[str, int]
    cost: float = 0.0
    queue_age: float = 0.0

    @property
    def runs(self) -> int:
        return sum(self.states.values())

    @property
    def unfinished(self) -> int:
        return sum(count for state, count in self.states.items() if state not in END_STATES)


class FleetSchedule(msgspec.Struct, frozen=True):
    """A task that runs at times of a time zone ("" is UTC). `next` is the next time, in seconds
    since 1970."""

    name: str
    cron: str
    task: FleetTask
    next: float
    zone: str = ""
