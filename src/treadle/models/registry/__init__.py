"""Models by name. `model(name)` creates the model of a name:

    anthropic/claude-sonnet-5-5     provider and model; the key comes from the usual variable
    claude-sonnet-5-5, gpt-5        a well-known model: its vendor is the provider
    anthropic, sonnet               the default model of the provider, the newest of the family
    openrouter/qwen/qwen3-coder     the rest after the provider is the model, slashes included
    embedded, embedded/smollm2-135m a model on this machine, without a key
    recorded/talk.jsonl             replays a recording
    fast                            an alias, if one is given
    sonnet, openai/gpt-5            comma-separated: the later ones are fallbacks

Parts: providers (the table), model_names (what a name means), create (the objects),
local_servers and default_model (which model runs if none is named). Used by agents and the hosts.
"""

from __future__ import annotations

from collections.abc import Mapping

from treadle.core.contracts.model import Model
from treadle.models.registry.create import create_models
from treadle.models.registry.model_names import Alias, Aliases
from treadle.models.registry.providers import (
    KNOWN_PROVIDERS,
    ProviderEntry,
    describe_access,
    find_key,
    find_key_variable,
    find_url_problem,
)

__all__ = [
    "KNOWN_PROVIDERS",
    "check_keys",
    "Alias",
    "Aliases",
    "ProviderEntry",
    "describe_access",
    "find_key",
    "find_key_variable",
    "find_url_problem",
    "model",
]


def check_keys(model: Model) -> None:
    """Raise AccessDenied if this model, or one that it falls back to, has no key."""
    from treadle.models.provider_base.http_model import HTTPModel

    used: Model | None = model
    while used is not None:
        if isinstance(used, HTTPModel):
            used.check_key()
        used = used.fallback


def model(
    name: str,
    *,
    aliases: Aliases | None = None,
    environ: Mapping[str, str] | None = None,
    client: object | None = None,
    timeouts: Mapping[str, float] | None = None,
) -> Model:
    """The model of that name. Raises UnknownModel with the nearest known name. `timeouts` are
    fields of `Timeouts` that differ from those of the provider, in seconds.

    It opens no connection: a wrong key or a missing model is an error of the first request.
    """
    models = create_models(name, aliases, environ, client, timeouts)
    if len(models) == 1:
        return models[0]
    from treadle.models.fallback import Fallback

    return Fallback(*models)
