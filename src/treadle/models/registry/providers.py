"""The table of providers: their format, the variables for key and address, the default model.

Values only: nothing is created or opened. Used by the other modules of this folder and by the
command line. Uses provider_base/quirks.py for the servers with OpenAI's chat format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from treadle.core.errors import ConfigError
from treadle.models.provider_base.quirks import SERVERS, find_set_variable, resolve_server

ProviderKind = Literal["anthropic", "responses", "chat", "embedded", "recorded"]


class ProviderEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One provider. `default_model` is used when only the provider is named."""

    name: str
    kind: ProviderKind
    key_variables: tuple[str, ...] = ()  # environment variables; the first one that is set wins
    url_variables: tuple[str, ...] = ()  # the same for the address
    needs_key: bool = True
    default_model: str = ""


def _from_quirks(
    server: str, default_model: str = "", *, name: str = "", kind: ProviderKind = "chat"
) -> ProviderEntry:
    quirks = SERVERS[server]
    return ProviderEntry(
        name=name or server,
        kind=kind,
        key_variables=quirks.key_variables,
        url_variables=quirks.url_variables,
        needs_key=quirks.needs_key,
        default_model=default_model,
    )


AUTH_TOKEN_VARIABLE = "ANTHROPIC_AUTH_TOKEN"  # a key that is sent in another header
KNOWN_PROVIDERS: dict[str, ProviderEntry] = {
    provider.name: provider
    for provider in (
        ProviderEntry(
            name="anthropic",
            kind="anthropic",
            key_variables=("ANTHROPIC_API_KEY", AUTH_TOKEN_VARIABLE),
            url_variables=("ANTHROPIC_BASE_URL",),
            default_model="claude-sonnet-5-5",
        ),
        _from_quirks("openai", "gpt-6.1-sol", kind="responses"),
        _from_quirks("openai", "gpt-6.1-sol", name="openai-chat"),
        _from_quirks("openrouter", "anthropic/claude-sonnet-5.5"),
        _from_quirks("gemini", "gemini-3.8-flash"),
        _from_quirks("deepseek", "deepseek-v4-pro"),
        _from_quirks("groq", "openai/gpt-oss-120b"),
        _from_quirks("mistral", "mistral-medium-latest"),
        *map(_from_quirks, ("azure", "ollama", "lmstudio", "llamacpp", "vllm")),
        ProviderEntry(name="embedded", kind="embedded", needs_key=False),
        ProviderEntry(name="recorded", kind="recorded", needs_key=False),
    )
}


def find_key(provider: ProviderEntry, environ: Mapping[str, str]) -> str:
    """The provider's key in this environment; empty if there is none."""
    variable = find_set_variable(provider.key_variables, environ)
    return environ[variable].strip() if variable else ""


def find_key_variable(provider: ProviderEntry, environ: Mapping[str, str]) -> str:
    """The variable with the provider's key, or the variable to set."""
    names = provider.key_variables
    return find_set_variable(names, environ) or next(iter(names), "")


def find_base_url(provider: ProviderEntry, environ: Mapping[str, str]) -> str | None:
    """The address that this environment sets for the provider, if it sets one."""
    variable = find_set_variable(provider.url_variables, environ)
    return environ[variable].strip() if variable else None


def find_url_problem(provider: ProviderEntry, environ: Mapping[str, str]) -> str:
    """What is wrong with the address that this environment sets for the provider; "" if nothing."""
    from treadle.models.provider_base.base_url import check_base_url

    variable = find_set_variable(provider.url_variables, environ)
    if not variable:
        return ""
    try:
        if provider.kind == "anthropic":
            check_base_url(environ[variable].strip(), variable)
        else:
            resolve_server(SERVERS.get(provider.name), None, environ)
    except ConfigError as error:
        return str(error)
    return ""
