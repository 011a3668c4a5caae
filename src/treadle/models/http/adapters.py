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

from .aws_eventstream import MEDIA_TYPE, AWSFrameReader
from .client import get_shared_client
from .timeouts import DEFAULT_TIMEOUTS, TimeoutKind, Timeouts, TimeoutTracker
from .transport import (
    BadRedirect,
    ConnectFailed,
    Disconnected,
    Headers,
    MalformedResponse,
    ProxyFailed,
    ResponseTooLarge,
    TimedOut,
    TLSFailed,
    Transport,
    TransportError,
    read_all,
)

T = TypeVar("T")

_PLAIN_SDK_CLIENTS: Final = frozenset({"AsyncAnthropic", "AsyncOpenAI"})


def as_transport(client: object | None) -> Transport:
    """Our own client for None, a Transport as it is, a known foreign client wrapped."""
    if client is None:
        return get_shared_client()
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


class _ForeignResponse(NamedTuple):
    """A foreign response: its head, its pieces, and how to let it go."""

    status: int
    headers: list[tuple[bytes, bytes]]
    chunks: AsyncIterator[bytes]
    close: Callable[[], Awaitable[None]]


class _ForeignTransport(ABC):
    """What the wrappers share: a request becomes an exchange around `_open`."""

    @property
    def base_url(self) -> str | None:
        return None

    def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes | Sequence[bytes],
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> "_ForeignExchange":
        whole = body if isinstance(body, bytes) else b"".join(body)
        return _ForeignExchange(
            lambda: self._open("POST", url, dict(headers), whole), url, timeouts
        )

    def get(
        self, url: str, headers: Mapping[str, str], timeouts: Timeouts = DEFAULT_TIMEOUTS
    ) -> "_ForeignExchange":
        return _ForeignExchange(lambda: self._open("GET", url, dict(headers), b""), url, timeouts)

    async def aclose(self) -> None:
        return None  # the client belongs to whoever made it

    @abstractmethod
    async def _open(
        self, method: str, url: str, headers: dict[str, str], body: bytes
    ) -> _ForeignResponse: ...


