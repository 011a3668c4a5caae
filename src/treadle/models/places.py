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
from treadle.models.catalog import known
from treadle.models.quirks import SERVERS, Quirks

Wire = Literal["anthropic", "responses", "chat", "embedded", "recorded"]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where models of one provider are asked. `default` is taken when only it is named."""

    name: str
    wire: Wire
    keys: tuple[str, ...] = ()  # variables; the first one that is set wins
    urls: tuple[str, ...] = ()
    key_needed: bool = True
    default: str = ""


class Alias(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A name of the user's own, for a model at an address of the user's own."""

    model: str
    base_url: str | None = None
    key_variable: str | None = None
    window: int | None = None
    max_output: int | None = None


Aliases = Mapping[str, "str | Alias | Mapping[str, object]"]


def _chat(row: Quirks, default: str = "") -> Place:
    return Place(
        name=row.name,
        wire="chat",
        keys=row.keys,
        urls=row.urls,
        key_needed=row.key_needed,
        default=default,
    )


BEARER = "ANTHROPIC_AUTH_TOKEN"  # a key that goes into another header
_OPENAI = SERVERS["openai"]
PLACES: dict[str, Place] = {
    place.name: place
    for place in (
        Place(
            name="anthropic",
            wire="anthropic",
            keys=("ANTHROPIC_API_KEY", BEARER),
            urls=("ANTHROPIC_BASE_URL",),
            default="claude-sonnet-5-5",
        ),
        Place(
            name="openai",
            wire="responses",
            keys=_OPENAI.keys,
            urls=_OPENAI.urls,
            default="gpt-6.1-sol",
        ),
        Place(
            name="openai-chat",
            wire="chat",
            keys=_OPENAI.keys,
            urls=_OPENAI.urls,
            default="gpt-6.1-sol",
        ),
        _chat(SERVERS["openrouter"], "anthropic/claude-sonnet-5.5"),
        _chat(SERVERS["gemini"], "gemini-3.8-flash"),
        _chat(SERVERS["deepseek"], "deepseek-v4-pro"),
        _chat(SERVERS["groq"], "openai/gpt-oss-120b"),
        _chat(SERVERS["mistral"], "mistral-medium-latest"),
        _chat(SERVERS["azure"]),
        _chat(SERVERS["ollama"]),
        _chat(SERVERS["lmstudio"]),
        _chat(SERVERS["llamacpp"]),
        _chat(SERVERS["vllm"]),
        Place(name="embedded", wire="embedded", key_needed=False),
        Place(name="recorded", wire="recorded", key_needed=False),
    )
}

_OTHER_SPELLINGS = {
    "google": "gemini",
    "openai-responses": "openai",
    "llama.cpp": "llamacpp",
    "lm-studio": "lmstudio",
    "mistralai": "mistral",
}

_MAKERS = (
    (re.compile(r"claude-"), "anthropic"),
    (re.compile(r"(gpt-(?!oss)|chatgpt-|codex-|o[1-9]\b)"), "openai"),
    (re.compile(r"gemini-"), "gemini"),
    (re.compile(r"deepseek-"), "deepseek"),
    (re.compile(r"(mistral|ministral|magistral|codestral|devstral)-"), "mistral"),
)

_FAMILIES = ("opus", "sonnet", "haiku")


def full_name(name: str, aliases: Aliases | None = None) -> str:
    """`provider/model` for any way of naming it; aliases are followed."""
    place, model_name, _ = resolve(name, aliases or {})
    return f"{place.name}/{model_name}" if model_name else place.name


def key_of(place: Place, environ: Mapping[str, str]) -> str:
    """The provider's key in this environment, or nothing."""
    return _first(place.keys, environ) or ""


def url_of(place: Place, environ: Mapping[str, str]) -> str | None:
    """The address of the user's own that this environment sets for the provider."""
    return _first(place.urls, environ)


def resolve(name: str, aliases: Aliases) -> tuple[Place, str, Alias | None]:
    """Where a model is asked, what it is called there, and the alias that led to it."""
    followed: list[str] = []
    alias: Alias | None = None
    while name in aliases:
        if name in followed:
            raise ConfigError(f"the aliases go round: {' -> '.join([*followed, name])}")
        followed.append(name)
        meant = aliases[name]
        if not isinstance(meant, str):
            alias = _alias(name, meant)
            meant = alias.model
        name = meant
    place, model_name = _parse(name, aliases)
    return place, model_name, alias


def _alias(name: str, given: Alias | Mapping[str, object]) -> Alias:
    if isinstance(given, Alias):
        return given
    try:
        return msgspec.convert(given, Alias)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the model alias {name!r} is wrong: {error}") from error


def _parse(name: str, aliases: Aliases) -> tuple[Place, str]:
    provider, slash, rest = name.partition("/")
    place = PLACES.get(_OTHER_SPELLINGS.get(provider, provider))
    if place is not None:
        return place, _family(rest, place) or place.default
    if not slash:
        if provider in _FAMILIES:
            return PLACES["anthropic"], _family(provider, PLACES["anthropic"])
        for pattern, maker in _MAKERS:
            if pattern.match(provider):
                return PLACES[maker], provider
    raise _unknown(name, aliases)


def _family(word: str, place: Place) -> str:
    """`anthropic/sonnet` means the current Sonnet; any other word means itself."""
    if place.name == "anthropic" and word in _FAMILIES:
        start = f"anthropic/claude-{word}-"
        return next(full for full in known() if full.startswith(start)).partition("/")[2]
    return word


def _unknown(name: str, aliases: Aliases) -> UnknownModel:
    from difflib import get_close_matches

    candidates = [*aliases, *PLACES, *_FAMILIES, *known()]
    candidates += [full.partition("/")[2] for full in known()]
    near = get_close_matches(name, candidates, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return UnknownModel(
        f"no model or provider is called {name!r}.{hint} Write PROVIDER/MODEL; "
        f"providers are {', '.join(PLACES)}."
    )


def _first(variables: tuple[str, ...], environ: Mapping[str, str]) -> str | None:
    return next(
        (environ[name].strip() for name in variables if environ.get(name, "").strip()), None
    )
