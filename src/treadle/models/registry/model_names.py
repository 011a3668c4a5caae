"""What the name of a model means: its provider, its name there, and the alias behind it.

Pure functions. Used by create.py and the command line. Uses the table in providers.py and the
catalog, for suggestions.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from treadle.core.errors import ConfigError, UnknownModel
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.lib.text.text import suggest
from treadle.models.catalog import list_models
from treadle.models.registry.providers import KNOWN_PROVIDERS, ProviderEntry


class Alias(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The user's own name for a model, which may be at an address of the user's choice."""

    model: str
    base_url: str | None = None
    key_variable: str | None = None
    window: int | None = None
    max_output: int | None = None


Aliases = Mapping[str, "str | Alias | Mapping[str, object]"]

_PROVIDER_ALIASES = {
    "google": "gemini",
    "grok": "xai",
    "kimi": "moonshot",
    "moonshotai": "moonshot",
    "z.ai": "zai",
    "zhipu": "zai",
    "dashscope": "alibaba",
    "togetherai": "together",
    "hf": "huggingface",
    "openai-responses": "openai",
    "llama.cpp": "llamacpp",
    "lm-studio": "lmstudio",
    "mistralai": "mistral",
}

_VENDOR_PATTERNS = (
    (compile_lazily(r"claude-"), "anthropic"),
    (compile_lazily(r"(gpt-(?!oss)|chatgpt-|codex-|o[1-9]\b)"), "openai"),
    (compile_lazily(r"gemini-"), "gemini"),
    (compile_lazily(r"deepseek-"), "deepseek"),
    (compile_lazily(r"grok-"), "xai"),
    (compile_lazily(r"(?i:glm)-"), "zai"),
    (compile_lazily(r"kimi-"), "moonshot"),
    (compile_lazily(r"(mistral|ministral|magistral|codestral|devstral)-"), "mistral"),
)

_FAMILIES = ("opus", "sonnet", "haiku")


def resolve_model(name: str, aliases: Aliases) -> tuple[ProviderEntry, str, Alias | None]:
    """The provider of a model, its name there, and the last alias with settings, if any."""
    followed: list[str] = []
    alias: Alias | None = None
    while name in aliases:
        if name in followed:
            raise ConfigError(f"model aliases form a cycle: {' -> '.join([*followed, name])}")
        followed.append(name)
        target = aliases[name]
        if not isinstance(target, str):
            alias = _parse_alias(name, target)
            target = alias.model
        name = target
    provider, model_name = _parse_name(name, aliases)
    return provider, model_name, alias


def _parse_alias(name: str, value: Alias | Mapping[str, object]) -> Alias:
    if isinstance(value, Alias):
        return value
    try:
        return msgspec.convert(value, Alias)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the model alias {name!r} is invalid: {error}") from error


def _parse_name(name: str, aliases: Aliases) -> tuple[ProviderEntry, str]:
    first, slash, rest = name.partition("/")
    provider = KNOWN_PROVIDERS.get(_PROVIDER_ALIASES.get(first, first))
    if provider is not None:
        return provider, _expand_family(rest, provider) or provider.default_model
    if not slash:
        if first in _FAMILIES:
            anthropic = KNOWN_PROVIDERS["anthropic"]
            return anthropic, _expand_family(first, anthropic)
        for pattern, vendor in _VENDOR_PATTERNS:
            if pattern.match(first):
                return KNOWN_PROVIDERS[vendor], first
    raise _unknown_model_error(name, aliases)


def _expand_family(name: str, provider: ProviderEntry) -> str:
    """`anthropic/sonnet` means the newest Sonnet; other names stay as they are."""
    if provider.name == "anthropic" and name in _FAMILIES:
        start = f"anthropic/claude-{name}-"
        return next(full for full in list_models() if full.startswith(start)).partition("/")[2]
    return name


def _unknown_model_error(name: str, aliases: Aliases) -> UnknownModel:
    known = [*aliases, *KNOWN_PROVIDERS, *_FAMILIES, *list_models()]
    known += [full.partition("/")[2] for full in list_models()]
    near = suggest(name, known, cutoff=0.5)
    hint = f" Did you mean {near!r}?" if near else ""
    return UnknownModel(
        f"no model or provider is called {name!r}.{hint} Write PROVIDER/MODEL; "
        f"providers are {', '.join(KNOWN_PROVIDERS)}."
    )
