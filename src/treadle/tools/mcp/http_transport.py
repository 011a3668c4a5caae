"""A server at a URL: the SDK's HTTP transports, with a limit on responses, lines that are mended,
and reports of what happens to requests: 401, an ended session, an address without a server, a
stream that broke.

The login is oauth.py. Used by connection.py.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from treadle.tools.mcp.lenient import LenientReader
from treadle.tools.mcp.server_config import McpServerConfig
from treadle.tools.mcp.stdio_transport import MAX_MESSAGE_BYTES


class HttpReports(NamedTuple):
    """Called by the transport.

    on_unauthorized   a 401, with its challenge       on_authorized   a request was accepted
    on_session_ended  a 404 to our session id         on_stream_ended the server's stream broke
    on_unreachable    no server answers: why, and the call that was not sent, as (tool, arguments)
    """

    on_unauthorized: Callable[[str], None]
    on_authorized: Callable[[], None]
    on_session_ended: Callable[[], None]
    on_stream_ended: Callable[[], None]
    on_unreachable: Callable[[str, tuple[str, Any] | None], None]


@asynccontextmanager
async def open_http_transport(
    config: McpServerConfig,
    base_headers: Mapping[str, str],
    auth: httpx2.Auth | None,
    reports: HttpReports,
    reader: LenientReader,
) -> AsyncIterator[TransportStreams]:
    """The SDK's two streams to a URL."""
    url = httpx2.URL(config.url)

    async def watch(response: httpx2.Response) -> None:
        request = response.request
        is_ours = request.url == url  # and not one of a login
        has_session = request.method == "POST" and "mcp-session-id" in request.headers
        if response.status_code == 401 and is_ours:
            reports.on_unauthorized(response.headers.get("www-authenticate", "")[:200])
        elif response.status_code == 404 and has_session:
            reports.on_session_ended()
        elif response.is_success and is_ours:
            reports.on_authorized()
        if "content-encoding" not in response.headers:
            response.stream = _MendedStream(response.stream, reader)
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = _LimitedStream(response.stream)
        elif request.method == "GET":
            response.stream = _WatchedStream(response.stream, reports.on_stream_ended)

    class Client(httpx2.AsyncClient):
        async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
            try:
                return await super().send(request, **options)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                if request.url.host == url.host and request.url.port == url.port:
                    reports.on_unreachable(str(error), _find_call(request))
                raise

    def client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = auth,
    ) -> httpx2.AsyncClient:
        # No read timeout: the call has its own limit.
        return Client(
            headers={"accept-encoding": "identity", **base_headers, **(headers or {})},
            timeout=httpx2.Timeout(30.0, read=None),
            auth=auth,
            event_hooks={"response": [watch]},
        )

    if config.transport == "sse":
        async with sse_client(config.url, httpx_client_factory=client, auth=auth) as streams:
            yield streams
        return
    async with client() as http:
        async with streamable_http_client(
            config.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES
        ) as streams:
            yield streams


def _find_call(request: httpx2.Request) -> tuple[str, Any] | None:
    """The tool call in the body of a request."""
    try:
        message = json.loads(request.content)
        if message["method"] == "tools/call":
            params = message["params"]
            return params["name"], params.get("arguments")
    except (ValueError, KeyError, TypeError, httpx2.RequestNotRead):
        pass
    return None


class _MendedStream(httpx2.AsyncByteStream):
    """A body that a LenientReader mends, by the line."""

    def __init__(self, stream: Any, reader: LenientReader) -> None:
        self._stream = stream
        self._reader = reader

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts: list[bytes] = []
        size = 0
        async for piece in self._stream:
            end = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
            if end or size > MAX_MESSAGE_BYTES:  # what is too long is refused by its reader
                yield self._reader.mend_lines(b"".join([*parts, piece[:end]]))
                parts, size = [], 0
            parts.append(piece[end:])
            size += len(piece) - end
        if size:
            yield self._reader.mend_lines(b"".join(parts))

    async def aclose(self) -> None:
        await self._stream.aclose()


class _LimitedStream(httpx2.AsyncByteStream):
    """A body that raises an error if it is longer than a message may be."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        async for piece in self._stream:
            total += len(piece)
            if total > MAX_MESSAGE_BYTES:
                raise httpx2.StreamError(
                    f"the response is longer than {MAX_MESSAGE_BYTES >> 20} MiB and was dropped"
                )
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


class _WatchedStream(httpx2.AsyncByteStream):
    """The stream on which a server sends by itself; its end is reported."""

    def __init__(self, stream: Any, on_ended: Callable[[], None]) -> None:
        self._stream = stream
        self._on_ended = on_ended

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._stream:
                yield piece
        except httpx2.HTTPError:
            self._on_ended()
            raise
        self._on_ended()

    async def aclose(self) -> None:
        await self._stream.aclose()
