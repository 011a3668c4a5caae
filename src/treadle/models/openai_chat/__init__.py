"""OpenAI's chat-completions dialect, and the many servers that speak it more or less.

`OpenAIChat` is the model; `encoding` and `decoding` are its two directions, sans-IO; what sets
the servers apart is a table in models/quirks. The machinery below is models/provider.
"""

from __future__ import annotations

from treadle.core.contracts.model import Model, ModelCard, ModelRequest
from treadle.core.errors import ModelError
from treadle.models.catalog import card_for
from treadle.models.codec import Prepared
from treadle.models.encoding import place_of
from treadle.models.openai_chat.decoding import ChatDecoder
from treadle.models.openai_chat.encoding import ChatDialect, body
from treadle.models.openai_wire import Account, AccountCodec, part_number, patience, place_in
from treadle.models.provider import ProviderModel
from treadle.models.quirks import Quirks
from treadle.models.wire.limits import Limits

__all__ = ["ChatCodec", "OpenAIChat"]


class ChatCodec(AccountCodec):
    """The dialect of one server, for one model."""

    resource = "/chat/completions"

    def __init__(self, model: str, card: ModelCard, held: Account) -> None:
        super().__init__(model, card, held)
        self._dialect = ChatDialect(held.quirks)

    def prepare(self, request: ModelRequest) -> Prepared:
        dialect = self._dialect_for(request)
        pieces = body(self._model, self._card, self._held.quirks, dialect, request)
        return self._prepared(pieces)

    def _dialect_for(self, request: ModelRequest) -> ChatDialect:
        if not request.quarantine:
            return self._dialect
        return ChatDialect(self._held.quirks, request.quarantine)

    def decoder(self, request: ModelRequest) -> ChatDecoder:
        return ChatDecoder(request, self._card, self.who, self.origin)

    def locate(self, request: ModelRequest, error: ModelError) -> tuple[int, int] | None:
        named = place_in(str(error))
        if named is None:
            return None
        message = named[0] - (1 if request.system else 0)
        dialect = self._dialect_for(request)
        place = place_of(dialect, request.transcript, request.quarantine, message, 0)
        if place is None:
            return None
        return place[0], part_number(request.transcript[place[0]], named[1])


class OpenAIChat(ProviderModel):
    """A model behind any server that speaks chat completions.

    The server is recognised by its address, or named: `quirks="openrouter"`, `"ollama"`, ...
    (models/quirks lists them). A key comes from the server's usual variable.
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
        limits: Limits | None = None,
    ) -> None:
        held = Account(quirks, base_url, api_key, model=model)
        card = card or card_for(f"{held.quirks.name}/{model}")
        codec = ChatCodec(model, card, held)
        super().__init__(
            codec,
            codec.who,
            card=card,
            client=client,
            fallback=fallback,
            limits=limits or patience(held.quirks),
        )
