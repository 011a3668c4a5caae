"""The records of batches in the database of a fleet, so that any worker fetches their results."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.apps.fleet.sql.sql_connection import SqlConnection
from treadle.models.batches.batch_store import (
    KEPT_SECONDS,
    BatchRecord,
    decode_record,
    encode_record,
)


class SqlBatches:
    """A BatchStore."""

    def __init__(self, connection: SqlConnection) -> None:
        self._connection = connection

    async def save(self, record: BatchRecord) -> None:
        sql = (
            "INSERT INTO fleet_batches (id, record, created) VALUES (?, ?, {now}) "
            "ON CONFLICT (id) DO UPDATE SET record = excluded.record"
        )
        await self._connection.execute(sql, [record.id, encode_record(record).decode()])

    async def delete(self, record_id: str) -> None:
        await self._connection.execute("DELETE FROM fleet_batches WHERE id = ?", [record_id])

    async def load(self) -> Sequence[BatchRecord]:
        old = "DELETE FROM fleet_batches WHERE created < {now} - ?"
        await self._connection.execute(old, [KEPT_SECONDS])
        rows = await self._connection.execute("SELECT record FROM fleet_batches ORDER BY created")
        return [decode_record(row[0]) for row in rows]
