"""Anthropic's Message Batches: one request with all items, results as lines of one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from treadle.models.batches.batch_api import CLOCK_SKEW_SECONDS, BatchAPI, BatchOutcome, BatchStatus
from treadle.models.batches.batch_store import BatchRecord
from treadle.models.provider_base.error_map import map_stream_error

PATH = "/v1/messages/batches"


class _Batch(msgspec.Struct):
    id: str
    processing_status: str
    created_at: str
    request_counts: dict[str, int] = {}


class _Page(msgspec.Struct):
    data: list[_Batch]
    has_more: bool = False
    last_id: str | None = None


class _Result(msgspec.Struct):
    type: str
    message: msgspec.Raw = msgspec.Raw(b"")
    error: Any = None


class _Line(msgspec.Struct):
    custom_id: str
    result: _Result


class AnthropicBatches(BatchAPI):
    max_items = 100_000
    max_bytes = 250_000_000

    async def submit(self, record: BatchRecord, items: Mapping[str, bytes]) -> str:
        body: list[bytes] = []
        for name, params in items.items():
            start = b"," if body else b'{"requests":['
            body.append(b'%b{"custom_id":"%b","params":%b}' % (start, name.encode(), params))
        request = self._request(PATH, [*body, b"]}"])
        request.headers["idempotency-key"] = record.id
        return self.decode(await self._model.send_request(request, once=True), _Batch).id

    async def find(self, record: BatchRecord) -> Sequence[str]:
        """By the time and the number of items: a batch has no field of ours before its results."""
        found: list[str] = []
        page, after = _Page([], True), ""
        while page.has_more:
            page = self.decode(await self._get(f"{PATH}?limit=100{after}"), _Page)
            for batch in page.data:
                created = datetime.fromisoformat(batch.created_at).timestamp()
                if created < record.created - CLOCK_SKEW_SECONDS:
                    return found  # the newest come first
                if sum(batch.request_counts.values()) == len(record.items):
                    found.append(batch.id)
            after = f"&after_id={page.last_id}"
        return found

    async def check(self, batch_id: str) -> BatchStatus:
        batch = self.decode(await self._get(f"{PATH}/{batch_id}"), _Batch)
        if batch.processing_status != "ended":
            return BatchStatus(False)
        results = f"{PATH}/{batch_id}/results"
        return BatchStatus(True, (results,), missing=self.missing(batch_id))

    def read_line(self, line: bytes) -> tuple[str, BatchOutcome]:
        read = self.decode(line, _Line)
        match read.result.type:
            case "succeeded":
                return read.custom_id, bytes(read.result.message)
            case "errored":
                data = msgspec.json.encode(read.result.error)
                return read.custom_id, map_stream_error(self._provider, data)
            case "expired":
                return read.custom_id, self.expired()
            case _:
                return read.custom_id, self.cancelled()
