from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.lib.http.raw_server import CA, answering
from tests.lib.http.raw_server import plain as raw_plain
from tests.tools.builtin.helpers import failed, hands, plain
from treadle.core.errors import ToolError
from treadle.core.transcript.content import Image
from treadle.lib.http.hosts import is_public
from treadle.tools.builtin import HttpFetcher
from treadle.tools.builtin.web import http_fetch

Answer = Callable[[str], bytes]


def answer(status: str = "200 OK", body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@contextlib.asynccontextmanager
async def server(give: Answer) -> AsyncIterator[int]:
    """A web server on loopback that answers each path with raw bytes."""
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            raw = give(head.split()[1].decode())
            writer.write(raw)
            await writer.drain()
            if raw:
                await reader.read()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        for writer in writers:
            writer.close()
        await listening.wait_closed()
        for _ in range(20):
            await asyncio.sleep(0)


async def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def near() -> HttpFetcher:
    """Takes every name to this machine, as a private one that the user has named."""
    return HttpFetcher(private_hosts=frozenset({"site.test", "other.test"}), resolve=loopback)


async def test_a_page_comes_as_markdown_in_parts(folder: Path) -> None:
    body = b"<title>T</title><h1>Head</h1><p>Some <b>bold</b> words.</p>" + b"<p>more</p>" * 9000
    packed = answer(body=gzip.compress(body), Content_Type="text/html", Content_Encoding="gzip")
    async with server(lambda _: packed) as port, hands(folder, fetch=near()) as agent:
        url = f"http://site.test:{port}/a"
        first, rest = await agent.do(
            ("web_fetch", {"url": url, "prompt": "what is bold?"}),
            ("web_fetch", {"url": url, "offset": 40_000}),
        )
    assert plain(first).startswith(
        f"Content of {url}, as it was found there:\n\n# Head\n\nSome **bold** words."
    )
    assert first.text.endswith("more characters; read on with offset=40000)")
    assert plain(rest).endswith("more")
    assert first.display.startswith(f"Fetched {url}, 40000 characters")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("http://other.test:PORT/x", "redirects to another host. If you want that page, call"),
        ("/loop", "more than 5 redirects"),
        ("file:///etc/passwd", "only http and https"),
        ("http://[x", "not a URL"),
        ("http://u:p@site.test:PORT/", "user name"),
    ],
)
async def test_every_redirect_is_judged(folder: Path, target: str, words: str) -> None:
    ports: list[int] = []

    def give(_: str) -> bytes:
        return answer("302 Found", Location=target.replace("PORT", str(ports[0])))

    async with server(give) as port, hands(folder, fetch=near()) as agent:
        ports.append(port)
        item = await agent.one("web_fetch", url=f"http://site.test:{port}/loop")
    assert words in failed(item)


async def test_a_redirect_on_the_same_host_is_followed(folder: Path) -> None:
    def give(path: str) -> bytes:
        if path == "/here":
            return answer(body=b'{"found": true}', Content_Type="application/json")
        return answer("301 Moved", Location="/here")

    async with server(give) as port, hands(folder, fetch=near()) as agent:
        item = await agent.one("web_fetch", url=f"http://site.test:{port}/there#part")
    assert plain(item).endswith('{"found": true}')


@pytest.mark.parametrize(
    "host", ["localhost", "127.0.0.1", "0.0.0.0", "[::1]", "169.254.169.254", "10.0.0.8", "[::]"]
)
async def test_private_addresses_are_never_connected_to(folder: Path, host: str) -> None:
    def give(_: str) -> bytes:
        raise AssertionError("this host must not be contacted")

    async with server(give) as port, hands(folder, fetch=HttpFetcher(resolve=_literal)) as agent:
        item = await agent.one("web_fetch", url=f"http://{host}:{port}/")
    assert "private network" in failed(item)


async def _literal(host: str, port: int) -> list[str]:
    return ["127.0.0.1" if host == "localhost" else host]


async def test_a_name_that_leads_to_one_private_address_is_refused_whole() -> None:
    async def both(host: str, port: int) -> list[str]:
        return ["93.184.215.14", "192.168.1.1"]

    with pytest.raises(ToolError, match=r"192\.168\.1\.1"):
        await HttpFetcher(resolve=both)("http://rebinding.test/")


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.215.14", True),
        ("2606:4700::1111", True),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:10.0.0.1", False),
        ("::10.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("64:ff9b::5db8:d70e", True),
        ("192.0.0.192", False),
        ("168.63.129.16", False),
        ("192.88.99.1", False),
        ("::ffff:168.63.129.16", False),
        ("64:ff9b:1::a00:1", False),
        ("64:ff9b:1::5db8:d70e", False),
        ("::ffff:0:127.0.0.1", False),
        ("2606:4700::5efe:10.0.0.1", False),
        ("2606:4700::200:5efe:10.0.0.1", False),
        ("2606:4700::5efe:93.184.215.14", True),
        ("fec0::1", False),
        ("3fff::1", False),
        ("5f00::1", False),
    ],
)
def test_an_address_is_public_or_not_also_in_disguise(address: str, public: bool) -> None:
    assert is_public(address) is public


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (answer("404 Not Found", b"no such page"), "answered 404. Response body: no such page"),
        (b"", "without a response"),
        (b"SSH-2.0-x\r\n", "did not answer in HTTP"),
        (answer(body=b"\0\1\2" * 99, Content_Type="application/octet-stream"), "binary data"),
        (answer(body=b"x", Content_Type="video/mp4"), "cannot be shown as text"),
        (answer(body=b"no zip", Content_Encoding="gzip"), "broken compressed data"),
        (answer(body=b"x", Content_Encoding="br"), "the content encoding 'br'"),
        (answer(body=b"x", Content_Encoding="gzip, gzip"), "the content encoding"),
        (b"HTTP/1.1 200 OK\r\n" + b"name: value\r\n" * 50_000, "did not answer in HTTP"),
    ],
)
async def test_what_cannot_be_shown_is_said(folder: Path, raw: bytes, words: str) -> None:
    async with server(lambda _: raw) as port, hands(folder, fetch=near()) as agent:
        assert words in failed(await agent.one("web_fetch", url=f"http://site.test:{port}/"))


