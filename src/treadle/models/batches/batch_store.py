"""What was submitted, so that no batch is submitted twice or lost: BatchRecord, and its stores.

A record is written before its batch is submitted, without the provider's id, and again with it.
It is not changed afterwards: results stay with the provider. Used by batch_queue.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from treadle.core.errors import StoreError
from treadle.lib.files.private_files import find_state_dir, write_private_file

KEPT_SECONDS = 29 * 86_400.0  # as long as the providers keep results


class BatchRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One batch. `id` is ours, `batch_id` the provider's: empty until it is known. `target` is the
    address and model; `items` are the ids of its requests, in their order."""

    id: str
    target: str
    items: tuple[str, ...]
    created: float
    batch_id: str = ""


class BatchStore(Protocol):
    """Keeps records for at least as long as the provider keeps results. `save` returns when the
    record is durable; both raise StoreError."""

    async def save(self, record: BatchRecord) -> None:
        """Add a record, or replace that with the same id."""

    async def delete(self, record_id: str) -> None: ...

    async def load(self) -> Sequence[BatchRecord]:
        """All records, the oldest first; also those that other processes wrote."""


class BatchFolder:
    """Records as files of a folder, by default one of the user's. Old ones are deleted."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = Path(folder) if folder is not None else find_state_dir() / "batches"

    async def save(self, record: BatchRecord) -> None:
        await self._do(lambda: write_private_file(self._path(record.id), encode_record(record)))

    async def delete(self, record_id: str) -> None:
        await self._do(lambda: self._path(record_id).unlink(missing_ok=True))

    async def load(self) -> Sequence[BatchRecord]:
        found: list[BatchRecord] = []
        await self._do(lambda: found.extend(self._read()))
        return sorted(found, key=lambda record: record.created)

    def _path(self, record_id: str) -> Path:
        return self._folder / f"{record_id}.json"

    def _read(self) -> Sequence[BatchRecord]:
        records = [decode_record(file.read_bytes()) for file in self._folder.glob("*.json")]
        oldest = time.time() - KEPT_SECONDS
        for record in records:
            if record.created < oldest:
                self._path(record.id).unlink(missing_ok=True)
        return [record for record in records if record.created >= oldest]

    async def _do(self, work: Callable[[], object]) -> None:
        try:
            await asyncio.to_thread(work)
        except (OSError, msgspec.DecodeError) as error:
            raise StoreError(
                f"the records of batches in {self._folder} cannot be used: {error}. A batch that "
                "is not recorded could be paid twice, so none is submitted"
            ) from error


def encode_record(record: BatchRecord) -> bytes:
    return msgspec.json.encode(record)


def decode_record(data: bytes | str) -> BatchRecord:
    return msgspec.json.decode(data, type=BatchRecord)
