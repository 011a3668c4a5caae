"""Responses of providers that are files, read by the real models through a transport in memory.

tests/data/exchanges/WIRE/NAME.sse is the body of a stream, NAME.json a reply in one piece; both are
written after the published formats. test_exchanges.py compares what we read with
NAME.expected.json, tests/faults/stream_fuzz.py changes the bodies.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, Self

from tests.models.wires import WIRES, connect
from treadle.core.contracts.model import ModelEvent, ModelRequest, ModelTextDelta, Reply
from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import ModelError
from treadle.core.transcript import AssistantItem, Transcript, to_user_item
from treadle.lib.http.timeouts import DEFAULT_TIMEOUTS, Timeouts
from treadle.lib.http.transport import Disconnected, Headers, read_all
from treadle.models.provider_base.http_model import HTTPModel

FOLDER = Path(__file__).parent.parent / "data" / "exchanges"
STREAM = "text/event-stream; charset=utf-8"
WHOLE = "application/json"
READ = ToolSpec("read", "Read a file.", {"type": "object", "properties": {}})


class Exchange(NamedTuple):
    """One response of a provider, as a file."""

    wire: str
    name: str
    path: Path

    @property
    def media_type(self) -> str:
        return STREAM if self.path.suffix == ".sse" else WHOLE

    @property
    def expected(self) -> Path:
        return self.path.with_name(f"{self.name}.expected.json")


def list_exchanges(wire: str = "") -> list[Exchange]:
    return [
        Exchange(name, path.stem, path)
        for name in ([wire] if wire else WIRES)
        for path in sorted((FOLDER / name).iterdir())
        if not path.name.endswith(".expected.json")
    ]


class MemoryResponse:
    """A response whose chunks are in memory; `is_cut`: then the connection is lost."""

    status = 200
    url = "http://memory/"

    def __init__(self, chunks: Sequence[bytes], media_type: str, is_cut: bool) -> None:
        self.headers = Headers([(b"content-type", media_type.encode())])
        self._chunks = iter([chunk for chunk in chunks if chunk])
        self._is_cut = is_cut

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        for chunk in self._chunks:
            return chunk
        if self._is_cut:
            raise Disconnected("the connection is lost", "memory")
        raise StopAsyncIteration

    async def read(self, limit: int = 1 << 20) -> bytes:
        return await read_all(self, limit)

    @property
    def is_read(self) -> bool:
        return False

    def mark_content(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


class MemoryTransport:
    """Answers every request with `chunks`."""

    base_url = "http://memory"

    def __init__(self) -> None:
        self.chunks: Sequence[bytes] = ()
        self.media_type = STREAM
        self.is_cut = False

    @asynccontextmanager
    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes | Sequence[bytes],
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> AsyncIterator[MemoryResponse]:
        yield MemoryResponse(self.chunks, self.media_type, self.is_cut)

    def get(
        self, url: str, headers: Mapping[str, str], timeouts: Timeouts = DEFAULT_TIMEOUTS
    ) -> object:
        raise AssertionError("no model sends a GET request")

    async def aclose(self) -> None:
        pass


class Outcome(NamedTuple):
    """What a model made of a response: its events, and the reply or the error at their end."""

    events: list[ModelEvent]
    reply: AssistantItem | None
    error: ModelError | None

    @property
    def shown_text(self) -> str:
        return "".join([event.text for event in self.events if type(event) is ModelTextDelta])


class ExchangeReader:
    """A model of one format that reads responses out of memory."""

    def __init__(self, wire: str) -> None:
        self.transport = MemoryTransport()
        self.model: HTTPModel = connect(wire, "http://memory")
        self.model._transport = self.transport  # type: ignore[assignment] # `get` is never used
        self.request = ModelRequest(Transcript([to_user_item("hi")]), tools=(READ,))

    async def read(
        self, chunks: Sequence[bytes], media_type: str = STREAM, is_cut: bool = False
    ) -> Outcome:
        transport = self.transport
        transport.chunks, transport.media_type, transport.is_cut = chunks, media_type, is_cut
        events: list[ModelEvent] = []
        try:
            async for event in self.model.stream(self.request):
                events.append(event)  # noqa: PERF401 - those before an error are kept
        except ModelError as error:
            return Outcome(events, None, error)
        last = events.pop()
        assert isinstance(last, Reply), f"the stream ended with {last!r}, without a reply"
        return Outcome(events, last.item, None)
