"""The schedules of a fleet in its database: a part of SqlDatabase (sql_database.py).

Their times are computed in tasks/schedule.py.
"""

from __future__ import annotations

from typing import Any

import msgspec

from treadle.apps.fleet.run_record import FleetSchedule
from treadle.apps.fleet.sql.run_rows import write_json
from treadle.apps.fleet.sql.sql_connection import SqlConnection
from treadle.apps.fleet.task import FleetTask


class SqlSchedules:
    def __init__(self, connection: SqlConnection) -> None:
        self.connection = connection

    async def schedules(self) -> list[FleetSchedule]:
        sql = "SELECT name, cron, task, next, zone FROM fleet_schedules ORDER BY name"
        rows = await self.connection.execute(sql)
        return [_read_schedule(row) for row in rows]

    async def set_schedule(self, schedule: FleetSchedule) -> None:
        sql = (
            "INSERT INTO fleet_schedules (name, cron, task, next, zone) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET cron = excluded.cron, task = excluded.task, "
            "next = excluded.next, zone = excluded.zone"
        )
        one, task = schedule, write_json(schedule.task)
        await self.connection.execute(sql, [one.name, one.cron, task, one.next, one.zone])

    async def remove_schedule(self, name: str) -> bool:
        sql = "DELETE FROM fleet_schedules WHERE name = ? RETURNING name"
        return bool(await self.connection.execute(sql, [name]))

    async def advance_schedule(self, schedule: FleetSchedule, following: float) -> bool:
        sql = "UPDATE fleet_schedules SET next = ? WHERE name = ? AND next = ? RETURNING name"
        parameters = [following, schedule.name, schedule.next]
        return bool(await self.connection.execute(sql, parameters))


def _read_schedule(row: tuple[Any, ...]) -> FleetSchedule:
    name, cron, task, following, zone = row
    return FleetSchedule(name, cron, msgspec.json.decode(task, type=FleetTask), following, zone)
