"""`embedder(name)`: the embedder of a name. Names, keys, addresses and aliases are as for models.

    openai/text-embedding-3-small    any provider with OpenAI's format; ollama/…, vllm/…, azure/…
    gemini/gemini-embedding-001      Gemini's own interface
    voyage/voyage-3.5                Voyage, which has no other models
    vertex/gemini-embedding-001      by an account of Google's cloud
    bedrock/amazon.titan-embed-…     by one of AWS; also bedrock/cohere.embed-…
    embedded                         the embedded engine on this machine

It opens no connection: a wrong key or a missing model is an error of the first request.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from treadle.core.argument_checks import check, optional, whole_number
from treadle.core.contracts.model import Model
from treadle.core.errors import ConfigError
from treadle.core.retry import DEFAULT_RETRY, Retry
from treadle.models.catalog import card_for, split_name
from treadle.models.embeddings import dialects
from treadle.models.embeddings.contract import Embedder
from treadle.models.embeddings.dialects import EmbeddingDialect
from treadle.models.embeddings.http_embedder import HTTPEmbedder
from treadle.models.provider_base.http_model import HTTPModel
from treadle.models.provider_base.quirks import VOYAGE, find_server_key, find_set_variable
from treadle.models.registry.create import create_models
from treadle.models.registry.model_names import Aliases
from treadle.models.registry.providers import KNOWN_PROVIDERS

_VOYAGE_PREFIX = f"{VOYAGE.name}/"


def embedder(
    name: str,
    *,
    dimensions: int | None = None,
    retry: Retry = DEFAULT_RETRY,
    aliases: Aliases | None = None,
    environ: Mapping[str, str] | None = None,
    client: object | None = None,
) -> Embedder:
    """The embedder of that name. `dimensions` shortens the vectors where the model can do that."""
    check("dimensions", dimensions, optional(whole_number(1)))
    name = _follow_aliases(name, aliases)
    if name == "embedded" or name.startswith("embedded/"):
        from treadle.models.embeddings.local_embedder import LocalEmbedder

        if dimensions is not None:
            raise ConfigError("an embedded model has vectors of one size: leave out dimensions")
        return LocalEmbedder(name.partition("/")[2] or None)
    if name.startswith(_VOYAGE_PREFIX):
        model = _create_voyage(name.removeprefix(_VOYAGE_PREFIX), environ, client)
        return HTTPEmbedder(model, dialects.VoyageEmbeddings(), dimensions, retry)
    if name in KNOWN_PROVIDERS:  # its default model writes replies
        raise ConfigError(f"{name!r} names no model that makes vectors: write {name}/NAME")
    models = create_models(name, aliases, environ, client)
    if len(models) > 1:
        raise ConfigError(f"write one name, not {name!r}: vectors of two models cannot be compared")
    return HTTPEmbedder(*_find_dialect(name, models[0]), dimensions, retry)


def _follow_aliases(name: str, aliases: Aliases | None) -> str:
    """The name behind plain aliases; those with settings are left to the registry."""
    known = dict(aliases or {})
    while isinstance(target := known.pop(name, None), str):
        name = target
    return name


def _find_dialect(name: str, model: Model) -> tuple[HTTPModel, EmbeddingDialect]:
    """The model as an account, and its format."""
    from treadle.models.bedrock_converse import BedrockConverse
    from treadle.models.gemini import Gemini
    from treadle.models.openai_chat import OpenAIChat
    from treadle.models.openai_responses import OpenAIResponses

    provider, model_name = split_name(model.name)
    if isinstance(model, Gemini):
        is_vertex = provider == "vertex"
        return model, dialects.VertexEmbeddings() if is_vertex else dialects.GeminiEmbeddings()
    if isinstance(model, BedrockConverse) and "titan-embed" in model_name:
        return model, dialects.TitanEmbeddings()
    if isinstance(model, BedrockConverse) and "cohere.embed" in model_name:
        return model, dialects.CohereEmbeddings()
    if isinstance(model, (OpenAIChat, OpenAIResponses)) and provider not in ("vertex", "bedrock"):
        return model, dialects.OpenAIEmbeddings(model.codec.endpoint())
    raise ConfigError(
        f"{name} makes no vectors: use voyage/voyage-3.5, openai/text-embedding-3-small, "
        "gemini/gemini-embedding-001, embedded or a server with OpenAI's format"
    )


def _create_voyage(
    model: str, environ: Mapping[str, str] | None, client: object | None
) -> HTTPModel:
    from treadle.models.openai_chat import OpenAIChat

    env = os.environ if environ is None else environ
    variable = find_set_variable(VOYAGE.url_variables, env)
    return OpenAIChat(
        model,
        api_key=None if environ is None else find_server_key(VOYAGE, None, env),
        base_url=env[variable] if variable and environ is not None else None,
        client=client,
        quirks=VOYAGE,
        card=card_for(f"voyage/{model}", prices=not variable),
    )
