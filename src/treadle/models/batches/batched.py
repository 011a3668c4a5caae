"""A model whose calls go into batches: the same requests and replies, later and at half the price.

Only the replies of turns wait for a batch; a summary or a question beside the turn is asked at
once, and so is a request that the provider refuses, because finding the refused part takes several.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from copy import copy

import msgspec

from treadle.core.contracts.model import (
    Model,
    ModelCard,
    ModelEvent,
    ModelNotified,
    ModelRequest,
    Reply,
)
from treadle.core.contracts.wrapped import WrappedModel, open_stream
from treadle.core.errors import BadRequest, ConfigError, ContextTooLong
from treadle.core.transcript.entry_json import to_json
from treadle.core.transcript.usage import CallPurpose
from treadle.models.anthropic.model import AnthropicCodec
from treadle.models.batches.anthropic_batches import AnthropicBatches
from treadle.models.batches.batch_api import BatchAPI
from treadle.models.batches.batch_queue import BatchQueue
from treadle.models.batches.openai_batches import OpenAIBatches
from treadle.models.fallback import Fallback
from treadle.models.openai_chat.model import ChatCodec
from treadle.models.openai_responses.model import ResponsesCodec
from treadle.models.provider_base.codec import EncodedRequest
from treadle.models.provider_base.http_model import HTTPModel, decode_reply

PRICE_FACTOR = 0.5
NAME_CHARS = 48  # a custom_id has at most 64
BATCHED_PURPOSES: frozenset[CallPurpose] = frozenset({"turn", "closing"})
OPENAI_SERVERS = ("openai", "compatible")

_PRICES = ("input_price", "output_price", "cache_read_price", "cache_write_price")
_STREAM_FIELDS = ("stream", "stream_options")

BatchCodec = AnthropicCodec | ChatCodec | ResponsesCodec


class Batched(WrappedModel):
    """A model of Anthropic or OpenAI, by name or as an object, through its batch interface.

    Requests that wait at the same moment go into one batch: `queue` collects them, and models with
    the same queue share its batches. ConfigError for a model without a batch interface.
    """

    def __init__(self, model: Model | str, queue: BatchQueue | None = None) -> None:
        if isinstance(model, str):
            model = Fallback(model)
        super().__init__(model)
        self._http = _find_http_model(model)
        self._queue = queue or BatchQueue()
        self._card = _halve_prices(model.card)
        self._codec = copy(_find_codec(self._http))
        self._codec.card = _halve_prices(self._codec.card)

    @property
    def card(self) -> ModelCard:
        return self._card

    @property
    def fallback(self) -> Model | None:
        """Without a batch interface of its own, it answers at once, at its full price."""
        other = self._model.fallback
        return Batched(other, self._queue) if other is not None and has_batches(other) else other

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        if request.purpose in BATCHED_PURPOSES:
            asked = self._http.without_refused(request)
            encoded = self._codec.encode_request(asked)
            api, body = self._make_api(encoded), _encode_item(encoded)
            async with aclosing(self._queue.ask(api, self._make_name(request), body)) as news:
                async for one in news:
                    if isinstance(one, str):
                        yield ModelNotified(one)
                    elif isinstance(one, bytes):
                        decoder = self._codec.create_decoder(asked)
                        for event in decode_reply(self._codec, decoder, one):
                            yield event
                        yield Reply(decoder.finish())
                        return
                    elif isinstance(one, ContextTooLong) or not isinstance(one, BadRequest):
                        raise one
        async with open_stream(self._model, request) as events:
            async for event in events:
                yield event

    def _make_name(self, request: ModelRequest) -> str:
        """The same whenever this session asks for a reply to the same items, in whichever process
        and turn: so the batch is found. Instructions and tools may differ, as the date does."""
        session = request.session_id or request.idempotency_key or os.urandom(16).hex()
        digest = hashlib.sha256(f"{session} {self.name} ".encode())
        digest.update(to_json(tuple(request.transcript)))
        return digest.hexdigest()[:NAME_CHARS]

    def _make_api(self, request: EncodedRequest) -> BatchAPI:
        kind = AnthropicBatches if isinstance(self._codec, AnthropicCodec) else OpenAIBatches
        return kind(self._http, request)


def has_batches(model: Model) -> bool:
    """Whether the model has a batch interface that is supported."""
    try:
        _find_codec(_find_http_model(model))
    except ConfigError:
        return False
    return True


def _find_http_model(model: Model) -> HTTPModel:
    """The model that makes the calls of this one."""
    while isinstance(model, Fallback):
        model = model.first
    if not isinstance(model, HTTPModel) or model.has_client:
        raise _no_interface(model)
    return model


def _find_codec(model: HTTPModel) -> BatchCodec:
    codec = model.codec
    if isinstance(codec, AnthropicCodec):
        return codec
    if isinstance(codec, (ChatCodec, ResponsesCodec)) and codec.quirks.name in OPENAI_SERVERS:
        return codec
    raise _no_interface(model)


def _no_interface(model: Model) -> ConfigError:
    return ConfigError(
        f"{model.name} has no batch interface that is supported: use a model of anthropic/ or "
        "openai/ with its own key, or run without batches"
    )


def _halve_prices(card: ModelCard) -> ModelCard:
    prices = {name: getattr(card, name) for name in _PRICES}
    halves = {name: price * PRICE_FACTOR for name, price in prices.items() if price is not None}
    return msgspec.structs.replace(card, **halves)


def _encode_item(request: EncodedRequest) -> bytes:
    """The body as one line, for a reply in one piece."""
    fields = msgspec.json.decode(b"".join(request.body), type=dict[str, msgspec.Raw])
    for name in _STREAM_FIELDS:
        fields.pop(name, None)
    return msgspec.json.encode(fields).replace(b"\n", b" ")
