"""Rows of the database as records, and back. Used by sql_database.py and worker_runs.py."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from treadle.apps.fleet.run_record import FleetResult, FleetRun
from treadle.apps.fleet.task import FleetTask
from treadle.lib.text.text import fix_surrogates

RUN_COLUMNS = (
    "id, task, state, attempts, worker, epoch, session, result, error, created, started, ended, "
    "wake, version, seconds, cost, job, earlier_seconds"
)

read_task = msgspec.json.Decoder(FleetTask).decode
_decode_result = msgspec.json.Decoder(FleetResult).decode


def read_run(row: tuple[Any, ...]) -> FleetRun:
    run_id, task, state, attempts, worker, epoch, session, result, *rest = row
    return FleetRun(
        run_id,
        read_task(task),
        state,
        attempts,
        worker,
        epoch,
        session,
        _decode_result(result) if result else None,
        *rest,
    )


def write_json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # half of a surrogate pair, which no database keeps
        return fix_surrogates(json.dumps(msgspec.to_builtins(value), ensure_ascii=False))


def make_version_number(version: str) -> int:
    """A number that grows with the version: 1.2.3 is 1002003; what follows a letter is left out."""
    number = 0
    for part in (*version.split("."), "0", "0")[:3]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        number = number * 1000 + min(int(digits or 0), 999)
    return number


def is_newer_version(begun: str, here: str) -> bool:
    """Whether a run was begun by a version that is newer than the one here."""
    return make_version_number(begun) > make_version_number(here)


def describe_newer(run: FleetRun, here: str) -> str:
    return (
        f"run {run.id} was begun by treadle {run.version}; this is {here}: start a worker of that "
        "version to continue it"
    )
