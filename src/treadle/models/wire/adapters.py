"""Other people's clients behind the seam: httpx, httpx2, aiohttp, and the providers' SDKs.

A client is known by its class's package, so nothing foreign is imported here. Its owner keeps its
pool, proxies, certificates and, for an SDK, the way to sign a request; we bring bytes, limits and
one alphabet of errors. Retries and redirects of theirs are switched off. Codecs stand above.
"""

import asyncio
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

import msgspec

from .client import shared
from .frames import MEDIA_TYPE, FrameReader
from .limits import DEFAULT_LIMITS, Limits, Meter, Which
from .transport import (
    BadRedirect,
    ConnectFailed,
    Disconnected,
    Headers,
    Malformed,
    ProxyFailed,
    TimedOut,
    TLSFailed,
    TooLarge,
    Transport,
    WireError,
    read_all,
)

T = TypeVar("T")

_PLAIN_SDK_CLIENTS: Final = frozenset({"AsyncAnthropic", "AsyncOpenAI"})


def as_transport(client: object | None) -> Transport:
    """Our own client for None, a Transport as it is, a known foreign client wrapped."""
    if client is None:
        return shared()
    for kind in type(client).__mro__:
        wrap = _WRAPPERS.get((kind.__module__.partition(".")[0], kind.__name__))
        if wrap is not None:
            return wrap(client)
        if kind.__module__.partition(".")[0] in ("anthropic", "openai"):
            if _is_async_sdk_client(client):
                return SDKTransport(client)
            raise TypeError(
                f"{type(client).__name__} is not asynchronous: pass its Async… counterpart"
            )
    if isinstance(client, Transport):
        return client
    raise TypeError(
        f"{type(client).__module__}.{type(client).__name__} cannot carry requests: pass a "
        "Transport, an httpx or httpx2 AsyncClient, an aiohttp ClientSession, or an Async client "
        "of the anthropic or openai package"
    )


def _is_async_sdk_client(client: object) -> bool:
    return inspect.iscoroutinefunction(getattr(client, "post", None))


class _Opened(NamedTuple):
    """A foreign response: its head, its pieces, and how to let it go."""

    status: int
    headers: list[tuple[bytes, bytes]]
    pieces: AsyncIterator[bytes]
    close: Callable[[], Awaitable[None]]


class _Foreign(ABC):
    """What the wrappers share: a request becomes an exchange around `_open`."""

    @property
    def base_url(self) -> str | None:
        return None

    def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes | Sequence[bytes],
        limits: Limits = DEFAULT_LIMITS,
    ) -> "_Exchange":
        whole = body if isinstance(body, bytes) else b"".join(body)
        return _Exchange(lambda: self._open("POST", url, dict(headers), whole), url, limits)

    def get(
        self, url: str, headers: Mapping[str, str], limits: Limits = DEFAULT_LIMITS
    ) -> "_Exchange":
        return _Exchange(lambda: self._open("GET", url, dict(headers), b""), url, limits)

    async def aclose(self) -> None:
        return None  # the client belongs to whoever made it

    @abstractmethod
    async def _open(
        self, method: str, url: str, headers: dict[str, str], body: bytes
    ) -> _Opened: ...


