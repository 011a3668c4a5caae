"""Every behavior of tests.lib.http.behaviors, played to the real client."""

import pytest

from tests.lib.http.behaviors import (
    HTTP_BEHAVIORS,
    NEXT_BODY,
    BehaviorServer,
    Delivery,
    HTTPBehavior,
    HTTPOutcome,
)
from tests.lib.http.raw_server import CA, server_tls
from treadle.lib.http.client import Client
from treadle.lib.http.timeouts import Timeouts
from treadle.lib.http.transport import (
    BadRedirect,
    Disconnected,
    MalformedResponse,
    ProxyFailed,
    ResponseTooLarge,
    TimedOut,
    TransportError,
)

KEY = {"x-api-key": "secret-key"}
ERRORS: dict[HTTPOutcome, type[TransportError]] = {
    "disconnected": Disconnected,
    "malformed": MalformedResponse,
    "too_large": ResponseTooLarge,
    "timed_out": TimedOut,
    "bad_redirect": BadRedirect,
    "proxy_failed": ProxyFailed,
}
MAX_BYTES = 3_000_000


def make_client(server: BehaviorServer) -> tuple[Client, str]:
    role, environ = server.behavior.role, {"SSL_CERT_FILE": str(CA)}
    if role == "server":
        return Client(environ=environ), server.url
    scheme = "http" if role == "http_proxy" else "https"
    return Client(environ={**environ, f"{scheme}_proxy": server.url}), f"{scheme}://provider.test/"


def choose_timeouts(behavior: HTTPBehavior) -> Timeouts:
    if behavior.outcome != "timed_out":
        return Timeouts(max_bytes=MAX_BYTES)
    return Timeouts(connect=0.05, first_byte=0.05, first_content=0.05, idle=0.05)


async def send(client: Client, url: str, size: int, timeouts: Timeouts) -> tuple[int, bytes]:
    parts = [b"x" * min(size, 50_000)] * max(1, size // 50_000)
    async with client.post(url, KEY, parts, timeouts) as response:
        return response.status, await response.read(1 << 30)


def list_deliveries(behavior: HTTPBehavior) -> list[Delivery]:
    if behavior.has_surplus or not behavior.parts:
        return ["one_packet"]
    if sum(map(len, behavior.parts)) > 6_000 or behavior.ending == "repeat":
        return ["as_listed", "one_packet"]
    return ["as_listed", "one_packet", "single_bytes"]


def test_the_behaviors_have_names_of_their_own():
    assert len({behavior.name for behavior in HTTP_BEHAVIORS}) == len(HTTP_BEHAVIORS) >= 40


@pytest.mark.parametrize(
    ("behavior", "delivery"),
    [
        pytest.param(behavior, delivery, id=f"{behavior.name}, {delivery}")
        for behavior in HTTP_BEHAVIORS
        for delivery in list_deliveries(behavior)
    ],
)
async def test_the_client_has_the_outcome_of_each_behavior_and_the_next_request_its_own_answer(
    behavior, delivery, no_leaks
):
    timeouts = choose_timeouts(behavior)
    async with BehaviorServer(behavior, delivery=delivery, tls=server_tls()) as server:
        client, url = make_client(server)
        if behavior.outcome == "whole":
            got = await send(client, url, behavior.request_bytes, timeouts)
            assert got == (behavior.status, behavior.body)
        else:
            with pytest.raises(ERRORS[behavior.outcome]) as caught:
                await send(client, url, behavior.request_bytes, timeouts)
            assert "secret-key" not in str(caught.value)
        server.answer_all()
        assert await send(client, url, 2, Timeouts()) == (200, NEXT_BODY)
        if behavior.outcome == "whole" and behavior.is_reused is not None:
            assert server.connections == (1 if behavior.is_reused else 2)
        await client.aclose()
