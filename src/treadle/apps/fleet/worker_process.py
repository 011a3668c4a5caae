"""A worker as a process of its own: `python -m treadle.apps.fleet.worker_process --store URL`.

`run_worker` is also what `treadle fleet worker` runs. SIGTERM and SIGINT let each run end its step;
a second signal ends the process at once, and other workers continue its runs after the lease.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast
from urllib.parse import unquote, urlsplit, urlunsplit

from treadle.apps.fleet.database import open_database
from treadle.apps.fleet.folders.workspaces import RunWorkspaces, get_default_folder
from treadle.apps.fleet.run_queue import DEFAULT_LEASE
from treadle.apps.fleet.run_task import MakeAgent
from treadle.apps.fleet.worker import (
    DEFAULT_ATTEMPTS,
    DEFAULT_CONCURRENCY,
    DEFAULT_POLL,
    Worker,
)
from treadle.core.errors import ConfigError, TreadleError

PARENT_SECONDS = 1.0  # between two looks whether the process that started the worker is there


async def run_worker(
    store: str,
    *,
    agent: str = "",
    concurrency: int = DEFAULT_CONCURRENCY,
    lease: float = DEFAULT_LEASE,
    poll: float = DEFAULT_POLL,
    max_attempts: int = DEFAULT_ATTEMPTS,
    until_idle: bool = False,
    workspaces: Path | None = None,
    on_start: Callable[[Worker], None] | None = None,
    parent: int | None = None,
) -> None:
    """Work for the fleet in this database until a signal. `agent` is MODULE:FUNCTION, a function
    of a task and a folder that returns the Agent of a run; by default the coding agent. With
    `parent`, the id of the process that started it, it stops when that one is gone."""
    make_agent = find_agent_function(agent) if agent else None
    database = await open_database(store)
    try:
        worker = Worker(
            database,
            concurrency=concurrency,
            lease=lease,
            poll=poll,
            max_attempts=max_attempts,
            make_agent=make_agent,
            folders=RunWorkspaces(workspaces or get_default_folder(), database),
        )
        loop = asyncio.get_running_loop()

        def stop() -> None:
            worker.stop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)  # the next one ends the process

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        if on_start is not None:
            on_start(worker)
        watching = asyncio.create_task(_watch_parent(parent, stop)) if parent is not None else None
        try:
            await worker.run(until_idle=until_idle)
        finally:
            if watching is not None:
                watching.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watching
    finally:
        await database.aclose()


async def _watch_parent(parent: int, stop: Callable[[], None]) -> None:
    while os.getppid() == parent:  # noqa: ASYNC110 - no event says it
        await asyncio.sleep(PARENT_SECONDS)
    stop()


def split_password(store: str) -> tuple[str, str]:
    """The address without its password, and the password. Other users see the arguments of a
    process: the password reaches a worker as PGPASSWORD."""
    parts = urlsplit(store)
    if not parts.password:
        return store, ""
    user, _, host = parts.netloc.rpartition("@")
    netloc = f"{user.partition(':')[0]}@{host}"
    return urlunsplit(parts._replace(netloc=netloc)), unquote(parts.password)


def find_agent_function(name: str) -> MakeAgent:
    """The function MODULE:FUNCTION. ConfigError if there is none."""
    module, _, function = name.partition(":")
    if not module or not function:
        raise ConfigError(f"{name!r} is not MODULE:FUNCTION, such as my_agents:make_agent")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"the agent function {name!r} cannot be loaded: {error}") from error
    if not callable(found):
        raise ConfigError(f"{name!r} is not a function")
    return cast(MakeAgent, found)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m treadle.apps.fleet.worker_process")
    parser.add_argument("--store", required=True, help="sqlite:PATH or postgresql://...")
    parser.add_argument("--agent", default="", help="MODULE:FUNCTION that makes the agent of a run")
    parser.add_argument("--concurrency", type=int, default=DEFAULT_CONCURRENCY)
    parser.add_argument("--lease", type=float, default=DEFAULT_LEASE)
    parser.add_argument("--poll", type=float, default=DEFAULT_POLL)
    parser.add_argument("--max-attempts", type=int, default=DEFAULT_ATTEMPTS)
    parser.add_argument("--workspaces", type=Path, help="where the folders of runs are made")
    parser.add_argument("--parent", type=int, help="stop when this process is gone")
    given = parser.parse_args(arguments)
    try:
        asyncio.run(
            run_worker(
                given.store,
                agent=given.agent,
                concurrency=given.concurrency,
                lease=given.lease,
                poll=given.poll,
                max_attempts=given.max_attempts,
                workspaces=given.workspaces,
                parent=given.parent,
            )
        )
    except ConfigError as error:
        print(f"treadle: {error}", file=sys.stderr)
        return 2
    except TreadleError as error:
        print(f"treadle: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