class HTTPXTransport(_ForeignTransport):
    """An httpx or httpx2 AsyncClient."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def _open(
        self, method: str, url: str, headers: dict[str, str], body: bytes
    ) -> _ForeignResponse:
        headers.setdefault("accept-encoding", "identity")
        request = self._client.build_request(
            method, url, headers=headers, content=body or None, timeout=None
        )
        response = await self._client.send(request, stream=True, follow_redirects=False)
        return _wrap_httpx_response(response)


class AiohttpTransport(_ForeignTransport):
    """An aiohttp ClientSession."""

    def __init__(self, client: Any) -> None:
        self._session = client

    async def _open(
        self, method: str, url: str, headers: dict[str, str], body: bytes
    ) -> _ForeignResponse:
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

        return _ForeignResponse(
            response.status, list(response.raw_headers), response.content.iter_any(), close
        )


class SDKTransport(_ForeignTransport):
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

    async def _open(
        self, method: str, url: str, headers: dict[str, str], body: bytes
    ) -> _ForeignResponse:
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
        return _wrap_httpx_response(response)


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


def _wrap_httpx_response(response: Any) -> _ForeignResponse:
    headers = [(name, value) for name, value in response.headers.raw]
    pieces = response.aiter_bytes()
    if response.headers.get("content-type", "").startswith(MEDIA_TYPE):
        pieces = _decode_frames(pieces)
        headers = [(n, v) for n, v in headers if n.lower() != b"content-type"]
        headers.append((b"content-type", b"text/event-stream"))
    return _ForeignResponse(response.status_code, headers, pieces, response.aclose)


async def _decode_frames(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    reader = AWSFrameReader()
    async for piece in chunks:
        events = reader.feed(piece)
        if events:
            yield events


class _ForeignExchange:
    """One request through a foreign client, and its Response, under our limits and errors."""

    def __init__(
        self, open_response: Callable[[], Awaitable[_ForeignResponse]], url: str, timeouts: Timeouts
    ) -> None:
        self._open_response = open_response
        self._timeouts = timeouts
        self._response: _ForeignResponse | None = None
        self._headers = Headers(())
        self._timer: asyncio.TimerHandle | None = None
        self._current_timeout: asyncio.Timeout | None = None
        self._expired: TimeoutKind | None = None
        self._received = 0
        self._address = url.split("://", 1)[-1].split("/", 1)[0]
        self.status = 0
        self.url = url

    @property
    def headers(self) -> Headers:
        return self._headers

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._tracker = TimeoutTracker(self._timeouts, now)
        self._timer = self._loop.call_at(self._tracker.schedule_check(now), self._check_timeouts)
        try:
            opened = self._response = await self._await_with_timeouts(self._open_response())
            self._tracker.on_headers(self._loop.time())
            self.status = opened.status
            self._headers = Headers(opened.headers)
            if self.status in (301, 302, 303, 307, 308):
                self._raise_bad_redirect()
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
        opened, self._response = self._response, None
        if opened is not None:
            await opened.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._response is None:
            raise StopAsyncIteration
        piece = b""
        while not piece:
            piece = await self._await_with_timeouts(anext(self._response.chunks))
        self._tracker.on_bytes(self._loop.time())
        self._received += len(piece)
        limit = self._timeouts.max_bytes
        if limit is not None and self._received > limit:
            raise ResponseTooLarge(
                f"the response from {self._address} is larger than {limit} bytes: "
                "raise the max_bytes limit if that is expected",
                self._address,
            )
        return piece

    async def read(self, limit: int = 1 << 20) -> bytes:
        return await read_all(self, limit)

    def mark_content(self) -> None:
        self._tracker.on_content(self._loop.time())

    async def _await_with_timeouts(self, awaitable: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(None) as self._current_timeout:
                if self._expired is not None:
                    self._current_timeout.reschedule(0)
                return await awaitable
        except (StopAsyncIteration, TransportError):
            raise
        except Exception as error:
            if self._expired is not None and isinstance(error, TimeoutError):
                seconds = self._tracker.get_seconds(self._expired)
                raise TimedOut(self._expired, seconds, self._address) from error
            seen = self._received if self.status else -1
            raise _translate_error(error, self._address, seen) from error
        finally:
            self._current_timeout = None

    def _check_timeouts(self) -> None:
        now = self._loop.time()
        if self._current_timeout is None:
            self._tracker.on_reader_behind(now)
        self._expired = self._tracker.find_expired(now)
        if self._expired is None:
            self._timer = self._loop.call_at(
                self._tracker.schedule_check(now), self._check_timeouts
            )
        elif self._current_timeout is not None:
            self._current_timeout.reschedule(now)

    def _raise_bad_redirect(self) -> None:
        from urllib.parse import urljoin, urlsplit

        target = urlsplit(urljoin(self.url, self.headers.get("location", ""))).hostname or "nowhere"
        raise BadRedirect(
            f"{self._address} redirects to {target}: the request was not sent there, because it "
            "carries a key; set the base URL to it if you trust it",
            self._address,
            target,
        )


# Exceptions of the foreign clients by class name, the more special before the more general.
_ERROR_MAP: Final[tuple[tuple[str, type[TransportError], str], ...]] = (
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
    (
        "DecodingError",
        MalformedResponse,
        "{where} sent broken compressed data ({error}): try again",
    ),
    (
        "ContentEncodingError",
        MalformedResponse,
        "{where} sent broken compressed data ({error}): try again",
    ),
    ("TransportError", Disconnected, "the connection to {where} broke ({error}): try again"),
    ("ClientError", Disconnected, "the connection to {where} broke ({error}): try again"),
    ("OSError", Disconnected, "the connection to {where} broke ({error}): try again"),
)


def _translate_error(error: BaseException, address: str, bytes_received: int) -> TransportError:
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in chain:
        chain.append(at)
        at = at.__cause__ or at.__context__
    names = {kind.__name__: link for link in chain for kind in type(link).__mro__}
    for name, kind, sentence in _ERROR_MAP:
        if name in names:
            text = sentence.format(where=address, error=str(names[name]) or name)
            return (
                Disconnected(text, address, bytes_received)
                if kind is Disconnected
                else kind(text, address)
            )
    return TransportError(f"the client could not carry the request to {address}: {error}", address)


_WRAPPERS: Final[dict[tuple[str, str], Callable[[Any], Transport]]] = {
    ("httpx", "AsyncClient"): HTTPXTransport,
    ("httpx2", "AsyncClient"): HTTPXTransport,
    ("aiohttp", "ClientSession"): AiohttpTransport,
}
