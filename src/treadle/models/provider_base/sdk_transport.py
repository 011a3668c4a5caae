"""An Async client of the anthropic or openai package as a transport, for Bedrock, Vertex and Azure.

The client keeps its endpoint, its way to sign a request, its proxies and certificates; we add the
body, the timeouts and our errors. Its retries and redirects are off. A client is recognised by
its class, so no SDK is imported here. Used by http_model.py.
"""

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Self, TypeVar

import msgspec

from treadle.lib.http.client import get_shared_client
from treadle.lib.http.timeouts import (
    DEFAULT_TIMEOUTS,
    TimeoutKind,
    Timeouts,
    TimeoutTimer,
    TimeoutTracker,
)
from treadle.lib.http.transport import (
    REDIRECT_STATUSES,
    ConnectFailed,
    Disconnected,
    Headers,
    MalformedResponse,
    ProxyFailed,
    TimedOut,
    TLSFailed,
    Transport,
    TransportError,
    other_host_error,
    read_all,
    too_large_error,
)
from treadle.models.provider_base.aws_eventstream import MEDIA_TYPE, AWSFrameReader

T = TypeVar("T")

_SDK_PACKAGES: Final = ("anthropic", "openai")
_PLAIN_CLIENTS: Final = frozenset({"AsyncAnthropic", "AsyncOpenAI"})


def as_transport(client: object | None) -> Transport:
    """Our own client for None, a Transport as it is, an SDK client wrapped."""
    if client is None:
        return get_shared_client()
    if _find_sdk_package(client):
        if inspect.iscoroutinefunction(getattr(client, "post", None)):
            return SDKTransport(client)
        raise TypeError(f"{type(client).__name__} is not asynchronous: pass its Async counterpart")
    if isinstance(client, Transport):
        return client
    raise TypeError(
        f"{type(client).__module__}.{type(client).__name__} cannot carry requests: pass an Async "
        "client of the anthropic or openai package, or a treadle.lib.http.transport.Transport"
    )


def _find_sdk_package(client: object) -> str:
    packages = (kind.__module__.partition(".")[0] for kind in type(client).__mro__)
    return next((package for package in packages if package in _SDK_PACKAGES), "")


