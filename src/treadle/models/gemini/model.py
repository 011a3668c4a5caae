"""The Gemini model and its codec: key, endpoint, path.

The same format is used by Vertex, whose address and authorization come with a client
(models/cloud). The compatible endpoint of Google is OpenAIChat("…", quirks="gemini").
"""

from __future__ import annotations

import os
from urllib.parse import quote

import msgspec

from treadle.core.contracts.model import Model, ModelCard, ModelOptions, ModelRequest
from treadle.core.errors import BadRequest
from treadle.lib.http.timeouts import Timeouts
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.models.catalog import card_for
from treadle.models.gemini.decoding import GeminiDecoder
from treadle.models.gemini.encoding import ORIGIN, GeminiEncoder, encode_head
from treadle.models.provider_base.base_url import check_base_url
from treadle.models.provider_base.codec import EncodedRequest
from treadle.models.provider_base.encoding import encode_transcript, locate_block
from treadle.models.provider_base.error_map import (
    UNREADABLE,
    ProviderInfo,
    has_field,
    make_missing_key_error,
    validate_key,
)
from treadle.models.provider_base.http_model import HTTPModel
from treadle.models.provider_base.quirks import GEMINI, find_server_key, find_set_variable

DEFAULT_ENDPOINT = "https://generativelanguage.googleapis.com/v1beta"

_PART_REFERENCE = compile_lazily(r"\bcontents\[(\d+)\](?:\.parts\[(\d+)\])?")


class GeminiCodec:
    """The format of generateContent."""

    origin = ORIGIN

    def __init__(
        self,
        model: str,
        card: ModelCard,
        api_key: str | None = None,
        base_url: str | None = None,
        provider: ProviderInfo | None = None,
    ) -> None:
        self._model = model.removeprefix("models/")
        self.card = card
        self._api_key = api_key
        self._base_url = base_url
        self._encoder = GeminiEncoder(card.name)
        has_own_url = bool(base_url or find_set_variable(GEMINI.url_variables, os.environ))
        self.provider = provider or ProviderInfo(
            ORIGIN, model, GEMINI.key_variables[0], has_own_url=has_own_url
        )

    def endpoint(self) -> str:
        variable = find_set_variable(GEMINI.url_variables, os.environ)
        base = (self._base_url or os.environ.get(variable, "")).strip() or DEFAULT_ENDPOINT
        if base != DEFAULT_ENDPOINT:
            check_base_url(base, "the base URL of gemini" if self._base_url else variable)
        base = base.rstrip("/")
        return base if base.endswith(("/v1", "/v1beta", "/v1alpha")) else f"{base}/v1beta"

    def auth_headers(self) -> dict[str, str]:
        key = self._api_key
        if key is None:
            key = find_server_key(GEMINI, self._base_url)
        key = validate_key(self.provider, key)
        if self.provider.secret != key:
            self.provider = msgspec.structs.replace(self.provider, secret=key)
        if not key:
            variables = " or ".join(GEMINI.key_variables)
            raise make_missing_key_error(self.provider, variables)
        return {"x-goog-api-key": key}

    def encode_request(self, request: ModelRequest) -> EncodedRequest:
        history = encode_transcript(self._encoder, request.transcript, request.quarantine)
        body = [encode_head(self.card, request), *history.messages(), b"]}"]
        path = f"/models/{quote(self._model, safe='')}:streamGenerateContent?alt=sse"
        return EncodedRequest(path, {"content-type": "application/json"}, body)

    def has_effort_field(self, options: ModelOptions) -> bool:
        return "thinking" in self.card.abilities

    def create_decoder(self, request: ModelRequest) -> GeminiDecoder:
        return GeminiDecoder(self.provider, self.card, request)

    def split_reply(self, body: bytes) -> list[tuple[bytes, bytes]]:
        if body.lstrip().startswith(b"["):  # a stream, as an array
            try:
                chunks = msgspec.json.decode(body, type=list[msgspec.Raw])
            except UNREADABLE:
                return []
            return [(b"", bytes(chunk)) for chunk in chunks]
        is_reply = has_field(body, "candidates") or has_field(body, "promptFeedback")
        return [(b"", body)] if is_reply else []

    def adapt(self, refusal: BadRequest) -> str:
        return ""

    def locate_part(self, request: ModelRequest, error: BadRequest) -> tuple[int, int] | None:
        match = _PART_REFERENCE.search(error.provider_message)
        if match is None:
            return None
        content, part = (int(number or 0) for number in match.groups())
        return locate_block(self._encoder, request.transcript, request.quarantine, content, part)


class Gemini(HTTPModel):
    """A Gemini model by Google's own interface.

    The key is read from GEMINI_API_KEY or GOOGLE_API_KEY at each request, the endpoint from
    GEMINI_BASE_URL.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        client: object | None = None,
        fallback: Model | None = None,
        card: ModelCard | None = None,
        timeouts: Timeouts | None = None,
        provider: ProviderInfo | None = None,
    ) -> None:
        card = card or card_for(f"gemini/{model}")
        codec = GeminiCodec(model, card, api_key, base_url, provider)
        # A thinking model is silent for minutes.
        super().__init__(codec, client, fallback, timeouts or Timeouts(idle=600.0))
