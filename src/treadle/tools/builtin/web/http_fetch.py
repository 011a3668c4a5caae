"""One page over HTTP, from a public address only: cancellable, with limits on time and size.

The name is resolved and every address checked here, and the connection goes to a checked address,
so that a name which resolves differently later is no way in. No cookies, no proxies, no
redirects: `web_fetch` decides about those.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from treadle._version import __version__
from treadle.core.errors import ToolError

if TYPE_CHECKING:
    from ssl import SSLContext

    from treadle.lib.http.content_decoder import ContentDecoder

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
        self,
        *,
        private_hosts: frozenset[str] = frozenset(),
        resolve: ResolveHost | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._private_hosts = private_hosts
        self._resolve = resolve or _resolve_host
        self._environ: Mapping[str, str] = os.environ if environ is None else environ
        self._tls_context: SSLContext | None = None

    async def __call__(self, url: str) -> FetchedPage:
        parts = urlsplit(url)
        host = parts.hostname or ""
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        addresses = await self._resolve_public(host, port)
        try:
            async with asyncio.timeout(TOTAL_TIMEOUT):
                context = self._get_tls_context() if secure else None
                reader, writer = await _connect(addresses, host, port, context)
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

    def _get_tls_context(self) -> SSLContext:
        if self._tls_context is None:
            from treadle.lib.http.tls_context import make_tls_context

            self._tls_context = make_tls_context(self._environ)
        return self._tls_context


# Not public, although Python counts them as global or does not know them.
_INTERNAL_NETWORKS: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            "168.63.129.16/32",  # the host of a virtual machine in Azure
            "192.0.0.0/24",  # assigned to protocols; metadata of a virtual machine at Oracle
            "192.88.99.0/24",  # relays of 6to4
            "3fff::/20",  # documentation
        ),
    )
)
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether an address is on the public internet, also if it is embedded in an IPv6 address."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        embedded = _find_embedded(ip)
        if embedded is not None:
            return is_public(str(embedded))
        if ip not in _GLOBAL_UNICAST:
            return False
    is_internal = any(ip in network for network in _INTERNAL_NETWORKS)
    return ip.is_global and not ip.is_multicast and not is_internal


def _find_embedded(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that a packet to this one may end at."""
    known = ip.ipv4_mapped or ip.sixtofour or (ip.teredo or (None, None))[1]
    if known is not None:
        return known
    is_isatap = (int(ip) >> 32) & 0xFDFFFFFF == 0x5EFE
    if is_isatap or ip in _NAT64 or int(ip) >> 32 == 0:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return None


async def _resolve_host(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def _connect(
    addresses: list[str], host: str, port: int, context: SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    options: dict[str, Any] = {"limit": MAX_HEADER_BYTES}
    if context is not None:
        options |= {"ssl": context, "server_hostname": host}
    last: OSError = OSError("the host has no address")
    for address in addresses:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                return await asyncio.open_connection(address, port, **options)
        except TimeoutError:
            last = OSError(f"no connection to {address} within {CONNECT_TIMEOUT:g} s")
        except ConnectionRefusedError:
            last = OSError(f"the connection to port {port} was refused; no server listens there")
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
    response = _ResponseBuilder()
    while not response.is_complete and (data := await reader.read(1 << 16)):
        response.feed(data)
    response.finish()
    body = bytes(response.body)
    return FetchedPage(url, response.status, response.headers, body, response.is_truncated)


class _ResponseBuilder:
    """Collects what the parser reports; the body is decoded as it arrives, up to the limit."""

    def __init__(self) -> None:
        import httptools

        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.is_complete = self.is_truncated = False
        self._errors = (httptools.HttpParserError, httptools.HttpParserUpgrade)
        self._parser = httptools.HttpResponseParser(self)
        self._problem = ""  # the parser hides exceptions that its callbacks raise
        self._head_bytes = 0
        self._decoder: ContentDecoder | None = None

    def feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except self._errors as error:
            if not self.is_complete:  # else: more bytes than this response has
                problem = self._problem or f"the response is not valid HTTP: {error}"
                raise OSError(problem) from error
        if not self.status:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEADER_BYTES:
                raise OSError("the response headers are too long")

    def finish(self) -> None:
        """Check that the response is whole, at its end or at the end of the connection."""
        if not self.status:
            raise EOFError("the connection was closed without a response")
        if self.is_truncated:
            return
        is_framed = "content-length" in self.headers or "transfer-encoding" in self.headers
        if is_framed and not self.is_complete:
            raise EOFError("the connection was closed in the middle of the page; try again")
        if self._decoder is not None:
            from treadle.lib.http.content_decoder import BrokenEncoding

            try:
                self._decoder.finish()
            except BrokenEncoding as error:
                raise EOFError(f"the compressed page is not whole ({error}); try again") from error

    # -- called by the parser

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise ValueError("a second response")  # stops the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status:
            return  # a trailer
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            if status < 100:
                self._stop(f"the response has the status {status}")
            return
        self.status = status
        from treadle.lib.http.content_decoder import DECODABLE, ContentDecoder

        if self.headers.get("transfer-encoding", "chunked").lower() not in ("chunked", "identity"):
            self._stop("the response has an unsupported transfer encoding")
        encoding = self.headers.get("content-encoding", "").lower()
        if encoding in DECODABLE:
            self._decoder = ContentDecoder(encoding)
        elif encoding not in ("", "identity"):
            self._stop(f"the response has the unsupported encoding {encoding[:40]!r}")

    def on_body(self, data: bytes) -> None:
        from treadle.lib.http.content_decoder import BrokenEncoding

        try:
            for part in (data,) if self._decoder is None else self._decoder.feed(data):
                room = MAX_BODY_BYTES - len(self.body)
                self.body += part[:room]
                if len(part) > room:
                    self.is_truncated = self.is_complete = True
                    return
        except BrokenEncoding as error:
            self._stop(f"the response cannot be decompressed: {error}")

    def on_message_complete(self) -> None:
        if self.status:
            self.is_complete = True
        else:
            self.headers = {}  # of an interim response (1xx): the final one follows

    def _stop(self, problem: str) -> None:
        self._problem = problem
        raise ValueError(problem)
