"""The HTTP/1.1 client of this project, with a keep-alive pool.

By default it follows redirects within an origin; it retries a request once if its pooled connection
was stale, and decodes gzip and deflate. It has no cookies, no streamed uploads, no HTTP/2.
transport.py has its promises; urls.py, connect.py, connection.py and pool.py are its parts.
"""

import asyncio
import os
import resource
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, NoReturn, Self

import msgspec

from .connect import ResolveHost, open_connection
from .connection import Connection
from .pool import Pool
from .timeouts import DEFAULT_TIMEOUTS, Timeouts, TimeoutTracker
from .transport import (
    REDIRECT_STATUSES,
    BadRedirect,
    Disconnected,
    Headers,
    MalformedResponse,
    ResponseTooLarge,
    TLSFailed,
    other_host_error,
    read_all,
)
from .urls import Route, parse_route

if TYPE_CHECKING:
    from .content_decoder import ContentDecoder

# Which redirects the client follows; a response with another one is an error, or with "none" the
# caller's own matter.
Redirects = Literal["same_origin", "any", "none"]

_MAX_REDIRECTS: Final = 5
_MAX_ROUTES: Final = 256
_MAX_IDLE: Final = 2_048


class Client:
    """A Transport. One can serve many threads and event loops; each loop has its own pool.

    Proxies and certificates come from `environ` (of the process by default). With `socket_path`,
    every request goes to that unix socket. With `resolve`, connections go to the addresses that it
    returns, in this order and through no proxy; what it raises, the request raises.
    """

    def __init__(
        self,
        *,
        max_idle: int | None = None,
        idle_seconds: float = 60.0,
        environ: Mapping[str, str] | None = None,
        socket_path: str = "",
        resolve: ResolveHost | None = None,
        redirects: Redirects = "same_origin",
    ) -> None:
        self._socket_path = socket_path
        self.resolve = resolve
        self.redirects = redirects
        self._max_idle = _choose_max_idle() if max_idle is None else max_idle
        self._idle_seconds = idle_seconds
        self._environ: Mapping[str, str] = os.environ if environ is None else environ
        self._routes: dict[str, Route] = {}
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        self._tls_context: ssl.SSLContext | None = None
        self._lock = threading.Lock()  # for pools of several threads

    @property
    def base_url(self) -> None:
        return None

    def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes | Sequence[bytes],
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> "HTTPExchange":
        parts = (body,) if isinstance(body, bytes) else body
        return HTTPExchange(self, "POST", url, headers, parts, timeouts)

    def get(
        self, url: str, headers: Mapping[str, str], timeouts: Timeouts = DEFAULT_TIMEOUTS
    ) -> "HTTPExchange":
        return HTTPExchange(self, "GET", url, headers, (), timeouts)

    async def aclose(self) -> None:
        with self._lock:
            pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.aclose()

    def get_route(self, url: str) -> Route:
        route = self._routes.get(url)
        if route is None:
            if len(self._routes) >= _MAX_ROUTES:
                self._routes.clear()
            route = parse_route(url, {} if self.resolve else self._environ)
            if self._socket_path:
                route = msgspec.structs.replace(route, socket_path=self._socket_path, proxy=None)
            self._routes[url] = route
        return route

    def get_tls_context(self) -> ssl.SSLContext:
        if self._tls_context is None:
            from .tls_context import make_tls_context

            try:
                self._tls_context = make_tls_context(self._environ)
            except OSError as error:
                raise TLSFailed(str(error)) from error
        return self._tls_context

    async def get_pool(self, loop: asyncio.AbstractEventLoop) -> Pool:
        pool = self._pools.get(loop)
        if pool is None:
            pool = Pool(loop, self._max_idle, self._idle_seconds)
            with self._lock:
                for old in [old for old in self._pools if old.is_closed()]:
                    del self._pools[old]
                self._pools[loop] = pool
            await pool.open()
        return pool