class HTTPXTransport(_Foreign):
    """An httpx or httpx2 AsyncClient."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def _open(self, method: str, url: str, headers: dict[str, str], body: bytes) -> _Opened:
        headers.setdefault("accept-encoding", "identity")
        request = self._client.build_request(
            method, url, headers=headers, content=body or None, timeout=None
        )
        response = await self._client.send(request, stream=True, follow_redirects=False)
        return _httpx_opened(response)


class AiohttpTransport(_Foreign):
    """An aiohttp ClientSession."""

    def __init__(self, client: Any) -> None:
        self._session = client

    async def _open(self, method: str, url: str, headers: dict[str, str], body: bytes) -> _Opened:
        headers.setdefault("accept-encoding", "identity")
        response = await self._session.request(
            method,
            url,
            headers=headers,
            data=body or None,
            allow_redirects=False,
            timeout=sys.modules["aiohttp"].ClientTimeout(total=None),
        )

        async def close() -> None:
            response.close()

        return _Opened(
            response.status, list(response.raw_headers), response.content.iter_any(), close
        )


class SDKTransport(_Foreign):
    """An Async client of the anthropic or openai package, with its endpoint and its signature.

    The plain clients send our bytes as they are. Those of other clouds move parts of the body
    into the URL, so they are given the decoded body.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._takes_bytes = type(client).__name__ in _PLAIN_SDK_CLIENTS
        self._response_type = _response_type(client)

    @property
    def base_url(self) -> str:
        return str(self._client.base_url).rstrip("/")

    async def _open(self, method: str, url: str, headers: dict[str, str], body: bytes) -> _Opened:
        path = url.removeprefix(self.base_url)
        options = {"headers": headers, "max_retries": 0, "timeout": None, "follow_redirects": False}
        try:
            if method == "GET":
                response = await self._client.get(
                    path, cast_to=self._response_type, options=options, stream=True
                )
            else:
                sent: dict[str, object] = {"content": body}
                if not self._takes_bytes:
                    sent = {"body": msgspec.json.decode(body)}
                response = await self._client.post(
                    path, cast_to=self._response_type, options=options, stream=True, **sent
                )
        except Exception as error:
            response = getattr(error, "response", None)
            if response is None:
                raise
        return _httpx_opened(response)


def _response_type(client: Any) -> Any:
    """The response class of the HTTP library that this SDK is built on."""
    package = sys.modules[
        next(
            kind.__module__.partition(".")[0]
            for kind in type(client).__mro__
            if kind.__module__.partition(".")[0] in ("anthropic", "openai")
        )
    ]
    for kind in package.DefaultAsyncHttpxClient.__mro__:
        library = kind.__module__.partition(".")[0]
        if library in ("httpx", "httpx2"):
            return sys.modules[library].Response
    raise TypeError(f"this version of {package.__name__} is built on an unknown HTTP library")


def _httpx_opened(response: Any) -> _Opened:
    headers = [(name, value) for name, value in response.headers.raw]
    pieces = response.aiter_bytes()
    if response.headers.get("content-type", "").startswith(MEDIA_TYPE):
        pieces = _unframed(pieces)
        headers = [(n, v) for n, v in headers if n.lower() != b"content-type"]
        headers.append((b"content-type", b"text/event-stream"))
    return _Opened(response.status_code, headers, pieces, response.aclose)


