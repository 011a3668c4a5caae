"""The times of schedules, and the tasks that are started at them.

    minute hour day month weekday       */15 9-17 * * mon-fri
    @hourly @daily @weekly @monthly @yearly

A schedule keeps its time zone, whichever machine starts it. cronsim computes the times, as Debian's
cron does: a time that the clocks skip in spring comes after the gap, one that comes twice in autumn
counts once. Used by the worker and the command line. No clock here: the caller gives the time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol
from zoneinfo import ZoneInfo

import msgspec

from treadle.apps.fleet.run_record import FleetRun, FleetSchedule
from treadle.apps.fleet.task import MAX_ID_LENGTH, FleetTask
from treadle.core.errors import ConfigError
from treadle.lib.logger import logger

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")
_ZONE_FOLDER = "/zoneinfo/"


def next_time(cron: str, after: float, zone: str = "") -> float:
    """The next time of a cron form in a time zone ("" is UTC), in seconds since 1970. ConfigError
    if one of the two is wrong."""
    from cronsim import CronSim, CronSimError

    fields = NICKNAMES.get(cron.strip().lower(), cron)
    moment = datetime.fromtimestamp(after, UTC).astimezone(load_zone(zone))
    try:
        return next(CronSim(fields, moment)).timestamp()
    except CronSimError as error:
        nicknames = ", ".join(NICKNAMES)
        raise ConfigError(
            f"{cron!r} is not a cron form: {error}. It has five fields (minute hour day month "
            f"weekday), or is one of {nicknames}"
        ) from error
    except StopIteration:
        raise ConfigError(f"{cron!r}: this time never comes: no month has such a day") from None


def load_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name or "UTC")
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"{name!r} is not a time zone; use a name such as Europe/Berlin"
        ) from error


def find_local_zone() -> str:
    """The name of the time zone of this machine; "UTC" if it has none."""
    name = os.environ.get("TZ", "").removeprefix(":")
    link = os.path.realpath("/etc/localtime")
    if not name and _ZONE_FOLDER in link:
        name = link.partition(_ZONE_FOLDER)[2]
    try:
        load_zone(name)
    except ConfigError:
        return "UTC"
    return name or "UTC"


class ScheduleDatabase(Protocol):
    """What `start_due_schedules` needs of the database."""

    async def schedules(self) -> list[FleetSchedule]: ...

    async def submit(self, tasks: Sequence[FleetTask]) -> list[FleetRun]: ...

    async def advance_schedule(self, schedule: FleetSchedule, following: float) -> bool: ...


async def start_due_schedules(database: ScheduleDatabase, now: float) -> None:
    """Submit the tasks whose time has come; of several workers, one does. A schedule that is wrong
    stops no other."""
    for schedule in await database.schedules():
        if schedule.next > now:
            continue
        task = make_scheduled_task(schedule.name, schedule.task, schedule.next)
        try:
            following = next_time(schedule.cron, now, schedule.zone)
            await database.submit([task])  # first: a repeated id is one run
        except ConfigError as error:
            logger.warning("the schedule %s starts nothing this time: %s", schedule.name, error)
            following = now + WRONG_SECONDS
        await database.advance_schedule(schedule, following)


WRONG_SECONDS = 3600.0  # until a schedule that is wrong is tried again


def make_scheduled_task(name: str, task: FleetTask, due: float) -> FleetTask:
    """The task of one start. Its id has the name and the time, so that of several workers that see
    the time come, one starts it; missed times are one start."""
    moment = datetime.fromtimestamp(due, UTC).strftime("%Y%m%dT%H%MZ")
    identifier = f"{name}-{moment}"
    labels = {**task.labels, "schedule": name}
    return msgspec.structs.replace(task, id=identifier, labels=labels)


def check_schedule_name(name: str) -> str:
    longest = MAX_ID_LENGTH - len("-20260101T0000Z")
    if len(name) <= longest and _NAME.fullmatch(name):
        return name
    raise ConfigError(
        f"{name!r} cannot be the name of a schedule: use 1 to {longest} letters, digits, '.', '_' "
        "and '-', with a letter or digit first"
    )
