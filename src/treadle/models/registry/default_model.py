"""Which model runs when nobody said: a key, else a server on this machine, else the embedded one.

    1. the first provider in places.PLACES whose key is in the environment
    2. a local server that answers at once and has a model: Ollama, LM Studio, llama.cpp
    3. the embedded model

Only looks around: nothing is loaded, and servers are asked only for the names of their models,
all at the same time and for a moment. Above: the hosts, which show `Choice.line` to the person.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping

import msgspec

from treadle.core.contracts.model import ModelCard
from treadle.models.catalog import card_for
from treadle.models.provider_base.quirks import SERVERS, resolve_server
from treadle.models.registry.providers import KNOWN_PROVIDERS, ProviderEntry, find_key

PROBE_SECONDS = 0.15
LOCAL_SERVERS = ("ollama", "lmstudio", "llamacpp")

_NOT_CHAT_MODEL = re.compile(r"embed|rerank|bge-|minilm|whisper|clip", re.IGNORECASE)
_CODE_MODEL = re.compile(r"cod(er|e\b|estral)|devstral|gpt-oss", re.IGNORECASE)


class DefaultModel(msgspec.Struct, frozen=True):
    """A model's name, why it was chosen, and what to expect of it, in one line for the person."""

    model: str
    reason: str
    summary: str
    is_usable: bool = True


class LocalServer(msgspec.Struct, frozen=True):
    """A server that answered, and the models that it offers."""

    provider: str
    url: str
    models: tuple[str, ...]


async def find_default_model(
    environ: Mapping[str, str] | None = None, seconds: float = PROBE_SECONDS
) -> DefaultModel:
    """The model that runs here without configuration."""
    env = os.environ if environ is None else environ
    for place in KNOWN_PROVIDERS.values():
        name = _default_with_key(place, env)
        if name:
            variable = find_key_variable(place, env)
            return _build_default(name, f"{variable} is set", describe_card(card_for(name)))
    for server in await find_local_servers(env, seconds):
        best = pick_best_model(server.models)
        if best:
            name = f"{server.provider}/{best}"
            why = f"no key is set, and a server answers at {server.url}"
            return _build_default(name, why, describe_card(card_for(name)))
    return find_embedded_default()


def find_embedded_default() -> DefaultModel:
    from treadle.models.embedded.weights import find_default_weights

    weights = find_default_weights()
    if weights is None:
        return DefaultModel(
            "embedded",
            "no key is set and no local server answers",
            "No model can run here: set a key, such as ANTHROPIC_API_KEY, start a local server, "
            "or install the embedded one; `treadle models` lists them all.",
            is_usable=False,
        )
    why = "no key is set and no local server answers"
    return _build_default(f"embedded/{weights.name}", why, weights.note)


def find_key_variable(provider: ProviderEntry, environ: Mapping[str, str]) -> str:
    """The variable that holds the provider's key here, or the one to set."""
    present = (name for name in provider.key_variables if environ.get(name, "").strip())
    return next(present, provider.key_variables[0] if provider.key_variables else "")


def describe_card(card: ModelCard) -> str:
    """What to expect of a model: its price and its window, or its note."""
    if card.note and card.input_price == 0:
        return card.note
    window = f"window {card.window:,} tokens"
    if card.input_price is None or card.output_price is None:
        return f"price not known, {window}."
    return f"${card.input_price:g} in, ${card.output_price:g} out a million tokens, {window}."


def pick_best_model(models: tuple[str, ...]) -> str:
    """One that can chat; those made for code first, else the server's own order."""
    can_chat = [name for name in models if not _NOT_CHAT_MODEL.search(name)]
    for_code = [name for name in can_chat if _CODE_MODEL.search(name)]
    return next(iter([*for_code, *can_chat]), "")


async def find_local_servers(
    environ: Mapping[str, str] | None = None,
    seconds: float = PROBE_SECONDS,
    names: tuple[str, ...] = LOCAL_SERVERS,
) -> list[LocalServer]:
    """The local servers that answer within `seconds`, in a fixed order."""
    env = os.environ if environ is None else environ
    addresses = [resolve_server(SERVERS[name], None, env)[1] for name in names]
    answers = await asyncio.gather(*[_list_server_models(url, seconds) for url in addresses])
    return [
        LocalServer(name, url.removesuffix("/v1"), models)
        for name, url, models in zip(names, addresses, answers, strict=True)
        if models is not None
    ]


class _ListedModel(msgspec.Struct):
    id: str


class _ModelList(msgspec.Struct):
    data: list[_ListedModel] | None


async def _list_server_models(base_url: str, seconds: float) -> tuple[str, ...] | None:
    """The names that a server lists; None if it is none of ours, or not there."""
    from treadle.models.http.client import Client
    from treadle.models.http.transport import Timeouts, TransportError

    client = Client(environ={})  # never through a proxy: it would answer for servers that are away
    limits = Timeouts(connect=seconds, first_byte=seconds, total=seconds, max_bytes=1 << 20)
    try:
        async with client.get(f"{base_url}/models", {}, limits) as response:
            body = await response.read()
            if response.status != 200:
                return None
        listed = msgspec.json.decode(body, type=_ModelList).data or []
        return tuple([one.id for one in listed])
    except (TransportError, ValueError):  # nobody there, or something else listens on that port
        return None
    finally:
        await client.aclose()


def _default_with_key(provider: ProviderEntry, environ: Mapping[str, str]) -> str:
    if not provider.needs_key or not find_key(provider, environ):
        return ""
    if provider.name == "azure":
        deployment = environ.get("AZURE_OPENAI_DEPLOYMENT", "").strip()
        return f"azure/{deployment}" if deployment else ""
    return f"{provider.name}/{provider.default_model}" if provider.default_model else ""


def _build_default(name: str, reason: str, description: str) -> DefaultModel:
    return DefaultModel(name, reason, f"{name} ({reason}): {description}")
