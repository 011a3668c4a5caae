"""The default transport: a small HTTP/1.1 client with a keep-alive pool.

It follows same-origin redirects, retries once a request that met a stale connection, and undoes
content codings. It is not a general client: no cookies, no uploads from streams, no HTTP/2.
`transport` says what it promises; `routes`, `dialing` and `connection` are its parts.
"""

import asyncio
import os
import ssl
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from .connection import Connection
from .dialing import dial
from .limits import DEFAULT_LIMITS, Limits, Meter
from .pool import Pool
from .routes import Route, route_to, tls_context
from .transport import BadRedirect, Disconnected, Headers, Malformed, TooLarge, read_all

if TYPE_CHECKING:
    import zlib

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS: Final = 5
_MAX_ROUTES: Final = 256
_INFLATE_STEP: Final = 1024 * 1024


class Client:
    """A Transport. One may serve many agents, and several event loops, each with its own pool.

    `environ` (the process's by default) is read for proxies and certificates, once a URL.
    """

    def __init__(
        self,
        *,
        max_idle: int = 256,
        idle_seconds: float = 60.0,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._max_idle = max_idle
        self._idle_seconds = idle_seconds
        self._environ: Mapping[str, str] = os.environ if environ is None else environ
        self._routes: dict[str, Route] = {}
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}
        self._tls: ssl.SSLContext | None = None

    @property
    def base_url(self) -> None:
        return None

    def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes | Sequence[bytes],
        limits: Limits = DEFAULT_LIMITS,
    ) -> "Exchange":
        parts = (body,) if isinstance(body, bytes) else body
        return Exchange(self, "POST", url, headers, parts, limits)

    def get(
        self, url: str, headers: Mapping[str, str], limits: Limits = DEFAULT_LIMITS
    ) -> "Exchange":
        return Exchange(self, "GET", url, headers, (), limits)

    async def aclose(self) -> None:
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.aclose()

    def route(self, url: str) -> Route:
        route = self._routes.get(url)
        if route is None:
            if len(self._routes) >= _MAX_ROUTES:
                self._routes.clear()
            route = self._routes[url] = route_to(url, self._environ)
        return route

    def tls(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = tls_context(self._environ)
        return self._tls

    async def pool(self, loop: asyncio.AbstractEventLoop) -> Pool:
        pool = self._pools.get(loop)
        if pool is None:
            for old in [old for old in self._pools if old.is_closed()]:
                del self._pools[old]
            pool = self._pools[loop] = Pool(loop, self._max_idle, self._idle_seconds)
            await pool.open()
        return pool


class Exchange:
    """One request and, once entered, its Response."""

    __slots__ = (
        "_body",
        "_client",
        "_connection",
        "_decoded",
        "_given_headers",
        "_headers",
        "_inflate",
        "_limits",
        "_loop",
        "_meter",
        "_method",
        "_pool",
        "_route",
        "status",
        "url",
    )

    def __init__(
        self,
        client: Client,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: Sequence[bytes],
        limits: Limits,
    ) -> None:
        self._client = client
        self._method = method
        self._given_headers = headers
        self._body = body
        self._limits = limits
        self._headers: Headers | None = None
        self._connection: Connection | None = None
        self._inflate: _Inflater | None = None
        self._decoded = 0
        self.status = 0
        self.url = url

    @property
    def headers(self) -> Headers:
        assert self._headers is not None, "the exchange has not been entered"
        return self._headers

    async def __aenter__(self) -> Self:
        loop = self._loop = asyncio.get_running_loop()
        self._pool = await self._client.pool(loop)
        self._meter = Meter(self._limits, loop.time())
        self._route = self._client.route(self.url)
        hops = 0
        while True:
            connection = self._connection = await self._ask()
            self.status = connection.status
            self._headers = Headers(connection.raw_headers)
            if self.status not in _REDIRECTS:
                break
            self._release()
            hops += 1
            self._redirect(hops)
        if b"content-encoding" in [name.lower() for name, _ in connection.raw_headers]:
            self._undo(self._headers["content-encoding"])
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
            if connection.has_data:
                data = connection.take()
                if self._inflate is not None:
                    data = self._decode(self._inflate, data)
                if data:
                    return data
            elif connection.error is not None:
                raise connection.error
            elif connection.done:
                raise StopAsyncIteration
            else:
                await connection.wait()

    async def read(self, limit: int = 1 << 20) -> bytes:
        return await read_all(self, limit)

    def content_seen(self) -> None:
        self._meter.content(self._loop.time())

    async def _ask(self) -> Connection:
        route, limits = self._route, self._limits
        size = sum(map(len, self._body))
        head = self._head(size)
        connection = self._pool.take(route.key)
        while True:
            reused = connection is not None
            if connection is None:
                connection = await dial(route, self._pool.make, self._client.tls, limits.connect)
            try:
                connection.begin(route.where, self._meter, limits.max_bytes)
                await connection.send(head, self._body, size)
                await connection.head()
                return connection
            except Disconnected:
                connection.finish()
                if not reused or connection.received:
                    raise
                connection = None  # the server had closed it while it lay idle
            except BaseException:
                connection.finish()
                raise

    def _head(self, size: int) -> bytes:
        route = self._route
        lines = [f"{self._method} {route.target} HTTP/1.1\r\nhost: {route.host_header}\r\n"]
        lines += [f"{name}: {value}\r\n" for name, value in self._given_headers.items()]
        if route.proxy is not None and not route.tls and route.proxy.authorization is not None:
            lines.append(f"proxy-authorization: {route.proxy.authorization}\r\n")
        lines.append("accept-encoding: identity\r\n")
        if self._method == "POST":
            lines.append(f"content-length: {size}\r\n")
        block = "".join(lines)
        ends = len(lines) + 1  # the first holds two
        if block.count("\n") != ends or block.count("\r") != ends or not block.isascii():
            _name_bad_header(self._given_headers)
        return (block + "\r\n").encode("latin-1")

    def _redirect(self, hops: int) -> None:
        from urllib.parse import urljoin

        here = self._route
        if hops > _MAX_REDIRECTS:
            raise BadRedirect(
                f"{here.where} redirects without end: check the base URL", here.where, here.host
            )
        there = urljoin(self.url, self.headers.get("location", ""))
        try:
            target = self._client.route(there)
        except ValueError:
            raise BadRedirect(
                f"{here.where} redirects to nowhere that makes sense: check the base URL",
                here.where,
            ) from None
        if target.origin != here.origin:
            raise BadRedirect(
                f"{here.where} redirects to another host, {target.where}: the request was not "
                "sent there, because it carries a key; set the base URL to it if you trust it",
                here.where,
                target.host,
            )
        if self._method == "POST" and self.status not in (307, 308):
            raise BadRedirect(
                f"{here.where} answers a POST with the redirect {self.status}, which would drop "
                "the request: check the base URL (http or https, path)",
                here.where,
                target.host,
            )
        self.url = there
        self._route = target

    def _undo(self, coding: str) -> None:
        try:
            self._inflate = _inflater(coding, self._route.where)
        except Malformed:
            self._release()
            raise

    def _decode(self, inflate: "_Inflater", data: bytes) -> bytes:
        out = inflate.decode(data, self._limits.max_bytes, self._decoded, self._route.where)
        self._decoded += len(out)
        return out

    def _release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.finish():
            self._pool.put(self._route.key, connection)


class _Inflater:
    """Undoes gzip and deflate, for servers that send it unasked."""

    def __init__(self, machine: "zlib._Decompress") -> None:
        self._machine = machine

    def decode(self, data: bytes, cap: int | None, before: int, where: str) -> bytes:
        import zlib

        parts: list[bytes] = []
        size = before
        try:
            while data:
                part = self._machine.decompress(data, _INFLATE_STEP)
                parts.append(part)
                size += len(part)
                if cap is not None and size > cap:
                    raise TooLarge(
                        f"the response from {where} unpacks to more than {cap} bytes: "
                        "raise the max_bytes limit if that is expected",
                        where,
                    )
                data = self._machine.unconsumed_tail
        except zlib.error as error:
            raise Malformed(f"{where} sent broken compressed data ({error}): try again") from error
        return b"".join(parts)


def _inflater(coding: str, where: str) -> _Inflater | None:
    import zlib

    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return None
    if coding in ("gzip", "x-gzip", "deflate"):
        return _Inflater(zlib.decompressobj(zlib.MAX_WBITS | 32))
    raise Malformed(
        f"{where} answers in the coding {coding!r}, which was not asked for: "
        "check the proxy in between",
        where,
    )


def _name_bad_header(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not name or not name.isascii() or any(c in name for c in "\r\n :"):
            raise ValueError(f"not a header name: {name!r}")
        if "\r" in value or "\n" in value:
            raise ValueError(f"the value of the header {name!r} holds a line break")
        try:
            value.encode("latin-1")
        except UnicodeEncodeError:
            raise ValueError(
                f"the value of the header {name!r} holds characters that HTTP cannot carry"
            ) from None


_shared: Client | None = None


def shared() -> Client:
    """The process's one client, made at first use."""
    global _shared
    if _shared is None:
        _shared = Client()
    return _shared
