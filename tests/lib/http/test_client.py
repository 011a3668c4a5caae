import asyncio
import gzip
import os
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lib.http.raw_server import (
    CA,
    answering,
    chunked,
    plain,
    proxying,
    read_request,
    serving,
)
from treadle.lib.http.client import Client, get_shared_client
from treadle.lib.http.connection import Connection
from treadle.lib.http.timeouts import DEFAULT_TIMEOUTS, Timeouts, TimeoutTracker
from treadle.lib.http.transport import (
    BadRedirect,
    ConnectFailed,
    Disconnected,
    MalformedResponse,
    ProxyFailed,
    ResponseTooLarge,
    TimedOut,
    TLSFailed,
    Transport,
)
from treadle.testing.provider import unused_url

KEY = {"x-api-key": "secret-key", "content-type": "application/json"}
EVER = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"


@pytest.fixture
def client() -> Client:
    return Client(environ={"SSL_CERT_FILE": str(CA)})


async def fetch(
    client: Client, url: str, body: bytes = b"{}", limits: Timeouts = DEFAULT_TIMEOUTS
) -> bytes:
    async with client.post(url, KEY, body, limits) as response:
        return await response.read(1 << 30)


def test_the_client_is_a_transport():
    assert isinstance(Client(), Transport)
    assert get_shared_client() is get_shared_client()


@pytest.mark.parametrize(
    "answer",
    [
        plain(b"hello"),
        chunked(b"he", b"l", b"lo"),
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
        + plain(b"hello"),
    ],
)
async def test_each_framing_is_read_and_the_connection_kept(client, answer, no_leaks):
    async with answering(answer, answer) as server:
        assert await fetch(client, server.url) == b"hello"
        assert await fetch(client, server.url) == b"hello"
        assert server.connections == 1
        await client.aclose()


async def test_a_body_without_length_ends_with_the_connection(client, no_leaks):
    async with answering(b"HTTP/1.1 200 OK\r\n\r\nhello", close=True) as server:
        assert await fetch(client, server.url) == b"hello"


async def test_status_and_headers_in_any_case(client):
    answer = plain(b"", "429 Slow down", "Retry-After: 7", "X-A: 1", "x-a: 2")
    async with answering(answer) as server:
        async with client.post(server.url, KEY, b"{}") as response:
            assert response.status == 429
            assert response.headers.get("retry-after") == "7"
            assert response.headers["X-a"] == "1, 2"
            assert response.headers.get("absent") is None
            assert [chunk async for chunk in response] == []


async def test_the_request_is_what_was_given_with_the_parts_joined(client):
    async with answering(plain(b"ok"), plain(b"ok")) as server:
        async with client.post(server.url + "/x?y=1", KEY, [b'{"a":', b"", b"1}"]) as response:
            assert response.status == 200
        async with client.get(server.url + "/models", {}) as response:
            assert await response.read() == b"ok"
    post, get = server.heads
    assert post.startswith("POST /v1/x?y=1 HTTP/1.1\r\n")
    assert "x-api-key: secret-key\r\n" in post
    assert "accept-encoding: identity\r\n" in post
    assert f"host: 127.0.0.1:{server.port}\r\n" in post
    assert server.bodies[0] == b'{"a":1}'
    assert get.startswith("GET /v1/models HTTP/1.1\r\n")
    assert "content-length" not in get


async def test_a_large_body_in_many_parts_arrives_whole(client):
    parts = [bytes([n % 251]) * 10_000 for n in range(1500)]
    async with answering(plain(b"ok")) as server:
        async with client.post(server.url, KEY, parts) as response:
            assert await response.read() == b"ok"
    assert server.bodies[0] == b"".join(parts)


