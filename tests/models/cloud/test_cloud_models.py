"""Models of the clouds by name: what is sent where, and what is said when something is missing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.apps.program import run
from tests.lib.http.raw_server import chunk_frame
from treadle.agents.agent import Agent
from treadle.core.contracts.model import Model, ModelOptions, ModelRequest, Reply
from treadle.core.errors import AccessDenied, ConfigError, UnknownModel
from treadle.core.transcript import AssistantItem, Transcript, to_user_item
from treadle.models import model
from treadle.models.cloud.aws import AWSAccess
from treadle.models.cloud.transport import CloudTransport
from treadle.models.registry import KNOWN_PROVIDERS, check_keys, describe_access
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer, ReceivedRequest
from treadle.testing.provider.answers import encode_event
from treadle.testing.provider.dialects.anthropic import FakeAnthropic
from treadle.testing.provider.http import format_response, read_request

FRAMES = "application/vnd.amazon.eventstream"
AWS = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
GOOGLE = {"CLOUDSDK_AUTH_ACCESS_TOKEN": "ya29", "GOOGLE_CLOUD_PROJECT": "p1"}
AZURE = {"AZURE_OPENAI_AD_TOKEN": "entra"}
CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
EVENTS: list[dict[str, object]] = [{"type": "message_start"}, {"type": "message_stop"}]
REQUEST = ModelRequest(Transcript([to_user_item("hi")]), system="Be brief.")


class Canned:
    """A server that gives one answer, whatever it is asked."""

    url = ""

    def __init__(self) -> None:
        self.requests: list[ReceivedRequest] = []


@asynccontextmanager
async def serve(body: bytes, media_type: str, status: int = 200) -> AsyncIterator[Canned]:
    canned = Canned()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader, 0)
        assert request is not None
        canned.requests.append(request)
        headers = {"content-type": media_type, "connection": "close"}
        writer.write(format_response(status, body, headers))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    canned.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield canned
    finally:
        server.close()


async def ask(asked: Model, request: ModelRequest = REQUEST) -> AssistantItem:
    events = [event async for event in asked.stream(request)]
    assert isinstance(events[-1], Reply)
    return events[-1].item


async def test_claude_on_bedrock_is_sent_what_bedrock_accepts():
    async with serve(b"".join(map(chunk_frame, EVENTS)), FRAMES) as server:
        environ = {**AWS, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": server.url}
        claude = model(f"bedrock/{CLAUDE}", environ=environ)
        options = ModelOptions(temperature=0.5, thinking=None, web_search=True)
        await ask(claude, ModelRequest(REQUEST.transcript, options=options))
    [request] = server.requests
    assert request.path == f"/model/{CLAUDE.replace(':', '%3A')}/invoke-with-response-stream"
    body = request.json
    assert body["anthropic_version"] == "bedrock-2023-05-31"
    assert body["temperature"] == 0.5
    assert not body.keys() & {"model", "stream", "tools"}
    assert request.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKID/")
    assert not request.headers.keys() & {"anthropic-version", "anthropic-beta", "x-api-key"}


async def test_a_bearer_key_of_bedrock_is_used_before_a_signature():
    async with ProviderServer([FakeReply("Hello.")]) as server:
        environ = {**AWS, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": server.url}
        nova = model(
            "bedrock/amazon.nova-pro-v1:0", environ={**environ, "AWS_BEARER_TOKEN_BEDROCK": "bk"}
        )
        assert (await ask(nova)).text == "Hello."
    assert server.requests[0].headers["authorization"] == "Bearer bk"


async def test_a_request_without_a_body_is_signed_too():
    async with serve(b"{}", "application/json") as server:
        client = CloudTransport(server.url, AWSAccess(AWS, "us-east-1"))
        async with client.get(f"{server.url}/jobs?x=1", {"accept": "*/*"}) as response:
            assert (response.status, await response.read(10)) == (200, b"{}")
    (asked,) = server.requests
    assert (asked.method, asked.path) == ("GET", "/jobs")
    assert asked.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKID/")


async def test_other_models_of_bedrock_are_asked_by_converse_with_tools():
    calls = (FakeCall("no_such_tool", {"a": 1}), FakeCall("other"))
    script = [FakeReply("Hm.", "thinking", calls), FakeReply("Done.")]
    async with ProviderServer(script) as server:
        environ = {**AWS, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": server.url}
        nova = model("bedrock/amazon.nova-pro-v1:0", environ=environ)
        result = await Agent(nova, instructions="Be brief.").run("go")
    assert result.text == "Done."
    assert server.requests[0].path == "/model/amazon.nova-pro-v1%3A0/converse-stream"
    messages: Any = server.requests[1].json["messages"]
    assert [next(iter(block)) for block in messages[1]["content"]] == [
        "reasoningContent", "text", "toolUse", "toolUse",
    ]  # fmt: skip
    assert messages[2]["content"][0]["toolResult"]["status"] == "error"


async def test_an_open_model_of_bedrock_is_asked_by_its_compatible_endpoint():
    async with ProviderServer([FakeReply("Hello.")]) as server:
        environ = {**AWS, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": server.url}
        assert (
            await ask(model("bedrock/openai.gpt-oss-120b-1:0", environ=environ))
        ).text == "Hello."
    assert server.requests[0].path == "/openai/v1/chat/completions"
    assert server.requests[0].headers["authorization"].startswith("AWS4-HMAC-SHA256")


async def test_a_model_that_bedrock_does_not_know_is_named():
    refusal = b'{"message":"The provided model identifier is invalid."}'
    async with serve(refusal, "application/json", 400) as server:
        environ = {**AWS, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": server.url}
        with pytest.raises(UnknownModel, match="bedrock does not know"):
            await ask(model("bedrock/no.such-model", environ=environ))


async def test_refused_credentials_say_what_to_do():
    refusal = b'{"message":"The security token included in the request is invalid."}'
    async with serve(refusal, "application/json", 401) as server:
        environ = {**AWS, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": server.url}
        with pytest.raises(AccessDenied, match="did not accept the credentials"):
            await ask(model(f"bedrock/{CLAUDE}", environ=environ))


async def test_claude_on_vertex_is_sent_what_vertex_accepts():
    lines = [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in EVENTS]
    async with serve("".join(lines).encode(), "text/event-stream") as server:
        environ = {**GOOGLE, "GOOGLE_VERTEX_BASE_URL": server.url}
        await ask(model("vertex/claude-sonnet-4-5@20250929", environ=environ))
    [request] = server.requests
    start = "/v1/projects/p1/locations/global/publishers/anthropic/models"
    assert request.path == f"{start}/claude-sonnet-4-5@20250929:streamRawPredict"
    assert request.json["anthropic_version"] == "vertex-2023-10-16"
    assert "model" not in request.json
    assert request.headers["authorization"] == "Bearer ya29"


async def test_gemini_and_open_models_on_vertex_have_their_own_paths():
    async with ProviderServer([FakeReply("One."), FakeReply("Two.")]) as server:
        environ = {
            **GOOGLE, "GOOGLE_VERTEX_BASE_URL": server.url, "GOOGLE_CLOUD_LOCATION": "europe-west4",
        }  # fmt: skip
        options = ModelOptions(web_search=True)
        gemini = model("vertex/gemini-3.8-flash", environ=environ)
        searching = ModelRequest(REQUEST.transcript, options=options)
        assert (await ask(gemini, searching)).text == "One."
        llama = model("vertex/meta/llama-4-maverick", environ=environ)
        assert (await ask(llama)).text == "Two."
    start = "/v1/projects/p1/locations/europe-west4"
    first, second = server.requests
    assert first.path == f"{start}/publishers/google/models/gemini-3.8-flash:streamGenerateContent"
    assert b"includeServerSideToolInvocations" not in first.body
    assert second.path == f"{start}/endpoints/openapi/chat/completions"
    assert {one.headers["authorization"] for one in server.requests} == {"Bearer ya29"}


@pytest.mark.parametrize("name", ["azure/my-gpt", "azure-responses/my-gpt"])
async def test_azure_without_a_key_uses_a_token_of_entra(name: str):
    async with ProviderServer([FakeReply("Hello.")]) as server:
        environ = {**AZURE, "AZURE_OPENAI_ENDPOINT": server.url}
        assert (await ask(model(name, environ=environ))).text == "Hello."
        assert (await_key := environ | {"AZURE_OPENAI_API_KEY": "k"})
        assert model(name, environ=await_key)._client is None  # type: ignore[attr-defined]
    assert server.requests[0].headers["authorization"] == "Bearer entra"
    assert "api-key" not in server.requests[0].headers


@pytest.mark.parametrize(
    ("name", "environ", "problem"),
    [
        ("bedrock/x", {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}, "AWS_REGION"),
        ("vertex/gemini-3", {"CLOUDSDK_AUTH_ACCESS_TOKEN": "t"}, "GOOGLE_CLOUD_PROJECT"),
    ],
)
def test_a_region_or_project_that_is_missing_is_named(name: str, environ, problem: str):
    with pytest.raises(ConfigError, match=problem):
        model(name, environ={"HOME": "/nowhere", **environ})


@pytest.mark.parametrize(
    ("name", "environ"),
    [
        ("bedrock/x", {"AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}),
        ("vertex/gemini-3", {"GOOGLE_CLOUD_PROJECT": "p"}),
    ],
)
def test_missing_credentials_are_an_error_before_the_first_request(name: str, environ):
    with pytest.raises(AccessDenied, match="run `"):
        check_keys(model(name, environ={"HOME": "/nowhere", **environ}))


@pytest.mark.parametrize("more", [{}, {"key_variable": "MINE"}])
@pytest.mark.parametrize("host", ["evil.test", "api.anthropic.com"])
@pytest.mark.parametrize("name", ["bedrock/x", "vertex/gemini-3"])
def test_an_alias_never_sends_the_credentials_of_an_account_to_its_address(name, host, more):
    aliases = {"mine": {"model": name, "base_url": f"https://{host}/v1", **more}}
    with pytest.raises(ConfigError, match="leave out its base_url"):
        model("mine", aliases=aliases, environ={**AWS, **GOOGLE, "MINE": "k"})


def test_an_alias_never_sends_a_token_of_entra_to_an_address_that_is_not_azures():
    aliases = {"mine": {"model": "azure/x", "base_url": "https://evil.test/v1"}}
    with pytest.raises(AccessDenied):
        check_keys(model("mine", aliases=aliases, environ=AZURE))


@pytest.mark.parametrize(
    ("name", "environ", "is_ready", "text"),
    [
        ("bedrock", AWS, True, "AWS_ACCESS_KEY_ID, us-east-1"),
        ("bedrock", {"AWS_BEARER_TOKEN_BEDROCK": "k"}, False, "export AWS_REGION="),
        ("bedrock", {"AWS_EC2_METADATA_DISABLED": "true"}, False, "aws configure"),
        ("vertex", GOOGLE, True, "CLOUDSDK_AUTH_ACCESS_TOKEN, p1, global"),
        ("vertex", {"CLOUDSDK_AUTH_ACCESS_TOKEN": "t"}, False, "export GOOGLE_CLOUD_PROJECT="),
        ("vertex", {}, False, "gcloud auth application-default login"),
        (
            "azure",
            {**AZURE, "AZURE_OPENAI_ENDPOINT": "https://a.openai.azure.com"},
            True,
            "AD_TOKEN",
        ),
        ("azure", AZURE, False, "export AZURE_OPENAI_ENDPOINT="),
        ("azure", {"PATH": ""}, False, "az login"),
        ("azure", {"AZURE_OPENAI_API_KEY": "k"}, True, "AZURE_OPENAI_API_KEY is set"),
    ],
)
def test_what_is_configured_or_missing_is_said_in_a_line(name, environ, is_ready, text):
    status = describe_access(KNOWN_PROVIDERS[name], {"HOME": "/nowhere", **environ})
    assert status.is_ready is is_ready
    assert text in status.text


@pytest.mark.parametrize(
    ("name", "environ", "variable"),
    [
        ("bedrock/amazon.nova-pro-v1:0", AWS, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME"),
        ("bedrock/openai.gpt-oss-120b-1:0", AWS, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME"),
        ("vertex/gemini-3.8-flash", GOOGLE, "GOOGLE_VERTEX_BASE_URL"),
        ("vertex/meta/llama-4-maverick", GOOGLE, "GOOGLE_VERTEX_BASE_URL"),
        ("azure/my-gpt", AZURE, "AZURE_OPENAI_ENDPOINT"),
        ("azure-responses/my-gpt", AZURE, "AZURE_OPENAI_ENDPOINT"),
    ],
)
async def test_the_program_runs_with_only_the_variables_of_a_cloud(
    monkeypatch, name: str, environ: dict[str, str], variable: str
):
    async with ProviderServer([FakeReply("Hello.")]) as server:
        for key, value in {**environ, variable: server.url}.items():
            monkeypatch.setenv(key, value)
        ran = await run(None, "-p", "hi", "--model", name)
        assert (ran.code, ran.out) == (0, "Hello.\n"), ran.err
        assert server.violations == []


@pytest.mark.parametrize("provider", ["bedrock", "vertex"])
async def test_the_program_runs_with_claude_of_a_cloud(monkeypatch, provider: str):
    events = FakeAnthropic().render_stream(FakeReply("Hello."), "claude", 1)
    if provider == "bedrock":
        frames = [chunk_frame(json.loads(event.data)) for event in events]
        body, kind = b"".join(frames), FRAMES
        environ, variable, name = AWS, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME", CLAUDE
    else:
        body, kind = b"".join(map(encode_event, events)), "text/event-stream"
        environ, variable, name = GOOGLE, "GOOGLE_VERTEX_BASE_URL", "claude-sonnet-4-5@20250929"
    async with serve(body, kind) as server:
        for key, value in {**environ, variable: server.url}.items():
            monkeypatch.setenv(key, value)
        ran = await run(None, "-p", "hi", "--model", f"{provider}/{name}")
        assert (ran.code, ran.out) == (0, "Hello.\n"), ran.err


async def test_the_program_runs_and_lists_with_only_the_variables_of_a_cloud(monkeypatch):
    async with ProviderServer([FakeReply("Hello.")]) as server:
        for name, value in {**AWS, "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": server.url}.items():
            monkeypatch.setenv(name, value)
        ran = await run(None, "-p", "hi", "--model", "bedrock/amazon.nova-pro-v1:0")
        assert (ran.code, ran.out) == (0, "Hello.\n"), ran.err
        listed = await run(None, "models")
        assert "bedrock/MODEL" in listed.out
        assert "AWS_ACCESS_KEY_ID, us-east-1" in listed.out
        checked = await run(None, "doctor")
        assert "✓ clouds    bedrock (AWS_ACCESS_KEY_ID, us-east-1)" in checked.out


@pytest.mark.parametrize("others", [{}, AWS], ids=["alone", "beside a cloud that is ready"])
@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"AZURE_TENANT_ID": "t"}, "azure: AZURE_TENANT_ID is set, but not AZURE_CLIENT_ID and"),
        (
            {"GOOGLE_APPLICATION_CREDENTIALS": "/nowhere/key.json"},
            "vertex: the credentials of Google cannot be read: GOOGLE_APPLICATION_CREDENTIALS",
        ),
    ],
)
async def test_doctor_has_a_note_for_credentials_that_are_set_in_part(
    given: dict[str, str], line: str, others: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    for name, value in {**given, **others}.items():
        monkeypatch.setenv(name, value)
    checked = await run(None, "doctor")
    note = checked.out[checked.out.index("! clouds") :]
    assert line in " ".join(note.split())
    assert ("bedrock (AWS_ACCESS_KEY_ID" in note) is bool(others)
