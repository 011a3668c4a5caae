"""A model by its name: the string that stands for a model everywhere.

    anthropic/claude-sonnet-4-5     provider and model; the provider's usual variables are read
    claude-sonnet-4-5, gpt-5        a well-known model: its maker is the provider
    anthropic, sonnet               the provider's or the family's current model
    openrouter/qwen/qwen3-coder     what follows the provider is the model, slashes included
    embedded, embedded/smollm2-135m in this process, without a key
    recorded/talk.jsonl             replays a recording
    fast                            an alias, if one is given
    sonnet, openai/gpt-5            several, by commas: the others stand in for the first

It makes objects and opens nothing: whether the model exists and the key is right is seen when it
is asked. Above: agents, settings, the command line. Below: the wires, one import each.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from treadle.core.contracts.model import Model, ModelCard
from treadle.core.errors import AccessDenied, ConfigError, UnknownModel
from treadle.models.catalog import card_for, known
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


_BEARER = "ANTHROPIC_AUTH_TOKEN"  # a key that goes into another header
_OPENAI = SERVERS["openai"]
PLACES: dict[str, Place] = {
    place.name: place
    for place in (
        Place(
            name="anthropic",
            wire="anthropic",
            keys=("ANTHROPIC_API_KEY", _BEARER),
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

_KEY_MAY_GO_TO = ("api.anthropic.com", "localhost", "127.0.0.1", "::1")

_FAMILIES = ("opus", "sonnet", "haiku")


def model(
    name: str,
    *,
    aliases: Aliases | None = None,
    environ: Mapping[str, str] | None = None,
    client: object | None = None,
) -> Model:
    """The model of that name, ready to be asked. Raises UnknownModel with the nearest known one."""
    names = [part.strip() for part in name.split(",") if part.strip()]
    if not names:
        raise UnknownModel("no model is named: write PROVIDER/MODEL, such as anthropic/sonnet")
    models = [_one(part, aliases or {}, environ, client) for part in names]
    if len(models) == 1:
        return models[0]
    from treadle.models.fallback import Fallback

    return Fallback(*models)


def full_name(name: str, aliases: Aliases | None = None) -> str:
    """`provider/model` for any way of naming it; aliases are followed."""
    place, model_name, _ = _resolve(name, aliases or {})
    return f"{place.name}/{model_name}" if model_name else place.name


def key_of(place: Place, environ: Mapping[str, str]) -> str:
    """The provider's key in this environment, or nothing."""
    return _first(place.keys, environ) or ""


def _one(
    name: str, aliases: Aliases, environ: Mapping[str, str] | None, client: object | None
) -> Model:
    place, model_name, alias = _resolve(name, aliases)
    if place.wire == "recorded":
        from treadle.models.recorded import Recorded

        return Recorded(None, model_name, mode="replay")
    if place.wire == "embedded":
        from treadle.models.embedded import Embedded

        return Embedded(model_name or None)
    if not model_name:
        raise UnknownModel(
            f"which model of {place.name}? Write {place.name}/NAME; "
            "`treadle models` lists those that a local server has",
            provider=place.name,
        )
    return _healed(_behind_http(place, model_name, alias, environ, client))


def _behind_http(
    place: Place,
    model_name: str,
    alias: Alias | None,
    environ: Mapping[str, str] | None,
    client: object | None,
) -> Model:
    env = os.environ if environ is None else environ
    key, url = _access(place, alias, environ)
    card = _card(place, model_name, alias, env)
    if place.wire == "anthropic":
        from treadle.models.anthropic import Anthropic

        headers = None
        if key and key == env.get(_BEARER, "").strip():
            key, headers = None, {"authorization": f"Bearer {key}"}
        return Anthropic(
            model_name, api_key=key, base_url=url, client=client, card=card, headers=headers
        )
    if place.wire == "responses":
        from treadle.models.openai_responses import OpenAIResponses

        return OpenAIResponses(model_name, api_key=key, base_url=url, client=client, card=card)
    from treadle.models.openai_chat import OpenAIChat

    # The address tells what kind of server it is, where the name does not.
    server = None if place.name == "openai-chat" else place.name
    return OpenAIChat(
        model_name, api_key=key, base_url=url, client=client, quirks=server, card=card
    )


def _access(
    place: Place, alias: Alias | None, environ: Mapping[str, str] | None
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
        if place.wire == "anthropic" and urlsplit(url).hostname not in _KEY_MAY_GO_TO:
            raise ConfigError(
                f"an alias asks {place.name} models at {url} but names no key: "
                "set its key_variable to the variable that holds the key for that address"
            )
        return None, url
    if environ is None:
        return None, None
    return _first(place.keys, env) or "", _first(place.urls, env)


def _card(place: Place, model_name: str, alias: Alias | None, env: Mapping[str, str]) -> ModelCard:
    # At an address of the user's own, nobody knows the price; else it must be known beforehand,
    # because budgets reserve before they spend.
    own_address = _first(place.urls, env) or (alias.base_url if alias is not None else None)
    prices = place.key_needed and own_address is None
    card = card_for(f"{place.name}/{model_name}", prices=prices)
    if alias is None:
        return card
    return msgspec.structs.replace(
        card,
        window=alias.window or card.window,
        max_output=alias.max_output or card.max_output,
    )


def _healed(one: Model) -> Model:
    from treadle.models.healing import Healing

    return Healing(one)


def _resolve(name: str, aliases: Aliases) -> tuple[Place, str, Alias | None]:
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