async def _unframed(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    reader = FrameReader()
    async for piece in pieces:
        events = reader.feed(piece)
        if events:
            yield events


class _Exchange:
    """One request through a foreign client, and its Response, under our limits and errors."""

    def __init__(self, opening: Callable[[], Awaitable[_Opened]], url: str, limits: Limits) -> None:
        self._opening = opening
        self._limits = limits
        self._opened: _Opened | None = None
        self._headers = Headers(())
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: asyncio.Timeout | None = None
        self._expired: Which | None = None
        self._received = 0
        self._where = url.split("://", 1)[-1].split("/", 1)[0]
        self.status = 0
        self.url = url

    @property
    def headers(self) -> Headers:
        return self._headers

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._meter = Meter(self._limits, now)
        self._timer = self._loop.call_at(self._meter.next_tick(now), self._tick)
        try:
            opened = self._opened = await self._watched(self._opening())
            self._meter.answered(self._loop.time())
            self.status = opened.status
            self._headers = Headers(opened.headers)
            if self.status in (301, 302, 303, 307, 308):
                self._refuse_redirect()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._opened is None:
            raise StopAsyncIteration
        piece = b""
        while not piece:
            piece = await self._watched(anext(self._opened.pieces))
        self._meter.heard(self._loop.time())
        self._received += len(piece)
        limit = self._limits.max_bytes
        if limit is not None and self._received > limit:
            raise TooLarge(
                f"the response from {self._where} is larger than {limit} bytes: "
                "raise the max_bytes limit if that is expected",
                self._where,
            )
        return piece

    async def read(self, limit: int = 1 << 20) -> bytes:
        return await read_all(self, limit)

    def content_seen(self) -> None:
        self._meter.content(self._loop.time())

    async def _watched(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(None) as self._waiting:
                if self._expired is not None:
                    self._waiting.reschedule(0)
                return await work
        except (StopAsyncIteration, WireError):
            raise
        except Exception as error:
            if self._expired is not None and isinstance(error, TimeoutError):
                seconds = self._meter.seconds(self._expired)
                raise TimedOut(self._expired, seconds, self._where) from error
            seen = self._received if self.status else -1
            raise _translated(error, self._where, seen) from error
        finally:
            self._waiting = None

    def _tick(self) -> None:
        now = self._loop.time()
        if self._waiting is None:
            self._meter.reader_behind(now)
        self._expired = self._meter.expired(now)
        if self._expired is None:
            self._timer = self._loop.call_at(self._meter.next_tick(now), self._tick)
        elif self._waiting is not None:
            self._waiting.reschedule(now)

    def _refuse_redirect(self) -> None:
        from urllib.parse import urljoin, urlsplit

        target = urlsplit(urljoin(self.url, self.headers.get("location", ""))).hostname or "nowhere"
        raise BadRedirect(
            f"{self._where} redirects to {target}: the request was not sent there, because it "
            "carries a key; set the base URL to it if you trust it",
            self._where,
            target,
        )


# Exceptions of the foreign clients by class name, the more special before the more general.
_ERRORS: Final[tuple[tuple[str, type[WireError], str], ...]] = (
    ("SSLError", TLSFailed, "no TLS with {where} ({error}): check the certificates of your client"),
    ("ClientSSLError", TLSFailed, "no TLS with {where} ({error}): check the certificates"),
    ("ProxyError", ProxyFailed, "the proxy on the way to {where} failed ({error}): check it"),
    ("ClientProxyConnectionError", ProxyFailed, "no proxy on the way to {where} ({error})"),
    ("ClientHttpProxyError", ProxyFailed, "the proxy refused {where} ({error}): check it"),
    ("ConnectError", ConnectFailed, "no connection to {where} ({error}): check the URL"),
    ("ConnectTimeout", ConnectFailed, "no connection to {where} in time: check the URL"),
    (
        "ClientConnectorError",
        ConnectFailed,
        "no connection to {where} ({error}): check the base URL",
    ),
    ("ConnectionTimeoutError", ConnectFailed, "no connection to {where} in time: check the URL"),
    ("DecodingError", Malformed, "{where} sent broken compressed data ({error}): try again"),
    ("ContentEncodingError", Malformed, "{where} sent broken compressed data ({error}): try again"),
    ("TransportError", Disconnected, "the connection to {where} broke ({error}): try again"),
    ("ClientError", Disconnected, "the connection to {where} broke ({error}): try again"),
    ("OSError", Disconnected, "the connection to {where} broke ({error}): try again"),
)


def _translated(error: BaseException, where: str, seen: int) -> WireError:
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in chain:
        chain.append(at)
        at = at.__cause__ or at.__context__
    names = {kind.__name__: link for link in chain for kind in type(link).__mro__}
    for name, kind, sentence in _ERRORS:
        if name in names:
            text = sentence.format(where=where, error=str(names[name]) or name)
            return Disconnected(text, where, seen) if kind is Disconnected else kind(text, where)
    return WireError(f"the client could not carry the request to {where}: {error}", where)


_WRAPPERS: Final[dict[tuple[str, str], Callable[[Any], Transport]]] = {
    ("httpx", "AsyncClient"): HTTPXTransport,
    ("httpx2", "AsyncClient"): HTTPXTransport,
    ("aiohttp", "ClientSession"): AiohttpTransport,
}
