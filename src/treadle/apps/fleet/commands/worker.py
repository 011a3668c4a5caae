"""`treadle fleet worker`: a process that works for a fleet until it is stopped."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys

from treadle.apps.assembly.redaction import redact_for_display
from treadle.apps.console.console import UsageError, get_current_folder, print_error, print_line
from treadle.apps.console.exit_codes import SUCCESS, TERMINATED
from treadle.apps.fleet.commands.selection import get_store, set_cluster, use_database
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.store_address import hide_password
from treadle.apps.fleet.worker import Worker
from treadle.apps.fleet.worker_options import PASSWORD, WorkerOptions
from treadle.apps.fleet.worker_processes import REPORT
from treadle.apps.settings.load import load_settings


def run_worker(options: argparse.Namespace) -> int:
    for name in ("runs_at_once", "lease", "poll", "max_attempts", "approval_time"):
        if getattr(options, name) is not None and getattr(options, name) <= 0:
            raise UsageError(f"--{name.replace('_', '-')} must be above 0")
    set_cluster(options)
    return use_database(options, lambda database: _work(database, options), create=True)


async def _work(database: FleetDatabase, options: argparse.Namespace) -> int:
    worker = WorkerOptions(
        store=database.url,
        runs_at_once=options.runs_at_once or 0,
        lease=options.lease,
        poll=options.poll,
        max_attempts=options.max_attempts,
        approval_seconds=options.approval_time,
        agent=options.agent,
        folder=str(options.agent_folder or get_current_folder()),
        workspaces=str(options.workspaces or ""),
        password=os.environ.get(PASSWORD, ""),
        has_metrics=load_settings(get_current_folder()).telemetry,
    ).make_worker(
        database,
        name=options.name,
        report=lambda problem: print_error(REPORT + redact_for_display(problem)),
    )
    store = hide_password(get_store(options))
    print_line(f"worker {worker.identity.id} works for {store}; ctrl-c stops it after its steps")
    sys.stdout.flush()  # in the log of a service it would come at the end
    is_stopped = await work_until_stopped(
        worker, until_idle=options.until_idle, parent=options.parent
    )
    return TERMINATED if is_stopped else SUCCESS


PARENT_SECONDS = 1.0  # between two looks whether the process that started the worker is there


async def work_until_stopped(
    worker: Worker, *, until_idle: bool = False, parent: int | None = None
) -> bool:
    """Work until a signal; whether there was one. With `parent`, the id of the process that
    started this one, it stops when that one is gone."""
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def stop(number: int) -> None:
        received.append(number)
        for other in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(other)  # the next one ends the process
        worker.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    watch = None if parent is None else asyncio.create_task(_watch_parent(parent, worker))
    try:
        await worker.run(until_idle=until_idle)
    finally:
        if watch is not None:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
    return bool(received)


async def _watch_parent(parent: int, worker: Worker) -> None:
    while os.getppid() == parent:  # noqa: ASYNC110 - no event says it
        await asyncio.sleep(PARENT_SECONDS)
    worker.stop()
