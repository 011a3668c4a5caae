"""What differs between providers over HTTP, as two protocols: Codec and Decoder.

    ModelRequest ──Codec.encode_request──▶ EncodedRequest (path, headers, body) ──▶ transport
    event bytes  ──Decoder.feed──────────▶ model events ──Decoder.finish──▶ AssistantItem

Sans-IO: a codec opens no connection and reads no clock. Used by http_model.py; encoding.py and
request_limits.py hold the part of the encoding that all providers share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from treadle.core.contracts.model import ModelCard, ModelEvent, ModelOptions, ModelRequest
from treadle.core.errors import BadRequest, ModelError
from treadle.core.transcript.items import AssistantItem
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage
from treadle.models.catalog import SEARCH_PRICE, compute_cost
from treadle.models.provider_base.error_map import ProviderInfo

# The labels of Opaque parts that several formats have: what belongs to the call after it, in the
# form of the compatible endpoints; and the sources of an answer, which are not sent back.
CALL_EXTRA_LABEL = "call_extra"
CITATIONS_LABEL = "citations"


class EncodedRequest(msgspec.Struct, frozen=True):
    """One request, ready to send. `path` begins with a slash and may have a query."""

    path: str
    headers: dict[str, str]
    body: Sequence[bytes]


class DecodeFailed(Exception):
    """A batch of events ended with an error; `events` are those before it.

    They are still emitted: otherwise the result would depend on how the bytes were split.
    """

    def __init__(self, error: ModelError, events: list[ModelEvent]) -> None:
        super().__init__(str(error))
        self.error = error
        self.events = events


class Decoder(Protocol):
    """Decodes one response. It takes batches of events, so that a delta costs no call of its own.

    `feed` raises DecodeFailed when the provider reports an error inside the stream, or when an
    event does not follow the protocol; a plain ModelError if no event of the batch came before.
    `finish` returns the whole reply, or raises StreamBroken if the final event is missing.
    """

    progress: int  # grows with every event that has content; pings do not count
    done: bool  # the final event was read; nothing after it matters

    def feed(self, events: Iterable[tuple[bytes, bytes]]) -> list[ModelEvent]: ...

    def finish(self) -> AssistantItem: ...


class Codec(Protocol):
    """The request and response format of one provider.

    Promises: the same request gives the same bytes; a longer transcript gives a body that
    begins with the same messages; the body never contains thinking of another origin.
    """

    @property
    def card(self) -> ModelCard: ...

    @property
    def provider(self) -> ProviderInfo: ...

    @property
    def origin(self) -> str:
        """Only thinking and opaque blocks of this origin are sent back: `anthropic`, ..."""

    def endpoint(self) -> str:
        """The base URL, without a slash at its end."""

    def auth_headers(self) -> dict[str, str]:
        """The headers with the key; without a key, AccessDenied with the variable to set."""

    def encode_request(self, request: ModelRequest) -> EncodedRequest:
        """Everything but endpoint and authorization. Raises ContextTooLong if it cannot fit."""

    def has_effort_field(self, options: ModelOptions) -> bool:
        """Whether the request has a field for the thinking that these options wish for."""

    def create_decoder(self, request: ModelRequest) -> Decoder: ...

    def split_reply(self, body: bytes) -> list[tuple[bytes, bytes]]:
        """The events of a reply in one piece instead of a stream; none if it is not a reply."""

    def adapt(self, refusal: BadRequest) -> str:
        """Write requests in another form from now on, if this one is refused; a line for the user,
        or nothing if the refusal is about something else."""

    def locate_part(self, request: ModelRequest, error: BadRequest) -> tuple[int, int] | None:
        """The item and part that the error names, if it names one."""


def make_unique_call_id(call_id: str, used_ids: set[str], transcript: Transcript) -> str:
    """`call_id`, or a variant that no other call has; it is added to `used_ids`.

    Some servers send no ids, or restart their numbering in every reply.
    """
    unique, number = call_id, 0
    while not unique or unique in used_ids or transcript.has_call_id(unique):
        number += 1
        unique = f"{call_id or 'call'}_{number}"
    used_ids.add(unique)
    return unique


MAX_TOKENS = 1 << 40  # far more than any request has; a database can store it


def _is_count(number: int) -> bool:
    return 0 <= number <= MAX_TOKENS


def _to_count(number: int) -> int:
    return number if _is_count(number) else 0


def build_usage(
    card: ModelCard,
    *,
    input: int | None,
    output: int | None,
    cache_read: int | None = 0,
    cache_write: int | None = 0,
    reasoning: int | None = 0,
    cache_write_1h: int = 0,
    searches: int = 0,
    search_price: float = SEARCH_PRICE,
) -> Usage:
    """Usage of one request, with its cost; `input` excludes cache reads and writes.

    A count that is missing, negative or too large to be one becomes 0 and makes the cost unknown,
    which is better than wrong.
    """
    counts = (input or 0, output or 0, cache_read or 0, cache_write or 0)
    is_complete = (
        input is not None and output is not None and min(counts) >= 0 and max(counts) <= MAX_TOKENS
    )
    fresh, out, read, written = counts if is_complete else [_to_count(count) for count in counts]
    usage = Usage(fresh, out, read, written, _to_count(reasoning or 0), 1, None)
    if not is_complete:
        return usage
    cost = compute_cost(card, usage, cache_write_1h=_to_count(cache_write_1h))
    if cost is not None and searches > 0 and _is_count(searches):
        cost += searches * search_price
    return msgspec.structs.replace(usage, cost=cost)
