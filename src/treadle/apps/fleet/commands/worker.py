"""`treadle fleet worker`: a process that works for a fleet until it is stopped."""

from __future__ import annotations

import argparse
import asyncio
import re
import signal

from treadle.apps.fleet.commands.selection import get_store, use_database
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.folders.workspaces import RunWorkspaces, get_default_folder
from treadle.apps.fleet.worker import Worker
from treadle.apps.fleet.worker_process import find_agent_function
from treadle.apps.services.console import UsageError, print_line
from treadle.apps.services.exit_codes import SUCCESS, TERMINATED

_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]*@")


def run_worker(options: argparse.Namespace) -> int:
    for name in ("runs_at_once", "lease", "max_attempts"):
        if getattr(options, name) <= 0:
            raise UsageError(f"--{name.replace('_', '-')} must be above 0")
    return use_database(options, lambda database: _work(database, options))


async def _work(database: FleetDatabase, options: argparse.Namespace) -> int:
    folder = options.workspaces or get_default_folder()
    worker = Worker(
        database,
        concurrency=options.runs_at_once,
        lease=options.lease,
        max_attempts=options.max_attempts,
        approval_seconds=options.approval_time,
        make_agent=find_agent_function(options.agent) if options.agent else None,
        folders=RunWorkspaces(folder, database),
    )
    received: list[int] = []
    _stop_on_signals(worker, received)
    store = hide_password(get_store(options))
    print_line(f"worker {worker.identity.id} works for {store}; ctrl-c stops it after its steps")
    await worker.run(until_idle=options.until_idle)
    return TERMINATED if received else SUCCESS


def _stop_on_signals(worker: Worker, received: list[int]) -> None:
    """The first signal lets each run end its step; the second one ends the process."""
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        received.append(number)
        loop.remove_signal_handler(number)
        worker.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)


def hide_password(store: str) -> str:
    return _PASSWORD.sub(r"\1:***@", store)
