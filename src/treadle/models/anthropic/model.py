"""The Anthropic model and its codec: keys, endpoint, headers.

It uses any transport and imports no SDK. Users of Bedrock, Vertex and Foundry pass their SDK's
client as `client`, or name the model (models/cloud); then its endpoint and authorization are used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import msgspec

from treadle.core.contracts.model import Model, ModelCard, ModelOptions, ModelRequest
from treadle.core.errors import BadRequest, StreamBroken
from treadle.lib.http.timeouts import Timeouts
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.models.anthropic.decoding import AnthropicDecoder
from treadle.models.anthropic.encoding import (
    ORIGIN,
    AnthropicEncoder,
    RequestHead,
    can_think,
    encode_head,
    list_head_sources,
    resolve_max_tokens,
    thinks_by_effort,
)
from treadle.models.catalog import card_for, without_vendor_abilities
from treadle.models.profiles import AUTO
from treadle.models.provider_base.base_url import check_base_url
from treadle.models.provider_base.codec import EncodedRequest
from treadle.models.provider_base.encoding import encode_transcript, locate_block
from treadle.models.provider_base.error_map import (
    ProviderInfo,
    has_field,
    make_missing_key_error,
    validate_key,
)
from treadle.models.provider_base.http_model import HTTPModel

DEFAULT_ENDPOINT = "https://api.anthropic.com"
KEY_VARIABLE = "ANTHROPIC_API_KEY"
TOKEN_VARIABLE = "ANTHROPIC_AUTH_TOKEN"
URL_VARIABLE = "ANTHROPIC_BASE_URL"
BETA_HEADER = "anthropic-beta"
LONG_CONTEXT_BETA = "context-1m"
LONG_WINDOW = 1_000_000

_PART_REFERENCE = compile_lazily(
    r"messages[.\[](\d+)\]?(?:\.content[.\[](\d+)\]?)?(?:(?:\.tool_result)?\.content[.\[](\d+))?"
)
_COUNTED_FIELDS = (
    "model", "system", "tools", "tool_choice", "thinking", "output_config", "context_management",
)  # fmt: skip
# This refusal has no code of its own.
_ROLE_REFUSED = compile_lazily(
    r"(?i)(messages[\w.]*:\s*)?((unexpected )?role ['\"`]system['\"`]|input should be 'user' or)"
)


class _TokenCount(msgspec.Struct):
    input_tokens: int


class AnthropicCodec:
    """The format of the Messages API."""

    origin = ORIGIN

    def __init__(
        self,
        model: str,
        card: ModelCard,
        api_key: str | None = None,
        base_url: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        beta: Sequence[str] = (),
        version: str | None = None,
        provider: ProviderInfo | None = None,
    ) -> None:
        self._model = model
        self._headers, self._beta = _split_betas(headers or {}, beta)
        if any(name.startswith(LONG_CONTEXT_BETA) for name in self._beta):
            card = msgspec.structs.replace(card, window=max(card.window, LONG_WINDOW))
        self.card = card
        self._api_key = api_key
        self._base_url = base_url
        self._version = version
        self._encoder = self._make_encoder("system_notices" in card.abilities)
        has_own_url = bool(base_url or os.environ.get(URL_VARIABLE))
        self.provider = provider or ProviderInfo(
            "Anthropic", model, KEY_VARIABLE, has_own_url=has_own_url
        )

    def _make_encoder(self, has_system_notices: bool) -> AnthropicEncoder:
        return AnthropicEncoder(model=self.card.name, has_system_notices=has_system_notices)

    def endpoint(self) -> str:
        base = (self._base_url or os.environ.get(URL_VARIABLE, "")).strip() or DEFAULT_ENDPOINT
        if base != DEFAULT_ENDPOINT:
            setting = "the base URL of anthropic" if self._base_url else URL_VARIABLE
            check_base_url(base, setting)
        return base.rstrip("/").removesuffix("/v1")

    def auth_headers(self) -> dict[str, str]:
        key = validate_key(self.provider, self._api_key or os.environ.get(KEY_VARIABLE) or "")
        token = "" if key else validate_key(self.provider, os.environ.get(TOKEN_VARIABLE) or "")
        if self.provider.secret != (key or token):
            self.provider = msgspec.structs.replace(self.provider, secret=key or token)
        if key:
            return {"x-api-key": key}
        if token:
            return {"authorization": f"Bearer {token}"}
        if "x-api-key" in self._headers or "authorization" in self._headers:
            return {}
        raise make_missing_key_error(self.provider, f"{KEY_VARIABLE} (or {TOKEN_VARIABLE})")

    def encode_request(self, request: ModelRequest) -> EncodedRequest:
        history = encode_transcript(self._encoder, request.transcript, request.quarantine)
        head = self._get_head(request, history.has_calls)
        messages = history.messages(head.cache_mark, request.cache.breakpoints)
        body = [head.data, *messages, b"]}"]
        return EncodedRequest("/v1/messages", self._build_headers(head), body)

    def encode_count_request(self, request: ModelRequest) -> EncodedRequest:
        """The same request, for the endpoint that counts its tokens."""
        history = encode_transcript(self._encoder, request.transcript, request.quarantine)
        head = self._get_head(request, history.has_calls)
        fields = msgspec.json.decode(head.data + b"]}", type=dict[str, msgspec.Raw])
        counted = {name: fields[name] for name in _COUNTED_FIELDS if name in fields}
        start = msgspec.json.encode(counted)[:-1] + b',"messages":['
        body = [start, *history.messages(), b"]}"]
        return EncodedRequest("/v1/messages/count_tokens", self._build_headers(head), body)

    def has_effort_field(self, options: ModelOptions) -> bool:
        return "thinking" in self.card.abilities

    def create_decoder(self, request: ModelRequest) -> AnthropicDecoder:
        return AnthropicDecoder(self.provider, self.card, request)

    def split_reply(self, body: bytes) -> list[tuple[bytes, bytes]]:
        if not has_field(body, "content"):
            return []
        start = b'{"type":"message_start","message":' + body + b"}"
        return [(b"", start), (b"", b'{"type":"message_stop"}')]

    def adapt(self, refusal: BadRequest) -> str:
        if not (self._encoder.has_system_notices and _ROLE_REFUSED.match(refusal.provider_message)):
            return ""
        self._encoder = self._make_encoder(False)
        return f"{self.card.name} refuses notices of the engine as system messages: they are text"

    def locate_part(self, request: ModelRequest, error: BadRequest) -> tuple[int, int] | None:
        match = _PART_REFERENCE.search(error.provider_message)
        if match is None:
            return None
        message, block, inner = (int(number) if number else 0 for number in match.groups())
        part = locate_block(self._encoder, request.transcript, request.quarantine, message, block)
        return (part[0], inner) if part is not None and match[3] else part

    def _get_head(self, request: ModelRequest, has_calls: bool) -> RequestHead:
        cache = request.transcript.cache
        key = ("anthropic", "head", self._model)
        options, limits = request.options, self._encoder.limits
        thinks = options.thinking is not None and (
            thinks_by_effort(options, self.card)
            or can_think(request.transcript, request.quarantine, limits)
        )
        head: RequestHead | None = cache.get(key)
        if head is None or head.source != list_head_sources(self.card, request, thinks, has_calls):
            head = cache[key] = encode_head(self._model, self.card, request, thinks, has_calls)
        return head

    def _build_headers(self, head: RequestHead) -> dict[str, str]:
        version = self._version or head.version
        headers = {"content-type": "application/json", "anthropic-version": version}
        headers |= self._headers
        betas = [*self._beta, *[beta for beta in head.betas if beta not in self._beta]]
        if betas:
            headers[BETA_HEADER] = ",".join(betas)
        return headers


def _split_betas(
    headers: Mapping[str, str], beta: Sequence[str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The headers in lower case, and all betas: those of a header, too."""
    lowered: dict[str, str] = {}
    betas = [*beta]
    for name, value in headers.items():
        if name.lower() == BETA_HEADER:
            betas += [one.strip() for one in value.split(",") if one.strip()]
        else:
            lowered[name.lower()] = value
    return lowered, tuple(dict.fromkeys(betas))


