"""The table of providers: their format, the variables for key and address, the default model.

Values only: nothing is created or opened. Used by the other modules of this folder and by the
command line. Uses provider_base/quirks.py for the servers with OpenAI's chat format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from treadle.core.errors import ConfigError
from treadle.models.provider_base.quirks import (
    AZURE,
    COMPATIBLE,
    GEMINI,
    OPENAI,
    SERVERS,
    Quirks,
    find_set_variable,
    resolve_server,
)

ProviderKind = Literal["anthropic", "responses", "chat", "gemini", "cloud", "embedded", "recorded"]


class ProviderEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One provider. `default_model` is used when only the provider is named."""

    name: str
    kind: ProviderKind
    key_variables: tuple[str, ...] = ()  # environment variables; the first one that is set wins
    url_variables: tuple[str, ...] = ()  # the same for the address
    needs_key: bool = True
    default_model: str = ""
    server: str = ""  # its row in quirks.py; "" if the address decides


def _from_quirks(
    server: Quirks, *, name: str = "", kind: ProviderKind | None = None
) -> ProviderEntry:
    return ProviderEntry(
        name=name or server.name,
        kind=kind or ("gemini" if server is GEMINI else "chat"),
        server="" if server is OPENAI else server.name,
        key_variables=server.key_variables,
        url_variables=server.url_variables,
        needs_key=server.needs_key,
        default_model=server.default_model,
    )


AUTH_TOKEN_VARIABLE = "ANTHROPIC_AUTH_TOKEN"  # a key that is sent in another header
_OTHER_SERVERS = [row for row in SERVERS.values() if row not in (OPENAI, COMPATIBLE)]
# The first one whose key is set is the default. A provider of OpenAI's chat format is a row in
# provider_base/quirks.py.
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
        _from_quirks(OPENAI, kind="responses"),
        _from_quirks(OPENAI, name="openai-chat"),
        *map(_from_quirks, _OTHER_SERVERS),
        _from_quirks(AZURE, name="azure-responses", kind="responses"),
        _from_quirks(GEMINI, name="gemini-chat", kind="chat"),
        ProviderEntry(
            name="bedrock",
            kind="cloud",
            key_variables=("AWS_BEARER_TOKEN_BEDROCK",),
            url_variables=("AWS_ENDPOINT_URL_BEDROCK_RUNTIME",),
        ),
        ProviderEntry(name="vertex", kind="cloud", url_variables=("GOOGLE_VERTEX_BASE_URL",)),
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


class AccessStatus(NamedTuple):
    """Whether the models of a provider can be asked, by what, or what is missing."""

    is_ready: bool
    text: str
    is_incomplete: bool = False  # what is set is not whole, or cannot be read


def describe_access(provider: ProviderEntry, environ: Mapping[str, str]) -> AccessStatus:
    """What is configured for a provider, or what to do. It opens no connection."""
    has_key = bool(find_key(provider, environ))
    if provider.kind == "cloud" or (provider.server == "azure" and not has_key):
        from treadle.models.cloud.status import describe_cloud

        return AccessStatus(*describe_cloud(provider.server or provider.name, environ))
    variable = find_key_variable(provider, environ)
    problem = find_url_problem(provider, environ) if has_key else ""
    text = problem or (f"{variable} is set" if has_key else f"set {variable}")
    return AccessStatus(has_key and not problem, text)


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
        if provider.kind in ("anthropic", "gemini", "cloud"):
            check_base_url(environ[variable].strip(), variable)
        else:
            resolve_server(provider.server or OPENAI, None, environ)
    except ConfigError as error:
        return str(error)
    return ""
