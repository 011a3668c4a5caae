"""One set of promises for both transports: our client, and an SDK's client (slow to import)."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager

import pytest

from treadle.lib.http.client import Client, get_shared_client
from treadle.lib.http.sse import SSEReader
from treadle.lib.http.timeouts import DEFAULT_TIMEOUTS, Timeouts
from treadle.lib.http.transport import (
    BadRedirect,
    ConnectFailed,
    Disconnected,
    ResponseTooLarge,
    TimedOut,
)
from treadle.models.provider_base.sdk_transport import as_transport
from treadle.testing.provider import FakeReply, ProviderServer, unused_url

HEADERS = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
BODY = json.dumps(
    {
        "model": "m",
        "max_tokens": 100,
        "stream": True,
        "messages": [{"role": "user", "content": "Hi"}],
    }
).encode()


@asynccontextmanager
async def transport(kind: str):
    if kind == "treadle":
        client = Client()
        yield client
        await client.aclose()
    else:
        async with pytest.importorskip("anthropic").AsyncAnthropic(api_key="k") as client:
            yield as_transport(client)


every_transport = pytest.mark.parametrize(
    "kind",
    ["treadle", pytest.param("sdk", marks=[pytest.mark.slow, pytest.mark.xdist_group("sdks")])],
)


async def stream(
    kind: str, base: str, limits: Timeouts = DEFAULT_TIMEOUTS
) -> list[tuple[bytes, bytes]]:
    async with transport(kind) as carrier:
        reader, events = SSEReader(), []
        async with carrier.post(base + "/v1/messages", HEADERS, [BODY[:9], BODY[9:]], limits) as r:
            assert r.status == 200, await r.read()
            assert r.headers["Content-Type"].startswith("text/event-stream")
            async for chunk in r:
                assert chunk
                events += reader.feed(chunk)
        return events


@every_transport
async def test_a_reply_streams_and_the_body_arrives_as_given(kind):
    async with ProviderServer([FakeReply("Hello there")]) as server:
        events = await stream(kind, server.url)
        assert events[-1][0] == b"message_stop"
        assert server.requests[0].body == BODY
        assert server.violations == []


@every_transport
async def test_an_error_has_its_status_headers_and_body_and_is_not_retried(kind):
    async with ProviderServer([], faults=["overloaded", "overloaded"]) as server:
        async with transport(kind) as carrier:
            async with carrier.post(server.url + "/v1/messages", HEADERS, BODY) as response:
                assert response.status == 529
                assert response.headers["Request-Id"] == "req_0000"
                assert b"overloaded_error" in await response.read()
                assert await response.read() == b""
        assert len(server.requests) == 1


@every_transport
async def test_a_plain_get(kind):
    async with ProviderServer([]) as server:
        async with transport(kind) as carrier:
            async with carrier.get(server.url + "/v1/models", {}) as response:
                assert b"loopback" in await response.read()
                assert response.status == 200


@every_transport
async def test_fault_36_a_refused_connection(kind):
    with pytest.raises(ConnectFailed):
        await stream(kind, unused_url())


@every_transport
@pytest.mark.parametrize("fault", ["no_answer", "reset", "disconnect_in_text"])
async def test_fault_38_a_disconnect(kind, fault):
    async with ProviderServer([FakeReply("Hello there, you")], faults=[fault]) as server:
        with pytest.raises(Disconnected) as caught:
            await stream(kind, server.url)
        assert (caught.value.bytes_received > 0) == (fault == "disconnect_in_text")


@every_transport
@pytest.mark.parametrize(
    ("fault", "limits", "which"),
    [
        ("stall_headers", Timeouts(first_byte=0.1), "first_byte"),
        ("stall_in_text", Timeouts(idle=0.1), "idle"),
        ("pings_only", Timeouts(first_content=0.1), "first_content"),
        ("endless", Timeouts(total=0.1), "total"),
    ],
)
async def test_fault_51_each_limit_ends_the_exchange(kind, fault, limits, which):
    async with ProviderServer([FakeReply("Hello there, you")], faults=[fault]) as server:
        with pytest.raises(TimedOut) as caught:
            await stream(kind, server.url, limits)
        assert caught.value.kind == which
        await server.wait_until(lambda: server.open_connections == 0)


@every_transport
async def test_fault_50_too_many_bytes(kind):
    async with ProviderServer([FakeReply("x" * 10_000)]) as server:
        with pytest.raises(ResponseTooLarge):
            await stream(kind, server.url, Timeouts(max_bytes=3000))


@every_transport
@pytest.mark.parametrize("fault", ["stall_headers", "stall_in_text"])
async def test_cancelling_closes_the_connection(kind, fault):
    async with ProviderServer([FakeReply("Hello there, you")], faults=[fault]) as server:
        task = asyncio.create_task(stream(kind, server.url))
        await server.wait_until(lambda: len(server.requests) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.wait_until(lambda: server.open_connections == 0)


@every_transport
async def test_fault_55_a_redirect_to_another_host_carries_nothing_there(kind):
    async with ProviderServer([FakeReply("ok")], faults=["redirect"]) as server:
        with pytest.raises(BadRedirect, match=r"elsewhere\.invalid") as caught:
            await stream(kind, server.url)
        assert caught.value.target == "elsewhere.invalid"


@every_transport
async def test_a_compressed_answer_is_unpacked(kind):
    async with ProviderServer([FakeReply("Hello")], faults=["gzip"]) as server:
        assert (await stream(kind, server.url))[-1][0] == b"message_stop"


def test_what_can_be_a_transport():
    own = Client()
    assert as_transport(own) is own
    assert as_transport(None) is get_shared_client()
    with pytest.raises(TypeError, match="cannot carry requests"):
        as_transport(object())


def test_no_sdk_or_http_library_is_imported_by_the_sdk_transport():
    import subprocess

    code = (
        "import sys, treadle.models.provider_base.sdk_transport; "
        "names = ('httpx', 'httpx2', 'aiohttp', 'anthropic', 'openai'); "
        "print([name for name in names if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
