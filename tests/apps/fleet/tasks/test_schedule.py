from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from treadle.apps.fleet.database import open_database
from treadle.apps.fleet.run_record import FleetSchedule
from treadle.apps.fleet.task import FleetTask
from treadle.apps.fleet.tasks.schedule import (
    check_schedule_name,
    find_local_zone,
    make_scheduled_task,
    next_time,
    start_due_schedules,
)
from treadle.core.errors import ConfigError

BERLIN = ZoneInfo("Europe/Berlin")


def find_times(cron: str, after: datetime, count: int = 1) -> list[str]:
    times, zone = [], str(after.tzinfo)
    for _ in range(count):
        following = next_time(cron, after.timestamp(), zone)
        after = datetime.fromtimestamp(following, after.tzinfo)
        times.append(after.strftime("%Y-%m-%d %H:%M"))
    return times


@pytest.mark.parametrize(
    ("cron", "times"),
    [
        ("*/15 * * * *", ["2026-01-30 23:15", "2026-01-30 23:30"]),
        ("0 9-17/4 * * mon-fri", ["2026-02-02 09:00", "2026-02-02 13:00", "2026-02-02 17:00"]),
        ("30 4 1,15 * 5", ["2026-02-01 04:30", "2026-02-06 04:30"]),
        ("0 0 29 feb *", ["2028-02-29 00:00", "2032-02-29 00:00"]),
        ("0 0 * * 7", ["2026-02-01 00:00", "2026-02-08 00:00"]),
        ("5/20 3 * * *", ["2026-01-31 03:05", "2026-01-31 03:25"]),
        ("@monthly", ["2026-02-01 00:00", "2026-03-01 00:00"]),
    ],
)
def test_a_cron_form_names_the_next_times(cron, times):
    after = datetime(2026, 1, 30, 23, 5, 59, tzinfo=UTC)
    assert find_times(cron, after, len(times)) == times


def test_a_time_that_the_clocks_skip_is_moved_and_a_repeated_one_counts_once():
    spring = datetime(2026, 3, 28, 12, tzinfo=BERLIN)
    assert find_times("30 2 * * *", spring, 2) == ["2026-03-29 03:00", "2026-03-30 02:30"]
    autumn = datetime(2026, 10, 24, 12, tzinfo=BERLIN)
    assert find_times("30 2 * * *", autumn, 2) == ["2026-10-25 02:30", "2026-10-26 02:30"]


def test_next_time_is_after_now_also_on_the_minute():
    noon = datetime(2026, 5, 1, 12, tzinfo=BERLIN).timestamp()
    assert next_time("0 12 * * *", noon, "Europe/Berlin") - noon == 24 * 3600
    assert next_time("0 12 * * *", noon - 1, "Europe/Berlin") == noon


def test_the_zone_of_a_schedule_counts_and_not_that_of_the_machine(monkeypatch):
    times = set()
    for zone in ("Europe/Berlin", "UTC", "America/New_York"):
        monkeypatch.setenv("TZ", zone)
        assert find_local_zone() == zone
        times.add(next_time("0 9 * * *", 1_790_000_000, "Asia/Tokyo"))
    assert [datetime.fromtimestamp(one, UTC).strftime("%H:%M") for one in times] == ["00:00"]
    with pytest.raises(ConfigError, match="'Atlantis' is not a time zone"):
        next_time("0 9 * * *", 0.0, "Atlantis")


async def test_a_schedule_that_is_wrong_stops_no_other(own_place):
    database = await open_database(f"sqlite:{own_place / 'fleet.db'}")
    for name, cron in (("a-bad", "61 * * * *"), ("b-good", "@daily")):
        await database.set_schedule(FleetSchedule(name, cron, FleetTask(prompt="x"), 1.0))
    for now in (1000.0, 1001.0):
        await start_due_schedules(database, now)
    runs, schedules = await database.runs(), await database.schedules()
    await database.aclose()
    assert [run.id for run in runs] == ["b-good-19700101T0000Z"]
    assert [one.next for one in schedules] == [4600.0, 86_400.0]


@pytest.mark.parametrize(
    ("cron", "message"),
    [
        ("* * * *", "five fields"),
        ("60 * * * *", "minute"),
        ("* * 0 * *", "day-of-month"),
        ("* * * foo *", "month"),
        ("*/0 * * * *", "minute"),
        ("5-1 * * * *", "minute"),
        ("1;2 * * * *", "minute"),
        ("* * * * ²", "day-of-week"),
        ("0 0 30 2 *", "day-of-month"),
        ("@often", "@hourly"),
    ],
)
def test_a_wrong_cron_form_names_the_field(cron, message):
    with pytest.raises(ConfigError, match=message):
        next_time(cron, 0.0)


def test_one_start_of_a_schedule_has_one_id():
    task = FleetTask(prompt="tidy", id="x", labels={"a": "b"})
    due = datetime(2026, 5, 1, 12, tzinfo=UTC).timestamp()
    started = make_scheduled_task("nightly", task, due)
    assert started.id == "nightly-20260501T1200Z"
    assert started.labels == {"a": "b", "schedule": "nightly"}
    assert make_scheduled_task("nightly", task, due) == started


def test_a_name_that_cannot_be_part_of_an_id_is_refused():
    assert check_schedule_name("nightly.1") == "nightly.1"
    for name in ("", "-x", "a b", "x" * 60):
        with pytest.raises(ConfigError, match="name of a schedule"):
            check_schedule_name(name)
