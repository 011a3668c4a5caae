"""OpenAI's Batch API, for chat completions and responses: files of lines in, files of lines out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from treadle.core.errors import BadRequest, ModelError, Overloaded, RateLimited
from treadle.models.batches.batch_api import CLOCK_SKEW_SECONDS, BatchAPI, BatchOutcome, BatchStatus
from treadle.models.batches.batch_store import BatchRecord
from treadle.models.provider_base.error_map import map_response_error

METADATA_KEY = "treadle_batch"
QUEUE_FULL = "token_limit_exceeded"  # the account has as many tokens in batches as it may have
QUEUE_SECONDS = 300.0
END_STATUSES = ("completed", "failed", "expired", "cancelled")


class _Error(msgspec.Struct):
    code: str | None = None
    message: str | None = None
    line: int | None = None


class _Errors(msgspec.Struct):
    data: list[_Error] | None = None


class _Batch(msgspec.Struct):
    id: str
    status: str
    created_at: float = 0.0
    metadata: dict[str, str] | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    errors: _Errors | None = None


class _Page(msgspec.Struct):
    data: list[_Batch]
    has_more: bool = False


class _File(msgspec.Struct):
    id: str


class _Response(msgspec.Struct):
    status_code: int
    body: msgspec.Raw


class _Line(msgspec.Struct):
    custom_id: str
    response: _Response | None = None
    error: _Error | None = None


class OpenAIBatches(BatchAPI):
    max_items = 50_000
    max_bytes = 190_000_000

    async def submit(self, record: BatchRecord, items: Mapping[str, bytes]) -> str:
        endpoint = f"/v1{self._path}"
        head = b'{"custom_id":"%b","method":"POST","url":"%b","body":%b}\n'
        lines = [head % (name.encode(), endpoint.encode(), body) for name, body in items.items()]
        file = self.decode(await self._upload(record.id, lines), _File)
        batch = {
            "input_file_id": file.id,
            "endpoint": endpoint,
            "completion_window": "24h",
            "metadata": {METADATA_KEY: record.id},
        }
        request = self._request("/batches", [msgspec.json.encode(batch)])
        request.headers["idempotency-key"] = record.id
        return self.decode(await self._model.send_request(request, once=True), _Batch).id

    async def _upload(self, name: str, lines: Sequence[bytes]) -> bytes:
        part = f'--{name}\r\ncontent-disposition: form-data; name="'
        file = f'file"; filename="{name}.jsonl"\r\ncontent-type: application/jsonl'
        start = f'{part}purpose"\r\n\r\nbatch\r\n{part}{file}\r\n\r\n'
        body = [start.encode(), *lines, f"\r\n--{name}--\r\n".encode()]
        request = self._request("/files", body)
        request.headers["content-type"] = f"multipart/form-data; boundary={name}"
        return await self._model.send_request(request)

    async def find(self, record: BatchRecord) -> Sequence[str]:
        page, after = _Page([], True), ""
        while page.has_more:
            page = self.decode(await self._get(f"/batches?limit=100{after}"), _Page)
            for batch in page.data:
                if (batch.metadata or {}).get(METADATA_KEY) == record.id:
                    return [batch.id]
                if batch.created_at < record.created - CLOCK_SKEW_SECONDS:
                    return []  # the newest come first
            after = f"&after={page.data[-1].id}" if page.data else ""
        return []

    async def check(self, batch_id: str) -> BatchStatus:
        batch = self.decode(await self._get(f"/batches/{batch_id}"), _Batch)
        if batch.status not in END_STATUSES:
            return BatchStatus(False)
        files = (batch.output_file_id, batch.error_file_id)
        results = tuple(f"/files/{file}/content" for file in files if file)
        errors = [] if batch.errors is None else batch.errors.data or []
        refused = {
            error.line - 1: BadRequest(self._say(error), provider=self._provider.name)
            for error in errors
            if error.line is not None
        }
        return BatchStatus(True, results, refused, self._explain_missing(batch, errors))

    def _explain_missing(self, batch: _Batch, errors: Sequence[_Error]) -> ModelError:
        name = self._provider.name
        match batch.status:
            case "expired":
                return self.expired()
            case "cancelled":
                return self.cancelled()
            case "failed" if errors and all(error.line is None for error in errors):
                text = f"{name} refused the batch {batch.id}: {self._say(errors[0])}"
                if errors[0].code == QUEUE_FULL:
                    return RateLimited(text, provider=name, retry_after=QUEUE_SECONDS)
                return ModelError(text, provider=name)
            case "failed":
                return Overloaded(
                    f"{name} refused the batch {batch.id} for other requests in it", provider=name
                )
            case _:
                return self.missing(batch.id)

    def read_line(self, line: bytes) -> tuple[str, BatchOutcome]:
        read = self.decode(line, _Line)
        answer, failure = read.response, read.error
        if answer is not None and answer.status_code == 200:
            return read.custom_id, bytes(answer.body)
        if answer is not None:
            body = bytes(answer.body)
            return read.custom_id, map_response_error(
                self._model.codec.provider, answer.status_code, {}, body
            )
        if failure is not None and failure.code == "batch_expired":
            return read.custom_id, self.expired()
        text = f"{self._provider.name}: {self._say(failure or _Error())}"
        return read.custom_id, ModelError(text, provider=self._provider.name)

    def _say(self, error: _Error) -> str:
        return error.message or error.code or "no reason was given"
