"""The official SDKs' clients as transports. Importing them takes seconds: hence slow."""

import gc
import json
from typing import Any

import pytest

from tests.lib.http.raw_server import answering, chunk_frame, plain
from treadle.lib.http.sse import SSEReader
from treadle.models.provider_base.sdk_transport import SDKTransport, as_transport
from treadle.testing.provider import FakeReply, ProviderServer

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("sdks")]  # one worker imports them

BODY = json.dumps(
    {
        "model": "m",
        "max_tokens": 100,
        "stream": True,
        "messages": [{"role": "user", "content": "Hi"}],
    }
).encode()
EVENTS: list[dict[str, object]] = [{"type": "message_start"}, {"type": "message_stop"}]


@pytest.fixture(scope="module")
def anthropic() -> Any:
    module = pytest.importorskip("anthropic")
    # The SDKs leave some hundred thousand objects that no later collection should walk.
    gc.collect()
    gc.freeze()
    return module


@pytest.fixture(scope="module")
def openai() -> Any:
    module = pytest.importorskip("openai")
    gc.collect()
    gc.freeze()
    return module


async def test_an_sdk_client_signs_by_itself_and_names_its_endpoint(anthropic):
    async with ProviderServer([FakeReply("ok")], api_key="sdk-key") as server:
        async with anthropic.AsyncAnthropic(api_key="sdk-key", base_url=server.url + "/") as client:
            carrier = as_transport(client)
            assert isinstance(carrier, SDKTransport)
            assert carrier.base_url == server.url
            extra = {"anthropic-beta": "feature"}
            url = carrier.base_url + "/v1/messages"
            async with carrier.post(url, extra, BODY) as response:
                assert response.status == 200
        assert server.requests[0].headers["anthropic-beta"] == "feature"


def test_a_synchronous_sdk_client_is_refused_with_advice(anthropic):
    with pytest.raises(TypeError, match="Async"):
        as_transport(anthropic.Anthropic(api_key="k"))


@pytest.mark.parametrize("path", ["/chat/completions", "/responses"])
async def test_an_openai_client_sends_the_bytes_as_they_are(openai, path):
    asked = {"model": "m", "stream": True}
    asked["messages" if "chat" in path else "input"] = [{"role": "user", "content": "Hi"}]
    body = json.dumps(asked).encode()
    async with ProviderServer([FakeReply("ok")], api_key="sdk-key") as server:
        base = server.url + "/v1"
        async with openai.AsyncOpenAI(api_key="sdk-key", base_url=base) as client:
            carrier = as_transport(client)
            async with carrier.post(base + path, {}, body) as response:
                assert response.status == 200
                await response.read()
        assert server.requests[0].body == body


async def test_an_azure_client_puts_the_deployment_into_the_url(openai):
    async with answering(plain(b"{}")) as server:
        client = openai.AsyncAzureOpenAI(
            api_key="azure-key",
            azure_endpoint=f"http://127.0.0.1:{server.port}",
            api_version="2026-01-01",
        )
        async with client:
            carrier = as_transport(client)
            assert carrier.base_url is not None
            url = carrier.base_url + "/chat/completions"
            async with carrier.post(url, {}, b'{"model": "mine", "messages": []}') as response:
                assert response.status == 200
    head = server.heads[0]
    assert head.startswith("POST /openai/deployments/mine/chat/completions?api-version=2026-01-01 ")
    assert "api-key: azure-key" in head
    assert json.loads(server.bodies[0]) == {"model": "mine", "messages": []}


async def test_a_bedrock_client_moves_the_model_and_its_frames_come_as_events(
    anthropic,
):
    body = b"".join(map(chunk_frame, EVENTS))
    answer = plain(body, "200 OK", "content-type: application/vnd.amazon.eventstream")
    async with answering(answer) as server:
        client = anthropic.AsyncAnthropicBedrock(
            api_key="aws-key", aws_region="eu-west-1", base_url=f"http://127.0.0.1:{server.port}"
        )
        async with client:
            carrier = as_transport(client)
            assert carrier.base_url is not None
            url = carrier.base_url + "/v1/messages"
            async with carrier.post(url, {}, BODY.replace(b'"m"', b'"claude-x"')) as response:
                assert response.headers["content-type"] == "text/event-stream"
                events = SSEReader().feed(await response.read())
    assert [json.loads(data) for _, data in events] == EVENTS
    assert server.heads[0].startswith("POST /model/claude-x/invoke-with-response-stream ")
    assert "Bearer aws-key" in server.heads[0]
    sent = json.loads(server.bodies[0])
    assert "model" not in sent
    assert "stream" not in sent
    assert sent["anthropic_version"]


async def test_a_vertex_client_moves_the_model_into_the_url(anthropic):
    async with answering(plain(b"{}")) as server:
        client = anthropic.AsyncAnthropicVertex(
            access_token="google-token",
            project_id="mine",
            region="europe-west1",
            base_url=f"http://127.0.0.1:{server.port}",
        )
        async with client:
            carrier = as_transport(client)
            assert carrier.base_url is not None
            async with carrier.post(carrier.base_url + "/v1/messages", {}, BODY) as response:
                assert response.status == 200
    head = server.heads[0]
    assert "/projects/mine/locations/europe-west1/publishers/anthropic/models/m:stream" in head
    assert "Bearer google-token" in head
    assert "model" not in json.loads(server.bodies[0])
