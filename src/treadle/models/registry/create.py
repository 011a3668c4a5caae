"""Models made from their names: each wire is imported when a model of it is wanted.

It makes objects and opens nothing: whether the model exists and the key is right is seen when it
is asked. Above: fallback and names. Below: places (what a name means), and the wires.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from treadle.core.contracts.model import Model, ModelCard
from treadle.core.errors import AccessDenied, ConfigError, UnknownModel
from treadle.models.catalog import card_for
from treadle.models.registry.providers import (
    AUTH_TOKEN_VARIABLE,
    Alias,
    Aliases,
    ProviderEntry,
    find_base_url,
    find_key,
    resolve_model,
)

_TRUSTED_KEY_HOSTS = ("api.anthropic.com", "localhost", "127.0.0.1", "::1")


def create_models(
    name: str,
    aliases: Aliases | None = None,
    environ: Mapping[str, str] | None = None,
    client: object | None = None,
) -> list[Model]:
    """The models that are named, at least one; names are told apart by commas."""
    names = [part.strip() for part in name.split(",") if part.strip()]
    if not names:
        raise UnknownModel("no model is named: write PROVIDER/MODEL, such as anthropic/sonnet")
    return [_create_model(part, aliases or {}, environ, client) for part in names]


def _create_model(
    name: str, aliases: Aliases, environ: Mapping[str, str] | None, client: object | None
) -> Model:
    place, model_name, alias = resolve_model(name, aliases)
    if place.kind == "recorded":
        from treadle.models.recorded import Recorded

        return Recorded(None, model_name, mode="replay")
    if place.kind == "embedded":
        from treadle.models.embedded import Embedded

        return Embedded(model_name or None)
    if not model_name:
        raise UnknownModel(
            f"which model of {place.name}? Write {place.name}/NAME; "
            "`treadle models` lists those that a local server has",
            provider=place.name,
        )
    return _with_quarantine(_create_http_model(place, model_name, alias, environ, client))


def _create_http_model(
    provider: ProviderEntry,
    model_name: str,
    alias: Alias | None,
    environ: Mapping[str, str] | None,
    client: object | None,
) -> Model:
    env = os.environ if environ is None else environ
    key, url = _find_key_and_url(provider, alias, environ)
    card = _build_card(provider, model_name, alias, env)
    if provider.kind == "anthropic":
        from treadle.models.anthropic import Anthropic

        headers = None
        if key and key == env.get(AUTH_TOKEN_VARIABLE, "").strip():
            key, headers = None, {"authorization": f"Bearer {key}"}
        return Anthropic(
            model_name, api_key=key, base_url=url, client=client, card=card, headers=headers
        )
    if provider.kind == "responses":
        from treadle.models.openai_responses.model import OpenAIResponses

        return OpenAIResponses(model_name, api_key=key, base_url=url, client=client, card=card)
    from treadle.models.openai_chat.model import OpenAIChat

    # The address tells what kind of server it is, where the name does not.
    server = None if provider.name == "openai-chat" else provider.name
    return OpenAIChat(
        model_name, api_key=key, base_url=url, client=client, quirks=server, card=card
    )


def _find_key_and_url(
    provider: ProviderEntry, alias: Alias | None, environ: Mapping[str, str] | None
) -> tuple[str | None, str | None]:
    """Key and address, where the wire should not read them from the environment by itself."""
    env = os.environ if environ is None else environ
    url = alias.base_url if alias is not None else None
    if alias is not None and alias.key_variable:
        key = env.get(alias.key_variable, "").strip()
        if not key:
            raise AccessDenied(f"{alias.model} needs a key: set {alias.key_variable}")
        return key, url
    # A key goes to an address out of a settings file only if the file says which key. The OpenAI
    # wires see to this themselves.
    if url is not None:
        if provider.kind == "anthropic" and urlsplit(url).hostname not in _TRUSTED_KEY_HOSTS:
            raise ConfigError(
                f"an alias asks {provider.name} models at {url} but names no key: "
                "set its key_variable to the variable that holds the key for that address"
            )
        return None, url
    if environ is None:
        return None, None
    return find_key(provider, env), find_base_url(provider, env)


def _build_card(
    provider: ProviderEntry, model_name: str, alias: Alias | None, environ: Mapping[str, str]
) -> ModelCard:
    # At an address of the user's own, nobody knows the price; else it must be known beforehand,
    # because budgets reserve before they spend.
    own_address = find_base_url(provider, environ) or (
        alias.base_url if alias is not None else None
    )
    prices = provider.needs_key and own_address is None
    card = card_for(f"{provider.name}/{model_name}", prices=prices)
    if alias is None:
        return card
    return msgspec.structs.replace(
        card,
        window=alias.window or card.window,
        max_output=alias.max_output or card.max_output,
    )


def _with_quarantine(model: Model) -> Model:
    from treadle.models.quarantine import QuarantiningModel

    return QuarantiningModel(model)
