"""A model by its name: the string that stands for a model everywhere.

    anthropic/claude-sonnet-4-5     provider and model; the provider's usual variables are read
    claude-sonnet-4-5, gpt-5        a well-known model: its maker is the provider
    anthropic, sonnet               the provider's or the family's current model
    openrouter/qwen/qwen3-coder     what follows the provider is the model, slashes included
    embedded, embedded/smollm2-135m on this machine, without a key
    recorded/talk.jsonl             replays a recording
    fast                            an alias, if one is given
    sonnet, openai/gpt-5            several, by commas: the others stand in for the first

It makes objects and opens nothing: whether the model exists and the key is right is seen when it
is asked. Above: agents, settings, the command line. Below: making, and places for what is meant.
"""

from __future__ import annotations

from collections.abc import Mapping

from treadle.core.contracts.model import Model
from treadle.models.registry.create import create_models
from treadle.models.registry.providers import (
    KNOWN_PROVIDERS,
    Alias,
    Aliases,
    ProviderEntry,
    find_key,
    resolve_full_name,
)

__all__ = [
    "KNOWN_PROVIDERS",
    "Alias",
    "Aliases",
    "ProviderEntry",
    "resolve_full_name",
    "find_key",
    "model",
]


def model(
    name: str,
    *,
    aliases: Aliases | None = None,
    environ: Mapping[str, str] | None = None,
    client: object | None = None,
) -> Model:
    """The model of that name, ready to be asked. Raises UnknownModel with the nearest known one."""
    models = create_models(name, aliases, environ, client)
    if len(models) == 1:
        return models[0]
    from treadle.models.fallback import Fallback

    return Fallback(*models)