def _choose_max_idle() -> int:
    """Thousands of callers keep their connections, and half of the open files stay free."""
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(_MAX_IDLE, open_files // 2) if open_files > 0 else _MAX_IDLE


class HTTPExchange:
    """One request and, once entered, its Response."""

    def __init__(
        self,
        client: Client,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: Sequence[bytes],
        timeouts: Timeouts,
    ) -> None:
        self._client = client
        self._method = method
        self._request_headers = headers
        self._body = body
        self._timeouts = timeouts
        self._headers: Headers | None = None
        self._connection: Connection | None = None
        self._decoder: ContentDecoder | None = None
        self._decoded: Iterator[bytes] = iter(())
        self._decoded_bytes = 0
        self.status = 0
        self.url = url

    @property
    def headers(self) -> Headers:
        assert self._headers is not None, "the exchange has not been entered"
        return self._headers

    async def __aenter__(self) -> Self:
        loop = self._loop = asyncio.get_running_loop()
        self._pool = await self._client.get_pool(loop)
        self._tracker = TimeoutTracker(self._timeouts, loop.time())
        self._route = self._client.get_route(self.url)
        hops = 0
        while True:
            connection = self._connection = await self._send()
            self.status = connection.status
            self._headers = Headers(connection.raw_headers)
            if self.status not in REDIRECT_STATUSES or self._client.redirects == "none":
                break
            self._release()
            hops += 1
            self._follow_redirect(hops)
        names = [name.lower() for name, _ in connection.raw_headers]
        if b"transfer-encoding" in names:
            self._check_transfer_encoding(self._headers["transfer-encoding"])
        if b"content-encoding" in names:
            self._set_decoder(self._headers["content-encoding"])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._release()

    async def aclose(self) -> None:
        self._release()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while True:
            connection = self._connection
            if connection is None:
                raise StopAsyncIteration
            if self._decoder is not None and (part := self._take_decoded()):
                return part
            if connection.has_data:
                data = connection.take_body()
                if self._decoder is None:
                    return data
                self._decoded = self._decoder.feed(data)
            elif connection.error is not None:
                raise connection.error
            elif connection.done:
                self._check_end()
                raise StopAsyncIteration
            else:
                await connection.wait()

    async def read(self, limit: int = 1 << 20) -> bytes:
        return await read_all(self, limit)

    @property
    def is_read(self) -> bool:
        connection = self._connection  # the end of a compressed body is still to be checked
        return self._decoder is None and (
            connection is None or (connection.done and not connection.has_data)
        )

    def mark_content(self) -> None:
        self._tracker.on_content(self._loop.time())

    async def _send(self) -> Connection:
        route, timeouts = self._route, self._timeouts
        size = sum(map(len, self._body))
        head = self._build_head(size)
        connection = self._pool.take(route.key)
        while True:
            reused = connection is not None
            if connection is None:
                context = self._client.get_tls_context
                make = self._pool.make_connection
                connection = await open_connection(
                    route, make, context, timeouts.connect, self._client.resolve
                )
            try:
                connection.start_exchange(route.address, self._tracker, timeouts.max_bytes)
                await connection.send(head, self._body, size)
                await connection.wait_for_headers()
                return connection
            except Disconnected:
                connection.finish()
                if not reused or connection.received:
                    raise
                connection = None  # the server had closed it while it was idle
            except BaseException:
                connection.finish()
                raise

    def _build_head(self, size: int) -> bytes:
        route = self._route
        lines = [f"{self._method} {route.target} HTTP/1.1\r\nhost: {route.host_header}\r\n"]
        lines += [f"{name}: {value}\r\n" for name, value in self._request_headers.items()]
        if route.proxy is not None and not route.tls and route.proxy.authorization is not None:
            lines.append(f"proxy-authorization: {route.proxy.authorization}\r\n")
        if "accept-encoding" not in self._request_headers:
            lines.append("accept-encoding: identity\r\n")
        if self._method == "POST":
            lines.append(f"content-length: {size}\r\n")
        block = "".join(lines)
        ends = len(lines) + 1  # the first holds two
        if block.count("\n") != ends or block.count("\r") != ends or not block.isascii():
            _raise_bad_header(self._request_headers)
        return (block + "\r\n").encode("latin-1")

    def _follow_redirect(self, hops: int) -> None:
        from urllib.parse import urljoin

        here, address = self._route, self._route.address
        if hops > _MAX_REDIRECTS:
            message = f"{address} redirects without end: check the base URL"
            raise BadRedirect(message, address, here.host)
        try:
            there = urljoin(self.url, self.headers.get("location", ""))
            target = self._client.get_route(there)
        except ValueError:
            message = f"{address} redirects to an invalid URL: check the base URL"
            raise BadRedirect(message, address) from None
        if target.origin != here.origin and self._client.redirects != "any":
            raise other_host_error(address, target.host)
        if self._method == "POST" and self.status not in (307, 308):
            message = (
                f"{address} answers a POST with the redirect {self.status}, which would drop "
                "the request: check the base URL (http or https, path)"
            )
            raise BadRedirect(message, address, target.host)
        self.url = there
        self._route = target

    def _set_decoder(self, encoding: str) -> None:
        """For servers that send gzip or deflate although we accept only identity."""
        from .content_decoder import DECODABLE, ContentDecoder

        encoding = encoding.strip().lower()
        if encoding in DECODABLE:
            self._decoder = ContentDecoder(encoding)
        elif encoding not in ("", "identity"):
            self._raise_malformed(f"sent the content encoding {encoding!r}", "check the proxy")

    def _check_transfer_encoding(self, encoding: str) -> None:
        if encoding.strip().lower() not in ("chunked", "identity"):
            self._raise_malformed(f"sent the transfer encoding {encoding!r}", "check the proxy")

    def _take_decoded(self) -> bytes:
        """The next part of the chunk that is decoded; empty at its end."""
        from .content_decoder import BrokenEncoding

        try:
            part = next(self._decoded, b"")
        except BrokenEncoding as error:
            self._raise_malformed(f"sent broken compressed data ({error})", "try again")
        self._decoded_bytes += len(part)
        address, limit = self._route.address, self._timeouts.max_bytes
        if limit is not None and self._decoded_bytes > limit:
            raise ResponseTooLarge(
                f"the response from {address} decompresses to more than {limit} bytes: "
                "raise the max_bytes limit if that is expected",
                address,
            )
        return part

    def _check_end(self) -> None:
        """A compressed body can be cut although its framing is whole."""
        if self._decoder is None:
            return
        from .content_decoder import BrokenEncoding

        try:
            self._decoder.finish()
        except BrokenEncoding as error:
            self._raise_malformed(f"sent a part of compressed data ({error})", "try again")

    def _raise_malformed(self, problem: str, remedy: str) -> NoReturn:
        self._release()
        address = self._route.address
        raise MalformedResponse(f"{address} {problem}: {remedy}", address)

    def _release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.finish():
            self._pool.put(self._route.key, connection)


def _raise_bad_header(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not name or not name.isascii() or any(c in name for c in "\r\n :"):
            raise ValueError(f"not a header name: {name!r}")
        if "\r" in value or "\n" in value:
            raise ValueError(f"the value of the header {name!r} contains a line break")
        try:
            value.encode("latin-1")
        except UnicodeEncodeError:
            problem = "contains characters that HTTP cannot send"
            raise ValueError(f"the value of the header {name!r} {problem}") from None


_shared_client: Client | None = None


def get_shared_client() -> Client:
    """The client of this process, created at first use."""
    global _shared_client
    if _shared_client is None:
        _shared_client = Client()
    return _shared_client
