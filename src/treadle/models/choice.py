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
from treadle.models.places import PLACES, Place, key_of
from treadle.models.quirks import SERVERS, chosen

PROBE_SECONDS = 0.15
LOCAL_SERVERS = ("ollama", "lmstudio", "llamacpp")

_NO_CHAT = re.compile(r"embed|rerank|bge-|minilm|whisper|clip", re.IGNORECASE)
_FOR_CODE = re.compile(r"cod(er|e\b|estral)|devstral|gpt-oss", re.IGNORECASE)


class Choice(msgspec.Struct, frozen=True):
    """A model's name, why it was chosen, and what to expect of it, in one line for the person."""

    model: str
    why: str
    line: str


class LocalServer(msgspec.Struct, frozen=True):
    """A server that answered, and the models that it offers."""

    provider: str
    url: str
    models: tuple[str, ...]


async def choose(
    environ: Mapping[str, str] | None = None, seconds: float = PROBE_SECONDS
) -> Choice:
    """The model that runs here without configuration."""
    env = os.environ if environ is None else environ
    for place in PLACES.values():
        name = _keyed(place, env)
        if name:
            variable = key_variable(place, env)
            return _choice(name, f"{variable} is set", expectation(card_for(name)))
    for server in await local_servers(env, seconds):
        best = best_of(server.models)
        if best:
            name = f"{server.provider}/{best}"
            why = f"no key is set, and a server answers at {server.url}"
            return _choice(name, why, expectation(card_for(name)))
    return embedded_choice()


def embedded_choice() -> Choice:
    from treadle.models.embedded.weights import default

    weights = default()
    if weights is None:
        return Choice(
            "embedded",
            "no key is set and no local server answers",
            "No model can run here: set a key, such as ANTHROPIC_API_KEY, start a local server, "
            "or install the embedded one; `treadle models` lists them all.",
        )
    why = "no key is set and no local server answers"
    return _choice(f"embedded/{weights.name}", why, weights.note)


def key_variable(place: Place, environ: Mapping[str, str]) -> str:
    """The variable that holds the provider's key here, or the one to set."""
    present = (name for name in place.keys if environ.get(name, "").strip())
    return next(present, place.keys[0] if place.keys else "")


def expectation(card: ModelCard) -> str:
    """What to expect of a model: its price and its window, or its note."""
    if card.note and card.input_price == 0:
        return card.note
    window = f"window {card.window:,} tokens"
    if card.input_price is None or card.output_price is None:
        return f"price not known, {window}."
    return f"${card.input_price:g} in, ${card.output_price:g} out a million tokens, {window}."


def best_of(models: tuple[str, ...]) -> str:
    """One that can chat; those made for code first, else the server's own order."""
    can_chat = [name for name in models if not _NO_CHAT.search(name)]
    for_code = [name for name in can_chat if _FOR_CODE.search(name)]
    return next(iter([*for_code, *can_chat]), "")


async def local_servers(
    environ: Mapping[str, str] | None = None,
    seconds: float = PROBE_SECONDS,
    names: tuple[str, ...] = LOCAL_SERVERS,
) -> list[LocalServer]:
    """The local servers that answer within `seconds`, in a fixed order."""
    env = os.environ if environ is None else environ
    addresses = [chosen(SERVERS[name], None, env)[1] for name in names]
    answers = await asyncio.gather(*[_models_at(url, seconds) for url in addresses])
    return [
        LocalServer(name, url.removesuffix("/v1"), models)
        for name, url, models in zip(names, addresses, answers, strict=True)
        if models is not None
    ]


class _Listed(msgspec.Struct):
    id: str


class _List(msgspec.Struct):
    data: list[_Listed] | None


async def _models_at(base_url: str, seconds: float) -> tuple[str, ...] | None:
    """The names that a server lists; None if it is none of ours, or not there."""
    from treadle.models.wire.client import Client
    from treadle.models.wire.transport import Limits, WireError

    client = Client(environ={})  # never through a proxy: it would answer for servers that are away
    limits = Limits(connect=seconds, first_byte=seconds, total=seconds, max_bytes=1 << 20)
    try:
        async with client.get(f"{base_url}/models", {}, limits) as response:
            body = await response.read()
            if response.status != 200:
                return None
        listed = msgspec.json.decode(body, type=_List).data or []
        return tuple([one.id for one in listed])
    except (WireError, ValueError):  # nobody there, or something else listens on that port
        return None
    finally:
        await client.aclose()


def _keyed(place: Place, env: Mapping[str, str]) -> str:
    if not place.key_needed or not key_of(place, env):
        return ""
    if place.name == "azure":
        deployment = env.get("AZURE_OPENAI_DEPLOYMENT", "").strip()
        return f"azure/{deployment}" if deployment else ""
    return f"{place.name}/{place.default}" if place.default else ""


def _choice(name: str, why: str, expect: str) -> Choice:
    return Choice(name, why, f"{name} ({why}): {expect}")
