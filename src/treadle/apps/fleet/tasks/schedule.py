"""Times in cron form, and the task that a schedule starts at one of them.

    minute hour day month weekday       */15 9-17 * * mon-fri
    @hourly @daily @weekly @monthly @yearly

As in cron: if day and weekday are both restricted, either may match. Times are those of a time
zone. A time that the clocks skip in spring is moved by the hour that is skipped; one that comes
twice in autumn counts once. Used by the worker and the command line. No clock here: the caller
gives the time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo

import msgspec

from treadle.apps.fleet.task import MAX_ID_LENGTH, FleetTask
from treadle.core.errors import ConfigError

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_FIELDS: tuple[tuple[str, int, int, Mapping[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    ("weekday", 0, 7, {name: number for number, name in enumerate(_DAYS)}),
)
MAX_YEARS = 9  # the longest time between two 29 Februaries is eight years
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")


class CronTime(msgspec.Struct, frozen=True):
    """A parsed cron form. `weekdays` are 0 (Sunday) to 6."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool  # day and weekday are both restricted: one of them has to match

    def find_next(self, after: datetime) -> datetime:
        """The first time after `after`, in its time zone. ConfigError if there is none."""
        if after.tzinfo is None:
            raise ValueError("a time without a time zone")
        wall = after.replace(tzinfo=None, second=0, microsecond=0, fold=0)
        last = wall.replace(month=1, day=1, hour=0) + timedelta(days=366 * MAX_YEARS)
        while wall < last:
            if not self._matches_day(wall):
                wall = wall.replace(hour=0, minute=0) + timedelta(days=1)
            elif wall.hour not in self.hours:
                wall = wall.replace(minute=0) + timedelta(hours=1)
            elif wall.minute not in self.minutes or not (found := _locate(wall, after)):
                wall += timedelta(minutes=1)
            else:
                return found
        raise ConfigError("this time never comes: no month has such a day")

    def _matches_day(self, wall: datetime) -> bool:
        if wall.month not in self.months:
            return False
        day = wall.day in self.days
        weekday = wall.isoweekday() % 7 in self.weekdays
        return day or weekday if self.either_day else day and weekday


def _locate(wall: datetime, after: datetime) -> datetime | None:
    """This wall time as a point in time, if it is after `after`."""
    zone = after.tzinfo
    assert zone is not None
    # Through UTC: a wall time that does not exist becomes the one after the gap.
    found = wall.replace(tzinfo=zone).astimezone(UTC)
    return found.astimezone(zone) if found > after.astimezone(UTC) else None


def parse_cron(text: str) -> CronTime:
    """ConfigError that names the wrong field."""
    fields = NICKNAMES.get(text.strip().lower(), text).split()
    if len(fields) != len(_FIELDS):
        nicknames = ", ".join(NICKNAMES)
        raise ConfigError(
            f"{text!r} has {len(fields)} fields; a cron form has five (minute hour day month "
            f"weekday) or is one of {nicknames}"
        )
    sets = [_parse_field(field, *known) for field, known in zip(fields, _FIELDS, strict=True)]
    minutes, hours, days, months, weekdays = sets
    weekdays = frozenset(number % 7 for number in weekdays)
    is_restricted = [not field.startswith("*") for field in (fields[2], fields[4])]
    cron = CronTime(minutes, hours, days, months, weekdays, all(is_restricted))
    cron.find_next(datetime(2024, 1, 1, tzinfo=UTC))
    return cron


def _parse_field(
    field: str, name: str, lowest: int, highest: int, words: Mapping[str, int]
) -> frozenset[int]:
    numbers: set[int] = set()
    for part in field.lower().split(","):
        span, slash, step_text = part.partition("/")
        first_text, dash, last_text = span.partition("-")
        if span == "*":
            first, last = lowest, highest
        else:
            first = _parse_number(first_text, words)
            last = _parse_number(last_text, words) if dash else highest if slash else first
        step = _parse_number(step_text, {}) if slash else 1
        if not lowest <= first <= last <= highest or step < 1:
            known = f", or {', '.join(words)}" if words else ""
            raise ConfigError(
                f"{field!r} cannot be the {name} of a cron form: use {lowest} to {highest}{known}, "
                "ranges (1-5), lists (1,3) and steps (*/15)"
            )
        numbers.update(range(first, last + 1, step))
    return frozenset(numbers)


def _parse_number(text: str, words: Mapping[str, int]) -> int:
    """-1 for what is no number; no field allows that."""
    if text in words:
        return words[text]
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else -1


def next_time(cron: str, after: float, zone: tzinfo | None = None) -> float:
    """The next time of a cron form, in seconds since 1970; by default in the local time zone."""
    moment = datetime.fromtimestamp(after, UTC)
    local = moment.astimezone(zone or get_local_zone())
    return parse_cron(cron).find_next(local).timestamp()


def get_local_zone() -> tzinfo:
    """The zone of this machine with its changes in spring and autumn, or UTC."""
    import os
    from pathlib import Path
    from zoneinfo import ZoneInfo

    name = os.environ.get("TZ", "").removeprefix(":")
    try:
        if name:
            return ZoneInfo(name)
        with Path("/etc/localtime").open("rb") as file:
            return ZoneInfo.from_file(file, key="localtime")
    except (OSError, ValueError):
        return UTC


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
