"""`treadle fleet schedule`: tasks that run at times. A worker starts what is due."""

from __future__ import annotations

import argparse
import time
from datetime import datetime

from treadle.apps.console.console import UsageError, print_error, print_line
from treadle.apps.console.exit_codes import SUCCESS, USAGE_ERROR
from treadle.apps.fleet.commands.selection import name_command, use_database
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.run_record import FleetSchedule
from treadle.apps.fleet.tasks.schedule import (
    check_schedule_name,
    find_local_zone,
    load_zone,
    next_time,
)
from treadle.apps.fleet.tasks.task_files import load_tasks
from treadle.lib.text.sanitize import escape_invisible, strip_escapes


def run_schedule(options: argparse.Namespace) -> int:
    actions = {"list": _list, "add": _add, "remove": _remove}
    return use_database(
        options,
        lambda database: actions[options.action](database, options),
        create=options.action == "add",
    )


async def _list(database: FleetDatabase, options: argparse.Namespace) -> int:
    schedules = await database.schedules()
    for one in schedules:
        prompt = " ".join(strip_escapes(one.task.prompt).split())[:60]
        line = f"{one.name}  {one.cron}  next {format_time(one.next, one.zone)}  {prompt}"
        print_line(escape_invisible(line))
    if not schedules:
        print_line("no schedules")
    return SUCCESS


async def _add(database: FleetDatabase, options: argparse.Namespace) -> int:
    name = check_schedule_name(options.name)
    zone = options.time_zone or find_local_zone()
    following = next_time(options.cron, time.time(), zone)
    loaded = load_tasks(options.tasks)
    for problem in loaded.problems:
        print_error(f"treadle fleet: {problem}")
    if not loaded.tasks:
        raise UsageError(f"{options.tasks} has no task that can be scheduled")
    for task in loaded.tasks:
        # Several tasks are a schedule each; their names tell them apart.
        own = name if len(loaded.tasks) == 1 else check_schedule_name(f"{name}.{task.id}")
        await database.set_schedule(FleetSchedule(own, options.cron, task, following, zone))
        print_line(f"{own}: next {format_time(following, zone)}")
    print_line(f"a worker starts it: {name_command(database, 'worker')}")
    return USAGE_ERROR if loaded.problems else SUCCESS


async def _remove(database: FleetDatabase, options: argparse.Namespace) -> int:
    names = [one.name for one in await database.schedules()]
    chosen = [one for one in names if one == options.name or one.startswith(f"{options.name}.")]
    if not chosen:
        raise UsageError(
            f"there is no schedule {options.name!r}; "
            f"`{name_command(database, 'schedule')}` lists them"
        )
    for one in chosen:
        await database.remove_schedule(one)
        print_line(f"{one}: removed")
    return SUCCESS


def format_time(moment: float, zone: str) -> str:
    local = datetime.fromtimestamp(moment, load_zone(zone))
    return f"{local:%Y-%m-%d %H:%M} {zone or 'UTC'}"