class SDKTransport:
    """An SDK client, with its endpoint and its signature.

    The plain clients send our bytes as they are. The clients of other clouds move parts of the
    body into the URL, so they get the decoded body.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._sends_bytes = type(client).__name__ in _PLAIN_CLIENTS
        self._response_type = _response_type(client)

    @property
    def base_url(self) -> str:
        return str(self._client.base_url).rstrip("/")

    def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes | Sequence[bytes],
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> "_SDKExchange":
        data = body if isinstance(body, bytes) else b"".join(body)
        content = {"content": data} if self._sends_bytes else {"body": msgspec.json.decode(data)}
        send = partial(self._send, self._client.post, url, headers, content)
        return _SDKExchange(send, url, timeouts)

    def get(
        self, url: str, headers: Mapping[str, str], timeouts: Timeouts = DEFAULT_TIMEOUTS
    ) -> "_SDKExchange":
        return _SDKExchange(partial(self._send, self._client.get, url, headers, {}), url, timeouts)

    async def aclose(self) -> None:
        return None  # the caller closes its own client

    async def _send(
        self,
        method: Callable[..., Awaitable[Any]],
        url: str,
        headers: Mapping[str, str],
        content: Mapping[str, object],
    ) -> Any:
        path = url.removeprefix(self.base_url)
        options = {"headers": dict(headers), "max_retries": 0, "timeout": None}
        options |= {"follow_redirects": False}
        kind = self._response_type
        try:
            return await method(path, cast_to=kind, options=options, stream=True, **content)
        except Exception as error:
            response = getattr(error, "response", None)  # an error status is an exception there
            if response is None:
                raise
            return response


def _response_type(client: Any) -> Any:
    """The response class of the HTTP library that this SDK uses."""
    package = sys.modules[_find_sdk_package(client)]
    for kind in package.DefaultAsyncHttpxClient.__mro__:
        library = kind.__module__.partition(".")[0]
        if library in ("httpx", "httpx2"):
            return sys.modules[library].Response
    raise TypeError(f"this version of {package.__name__} uses an unknown HTTP library")


async def _decode_frames(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    reader = AWSFrameReader()
    async for chunk in chunks:
        events = reader.feed(chunk)
        if events:
            yield events


class _SDKExchange:
    """One request through an SDK client, and its Response, with our timeouts and errors."""

    def __init__(self, send: Callable[[], Awaitable[Any]], url: str, timeouts: Timeouts) -> None:
        self._send = send
        self._timeouts = timeouts
        self._response: Any = None  # an httpx response
        self._headers = Headers(())
        self._timer = TimeoutTimer(lambda: self._current_timeout is None, self._on_expired)
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
        self._tracker = TimeoutTracker(self._timeouts, self._loop.time())
        self._timer.start(self._loop, self._tracker)
        try:
            response = self._response = await self._await_with_timeouts(self._send())
            self._tracker.on_headers(self._loop.time())
            self.status = response.status_code
            self._read_headers(response)
            if self.status in REDIRECT_STATUSES:
                raise other_host_error(self._address, self._find_redirect_host())
        except BaseException:
            await self.aclose()
            raise
        return self

    def _read_headers(self, response: Any) -> None:
        headers = list(response.headers.raw)
        self._chunks = response.aiter_bytes()
        if response.headers.get("content-type", "").startswith(MEDIA_TYPE):
            self._chunks = _decode_frames(self._chunks)
            headers = [pair for pair in headers if pair[0].lower() != b"content-type"]
            headers.append((b"content-type", b"text/event-stream"))
        self._headers = Headers(headers)

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        self._timer.close()
        response, self._response = self._response, None
        if response is not None:
            await response.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._response is None:
            raise StopAsyncIteration
        chunk = b""
        while not chunk:
            chunk = await self._await_with_timeouts(anext(self._chunks))
        self._tracker.on_bytes(self._loop.time())
        self._received += len(chunk)
        limit = self._timeouts.max_bytes
        if limit is not None and self._received > limit:
            raise too_large_error(self._address, limit)
        return chunk

    async def read(self, limit: int = 1 << 20) -> bytes:
        return await read_all(self, limit)

    @property
    def is_read(self) -> bool:
        return False  # the client does not tell

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
            received = self._received if self.status else -1
            raise _translate_error(error, self._address, received) from error
        finally:
            self._current_timeout = None

    def _on_expired(self, kind: TimeoutKind) -> None:
        self._expired = kind
        if self._current_timeout is not None:
            self._current_timeout.reschedule(self._loop.time())

    def _find_redirect_host(self) -> str:
        from urllib.parse import urljoin, urlsplit

        return urlsplit(urljoin(self.url, self.headers.get("location", ""))).hostname or ""


# The exceptions of httpx by class name (httpx is not imported here), the special ones first.
_BROKEN = "the connection to {address} broke ({error}): try again"
_BROKEN_DATA = "{address} sent broken compressed data ({error}): try again"
_ERROR_MAP: Final[tuple[tuple[str, type[TransportError], str], ...]] = (
    ("SSLError", TLSFailed, "no TLS with {address} ({error}): check your client's certificates"),
    ("ProxyError", ProxyFailed, "the proxy for {address} failed ({error}): check the proxy"),
    ("ConnectError", ConnectFailed, "no connection to {address} ({error}): check the URL"),
    ("ConnectTimeout", ConnectFailed, "no connection to {address} in time: check the URL"),
    ("DecodingError", MalformedResponse, _BROKEN_DATA),
    ("TransportError", Disconnected, _BROKEN),
    ("OSError", Disconnected, _BROKEN),
)


def _translate_error(error: BaseException, address: str, bytes_received: int) -> TransportError:
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    names = {kind.__name__: link for link in chain for kind in type(link).__mro__}
    for name, kind, template in _ERROR_MAP:
        if name in names:
            text = template.format(address=address, error=str(names[name]) or name)
            if kind is Disconnected:
                return Disconnected(text, address, bytes_received)
            return kind(text, address)
    return TransportError(f"the client could not send the request to {address}: {error}", address)
