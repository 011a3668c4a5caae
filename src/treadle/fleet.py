"""Many runs of the coding agent, on one or more machines; none is lost. See docs/fleet.md."""

from __future__ import annotations

from treadle.apps.fleet.database import FleetDatabase, open_database
from treadle.apps.fleet.fleet import Fleet
from treadle.apps.fleet.reports.report import FleetReport, make_report
from treadle.apps.fleet.run_record import (
    FleetApproval,
    FleetCheck,
    FleetLimits,
    FleetResult,
    FleetRun,
    FleetSchedule,
)
from treadle.apps.fleet.task import FleetTask
from treadle.apps.fleet.tasks.task_files import LoadedTasks, TaskDefaults, TaskProblem, load_tasks
from treadle.workspace.container import ContainerOptions, ContainerWorkspace

__all__ = [
    "Fleet",
    "FleetTask",
    "FleetRun",
    "FleetResult",
    "FleetCheck",
    "FleetApproval",
    "FleetLimits",
    "FleetSchedule",
    "load_tasks",
    "LoadedTasks",
    "TaskDefaults",
    "TaskProblem",
    "open_database",
    "FleetDatabase",
    "make_report",
    "FleetReport",
    "ContainerWorkspace",
    "ContainerOptions",
]
