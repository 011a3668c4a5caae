"""How the workers of a fleet work, as a value: the options of `treadle fleet worker`.

A worker is made of them here, or, for an engine whose jobs are done by other processes, there:
then the value is pickled, and called with the id of a job. Used by commands/worker.py and fleet.py.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec

from treadle.apps.fleet.database import FleetDatabase, open_database
from treadle.apps.fleet.folders.workspaces import RunWorkspaces, get_default_folder
from treadle.apps.fleet.run_task import APPROVAL_SECONDS, MakeAgent
from treadle.apps.fleet.worker import DEFAULT_ATTEMPTS, DEFAULT_POLL, Worker
from treadle.apps.fleet.worker_registry import DEFAULT_LEASE
from treadle.core.errors import ConfigError
from treadle.lib.logger import logger

PASSWORD = "PGPASSWORD"


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`runs_at_once` 0 is the number of the engine. `agent` is MODULE:FUNCTION, or "" for the
    coding agent; `folder` is where its module may be. `password` is that of the database."""

    store: str
    runs_at_once: int = 0
    lease: float = DEFAULT_LEASE
    poll: float = DEFAULT_POLL
    max_attempts: int = DEFAULT_ATTEMPTS
    approval_seconds: float = APPROVAL_SECONDS
    agent: str = ""
    folder: str = ""
    workspaces: str = ""
    password: str = ""
    has_metrics: bool = False

    def make_worker(
        self,
        database: FleetDatabase,
        *,
        name: str = "",
        report: Callable[[str], None] = logger.warning,
    ) -> Worker:
        return Worker(
            database,
            name=name,
            concurrency=self.runs_at_once,
            lease=self.lease,
            poll=self.poll,
            max_attempts=self.max_attempts,
            approval_seconds=self.approval_seconds,
            make_agent=find_agent_function(self.agent, Path(self.folder)) if self.agent else None,
            folders=RunWorkspaces(Path(self.workspaces or get_default_folder()), database),
            report=report,
            elsewhere=self,
            has_metrics=self.has_metrics,
        )

    async def __call__(self, job_id: str) -> None:
        """Do one job in this process, which an engine has started for it."""
        if self.password:
            os.environ[PASSWORD] = self.password
        database = await open_database(self.store, create=False)
        try:
            await self.make_worker(database).work_on(job_id)
        finally:
            await database.aclose()


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
