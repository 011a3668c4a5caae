"""The OpenAI Responses model and its codec.

encoding.py and decoding.py are its two directions, sans-IO. With `chain=True` the provider stores
the history and only new items are sent; by default it stores nothing, because fork, rewind and
quarantine change the history.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from treadle.core.contracts.model import Model, ModelCard, ModelOptions, ModelRequest, Reply
from treadle.core.errors import BadRequest
from treadle.core.transcript.items import AssistantItem
from treadle.core.transcript.transcript import Transcript
from treadle.lib.http.timeouts import Timeouts
from treadle.models.catalog import card_for, without_vendor_abilities
from treadle.models.openai_responses.decoding import ResponsesDecoder, split_response
from treadle.models.openai_responses.encoding import ResponsesEncoder, encode_responses_body
from treadle.models.openai_responses.free_text import find_free_text_tools
from treadle.models.provider_base.codec import EncodedRequest
from treadle.models.provider_base.encoding import encode_transcript, locate_block
from treadle.models.provider_base.error_map import PREVIOUS_RESPONSE_LOST
from treadle.models.provider_base.http_model import EventBatch, HTTPModel
from treadle.models.provider_base.openai_common import (
    OpenAIAccount,
    OpenAICodec,
    default_timeouts,
    find_part_number,
    find_part_reference,
)
from treadle.models.provider_base.quirks import COMPATIBLE, Quirks

# A server with this API at an unknown address is most likely a gateway to OpenAI.
_GATEWAY_QUIRKS = msgspec.structs.replace(COMPATIBLE, name="openai", supports_cache_key=True)


class _ChainLink(msgspec.Struct, frozen=True):
    """A response that the provider stores: `reply` followed the first `length` items."""

    reply: AssistantItem
    length: int
    quarantine: frozenset[tuple[int, int]]


class ResponsesCodec(OpenAICodec):
    """The format of the API, for one model. With `chain`, requests continue a stored response."""

    resource = "/responses"

    def __init__(
        self, model: str, card: ModelCard, account: OpenAIAccount, chain: bool = False
    ) -> None:
        super().__init__(model, card, account)
        self._chain = chain
        self._last_encoder = ResponsesEncoder(account.quirks, card.name)
        self._link_key = ("openai_responses link", account.url, model)

    def encode_request(self, request: ModelRequest) -> EncodedRequest:
        link = self._find_link(request)
        if link is None:
            encoder = self._get_encoder(request)
            history = encode_transcript(encoder, request.transcript, request.quarantine)
            items, previous = history.messages(), ""
        else:
            items, previous = self._encode_new_items(request, link), link.reply.response_id
        body = encode_responses_body(
            self._model, self.card, self._account.quirks, request, items, previous, self._chain
        )
        return self._build_request(body)

    def has_effort_field(self, options: ModelOptions) -> bool:
        return "effort" in self.card.abilities

    def create_decoder(self, request: ModelRequest) -> ResponsesDecoder:
        limit = request.options.max_tokens
        return ResponsesDecoder(request, self.card, self.provider, self.origin, limit)

    def split_reply(self, body: bytes) -> list[tuple[bytes, bytes]]:
        return split_response(body)

    def locate_part(self, request: ModelRequest, error: BadRequest) -> tuple[int, int] | None:
        reference = find_part_reference(error)
        if reference is None or self._find_link(request) is not None:
            return None
        place = (request.transcript, request.quarantine, reference.message, 0)
        part = locate_block(self._get_encoder(request), *place)
        if part is None:
            return None
        item = request.transcript[part[0]]
        is_reply = isinstance(item, AssistantItem)  # each of its parts is an input item
        return part if is_reply else (part[0], find_part_number(item, reference))

    def _get_encoder(self, request: ModelRequest) -> ResponsesEncoder:
        """How calls are sent depends on the tools that the model calls with free text."""
        free_text = find_free_text_tools(request.tools, self.card)
        if free_text != self._last_encoder.free_text:
            quirks, name = self._account.quirks, self.card.name
            self._last_encoder = ResponsesEncoder(quirks, name, free_text)
        return self._last_encoder

    # ------------------------------------------------------------------ chaining

    def save_link(self, request: ModelRequest, reply: AssistantItem) -> None:
        """The next request can continue this reply, if its transcript extends this one."""
        if self._chain and reply.response_id:
            link = _ChainLink(reply, len(request.transcript), request.quarantine)
            request.transcript.cache[self._link_key] = link

    def drop_link(self, request: ModelRequest) -> bool:
        """Send the whole history next time; False if this request already did."""
        return request.transcript.cache.pop(self._link_key, None) is not None

    def _find_link(self, request: ModelRequest) -> _ChainLink | None:
        """The link, if the provider stores exactly the start of this transcript.

        Only transcripts that extend one another share a cache: after a compaction, a rewind or
        a fork there is no link.
        """
        link: _ChainLink | None = request.transcript.cache.get(self._link_key)
        if link is None or link.quarantine != request.quarantine:
            return None
        if len(request.transcript) <= link.length:
            return None
        reply = request.transcript[link.length]
        is_same = isinstance(reply, AssistantItem) and reply.content == link.reply.content
        return link if is_same else None

    def _encode_new_items(self, request: ModelRequest, link: _ChainLink) -> list[bytes]:
        """The items after the reply. They are encoded with it, because results need their calls."""
        tail = Transcript(request.transcript[link.length :])
        _, *new = encode_transcript(self._get_encoder(request), tail, frozenset()).messages()
        if new:
            new[0] = new[0].removeprefix(b",")
        return new


class OpenAIResponses(HTTPModel):
    """A model of the Responses API: of OpenAI, Azure, or a compatible server.

    With `chain=True` the provider stores the history and only new items are sent.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        client: object | None = None,
        quirks: Quirks | str | None = None,
        fallback: Model | None = None,
        card: ModelCard | None = None,
        chain: bool = False,
        timeouts: Timeouts | None = None,
    ) -> None:
        account = OpenAIAccount(
            quirks, base_url, api_key, model=model, default_quirks=_GATEWAY_QUIRKS
        )
        if card is None:
            card = card_for(f"{account.quirks.name}/{model}")
            if account.provider.has_own_url or client is not None:
                card = without_vendor_abilities(card)
        self._chain = chain
        codec = self._responses_codec = ResponsesCodec(model, card, account, chain)
        super().__init__(codec, client, fallback, timeouts or default_timeouts(account.quirks))

    def _exchange(self, request: ModelRequest) -> AsyncGenerator[EventBatch, None]:
        return self._exchange_chained(request) if self._chain else super()._exchange(request)

    async def _exchange_chained(self, request: ModelRequest) -> AsyncGenerator[EventBatch, None]:
        codec = self._responses_codec
        while True:
            try:
                async with aclosing(super()._exchange(request)) as batches:
                    async for events in batches:
                        for event in events:
                            if type(event) is Reply:
                                codec.save_link(request, event.item)
                        yield events
                return
            except BadRequest as error:
                # The provider no longer has the history: send all of it.
                if error.code != PREVIOUS_RESPONSE_LOST or not codec.drop_link(request):
                    raise
