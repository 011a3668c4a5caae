"""`treadle fleet status` and `treadle fleet logs`."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import time
from collections.abc import Sequence

import msgspec

from treadle.apps.console.console import print_line
from treadle.apps.console.exit_codes import SUCCESS
from treadle.apps.fleet.commands.selection import find_run, name_command, select_runs, use_database
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.limits import describe_spent
from treadle.apps.fleet.reports.live_table import (
    LiveTable,
    format_ended,
    format_open,
    format_table,
)
from treadle.apps.fleet.reports.local_session import read_session
from treadle.apps.fleet.run_record import FleetRun, WorkerRecord
from treadle.apps.fleet.worker_registry import DEFAULT_LEASE
from treadle.lib.text.sanitize import escape_invisible, strip_escapes
from treadle.lib.text.text import format_age, plural
from treadle.sessions.export import render_markdown

POLL_SECONDS = 0.5
MAX_OPEN = 50  # runs that have not ended
MAX_ENDED = 20  # runs that ended, of the last ones
MAX_LOST = 5  # runs without a worker that are named
SILENT = "it is dead, or it cannot write to the database"


def print_status(options: argparse.Namespace) -> int:
    return use_database(options, lambda database: _print_status(database, options))


async def _print_status(database: FleetDatabase, options: argparse.Namespace) -> int:
    if options.watch:
        return await _watch(database, options)
    runs, workers = await select_runs(database, options), await database.workers()
    approvals = await database.approvals()
    if options.json:
        schedules = await database.schedules()
        found: dict[str, object] = {"engine": database.engine_name, "runs": runs}
        found |= {"workers": workers, "approvals": approvals, "schedules": schedules}
        print(msgspec.json.encode(found).decode())
        return SUCCESS
    now = time.time()
    if not runs:
        print("no runs")
    else:
        width = max(40, shutil.get_terminal_size().columns)
        table = format_table(runs, now, width, MAX_OPEN, name_command(database, "approve"))
        for line in table + _format_ended_runs(runs):
            print_line(line)
    print_line(f"engine {database.engine_name}, {plural(len(workers), 'worker')}")
    max_cost = (await database.limits()).max_cost
    if max_cost is not None:
        spent = describe_spent(await database.spent(), max_cost)
        print_line(f"{spent}; a call whose outcome is not known costs what was reserved for it")
    for worker in workers:
        print_line(_format_worker(worker, now))
    if lost := [run.id for run in runs if _has_lost_worker(run, workers, now)]:
        print_line(_format_lost_runs(lost, name_command(database, "worker")))
    if approvals:
        count = plural(len(approvals), "call waits", "calls wait")
        print_line(f"{count} for approval: {name_command(database, 'approve')}")
    return SUCCESS


def _format_ended_runs(runs: list[FleetRun]) -> list[str]:
    ended = sorted((run for run in runs if run.has_ended), key=lambda run: run.ended or 0.0)
    more = len(ended) - MAX_ENDED
    lines = [f"  {plural(more, 'earlier run')} ended"] if more > 0 else []
    return lines + [f"  {format_ended(run)}" for run in ended[-MAX_ENDED:]]


def _format_worker(worker: WorkerRecord, now: float) -> str:
    text = f"worker {worker.id} on {worker.host}: {plural(worker.runs, 'run')}"
    age = now - worker.heartbeat
    if not _is_silent(worker, now):
        return escape_invisible(f"{text}, last heartbeat now")
    shown = format_age(age) if age >= 60 else f"{age:.0f}s ago"
    return escape_invisible(f"{text}, last heartbeat {shown} ({SILENT})")


def _is_silent(worker: WorkerRecord, now: float) -> bool:
    return now - worker.heartbeat > DEFAULT_LEASE


def _has_lost_worker(run: FleetRun, workers: Sequence[WorkerRecord], now: float) -> bool:
    """Whether no process works on a run that is running by the database: a worker that lives would
    have put it back into the queue."""
    alive = {worker.id for worker in workers if not _is_silent(worker, now)}
    return run.state == "running" and run.worker not in alive


def _format_lost_runs(lost: Sequence[str], command: str) -> str:
    more = f" and {len(lost) - MAX_LOST:,} more" if len(lost) > MAX_LOST else ""
    text = f"{plural(len(lost), 'run has', 'runs have')} lost the worker: "
    text += f"{', '.join(lost[:MAX_LOST])}{more}; the next worker continues: {command}"
    return escape_invisible(text)


async def _watch(database: FleetDatabase, options: argparse.Namespace) -> int:
    table = LiveTable(sys.stdout, name_command(database, "approve"))
    while True:
        runs = await select_runs(database, options)
        if all(run.has_ended for run in runs):
            table.finish(runs, time.time())
            return SUCCESS
        table.update(runs, time.time())
        await asyncio.sleep(POLL_SECONDS)


def print_logs(options: argparse.Namespace) -> int:
    return use_database(options, lambda database: _print_logs(database, options))


async def _print_logs(database: FleetDatabase, options: argparse.Namespace) -> int:
    """The session as text. `--follow` prints what is new: a session only grows."""
    printed = ""
    while True:
        run = await find_run(database, options.run)
        if not options.follow or run.session:
            text = await _render_log(database, run, is_optional=options.follow)
            rest = text.removeprefix(printed)
            print_line(strip_escapes(rest), end="")
            sys.stdout.flush()
            printed = text
        if not options.follow or run.has_ended:
            break
        await asyncio.sleep(POLL_SECONDS)
    print_line(f"\n{format_ended(run) if run.has_ended else format_open(run)}")
    return SUCCESS


async def _render_log(database: FleetDatabase, run: FleetRun, *, is_optional: bool) -> str:
    if is_optional and not await database.load_session(run.id):
        return ""
    session = await read_session(database, run)
    return render_markdown(session.summary, session.blocks)
