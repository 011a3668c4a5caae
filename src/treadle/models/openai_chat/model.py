"""The OpenAI Chat Completions model and its codec, also for the many compatible servers.

encoding.py and decoding.py are its two directions, sans-IO; provider_base/quirks.py is the table
of what differs between the servers.
"""

from __future__ import annotations

import msgspec

from treadle.core.contracts.model import Model, ModelCard, ModelOptions, ModelRequest
from treadle.core.errors import BadRequest
from treadle.lib.http.timeouts import Timeouts
from treadle.models.catalog import card_for, without_vendor_abilities
from treadle.models.openai_chat.decoding import ChatDecoder
from treadle.models.openai_chat.effort_fields import build_effort_fields
from treadle.models.openai_chat.encoding import ChatEncoder, encode_chat_body
from treadle.models.provider_base.codec import EncodedRequest
from treadle.models.provider_base.encoding import locate_block
from treadle.models.provider_base.error_map import UNREADABLE, has_field
from treadle.models.provider_base.http_model import HTTPModel
from treadle.models.provider_base.openai_common import (
    OpenAIAccount,
    OpenAICodec,
    default_timeouts,
    find_part_number,
    find_part_reference,
)
from treadle.models.provider_base.quirks import Quirks


class ChatCodec(OpenAICodec):
    """The format of one server, for one model."""

    resource = "/chat/completions"

    def __init__(self, model: str, card: ModelCard, account: OpenAIAccount) -> None:
        super().__init__(model, card, account)
        self._encoder = ChatEncoder(account.quirks, card.name, "thinking" in card.abilities)

    def encode_request(self, request: ModelRequest) -> EncodedRequest:
        quirks = self._account.quirks
        body = encode_chat_body(self._model, self.card, quirks, self._encoder, request)
        return self._build_request(body)

    def has_effort_field(self, options: ModelOptions) -> bool:
        return bool(build_effort_fields(self.card, self._account.quirks, options))

    def create_decoder(self, request: ModelRequest) -> ChatDecoder:
        return ChatDecoder(request, self.card, self.provider, self.origin)

    def split_reply(self, body: bytes) -> list[tuple[bytes, bytes]]:
        if not has_field(body, "choices"):
            return []
        return [(b"", _drop_deltas(body)), (b"", b"[DONE]")]

    def locate_part(self, request: ModelRequest, error: BadRequest) -> tuple[int, int] | None:
        reference = find_part_reference(error)
        if reference is None:
            return None
        message = reference.message - (1 if request.system else 0)
        part = locate_block(self._encoder, request.transcript, request.quarantine, message, 0)
        if part is None:
            return None
        return part[0], find_part_number(request.transcript[part[0]], reference)


def _drop_deltas(body: bytes) -> bytes:
    """A whole reply of Perplexity has an empty delta beside each message."""
    if b'"delta"' not in body:
        return body
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        choices = msgspec.json.decode(fields["choices"], type=list[dict[str, msgspec.Raw]])
    except UNREADABLE:
        return body  # the decoder names what does not fit
    for choice in choices:
        if "message" in choice:
            choice.pop("delta", None)
    return msgspec.json.encode(fields | {"choices": choices})


class OpenAIChat(HTTPModel):
    """A model of any server with the Chat Completions API.

    The server is recognised by its address, or named: `quirks="openrouter"`, `"ollama"`, ...
    (provider_base/quirks.py lists them). The key comes from the server's usual variable.
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
        timeouts: Timeouts | None = None,
    ) -> None:
        account = OpenAIAccount(quirks, base_url, api_key, model=model)
        # The Responses interface has it, this one has not.
        card = card or without_vendor_abilities(card_for(f"{account.quirks.name}/{model}"))
        codec = ChatCodec(model, card, account)
        super().__init__(codec, client, fallback, timeouts or default_timeouts(account.quirks))
