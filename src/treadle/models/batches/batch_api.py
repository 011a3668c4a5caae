"""The interface of one provider for batches, over its HTTP model: BatchAPI.

    submit(record, items) -> the provider's id        check(batch id) -> BatchStatus
    find(record) -> ids of batches that may be it     read_line(line) -> an item and its outcome

anthropic_batches.py and openai_batches.py implement it. No retries and no waits: batch_queue.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TypeVar

import msgspec

from treadle.core.errors import ModelError, Overloaded, StreamBroken
from treadle.models.batches.batch_store import BatchRecord
from treadle.models.provider_base.codec import EncodedRequest
from treadle.models.provider_base.http_model import HTTPModel

CLOCK_SKEW_SECONDS = 300.0  # between our clock and the provider's
MAX_LINE_BYTES = 64 << 20  # of one result

T = TypeVar("T")
# The body of a reply, or why there is none.
BatchOutcome = bytes | ModelError


class BatchStatus(msgspec.Struct, frozen=True):
    """`results`: paths of the files with results, once it has ended. An item that is in none of
    them has failed with `refused[its number]`, or with `missing`."""

    has_ended: bool
    results: tuple[str, ...] = ()
    refused: Mapping[int, ModelError] = {}
    missing: ModelError | None = None


class BatchAPI(ABC):
    """The interface of one provider, for requests with these headers. `target` names the account's
    address and the model: only items with the same target and headers can be in one batch."""

    max_items: int
    max_bytes: int

    def __init__(self, model: HTTPModel, request: EncodedRequest) -> None:
        self._model = model
        self._headers = request.headers
        self._provider = model.codec.provider
        self._path = request.path
        self.target = f"{model.codec.endpoint()}{request.path} {model.name}"
        keys = model.codec.auth_headers()
        self.group = (self.target, *sorted({**request.headers, **keys}.items()))

    @abstractmethod
    async def submit(self, record: BatchRecord, items: Mapping[str, bytes]) -> str:
        """Create the batch; its id. ModelError: with a status below 500 it was not created."""

    @abstractmethod
    async def find(self, record: BatchRecord) -> Sequence[str]:
        """Batches that may be this one, whose submission was interrupted."""

    @abstractmethod
    async def check(self, batch_id: str) -> BatchStatus: ...

    @abstractmethod
    def read_line(self, line: bytes) -> tuple[str, BatchOutcome]: ...

    async def read_results(
        self, paths: Sequence[str]
    ) -> AsyncGenerator[tuple[str, BatchOutcome], None]:
        for path in paths:
            async with self._model.open_response(self._request(path), "GET") as response:
                rest = b""
                async for chunk in response:
                    response.mark_content()
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in filter(None, lines):
                        yield self.read_line(line)
                    if len(rest) > MAX_LINE_BYTES:
                        raise self.broken(f"a result with more than {MAX_LINE_BYTES:,} bytes")
                if rest.strip():
                    yield self.read_line(rest)

    # --- for implementations -----------------------------------------------------------------

    def decode(self, data: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.DecodeError as error:
            raise self.broken(f"something else than was asked about a batch ({error})") from error

    def broken(self, what: str) -> StreamBroken:
        return StreamBroken(f"{self._provider.name} sent {what}", provider=self._provider.name)

    def missing(self, batch_id: str) -> StreamBroken:
        return self.broken(f"no result for this request in the batch {batch_id}")

    def expired(self) -> Overloaded:
        name = self._provider.name
        text = f"{name} did not get to this request of the batch within 24 hours"
        return Overloaded(text, provider=name)

    def cancelled(self) -> ModelError:
        name = self._provider.name
        text = f"this request of a batch was cancelled at {name}; run it again to submit it again"
        return ModelError(text, provider=name)

    async def _get(self, path: str) -> bytes:
        return await self._model.send_request(self._request(path), "GET")

    def _request(self, path: str, body: Sequence[bytes] = ()) -> EncodedRequest:
        return EncodedRequest(path, dict(self._headers), body)
