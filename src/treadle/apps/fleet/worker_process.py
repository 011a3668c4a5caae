"""A worker as a process: what `treadle fleet worker` runs. worker_processes.py starts such ones.

SIGTERM and SIGINT let each run end its step; a second signal ends the process at once, and other
workers continue its runs after the lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import sys
from pathlib import Path
from typing import cast

from treadle.apps.fleet.run_task import MakeAgent
from treadle.apps.fleet.worker import Worker
from treadle.core.errors import ConfigError

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
