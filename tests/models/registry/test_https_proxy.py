"""Every provider of the table at its own address: through a proxy, with a certificate of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.lib.http.raw_server import Serving
from tests.models.https_proxy import Authority, tls_proxy, use_proxy
from treadle import Agent, Retry
from treadle.errors import Unreachable
from treadle.models import embedder, model
from treadle.models.registry import KNOWN_PROVIDERS
from treadle.testing.provider import FakeReply, ProviderServer

AWS = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "eu-west-1"}
GOOGLE = {"CLOUDSDK_AUTH_ACCESS_TOKEN": "ya29", "GOOGLE_CLOUD_PROJECT": "p1"}
AZURE = {"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com"}
ENVIRONMENTS = {"bedrock": AWS, "vertex": GOOGLE, "azure": AZURE, "azure-responses": AZURE}
MODELS = {"bedrock": "amazon.nova-pro-v1:0", "vertex": "gemini-3.8-flash"}
HOSTS = {
    "anthropic": "api.anthropic.com",
    "openai": "api.openai.com",
    "gemini": "generativelanguage.googleapis.com",
    "bedrock": "bedrock-runtime.eu-west-1.amazonaws.com",
    "vertex": "aiplatform.googleapis.com",
    "azure": "mine.openai.azure.com",
    "xai": "api.x.ai",
}
REMOTE = [one for one in KNOWN_PROVIDERS.values() if one.needs_key]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def behind_proxy(
    authority: Authority, trusted: Authority | None = None
) -> AsyncIterator[tuple[Serving, ProviderServer]]:
    async with ProviderServer((FakeReply("Hello."),), strict=False) as provider:
        async with tls_proxy(provider, authority) as proxy:
            with use_proxy(proxy, trusted or authority):
                yield proxy, provider


@pytest.mark.parametrize("entry", REMOTE, ids=lambda one: one.name)
async def test_a_request_and_a_reply_through_the_proxy(entry, authority):
    name = f"{entry.name}/{MODELS.get(entry.name) or entry.default_model or 'some-model'}"
    environ = ENVIRONMENTS.get(entry.name) or {entry.key_variables[0]: "the-key"}
    async with behind_proxy(authority) as (proxy, provider):
        result = await Agent(model(name, environ=environ)).run("hi")
    assert result.output == "Hello."
    [head] = proxy.heads
    assert head.startswith(f"CONNECT {HOSTS.get(entry.name, '')}")
    assert ":443 HTTP/1.1\r\n" in head
    assert "the-key" not in head  # the proxy sees the host only
    [request] = provider.generation_requests
    assert request.headers["host"] == head.split()[1].removesuffix(":443")


async def test_a_certificate_that_is_not_trusted_is_told(authority, tmp_path: Path):
    made = model("openai/gpt-5", environ={"OPENAI_API_KEY": "k"})
    async with behind_proxy(authority, Authority(tmp_path)):
        with pytest.raises(Unreachable, match="SSL_CERT_FILE"):
            await Agent(made, retry=Retry(attempts=1)).run("hi")


@pytest.mark.parametrize(
    ("name", "variable", "price"),
    [
        ("openai/text-embedding-3-small", "OPENAI_API_KEY", 0.02),
        ("voyage/voyage-3.5", "VOYAGE_API_KEY", 0.06),
    ],
)
async def test_vectors_at_the_address_of_the_provider_have_a_cost(authority, name, variable, price):
    async with behind_proxy(authority):
        found = await embedder(name, environ={variable: "k"}).embed(["word " * 1000])
    assert found.usage.input == 1000
    assert found.usage.cost == pytest.approx(price / 1000)


async def test_gemini_does_not_count_the_tokens_of_vectors(authority):
    made = embedder("gemini/gemini-embedding-001", environ={"GEMINI_API_KEY": "k"})
    async with behind_proxy(authority):
        assert (await made.embed(["word"])).usage.cost is None
