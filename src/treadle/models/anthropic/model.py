"""The Anthropic model: its keys and endpoint, and the codec made of the parts beside it.

It speaks Messages over any transport and imports no SDK. Bedrock, Vertex and Foundry users pass
their SDK's client as `client`; its endpoint and authorization then win.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

import msgspec

from treadle.core.contracts.model import Model, ModelCard, ModelRequest
from treadle.core.errors import AccessDenied, ModelError, StreamBroken
from treadle.models.anthropic.blocks import ORIGIN, AnthropicDialect
from treadle.models.anthropic.reading import AnthropicDecoder
from treadle.models.anthropic.requests import Head, can_think, head_for
from treadle.models.catalog import card_for
from treadle.models.codec import Prepared
from treadle.models.encoding import encoded, place_of
from treadle.models.failures import Provider, checked_key, from_status
from treadle.models.provider import ProviderModel
from treadle.models.wire.limits import Limits

ENDPOINT = "https://api.anthropic.com"
KEY, TOKEN, BASE_URL = "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"

_PLACE = re.compile(
    r"messages[.\[](\d+)\]?(?:\.content[.\[](\d+)\]?)?(?:(?:\.tool_result)?\.content[.\[](\d+))?"
)


class _Counted(msgspec.Struct):
    input_tokens: int


class AnthropicCodec:
    """Messages, as requests and answers."""

    origin = ORIGIN

    def __init__(
        self,
        model: str,
        card: ModelCard,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        beta: Sequence[str] = (),
        version: str | None = None,
    ) -> None:
        self._model = model
        self._card = card
        self._api_key = api_key
        self._base_url = base_url
        self._headers = dict(headers or {})
        self._beta = tuple(beta)
        self._version = version
        self._dialect = AnthropicDialect()
        self.who = Provider("Anthropic", model, KEY)

    def endpoint(self) -> str:
        base = (self._base_url or os.environ.get(BASE_URL) or ENDPOINT).strip().rstrip("/")
        return base.removesuffix("/v1")

    def authorization(self) -> dict[str, str]:
        key = checked_key(self.who, self._api_key or os.environ.get(KEY) or "")
        token = "" if key else checked_key(self.who, os.environ.get(TOKEN) or "")
        if self.who.secret != (key or token):
            self.who = msgspec.structs.replace(self.who, secret=key or token)
        if key:
            return {"x-api-key": key}
        if token:
            return {"authorization": f"Bearer {token}"}
        if any(name.lower() in ("x-api-key", "authorization") for name in self._headers):
            return {}
        raise AccessDenied(
            f"Anthropic needs a key: set {KEY} (or {TOKEN}), or choose another model; "
            "`treadle models` lists what can be used here.",
            provider=self.who.name,
        )

    def prepare(self, request: ModelRequest) -> Prepared:
        history = encoded(self._dialect, request.transcript, request.quarantine)
        head = self._head(request, history.has_calls)
        body = [head.data, *history.messages(head.mark), b"]}"]
        return Prepared("/v1/messages", self._all_headers(head), body)

    def prepare_count(self, request: ModelRequest) -> Prepared:
        """The same request, to be counted instead of answered."""
        history = encoded(self._dialect, request.transcript, request.quarantine)
        head = self._head(request, history.has_calls)
        fields: dict[str, msgspec.Raw] = msgspec.json.decode(
            head.data + b"]}", type=dict[str, msgspec.Raw]
        )
        counted = ("model", "system", "tools", "tool_choice", "thinking", "output_config")
        kept = {name: fields[name] for name in counted if name in fields}
        start = msgspec.json.encode(kept)[:-1] + b',"messages":['
        body = [start, *history.messages(), b"]}"]
        return Prepared("/v1/messages/count_tokens", self._all_headers(head), body)

    def decoder(self, request: ModelRequest) -> AnthropicDecoder:
        return AnthropicDecoder(self.who, self._card, request)

    def error(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
        return from_status(self.who, status, headers, body)

    def locate(self, request: ModelRequest, error: ModelError) -> tuple[int, int] | None:
        found = _PLACE.search(str(error))
        if found is None:
            return None
        message, block, inner = (int(number) if number else 0 for number in found.groups())
        place = place_of(self._dialect, request.transcript, request.quarantine, message, block)
        if place is not None and found[3]:
            return place[0], inner
        return place

    def _head(self, request: ModelRequest, has_calls: bool) -> Head:
        scratch = request.transcript.scratch
        key = ("anthropic", "head", self._model)
        thinks = request.options.thinking is not None and can_think(request.transcript)
        known: Head | None = scratch.get(key)
        if known is None or not known.still_holds(request, thinks, has_calls):
            known = scratch[key] = head_for(self._model, self._card, request, thinks, has_calls)
        return known

    def _all_headers(self, head: Head) -> dict[str, str]:
        headers = {
            "content-type": "application/json",
            "anthropic-version": self._version or head.version,
            **self._headers,
        }
        wanted = [*self._beta, *[beta for beta in head.betas if beta not in self._beta]]
        if wanted:
            headers["anthropic-beta"] = ",".join(wanted)
        return headers


class Anthropic(ProviderModel):
    """A Claude model, or one behind a server that speaks Messages.

    The key is read from ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN at the first call, the
    endpoint from ANTHROPIC_BASE_URL.
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
        limits: Limits | None = None,
    ) -> None:
        card = card or card_for(f"anthropic/{model}")
        self._messages = AnthropicCodec(
            model,
            card,
            api_key=api_key,
            base_url=base_url,
            headers=headers,
            beta=beta,
            version=version,
        )
        super().__init__(
            self._messages,
            self._messages.who,
            card=card,
            client=client,
            fallback=fallback,
            limits=limits,
        )

    async def count_tokens(self, request: ModelRequest) -> int:
        """How many tokens the provider counts in this request; it generates and costs nothing."""
        body = await self.exchange(self._messages.prepare_count(request))
        try:
            return msgspec.json.decode(body, type=_Counted).input_tokens
        except msgspec.DecodeError as error:
            raise StreamBroken(
                f"Anthropic did not say how many tokens it counted ({error}).",
                provider=self._messages.who.name,
            ) from error
