"""`treadle fleet worker`: a process that works for a fleet until it is stopped."""

from __future__ import annotations

import argparse

from treadle.apps.assembly.redaction import redact_for_display
from treadle.apps.console.console import UsageError, get_current_folder, print_error, print_line
from treadle.apps.console.exit_codes import SUCCESS, TERMINATED
from treadle.apps.fleet.commands.selection import get_store, use_database
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.folders.workspaces import RunWorkspaces, get_default_folder
from treadle.apps.fleet.store_address import hide_password
from treadle.apps.fleet.worker import Worker
from treadle.apps.fleet.worker_process import find_agent_function, work_until_stopped
from treadle.apps.fleet.worker_processes import REPORT


def run_worker(options: argparse.Namespace) -> int:
    for name in ("runs_at_once", "lease", "poll", "max_attempts"):
        if getattr(options, name) <= 0:
            raise UsageError(f"--{name.replace('_', '-')} must be above 0")
    return use_database(options, lambda database: _work(database, options), create=True)


async def _work(database: FleetDatabase, options: argparse.Namespace) -> int:
    make_agent = None
    if options.agent:
        folder = options.agent_folder or get_current_folder()
        make_agent = find_agent_function(options.agent, folder)
    worker = Worker(
        database,
        concurrency=options.runs_at_once,
        lease=options.lease,
        poll=options.poll,
        max_attempts=options.max_attempts,
        approval_seconds=options.approval_time,
        make_agent=make_agent,
        folders=RunWorkspaces(options.workspaces or get_default_folder(), database),
        report=lambda problem: print_error(REPORT + redact_for_display(problem)),
    )
    store = hide_password(get_store(options))
    print_line(f"worker {worker.identity.id} works for {store}; ctrl-c stops it after its steps")
    is_stopped = await work_until_stopped(
        worker, until_idle=options.until_idle, parent=options.parent
    )
    return TERMINATED if is_stopped else SUCCESS
