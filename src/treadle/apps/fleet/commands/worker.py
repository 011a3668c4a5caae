"""`treadle fleet worker`: a process that works for a fleet until it is stopped."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import os
import signal
import sys
from pathlib import Path
from typing import cast

from treadle.apps.assembly.redaction import redact_for_display
from treadle.apps.console.console import UsageError, get_current_folder, print_error, print_line
from treadle.apps.console.exit_codes import SUCCESS, TERMINATED
from treadle.apps.fleet.commands.selection import get_store, use_database
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.folders.workspaces import RunWorkspaces, get_default_folder
from treadle.apps.fleet.run_task import MakeAgent
from treadle.apps.fleet.store_address import hide_password
from treadle.apps.fleet.worker import Worker
from treadle.apps.fleet.worker_processes import REPORT
from treadle.core.errors import ConfigError


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
        name=options.name,
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


def find_agent_function(name: str, folder: Path) -> MakeAgent:
    """The function MODULE:FUNCTION. ConfigError if there is none.

    The module may be in `folder`, which is searched last: no other file of it can take the place
    of a module of Python or of this program."""
    module, _, function = name.partition(":")
    if not module or not function:
        raise ConfigError(f"{name!r} is not MODULE:FUNCTION, such as my_agents:make_agent")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"the agent function {name!r} cannot be loaded: {error}") from error
    if not callable(found):
        raise ConfigError(f"{name!r} is not a function")
    return cast(MakeAgent, found)
