"""Creates the models of a name. A provider's package is imported when a model needs it.

It opens no connection: a wrong key or a missing model is an error of the first request. Used by
the registry and by fallback.py. Uses model_names.py and the provider packages.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from treadle.core.argument_checks import TEXT, check
from treadle.core.contracts.model import Model, ModelCard
from treadle.core.errors import AccessDenied, ConfigError, UnknownModel
from treadle.lib.http.local_hosts import is_loopback
from treadle.models.catalog import card_for, without_vendor_abilities
from treadle.models.registry.model_names import Alias, Aliases, resolve_model
from treadle.models.registry.providers import (
    AUTH_TOKEN_VARIABLE,
    ProviderEntry,
    find_base_url,
    find_key,
)

if TYPE_CHECKING:
    from treadle.models.provider_base.http_model import HTTPModel

_ANTHROPIC_HOST = "api.anthropic.com"
# Their models search the web by themselves, at their own addresses.
_SEARCHING = ("anthropic", "openai", "gemini", "google")


def create_models(
    name: str,
    aliases: Aliases | None = None,
    environ: Mapping[str, str] | None = None,
    client: object | None = None,
    timeouts: Mapping[str, float] | None = None,
) -> list[Model]:
    """The models of these comma-separated names, at least one. `timeouts` are fields of Timeouts;
    the others keep the values of the provider."""
    check("the name of a model", name, TEXT)
    names = [part.strip() for part in name.split(",") if part.strip()]
    if not names:
        example = "write PROVIDER/MODEL, such as anthropic/sonnet"
        raise UnknownModel(f"the model name is empty: {example}")
    return [_create_model(part, aliases or {}, environ, client, timeouts or {}) for part in names]


def _create_model(
    name: str,
    aliases: Aliases,
    environ: Mapping[str, str] | None,
    client: object | None,
    timeouts: Mapping[str, float],
) -> Model:
    provider, model_name, alias = resolve_model(name, aliases)
    if provider.kind == "recorded":
        from treadle.models.recorded import Recorded

        return Recorded(None, model_name, mode="replay")
    if provider.kind == "embedded":
        from treadle.models.embedded import Embedded

        return Embedded(model_name or None)
    if not model_name:
        where = "its documentation has the names"
        if not provider.needs_key:
            where = "`treadle models` lists those of a local server"
        raise UnknownModel(
            f"{provider.name} has no default model: write {provider.name}/NAME; {where}",
            provider=provider.name,
        )
    model = _create_http_model(provider, model_name, alias, environ, client)
    model.change_timeouts(timeouts)
    return model


def _create_http_model(
    provider: ProviderEntry,
    model_name: str,
    alias: Alias | None,
    environ: Mapping[str, str] | None,
    client: object | None,
) -> HTTPModel:
    env = os.environ if environ is None else environ
    key, url = _find_key_and_url(provider, alias, environ)
    card = _build_card(provider, model_name, alias, env)
    if client is not None:  # of a library, perhaps for another cloud
        card = without_vendor_abilities(card)
    elif provider.kind == "cloud":
        from treadle.models.cloud.create import create_cloud_model

        if alias is not None and alias.base_url:
            _check_cloud_address(provider, alias.base_url)
        address = url or find_base_url(provider, env)
        return create_cloud_model(provider.name, model_name, card, env, address)
    elif provider.server == "azure" and not key and not find_key(provider, env):
        from treadle.models.cloud.create import make_azure_client

        client = make_azure_client(env, alias.base_url if alias is not None else None)
    if provider.kind == "anthropic":
        from treadle.models.anthropic import Anthropic

        headers = None
        if key and key == env.get(AUTH_TOKEN_VARIABLE, "").strip():
            key, headers = None, {"authorization": f"Bearer {key}"}
        return Anthropic(
            model_name, api_key=key, base_url=url, client=client, card=card, headers=headers
        )
    server = provider.server or None
    if provider.kind == "gemini" and not _is_compatible_endpoint(
        url or find_base_url(provider, env)
    ):
        from treadle.models.gemini import Gemini

        return Gemini(model_name, api_key=key, base_url=url, client=client, card=card)
    if provider.kind == "responses":
        from treadle.models.openai_responses import OpenAIResponses

        return OpenAIResponses(
            model_name, api_key=key, base_url=url, client=client, quirks=server, card=card
        )
    from treadle.models.openai_chat import OpenAIChat

    return OpenAIChat(
        model_name, api_key=key, base_url=url, client=client, quirks=server, card=card
    )


def _check_cloud_address(provider: ProviderEntry, url: str) -> None:
    """The credentials of an account are sent to no address of a settings file."""
    if not is_loopback(urlsplit(url).hostname or ""):
        variable = provider.url_variables[0]
        raise ConfigError(
            f"an alias sends the credentials of {provider.name} to {url}: leave out its base_url, "
            f"or set {variable}"
        )


def _is_compatible_endpoint(url: str | None) -> bool:
    """Whether this is Google's address for OpenAI's chat format."""
    return (url or "").rstrip("/").endswith("/openai")


def _find_key_and_url(
    provider: ProviderEntry, alias: Alias | None, environ: Mapping[str, str] | None
) -> tuple[str | None, str | None]:
    """Key and address, unless the model should read them from the environment itself."""
    env = os.environ if environ is None else environ
    url = alias.base_url if alias is not None else None
    if alias is not None and alias.key_variable:
        key = env.get(alias.key_variable, "").strip()
        if not key:
            raise AccessDenied(f"{alias.model} needs a key: set {alias.key_variable}")
        return key, url
    # A key is sent to an address from a settings file only if the file names the key. The OpenAI
    # models check this themselves.
    if url is not None and provider.kind == "anthropic":
        from treadle.models.provider_base.base_url import check_base_url

        check_base_url(url, f"the base_url of an alias for {provider.name}")
        host = urlsplit(url).hostname or ""
        if host != _ANTHROPIC_HOST and not is_loopback(host):
            raise ConfigError(
                f"an alias sends {provider.name} requests to {url} but names no key: "
                "set its key_variable to the variable with the key for that address"
            )
    if url is not None:
        return None, url
    if environ is None:
        return None, None
    return find_key(provider, env), find_base_url(provider, env)


def _build_card(
    provider: ProviderEntry, model_name: str, alias: Alias | None, environ: Mapping[str, str]
) -> ModelCard:
    # The price at an address of the user's choice is not known. Elsewhere it is looked up now,
    # because budgets reserve money before a request.
    alias_address = alias.base_url if alias is not None else None
    own_address = find_base_url(provider, environ) or alias_address
    prices = provider.needs_key and own_address is None
    card = card_for(f"{provider.name}/{model_name}", prices=prices)
    if own_address is not None:
        card = without_vendor_abilities(card)
    elif provider.name in _SEARCHING and "search" in card.abilities:
        card = msgspec.structs.replace(card, abilities=card.abilities | {"default_search"})
    if alias is None:
        return card
    return msgspec.structs.replace(
        card,
        window=alias.window or card.window,
        max_output=alias.max_output or card.max_output,
        is_assumed=card.is_assumed and not alias.window,
    )
