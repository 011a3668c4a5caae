"""The seam between a provider's dialect and the machinery that all providers share.

    ModelRequest ──Codec.prepare──▶ Prepared (path, headers, byte chunks) ──▶ transport
    event bytes  ──Decoder.feed───▶ model events ──Decoder.finish──▶ AssistantItem
    error bytes  ──Codec.error────▶ ModelError

Sans-IO: a codec opens no connection and knows no clock. http_model.py drives it; encoding.py and
request_limits.py do the part of `prepare` that is the same for everyone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from treadle.core.contracts.model import ModelCard, ModelEvent, ModelRequest
from treadle.core.errors import ModelError
from treadle.core.transcript.items import AssistantItem
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage
from treadle.models.catalog import compute_cost


class EncodedRequest(msgspec.Struct, frozen=True):
    """One request, ready to be sent. `path` begins with a slash and may carry a query."""

    path: str
    headers: dict[str, str]
    body: Sequence[bytes]


class DecodeFailed(Exception):
    """A batch that ends with an error: what came before it in the same batch is still told.

    Without this, what is told would depend on how the bytes were cut.
    """

    def __init__(self, error: ModelError, events: list[ModelEvent]) -> None:
        super().__init__(str(error))
        self.error = error
        self.events = events


class Decoder(Protocol):
    """Reads one answer. It is fed batches, so that a delta costs no call of its own.

    `feed` raises Failed when the provider reports an error inside the stream, or when an event
    is not what the protocol says; a bare ModelError will do where nothing came before it.
    `finish` gives the whole reply, or raises StreamBroken when
    the event that ends every good answer never came.
    """

    progress: int  # grows with every event that carries content; pings do not count
    done: bool  # the final event was seen: whatever follows or fails to follow is of no interest

    def feed(self, events: Iterable[tuple[bytes, bytes]]) -> list[ModelEvent]: ...

    def finish(self) -> AssistantItem: ...


class Codec(Protocol):
    """One provider's dialect.

    Promises: the same request gives the same bytes; a longer transcript gives a body that
    begins with the same messages; nothing of another origin's thinking is ever in it.
    """

    @property
    def origin(self) -> str:
        """Whose thinking and opaque blocks may be sent back: `anthropic`, `openai`, ..."""

    def endpoint(self) -> str:
        """The base URL, without a slash at its end."""

    def auth_headers(self) -> dict[str, str]:
        """The headers that hold the key; raises AccessDenied, naming the variable, without one."""

    def encode_request(self, request: ModelRequest) -> EncodedRequest:
        """Everything but endpoint and authorization. Raises ContextTooLong if it cannot fit."""

    def create_decoder(self, request: ModelRequest) -> Decoder: ...

    def map_error(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
        """What this answer means."""

    def locate_part(self, request: ModelRequest, error: ModelError) -> tuple[int, int] | None:
        """The item and part that the error complains about, if it says so."""


def make_unique_call_id(call_id: str, used_ids: set[str], transcript: Transcript) -> str:
    """An id that no other call has, the given one if it can be; it is added to `own`.

    Some servers leave ids out, or begin to count anew in every reply.
    """
    fresh, number = call_id, 0
    while not fresh or fresh in used_ids or transcript.has_call_id(fresh):
        number += 1
        fresh = f"{call_id or 'call'}_{number}"
    used_ids.add(fresh)
    return fresh


def build_usage(
    card: ModelCard,
    *,
    input: int | None,
    output: int | None,
    cache_read: int | None = 0,
    cache_write: int | None = 0,
    reasoning: int | None = 0,
    cache_write_1h: int = 0,
) -> Usage:
    """Usage of one request, with its cost; `input` leaves out what the cache read or wrote.

    A count that is missing or negative counts as nothing, and makes the cost unknown: a wrong
    number would be worse.
    """
    counts = (input, output, cache_read or 0, cache_write or 0)
    is_known = True
    tokens: list[int] = []
    for count in counts:
        if count is None or count < 0:
            is_known, count = False, 0
        tokens.append(count)
    usage = Usage(tokens[0], tokens[1], tokens[2], tokens[3], max(0, reasoning or 0), 1, None)
    if not is_known:
        return usage
    return msgspec.structs.replace(
        usage, cost=compute_cost(card, usage, cache_write_1h=cache_write_1h)
    )
