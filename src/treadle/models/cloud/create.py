"""Creates the models of the clouds: which format a model of Bedrock or Vertex speaks, and where.

    bedrock/anthropic.…, bedrock/us.anthropic.…     Messages
    bedrock/openai.…                                chat completions
    bedrock/…                                       Converse
    vertex/claude-…                                 Messages
    vertex/gemini-…                                 generateContent
    vertex/PUBLISHER/MODEL                          chat completions

It opens no connection. Used by registry/create.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from treadle.core.contracts.model import ModelCard
from treadle.core.errors import ConfigError
from treadle.models.catalog import without_vendor_abilities
from treadle.models.cloud.transport import (
    BearerAccess,
    CloudTransport,
    make_vertex_rewrite,
    rewrite_for_bedrock,
)
from treadle.models.provider_base.base_url import check_base_url
from treadle.models.provider_base.error_map import ProviderInfo

if TYPE_CHECKING:
    from treadle.models.provider_base.http_model import HTTPModel

# What the vendor's own interface has, and the clouds do not.
_MISSING_ABILITIES = frozenset(("task_budget", "bound_thinking"))


def create_cloud_model(
    provider: str, model: str, card: ModelCard, environ: Mapping[str, str], url: str | None
) -> HTTPModel:
    """The model of a cloud. ConfigError if the region or the project is missing."""
    card = without_vendor_abilities(card)
    card = msgspec.structs.replace(card, abilities=card.abilities - _MISSING_ABILITIES)
    create = _create_bedrock if provider == "bedrock" else _create_vertex
    return create(model, card, environ, url)


def _create_bedrock(
    model: str, card: ModelCard, environ: Mapping[str, str], url: str | None
) -> HTTPModel:
    from treadle.models.cloud import aws

    region = aws.find_region(environ)
    if not region:
        raise ConfigError("bedrock needs a region: export AWS_REGION=us-east-1, or another one")
    base = url or f"https://bedrock-runtime.{region}.amazonaws.com"
    if url:
        check_base_url(url, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME")
    access = aws.AWSAccess(environ, region)
    info = ProviderInfo("bedrock", model, remedy=f"To continue, {aws.REMEDY}")
    if "anthropic." in model or "claude" in model:
        from treadle.models.anthropic import Anthropic

        # Bedrock has no search of its own.
        card = msgspec.structs.replace(card, abilities=card.abilities - {"search"})
        client = CloudTransport(base, access, rewrite_for_bedrock)
        return Anthropic(model, client=client, card=card, provider=info)
    if "openai." in model:
        from treadle.models.openai_chat import OpenAIChat

        client = CloudTransport(f"{base}/openai/v1", access)
        return OpenAIChat(model, client=client, card=card, quirks="compatible", base_url=base)
    from treadle.models.bedrock_converse import BedrockConverse

    return BedrockConverse(model, client=CloudTransport(base, access), card=card, provider=info)


def _create_vertex(
    model: str, card: ModelCard, environ: Mapping[str, str], url: str | None
) -> HTTPModel:
    from treadle.models.cloud import google

    project, location = google.find_project(environ), google.find_location(environ)
    if not project:
        raise ConfigError("vertex needs a project: export GOOGLE_CLOUD_PROJECT=NAME")
    if url:
        check_base_url(url, "GOOGLE_VERTEX_BASE_URL")
    access = BearerAccess(
        google.make_token(environ),
        lambda: google.find_source(environ) is not None,
        f"vertex needs a login at Google: {google.REMEDY}.",
        "vertex",
    )
    rewrite = make_vertex_rewrite(project, location)
    client = CloudTransport(url or _make_vertex_url(location), access, rewrite)
    info = ProviderInfo("vertex", model, remedy=f"To continue, {google.REMEDY}")
    if model.startswith("claude"):
        from treadle.models.anthropic import Anthropic

        return Anthropic(model, client=client, card=card, provider=info)
    if "/" in model:
        from treadle.models.openai_chat import OpenAIChat

        return OpenAIChat(
            model, client=client, card=card, quirks="compatible", base_url=client.base_url
        )
    from treadle.models.gemini import Gemini

    return Gemini(model, client=client, card=card, provider=info)


def _make_vertex_url(location: str) -> str:
    if location == "global":
        return "https://aiplatform.googleapis.com"
    if location in ("us", "eu"):  # several regions
        return f"https://aiplatform.{location}.rep.googleapis.com"
    return f"https://{location}-aiplatform.googleapis.com"


def make_azure_client(environ: Mapping[str, str], url: str | None) -> CloudTransport | None:
    """A client with a token of Entra; None without an address."""
    from treadle.models.cloud import azure
    from treadle.models.provider_base.quirks import AZURE, find_server, resolve_server

    # An address of a settings file gets the token only if it is Azure's.
    if url is not None and find_server(url) is not AZURE:
        return None
    base = resolve_server(AZURE, url, environ)[1]
    if not base:
        return None
    token, missing = azure.make_token(environ), azure.describe_missing(environ)
    access = BearerAccess(token, lambda: azure.find_source(environ) is not None, missing, "azure")
    return CloudTransport(base, access)