async def test_a_url_with_letters_of_other_alphabets_is_fetched() -> None:
    asked: list[str] = []

    def give(path: str) -> bytes:
        asked.append(path)
        return answer(body=b"the page")

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    fetch = HttpFetcher(private_hosts=frozenset({"bücher.test"}), resolve=resolve)
    async with server(give) as port:
        page = await fetch(f"http://Bücher.test:{port}/größe?q=ä#teil")
    assert page.body == b"the page"
    assert asked == ["xn--bcher-kva.test", "/gr%C3%B6%C3%9Fe?q=%C3%A4"]


async def test_early_hints_leave_no_trace(folder: Path) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\ncontent-type: video/mp4\r\nlink: </a>\r\n\r\n"
    raw = hints + answer(body=b"the page", X_Kind="page")
    async with server(lambda _: raw) as port:
        page = await near()(f"http://site.test:{port}/")
    assert (page.status, page.body) == (200, b"the page")
    assert page.headers == {"content-length": "8", "x-kind": "page"}


@pytest.mark.parametrize(
    "variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"]
)
async def test_a_page_behind_a_company_certificate_is_fetched(variable: str) -> None:
    async with answering(raw_plain(b"inside"), tls=True) as listening:
        url = f"https://localhost:{listening.port}/"
        named = frozenset({"localhost"})
        environ = {variable: str(CA)}
        fetch = HttpFetcher(private_hosts=named, resolve=loopback, environ=environ)
        assert (await fetch(url)).body == b"inside"
        with pytest.raises(ToolError, match="certificate"):
            await HttpFetcher(private_hosts=named, resolve=loopback, environ={})(url)
        missing = HttpFetcher(private_hosts=named, resolve=loopback, environ={variable: "/no"})
        with pytest.raises(ToolError, match="SSL_CERT_FILE"):
            await missing(url)


async def test_a_bomb_is_unpacked_only_to_the_limit(folder: Path) -> None:
    bomb = answer(body=gzip.compress(bytes(50_000_000)), Content_Encoding="gzip")
    async with server(lambda _: bomb) as port:
        page = await near()(f"http://site.test:{port}/")
    assert page.is_truncated
    assert len(page.body) == http_fetch.MAX_BODY_BYTES


async def test_a_server_that_never_ends_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_fetch, "TOTAL_TIMEOUT", 0.2)
    async with server(lambda _: b"HTTP/1.1 200 OK\r\n") as port:
        with pytest.raises(ToolError, match=r"within 0\.2 s"):
            await near()(f"http://site.test:{port}/")


async def test_a_fetch_can_be_cancelled_at_once(folder: Path) -> None:
    came = asyncio.Event()

    def give(_: str) -> bytes:
        came.set()
        return b"HTTP/1.1 200 OK\r\n"

    async with server(give) as port:
        work = asyncio.ensure_future(near()(f"http://site.test:{port}/"))
        await came.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work


async def test_pictures_and_charsets(folder: Path) -> None:
    def give(path: str) -> bytes:
        if path == "/p":
            return answer(body=b"\x89PNG", Content_Type="image/png")
        return answer(body="größe".encode("latin-1"), Content_Type="text/plain; charset=latin-1")

    async with server(give) as port, hands(folder, fetch=near()) as agent:
        picture, text = await agent.do(
            ("web_fetch", {"url": f"http://site.test:{port}/p"}),
            ("web_fetch", {"url": f"http://site.test:{port}/t"}),
        )
    assert picture.content == (Image("image/png", b"\x89PNG"),)
    assert "größe" in plain(text)


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://x/y", "http://", "nonsense", "http://a b/", "http://x:99999/", "http://u@x/"),
        *("http://" + "n" * 254 + "/", "http://" + "n" * 70 + ".test/"),
    ],
)
async def test_what_is_no_address_is_refused_before_it_is_judged(folder: Path, url: str) -> None:
    async with hands(folder) as agent:
        failed(await agent.one("web_fetch", url=url))
