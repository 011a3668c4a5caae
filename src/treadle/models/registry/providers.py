"""Where models are asked, and what the name of one means: provider, model, alias.

A table and pure functions: nothing is made here and nothing opened. Above: making (the objects),
names (how a name may look), choice and the command line. Below: the catalog and the quirks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from treadle.core.errors import ConfigError, UnknownModel
from treadle.models.catalog import list_models
from treadle.models.provider_base.quirks import SERVERS, Quirks

ProviderKind = Literal["anthropic", "responses", "chat", "embedded", "recorded"]


class ProviderEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Where models of one provider are asked. `default` is taken when only it is named."""

    name: str
    kind: ProviderKind
    key_variables: tuple[str, ...] = ()  # variables; the first one that is set wins
    url_variables: tuple[str, ...] = ()
    needs_key: bool = True
    default_model: str = ""


class Alias(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A name of the user's own, for a model at an address of the user's own."""

    model: str
    base_url: str | None = None
    key_variable: str | None = None
    window: int | None = None
    max_output: int | None = None


Aliases = Mapping[str, "str | Alias | Mapping[str, object]"]


def _chat_provider(quirks: Quirks, default: str = "") -> ProviderEntry:
    return ProviderEntry(
        name=quirks.name,
        kind="chat",
        key_variables=quirks.key_variables,
        url_variables=quirks.url_variables,
        needs_key=quirks.needs_key,
        default_model=default,
    )


AUTH_TOKEN_VARIABLE = "ANTHROPIC_AUTH_TOKEN"  # a key that goes into another header
_OPENAI_QUIRKS = SERVERS["openai"]
KNOWN_PROVIDERS: dict[str, ProviderEntry] = {
    place.name: place
    for place in (
        ProviderEntry(
            name="anthropic",
            kind="anthropic",
            key_variables=("ANTHROPIC_API_KEY", AUTH_TOKEN_VARIABLE),
            url_variables=("ANTHROPIC_BASE_URL",),
            default_model="claude-sonnet-5-5",
        ),
        ProviderEntry(
            name="openai",
            kind="responses",
            key_variables=_OPENAI_QUIRKS.key_variables,
            url_variables=_OPENAI_QUIRKS.url_variables,
            default_model="gpt-6.1-sol",
        ),
        ProviderEntry(
            name="openai-chat",
            kind="chat",
            key_variables=_OPENAI_QUIRKS.key_variables,
            url_variables=_OPENAI_QUIRKS.url_variables,
            default_model="gpt-6.1-sol",
        ),
        _chat_provider(SERVERS["openrouter"], "anthropic/claude-sonnet-5.5"),
        _chat_provider(SERVERS["gemini"], "gemini-3.8-flash"),
        _chat_provider(SERVERS["deepseek"], "deepseek-v4-pro"),
        _chat_provider(SERVERS["groq"], "openai/gpt-oss-120b"),
        _chat_provider(SERVERS["mistral"], "mistral-medium-latest"),
        _chat_provider(SERVERS["azure"]),
        _chat_provider(SERVERS["ollama"]),
        _chat_provider(SERVERS["lmstudio"]),
        _chat_provider(SERVERS["llamacpp"]),
        _chat_provider(SERVERS["vllm"]),
        ProviderEntry(name="embedded", kind="embedded", needs_key=False),
        ProviderEntry(name="recorded", kind="recorded", needs_key=False),
    )
}

_PROVIDER_ALIASES = {
    "google": "gemini",
    "openai-responses": "openai",
    "llama.cpp": "llamacpp",
    "lm-studio": "lmstudio",
    "mistralai": "mistral",
}

_VENDOR_PATTERNS = (
    (re.compile(r"claude-"), "anthropic"),
    (re.compile(r"(gpt-(?!oss)|chatgpt-|codex-|o[1-9]\b)"), "openai"),
    (re.compile(r"gemini-"), "gemini"),
    (re.compile(r"deepseek-"), "deepseek"),
    (re.compile(r"(mistral|ministral|magistral|codestral|devstral)-"), "mistral"),
)

_FAMILIES = ("opus", "sonnet", "haiku")


def resolve_full_name(name: str, aliases: Aliases | None = None) -> str:
    """`provider/model` for any way of naming it; aliases are followed."""
    place, model_name, _ = resolve_model(name, aliases or {})
    return f"{place.name}/{model_name}" if model_name else place.name


def find_key(provider: ProviderEntry, environ: Mapping[str, str]) -> str:
    """The provider's key in this environment, or nothing."""
    return _first_set_variable(provider.key_variables, environ) or ""


def find_base_url(provider: ProviderEntry, environ: Mapping[str, str]) -> str | None:
    """The address of the user's own that this environment sets for the provider."""
    return _first_set_variable(provider.url_variables, environ)


def resolve_model(name: str, aliases: Aliases) -> tuple[ProviderEntry, str, Alias | None]:
    """Where a model is asked, what it is called there, and the alias that led to it."""
    followed: list[str] = []
    alias: Alias | None = None
    while name in aliases:
        if name in followed:
            raise ConfigError(f"the aliases go round: {' -> '.join([*followed, name])}")
        followed.append(name)
        meant = aliases[name]
        if not isinstance(meant, str):
            alias = _parse_alias(name, meant)
            meant = alias.model
        name = meant
    place, model_name = _parse_name(name, aliases)
    return place, model_name, alias


def _parse_alias(name: str, value: Alias | Mapping[str, object]) -> Alias:
    if isinstance(value, Alias):
        return value
    try:
        return msgspec.convert(value, Alias)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the model alias {name!r} is wrong: {error}") from error


def _parse_name(name: str, aliases: Aliases) -> tuple[ProviderEntry, str]:
    provider, slash, rest = name.partition("/")
    place = KNOWN_PROVIDERS.get(_PROVIDER_ALIASES.get(provider, provider))
    if place is not None:
        return place, _expand_family(rest, place) or place.default_model
    if not slash:
        if provider in _FAMILIES:
            return KNOWN_PROVIDERS["anthropic"], _expand_family(
                provider, KNOWN_PROVIDERS["anthropic"]
            )
        for pattern, maker in _VENDOR_PATTERNS:
            if pattern.match(provider):
                return KNOWN_PROVIDERS[maker], provider
    raise _unknown_model_error(name, aliases)


def _expand_family(name: str, provider: ProviderEntry) -> str:
    """`anthropic/sonnet` means the current Sonnet; any other word means itself."""
    if provider.name == "anthropic" and name in _FAMILIES:
        start = f"anthropic/claude-{name}-"
        return next(full for full in list_models() if full.startswith(start)).partition("/")[2]
    return name


def _unknown_model_error(name: str, aliases: Aliases) -> UnknownModel:
    from difflib import get_close_matches

    candidates = [*aliases, *KNOWN_PROVIDERS, *_FAMILIES, *list_models()]
    candidates += [full.partition("/")[2] for full in list_models()]
    near = get_close_matches(name, candidates, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UnknownModel(
        f"no model or provider is called {name!r}.{hint} Write PROVIDER/MODEL; "
        f"providers are {', '.join(KNOWN_PROVIDERS)}."
    )


def _first_set_variable(variables: tuple[str, ...], environ: Mapping[str, str]) -> str | None:
    return next(
        (environ[name].strip() for name in variables if environ.get(name, "").strip()), None
    )
