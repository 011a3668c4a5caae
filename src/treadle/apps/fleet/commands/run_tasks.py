"""`treadle fleet run TASKS`: submits tasks, starts workers, shows progress until all have ended."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import signal
import sys
import time
from collections.abc import Sequence

import msgspec

from treadle._version import __version__
from treadle.apps.console.console import UsageError, print_error, print_line
from treadle.apps.console.exit_codes import (
    ABORTED,
    BUDGET_EXCEEDED,
    ERROR,
    GOAL_NOT_MET,
    SUCCESS,
    TERMINATED,
    USAGE_ERROR,
)
from treadle.apps.fleet.commands.results import print_report_json, print_report_text
from treadle.apps.fleet.commands.selection import (
    name_command,
    parse_labels,
    set_cluster,
    use_database,
)
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.limits import find_spent_money
from treadle.apps.fleet.reports.live_table import LiveTable
from treadle.apps.fleet.reports.report import make_report
from treadle.apps.fleet.run_record import FleetLimits, FleetRun
from treadle.apps.fleet.sql.run_rows import describe_newer, is_newer_version
from treadle.apps.fleet.store_address import hide_password
from treadle.apps.fleet.task import FleetTask
from treadle.apps.fleet.tasks.task_files import (
    DEFAULT_FIELDS,
    LoadedTasks,
    TaskDefaults,
    load_tasks,
)
from treadle.apps.fleet.worker_processes import WorkerProcesses
from treadle.core.errors import ConfigError
from treadle.lib.text.text import plural

POLL_SECONDS = 0.5
BATCH_RUNS_AT_ONCE = 100  # they only wait, and a batch has the requests of those that wait
MAX_POLL_SECONDS, SILENT_SECONDS = 5.0, 3.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_tasks(options: argparse.Namespace) -> int:
    """Exit code 0 if all runs passed, 5 if not, 4 if the money is spent before; 2 if lines of the
    file are no tasks, whatever came of the others; 130 or 143 if the command was stopped before."""
    if options.workers < 0 or (options.runs_at_once is not None and options.runs_at_once < 1):
        raise UsageError("--workers must be 0 or more, and --runs-at-once 1 or more")
    set_cluster(options)
    loaded = load_tasks(options.tasks, _make_defaults(options))
    for problem in loaded.problems:
        print_error(f"treadle fleet: {problem}")
    if not loaded.tasks:
        raise UsageError(f"{options.tasks} has no task that can be run")
    tasks = _add_labels(loaded.tasks, parse_labels(options.label))
    code = use_database(options, lambda database: _run(database, tasks, options), create=True)
    return _combine(code, loaded)


def _combine(code: int, loaded: LoadedTasks) -> int:
    return USAGE_ERROR if code in (SUCCESS, GOAL_NOT_MET) and loaded.problems else code


def _make_defaults(options: argparse.Namespace) -> TaskDefaults:
    values = {name: getattr(options, name) for name in DEFAULT_FIELDS}
    try:
        FleetTask(prompt="as good as any", **values)
    except ConfigError as error:
        raise UsageError(f"options for all tasks: {str(error).partition(': ')[2]}") from error
    return TaskDefaults(repositories=options.repositories, **values)


def _add_labels(tasks: Sequence[FleetTask], labels: dict[str, str]) -> list[FleetTask]:
    return [msgspec.structs.replace(one, labels={**labels, **one.labels}) for one in tasks]


async def _run(
    database: FleetDatabase, tasks: Sequence[FleetTask], options: argparse.Namespace
) -> int:
    await _set_limits(database, options)
    runs = await database.submit(tasks)
    ended = sum(run.has_ended for run in runs)
    if ended:
        text = f"{plural(ended, 'run')} of {len(runs)} ended before: same id, same run"
        print_error(f"{text} ({name_command(database, 'retry')} --failed runs failed ones again)")
    if options.detach:
        status = name_command(database, "status")
        print_line(f"{plural(len(runs) - ended, 'run')} submitted; {status} shows them")
        return SUCCESS
    hurry = asyncio.Event()
    received = _stop_on_signals(hurry)
    ids = [run.id for run in runs]
    try:
        runs = await _wait(database, ids, options, hurry)
    except asyncio.CancelledError:
        if not received:
            raise
        _report_stop(await database.runs(ids=ids), options)
        return ABORTED if received[0] == signal.SIGINT else TERMINATED
    report = make_report(runs, time.time())
    if options.json:
        print_report_json(report)
    else:
        print_report_text(report)
    for run in runs:
        if _is_newer(run):
            print_error(f"treadle fleet: {describe_newer(run, __version__)}")
    if any(_is_newer(run) for run in runs):
        return ERROR
    if not all(run.has_ended for run in runs):
        left = plural(sum(not run.has_ended for run in runs), "run stays", "runs stay")
        problem = f"{await find_spent_money(database)}; {left} in the queue"
        print_error(f"{problem}. The same command with a larger --total-cost continues them")
        return BUDGET_EXCEEDED
    return SUCCESS if all(run.passed for run in report.runs) else GOAL_NOT_MET


async def _set_limits(database: FleetDatabase, options: argparse.Namespace) -> None:
    """Limits that are not given stay as they are."""
    given = {
        "concurrent_calls": options.concurrent_calls,
        "requests_per_minute": options.requests_per_minute,
        "tokens_per_minute": options.tokens_per_minute,
        "max_cost": options.total_cost,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    for name, value in changes.items():
        if value <= 0:
            option = "total-cost" if name == "max_cost" else name.replace("_", "-")
            raise UsageError(f"--{option} must be above 0, not {value}")
    if changes:
        limits: FleetLimits = await database.limits()
        await database.set_limits(msgspec.structs.replace(limits, **changes))


async def _wait(
    database: FleetDatabase, ids: Sequence[str], options: argparse.Namespace, hurry: asyncio.Event
) -> list[FleetRun]:
    """Until all runs have ended, or the money is spent; with the workers of this machine
    meanwhile, which are killed when `hurry` is set at the end."""
    arguments = ["--until-idle"]
    at_once = options.runs_at_once or (BATCH_RUNS_AT_ONCE if options.batch else None)
    arguments += ["--runs-at-once", str(at_once)] if at_once else []
    arguments += ["--agent", options.agent] if options.agent else []
    table, took = LiveTable(sys.stderr, name_command(database, "approve")), 0.0
    workers = WorkerProcesses(database, options.workers, arguments, table.add_line)
    try:
        runs = await database.runs(ids=ids)
        if not all(run.has_ended for run in runs):
            await workers.start()
        while not all(run.has_ended for run in runs):
            table.update(runs, time.time())
            # Looking is not to be the work; a long look is an outage, which is over.
            await asyncio.sleep(max(POLL_SECONDS, min(4 * took, MAX_POLL_SECONDS)))
            began = time.monotonic()
            telling = asyncio.get_running_loop().call_later(
                SILENT_SECONDS,
                table.add_line,
                "the database of the fleet does not answer; waiting for it",
            )
            try:
                is_money_spent = bool(await find_spent_money(database))
                runs = await database.runs(ids=ids)
            finally:
                telling.cancel()
            took = time.monotonic() - began
            if is_money_spent and not any(run.state == "running" for run in runs):
                break
            if all(run.has_ended or _is_newer(run) for run in runs):
                break
            await workers.check()
        table.finish(runs, time.time())
        return runs
    finally:
        await workers.aclose(hurry)


def _is_newer(run: FleetRun) -> bool:
    """Whether workers of this version leave the run in the queue."""
    return run.state == "queued" and is_newer_version(run.version, __version__)


def _stop_on_signals(hurry: asyncio.Event) -> list[int]:
    """Cancel this task at the first signal; the workers then end their steps, and their runs can be
    continued. A second signal sets `hurry`, however soon it comes."""
    task, loop, received = asyncio.current_task(), asyncio.get_running_loop(), list[int]()
    assert task is not None

    def stop(number: int) -> None:
        received.append(number)
        if len(received) > 1:
            hurry.set()
            return
        print_error("stopping: each run ends its step; a second ctrl-c ends them at once")
        task.cancel()

    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as with nohup
            loop.add_signal_handler(number, stop, number)
    return received


def _report_stop(runs: Sequence[FleetRun], options: argparse.Namespace) -> None:
    left = sum(not run.has_ended for run in runs)
    command = shlex.join([hide_password(word) for word in options.arguments])
    print_error(f"stopped; {plural(left, 'run')} left. To continue: treadle fleet {command}")
