"""One page over HTTP, from a public address only: cancellable, with limits on time and size.

The name is resolved and every address checked here, and the connection goes to a checked address,
so that a name which resolves differently later is no way in. No cookies, no proxies, no
redirects: `web_fetch` decides about those.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import zlib
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec

from treadle._version import __version__
from treadle.core.errors import ToolError

MAX_BODY_BYTES = 5 << 20
MAX_HEADER_BYTES = 64 << 10
TOTAL_TIMEOUT = 30.0
CONNECT_TIMEOUT = 10.0
MAX_ADDRESSES = 4

ResolveHost = Callable[[str, int], Awaitable[list[str]]]


class FetchedPage(msgspec.Struct, frozen=True):
    """The response of a server. Header names are in lower case."""

    url: str
    status: int
    headers: dict[str, str]
    body: bytes
    is_truncated: bool = False


FetchPage = Callable[[str], Awaitable[FetchedPage]]


class HttpFetcher:
    """Fetches public pages. `private_hosts` are hosts of this machine or network that the user
    allowed; no other private address is connected to."""

    def __init__(
        self, *, private_hosts: frozenset[str] = frozenset(), resolve: ResolveHost | None = None
    ) -> None:
        self._private_hosts = private_hosts
        self._resolve = resolve or _resolve_host

    async def __call__(self, url: str) -> FetchedPage:
        parts = urlsplit(url)
        host = parts.hostname or ""
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        addresses = await self._resolve_public(host, port)
        try:
            async with asyncio.timeout(TOTAL_TIMEOUT):
                reader, writer = await _connect(addresses, host, port, secure)
                try:
                    writer.write(_encode_request(parts.path, parts.query, host, port, secure))
                    await writer.drain()
                    return await _read_response(reader, url)
                finally:
                    writer.transport.abort()  # no second request follows
        except TimeoutError:
            limit = f"{TOTAL_TIMEOUT:g} s"
            raise ToolError(f"{host} did not send a complete response within {limit}") from None
        except (OSError, EOFError) as error:
            raise ToolError(f"{host} could not be read: {error}") from error

    async def _resolve_public(self, host: str, port: int) -> list[str]:
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise ToolError(f"the host name {host} cannot be resolved: {error}") from error
        if host.lower() not in self._private_hosts:
            for address in addresses:
                if not is_public(address):
                    raise ToolError(
                        f"{host} resolves to {address}, which is this machine or a private "
                        "network; such addresses are not fetched"
                    )
        return addresses[:MAX_ADDRESSES]


def is_public(address: str) -> bool:
    """Whether an address is on the public internet, also if it is embedded in an IPv6 address."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo or (None, None))[1]
        if inner is None and ip in ipaddress.ip_network("64:ff9b::/96"):
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is None and int(ip) >> 32 == 0:
            inner = ipaddress.IPv4Address(int(ip))
        if inner is not None:
            return inner.is_global and not inner.is_multicast
    return ip.is_global and not ip.is_multicast


async def _resolve_host(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def _connect(
    addresses: list[str], host: str, port: int, secure: bool
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    options: dict[str, Any] = {"limit": MAX_HEADER_BYTES}
    if secure:
        import ssl

        options |= {"ssl": ssl.create_default_context(), "server_hostname": host}
    last: OSError = OSError("the host has no address")
    for address in addresses:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                return await asyncio.open_connection(address, port, **options)
        except TimeoutError:
            last = OSError(f"no connection to {address} within {CONNECT_TIMEOUT:g} s")
        except OSError as error:
            last = error
    raise last


def _encode_request(path: str, query: str, host: str, port: int, secure: bool) -> bytes:
    from urllib.parse import quote

    target = quote(path or "/", safe="/%:@!$&'()*+,;=~-._")
    target += "?" + quote(query, safe="/%:@!$&'()*+,;=~-._?[]") if query else ""
    name = f"[{host}]" if ":" in host else host.encode("idna").decode()
    authority = name if port == (443 if secure else 80) else f"{name}:{port}"
    return (
        f"GET {target} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: treadle/{__version__}\r\n"
        "Accept: text/markdown, text/html;q=0.9, text/plain;q=0.8, */*;q=0.5\r\n"
        "Accept-Encoding: gzip, deflate\r\nConnection: close\r\n\r\n"
    ).encode()


async def _read_response(reader: asyncio.StreamReader, url: str) -> FetchedPage:
    import httptools

    response = _ResponseBuilder()
    parser = httptools.HttpResponseParser(response)
    try:
        while not response.is_complete and (data := await reader.read(1 << 16)):
            parser.feed_data(data)
    except httptools.HttpParserError as error:
        raise OSError(response.problem or f"the response is not valid HTTP: {error}") from error
    status = parser.get_status_code() if response.has_headers else 0
    if not status:
        raise EOFError("the connection was closed without a response")
    return FetchedPage(url, status, response.headers, bytes(response.body), response.is_truncated)


class _ResponseBuilder:
    """Collects what the parser reports; the body is decompressed as it arrives, up to the limit."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.has_headers = self.is_complete = self.is_truncated = False
        self.problem = ""  # the parser hides exceptions that its callbacks raise
        self._header_bytes = 0
        self._decompressor: zlib._Decompress | None = None

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > MAX_HEADER_BYTES:
            self.problem = "the response headers are too long"
            raise ValueError(self.problem)
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        self.has_headers = True
        encoding = self.headers.get("content-encoding", "").lower()
        if encoding in ("gzip", "x-gzip", "deflate"):
            self._decompressor = zlib.decompressobj(wbits=47)  # detects gzip or zlib
        elif encoding not in ("", "identity"):
            self.problem = f"the response has the unsupported encoding {encoding[:40]!r}"
            raise ValueError(self.problem)

    def on_body(self, data: bytes) -> None:
        room = MAX_BODY_BYTES - len(self.body)
        try:
            unzip = self._decompressor
            more = data if unzip is None else unzip.decompress(data, room + 1)
        except zlib.error as error:
            self.problem = f"the response cannot be decompressed: {error}"
            raise
        self.body += more[:room]
        if len(more) > room:
            self.is_truncated = self.is_complete = True

    def on_message_complete(self) -> None:
        self.is_complete = True