class Anthropic(HTTPModel):
    """A Claude model, or a model of another server with the Messages API.

    The key is read from ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN at each request, the endpoint
    from ANTHROPIC_BASE_URL.
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
        headers: Mapping[str, str] | None = None,
        beta: Sequence[str] = (),
        version: str | None = None,
        timeouts: Timeouts | None = None,
        provider: ProviderInfo | None = None,
    ) -> None:
        if card is None:
            card = card_for(f"anthropic/{model}")
            if base_url or client is not None or os.environ.get(URL_VARIABLE, "").strip():
                card = without_vendor_abilities(card)
        if card.default_output is None:
            default_output = resolve_max_tokens(ModelOptions(thinking=AUTO), card)
            card = msgspec.structs.replace(card, default_output=default_output)
        codec = self._messages_codec = AnthropicCodec(
            model, card, api_key, base_url,
            headers=headers, beta=beta, version=version, provider=provider,
        )  # fmt: skip
        super().__init__(codec, client, fallback, timeouts)

    async def count_tokens(self, request: ModelRequest) -> int:
        """How many tokens the provider counts in this request; free, without a reply."""
        body = await self.send_request(self._messages_codec.encode_count_request(request))
        try:
            return msgspec.json.decode(body, type=_TokenCount).input_tokens
        except msgspec.DecodeError as error:
            message = f"Anthropic's answer has no token count ({error})."
            raise StreamBroken(message, provider=self._messages_codec.provider.name) from error