async def test_an_answer_before_the_end_of_the_upload_is_heard(
    client,
):
    async def talk(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(plain(b"too large", "413 Too large"))
        await reader.read()

    async with serving(talk) as server:
        async with client.post(server.url, KEY, [b"x" * 100_000] * 500) as response:
            assert response.status == 413
            assert await response.read() == b"too large"
        await server.closed.wait()


async def test_compressed_bodies_are_unpacked_though_not_asked_for(client):
    body = b"data: hello\n\n" * 1000
    packed = [gzip.compress(body), zlib.compress(body)]
    answers = [
        plain(packed[0], "200 OK", "Content-Encoding: gzip"),
        plain(packed[1], "200 OK", "content-encoding: deflate"),
        plain(b"x", "200 OK", "content-encoding: br"),
        plain(b"not gzip", "200 OK", "content-encoding: gzip"),
    ]
    async with answering(*answers) as server:
        assert await fetch(client, server.url) == body
        assert await fetch(client, server.url) == body
        with pytest.raises(MalformedResponse, match="'br'"):
            await fetch(client, server.url)
        with pytest.raises(MalformedResponse, match="compressed"):
            await fetch(client, server.url)


@pytest.mark.parametrize("step", [1, 7, 100_000])
async def test_every_form_of_compression_is_unpacked_in_any_chunking(client, step):
    body = b"data: hello\n\n" * 300
    raw = zlib.compressobj(wbits=-15)
    forms = {
        "gzip": gzip.compress(body[:1000]) + gzip.compress(body[1000:]) + b"\0" * 9,
        "x-gzip": gzip.compress(body) + gzip.compress(b""),
        "Deflate": raw.compress(body) + raw.flush(),
        "deflate": zlib.compress(body),
    }
    for coding, packed in forms.items():
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\n".encode()
        pieces = [packed[at : at + step] for at in range(0, len(packed), step)]
        async with answering(head + chunked(*pieces).split(b"\r\n", 1)[1]) as server:
            assert await fetch(client, server.url) == body


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize("cut", [1, 40, -9, -1])
async def test_a_compressed_body_that_is_cut_is_never_taken_for_a_whole_one(client, coding, cut):
    pack = gzip.compress if coding == "gzip" else zlib.compress
    body = plain(pack(os.urandom(500))[:cut], "200 OK", f"content-encoding: {coding}")
    async with answering(body) as server:
        with pytest.raises(MalformedResponse, match="compressed data"):
            await fetch(client, server.url)


async def test_an_empty_compressed_body_is_empty(client):
    async with answering(plain(b"", "200 OK", "content-encoding: gzip")) as server:
        assert await fetch(client, server.url) == b""


async def test_a_transfer_encoding_that_was_not_asked_for_is_named(client):
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    async with answering(answer) as server:
        with pytest.raises(MalformedResponse, match="'gzip, chunked'"):
            await fetch(client, server.url)


async def test_fault_50_a_small_body_that_unpacks_to_a_huge_one_is_stopped(client):
    bomb = gzip.compress(b"\0" * 5_000_000)
    async with answering(plain(bomb, "200 OK", "content-encoding: gzip")) as server:
        with pytest.raises(ResponseTooLarge, match="decompresses"):
            await fetch(client, server.url, limits=Timeouts(max_bytes=100_000))


async def test_fault_50_more_bytes_than_allowed_end_the_exchange(client):
    async with answering(chunked(*[b"x" * 1000] * 100)) as server:
        with pytest.raises(ResponseTooLarge, match="max_bytes"):
            await fetch(client, server.url, limits=Timeouts(max_bytes=5_000))


async def test_a_reader_that_pauses_makes_the_sender_wait(client):
    written = 0

    async def talk(reader, writer):
        nonlocal written
        await read_request(reader)
        writer.write(EVER)
        while True:
            writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            await writer.drain()
            written += 65536

    async with serving(talk) as server:
        async with client.post(server.url, KEY, b"{}") as response:
            await anext(response)
            previous = -1
            while written != previous:
                previous = written
                for _ in range(50):
                    await asyncio.sleep(0.001)
            assert written < 30_000_000
            await anext(response)
        await server.closed.wait()


# -- the pool


@pytest.mark.parametrize(
    "surplus", [plain(b"another answer"), b"HTTP/1.1 200 OK\r\ncontent-le", b"garbage", b"\0"]
)
async def test_bytes_after_the_answer_are_never_part_of_it_or_of_the_next(client, surplus):
    async with answering(plain(b"one") + surplus, plain(b"two")) as server:
        assert await fetch(client, server.url) == b"one"
        assert await fetch(client, server.url) == b"two"
        assert server.connections == 2


@pytest.mark.parametrize("surplus", [plain(b"another answer"), b"HTTP/1.1 200 OK\r\nx: "])
async def test_bytes_that_came_just_before_a_request_are_not_its_answer(client, surplus):
    sockets = []

    async def talk(reader, writer):
        sockets.append(writer.get_extra_info("socket"))
        while True:
            await read_request(reader)
            writer.write(plain(b"own answer"))

    async with serving(talk) as server:
        assert await fetch(client, server.url) == b"own answer"
        os.write(sockets[0].fileno(), surplus)  # the event loop has not read it yet
        assert await fetch(client, server.url) == b"own answer"
        assert server.connections == 2


@pytest.mark.parametrize("size", [50_000_000, 120_000])
async def test_a_request_never_follows_a_body_that_the_server_did_not_read(client, size):
    async def talk(reader, writer):
        if server.connections > 1:
            await read_request(reader)
            writer.write(plain(b"two"))
            await reader.read()
        await reader.readuntil(b"\r\n\r\n")
        writer.write(plain(b"one", "413 Too large"))
        await asyncio.Event().wait()

    async with serving(talk) as server:
        async with client.post(server.url, KEY, [b"x" * 20_000] * (size // 20_000)) as response:
            assert await response.read() == b"one"
        assert await fetch(client, server.url, limits=Timeouts(first_byte=5)) == b"two"


async def test_a_connection_is_not_reused_when_its_request_was_answered_half_sent(client):
    class Transport(asyncio.Transport):
        def write(self, data):
            connection.pause_writing()

        def get_write_buffer_size(self):
            return 0

        def abort(self):
            aborted.set()

    loop, aborted = asyncio.get_running_loop(), asyncio.Event()
    buffer = memoryview(bytearray(1000))
    connection = Connection(loop, buffer)
    connection.connection_made(Transport())
    connection.start_exchange("here", TimeoutTracker(DEFAULT_TIMEOUTS, loop.time()), None)
    sending = asyncio.create_task(connection.send(b"", [b"x" * 1_000_000] * 5, 5_000_000))
    await asyncio.sleep(0)
    answer = plain(b"one")
    buffer[: len(answer)] = answer
    connection.buffer_updated(len(answer))
    connection.resume_writing()  # the socket takes more in the same moment
    await sending
    await connection.wait_for_headers()
    assert not connection.finish()
    assert aborted.is_set()


async def test_trailers_are_not_headers(client):
    async with answering(chunked(b"ok")[:-2] + b"x-late: 1\r\n\r\n") as server:
        async with client.post(server.url, KEY, b"{}") as response:
            assert await response.read() == b"ok"
            assert "x-late" not in response.headers


async def test_a_connection_that_went_stale_in_the_pool_costs_one_silent_retry(client):
    closing = asyncio.Event()

    async def talk(reader, writer):
        await read_request(reader)
        writer.write(plain(b"one"))
        if server.connections == 1:
            await read_request(reader)  # taken, and dropped without a byte
        else:
            await reader.read()
        closing.set()

    async with serving(talk) as server:
        assert await fetch(client, server.url) == b"one"
        assert await fetch(client, server.url) == b"one"
        assert server.connections == 2
        assert closing.is_set()


async def test_a_connection_that_breaks_after_a_response_byte_is_not_retried(client):
    async def talk(reader, writer):
        await read_request(reader)
        writer.write(plain(b"one"))
        await read_request(reader)
        writer.write(b"HTTP/1.1 2")
        await writer.drain()

    async with serving(talk) as server:
        assert await fetch(client, server.url) == b"one"
        with pytest.raises(Disconnected) as caught:
            await fetch(client, server.url)
        assert caught.value.bytes_received == -1
        assert server.connections == 1


async def test_a_fresh_connection_that_breaks_is_not_retried(client):
    async def talk(reader, writer):
        await read_request(reader)

    async with serving(talk) as server:
        with pytest.raises(Disconnected, match="without a response"):
            await fetch(client, server.url)
        assert server.connections == 1


async def test_the_pool_keeps_no_more_than_its_bound_and_nothing_old(no_leaks):
    client = Client(max_idle=2, idle_seconds=0.05)
    gate = asyncio.Event()
    gone = asyncio.Semaphore(0)

    async def talk(reader, writer):
        await read_request(reader)
        await gate.wait()
        writer.write(plain(b"ok"))
        await reader.read()
        gone.release()

    async with serving(talk) as server:
        fetches = [asyncio.create_task(fetch(client, server.url)) for _ in range(5)]
        gate.set()
        await asyncio.gather(*fetches)
        for _ in range(5):  # three at once over the bound, two when they have grown old
            await gone.acquire()
        assert server.connections == 5


async def test_a_full_pool_closes_its_oldest_connection_and_keeps_the_newest(no_leaks):
    client = Client(max_idle=1)
    async with answering(plain(b"a")) as first, answering(plain(b"b"), plain(b"c")) as second:
        assert await fetch(client, first.url) == b"a"
        assert await fetch(client, second.url) == b"b"
        await first.closed.wait()
        assert await fetch(client, second.url) == b"c"
        assert (first.connections, second.connections) == (1, 1)
        await client.aclose()


async def test_a_connection_that_comes_back_after_the_client_was_closed_is_closed_too(client):
    async with answering(plain(b"ok"), plain(b"ok")) as server:
        async with client.post(server.url, KEY, b"{}") as response:
            await client.aclose()
            assert await response.read() == b"ok"
        await server.closed.wait()
        assert await fetch(client, server.url) == b"ok"


def test_one_client_serves_event_loops_one_after_the_other(client, no_leaks):
    async def once() -> bytes:
        async with answering(plain(b"ok")) as server:
            return await fetch(client, server.url)

    for _ in range(3):
        assert no_leaks.run(once()) == b"ok"


def test_the_end_of_a_loop_closes_what_lay_idle(client, no_leaks):
    async def leave_idle() -> None:
        async with answering(plain(b"ok")) as server:
            await fetch(client, server.url)

    asyncio.run(leave_idle())


async def test_leaving_early_closes_the_socket_at_once(client, no_leaks):
    async def talk(reader, writer):
        await read_request(reader)
        writer.write(EVER)
        await reader.read()

    async with serving(talk) as server:
        async with client.post(server.url, KEY, b"{}") as response:
            assert await anext(response) == b"hello"
        await server.closed.wait()


def test_one_client_serves_the_event_loops_of_many_threads(client, monkeypatch):
    interval = sys.getswitchinterval()
    monkeypatch.setattr(asyncio.SelectorEventLoop, "is_closed", _slow_is_closed, raising=False)

    async def open_pool() -> None:
        await client.get_pool(asyncio.get_running_loop())

    def work() -> None:
        for _ in range(40):
            asyncio.run(open_pool())

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            for done in [threads.submit(work) for _ in range(8)]:
                done.result()
    finally:
        sys.setswitchinterval(interval)


def _slow_is_closed(loop: asyncio.BaseEventLoop) -> bool:
    return asyncio.BaseEventLoop.is_closed(loop)


@pytest.mark.parametrize("answer", [b"", EVER])
async def test_cancelling_closes_the_socket_at_once(client, answer, no_leaks):
    asked = asyncio.Event()

    async def talk(reader, writer):
        await read_request(reader)
        writer.write(answer)
        asked.set()
        await reader.read()

    async with serving(talk) as server:
        task = asyncio.create_task(fetch(client, server.url))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.closed.wait()


# -- what fails, and what it says


async def test_fault_36_nothing_listens(client):
    url = unused_url()
    with pytest.raises(ConnectFailed, match="refused the connection") as caught:
        await fetch(client, url)
    assert url.removeprefix("http://") in str(caught.value)
    assert caught.value.address == url.removeprefix("http://")


async def test_fault_36_an_unknown_host(client, monkeypatch):
    import socket

    async def unknown(*_args, **_options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    with pytest.raises(ConnectFailed, match=r"cannot find the server nowhere\.invalid:"):
        await fetch(client, "http://nowhere.invalid/v1")


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9.9\r\n", b"HTTP/1.1 200 OK\r\nbad\x00: y"])
async def test_what_is_not_http_is_said_so(client, answer):
    async with answering(answer) as server:
        with pytest.raises(MalformedResponse, match=r"HTTP/1\.1"):
            await fetch(client, server.url)


@pytest.mark.parametrize("answer", [EVER, b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhello"])
async def test_fault_38_a_body_cut_short_gives_what_came_and_then_the_error(client, answer):
    async with answering(answer, close=True) as server:
        async with client.post(server.url, KEY, b"{}") as response:
            assert await anext(response) == b"hello"
            with pytest.raises(Disconnected, match="in the middle") as caught:
                await anext(response)
        assert caught.value.bytes_received > 0


@pytest.mark.parametrize("value", ["secret\r\nx: y", "secret\n", "secr\u20act"])
async def test_a_header_that_http_cannot_carry_is_named_without_its_value(client, value):
    async with answering(plain(b"")) as server:
        with pytest.raises(ValueError, match="x-api-key") as caught:
            async with client.post(server.url, {"x-api-key": value}, b"{}"):
                pass
        assert "secr" not in str(caught.value)


# -- time


@pytest.mark.parametrize(
    ("answer", "limits", "which"),
    [
        (b"", Timeouts(first_byte=0.02), "first_byte"),
        (EVER, Timeouts(idle=0.02), "idle"),
        (EVER, Timeouts(first_content=0.02), "first_content"),
        (EVER, Timeouts(total=0.02), "total"),
    ],
)
async def test_fault_51_each_limit_closes_the_connection_by_its_name(client, answer, limits, which):
    async def talk(reader, writer):
        await read_request(reader)
        writer.write(answer)
        await reader.read()

    async with serving(talk) as server:
        with pytest.raises(TimedOut) as caught:
            await fetch(client, server.url, limits=limits)
        assert caught.value.kind == which
        assert "0.02 s" in str(caught.value)
        await server.closed.wait()


async def test_fault_36_a_connection_that_does_not_come_about_is_a_connect_timeout(client):
    async def talk(reader, writer):
        await reader.read()  # never says hello

    async with serving(talk) as server:
        with pytest.raises(TimedOut) as caught:
            await fetch(client, f"https://localhost:{server.port}", limits=Timeouts(connect=0.05))
        assert caught.value.kind == "connect"


async def test_fault_50_an_upload_that_the_server_does_not_read_times_out(client):
    async def talk(reader, writer):
        await asyncio.Event().wait()

    async with serving(talk) as server:
        with pytest.raises(TimedOut) as caught:
            async with client.post(
                server.url, KEY, [b"x" * 1_000_000] * 64, Timeouts(first_byte=0.1)
            ):
                pass
        assert caught.value.kind == "first_byte"


# -- redirects


@pytest.mark.parametrize("status", ["307 Temporary", "308 Permanent"])
async def test_a_redirect_on_the_same_origin_is_followed_with_the_body(client, status):
    async with answering(plain(b"", status, "location: /v2/there"), plain(b"ok")) as server:
        async with client.post(server.url, KEY, b"{body}") as response:
            assert await response.read() == b"ok"
            assert response.url == f"http://127.0.0.1:{server.port}/v2/there"
    assert server.heads[1].startswith("POST /v2/there ")
    assert server.bodies == [b"{body}", b"{body}"]


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"])
async def test_fault_55_a_redirect_to_another_host_is_never_followed(client, status):
    async with answering(plain(b"")) as other:
        location = f"location: {other.url}/secret"
        async with answering(plain(b"", status, location)) as server:
            with pytest.raises(BadRedirect, match="another host") as caught:
                await fetch(client, server.url)
        assert caught.value.target == "127.0.0.1"
        assert "secret-key" not in str(caught.value)
        assert other.heads == []


async def test_fault_55_a_redirect_that_would_drop_the_body_is_an_error(client):
    async with answering(plain(b"", "302 Found", "location: /v2")) as server:
        with pytest.raises(BadRedirect, match="302"):
            await fetch(client, server.url)


@pytest.mark.parametrize("location", ["ftp://x/", "http://me:secret-pw@127.0.0.1/", "https://"])
async def test_fault_55_a_redirect_to_what_is_no_url(client, location):
    async with answering(plain(b"", "307 There", f"location: {location}")) as server:
        with pytest.raises(BadRedirect) as caught:
            await fetch(client, server.url)
        assert "secret" not in str(caught.value)


async def test_fault_55_a_circle_of_redirects_ends(client):
    async with answering(*[plain(b"", "307 Again", "location: /v1")] * 20) as server:
        with pytest.raises(BadRedirect, match="without end"):
            await fetch(client, server.url)
        assert len(server.heads) == 6


# -- TLS and proxies


async def test_tls_with_the_certificates_of_the_environment(client, no_leaks):
    async with answering(plain(b"ok"), plain(b"ok"), tls=True) as server:
        url = f"https://localhost:{server.port}/v1"
        assert await fetch(client, url) == b"ok"
        assert await fetch(client, url, b"x" * 3_000_000) == b"ok"
        assert server.connections == 1
        assert len(server.bodies[1]) == 3_000_000


async def test_fault_36_a_certificate_that_is_not_trusted(no_leaks):
    async with answering(plain(b"ok"), tls=True) as server:
        with pytest.raises(TLSFailed, match="SSL_CERT_FILE"):
            await fetch(Client(environ={}), f"https://localhost:{server.port}/v1")


async def test_fault_36_tls_where_none_is_spoken(client):
    async def talk(reader, writer):
        writer.write(plain(b"", "400 Bad Request"))
        await reader.read()

    async with serving(talk) as server:
        with pytest.raises(TLSFailed, match="check that the URL should be https"):
            await fetch(client, f"https://localhost:{server.port}/v1")


async def test_https_through_a_proxy_is_a_tunnel_that_never_shows_the_key(no_leaks):
    async with answering(plain(b"ok"), plain(b"ok"), tls=True) as server:
        async with proxying(server.port) as proxy:
            environ = {
                "HTTPS_PROXY": f"http://me:pw@127.0.0.1:{proxy.port}",
                "SSL_CERT_FILE": str(CA),
            }
            client = Client(environ=environ)
            assert await fetch(client, "https://provider.test/v1") == b"ok"
            assert await fetch(client, "https://provider.test/v1") == b"ok"
            await client.aclose()
    (head,) = proxy.heads
    assert head.startswith("CONNECT provider.test:443 HTTP/1.1\r\n")
    assert "proxy-authorization: Basic bWU6cHc=\r\n" in head
    assert "secret-key" not in head
    assert "proxy-authorization" not in server.heads[0]


async def test_http_through_a_proxy_asks_with_the_whole_url(no_leaks):
    async with answering(plain(b"ok")) as server:
        async with proxying(server.port) as proxy:
            client = Client(environ={"http_proxy": f"http://me:pw@127.0.0.1:{proxy.port}"})
            assert await fetch(client, "http://provider.test/v1/x") == b"ok"
            await client.aclose()
    assert proxy.heads[0].startswith("POST http://provider.test/v1/x HTTP/1.1\r\n")
    assert "proxy-authorization: Basic bWU6cHc=\r\n" in proxy.heads[0]


@pytest.mark.parametrize(
    ("refusal", "hint"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "user and password"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "NO_PROXY"),
        (b"garbage\r\n\r\n", "no answer"),
    ],
)
async def test_fault_36_a_proxy_that_refuses(refusal, hint, no_leaks):
    async with proxying(1, refuse=refusal) as proxy:
        environ = {"https_proxy": f"http://127.0.0.1:{proxy.port}", "SSL_CERT_FILE": str(CA)}
        with pytest.raises(ProxyFailed, match=hint):
            await fetch(Client(environ=environ), "https://provider.test/v1")


async def test_fault_36_a_proxy_that_is_not_there():
    proxy = unused_url()
    with pytest.raises(ProxyFailed, match="refused"):
        await fetch(Client(environ={"http_proxy": proxy}), "http://provider.test/v1")


async def test_fault_86_a_stopped_process_does_not_count_as_a_silent_provider(client, monkeypatch):
    loop = asyncio.get_running_loop()
    clock, jump, resumed = loop.time, 0.0, asyncio.Event()
    monkeypatch.setattr(loop, "time", lambda: clock() + jump)

    async def talk(reader, writer):
        await read_request(reader)
        writer.write(EVER)
        await resumed.wait()
        writer.write(b"5\r\nagain\r\n0\r\n\r\n")
        await reader.read()

    async with serving(talk) as server:
        async with client.post(server.url, KEY, b"{}", Timeouts(idle=30, total=60)) as response:
            assert await anext(response) == b"hello"
            response.mark_content()
            jump = 3600.0  # as after SIGCONT: every timer is due at once
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            resumed.set()
            assert await anext(response) == b"again"
            assert [chunk async for chunk in response] == []
