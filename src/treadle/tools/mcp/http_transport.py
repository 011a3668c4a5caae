"""A server at a URL: the SDK's HTTP transports, with a limit on responses and reports of 401 and
of an ended session.

It does not log in: a 401 is reported, and the host provides the headers. Used by connection.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from treadle.tools.mcp.config import McpServerConfig
from treadle.tools.mcp.stdio_transport import MAX_MESSAGE_BYTES


@asynccontextmanager
async def open_http_transport(
    config: McpServerConfig,
    base_headers: Mapping[str, str],
    *,
    on_unauthorized: Callable[[str], None],
    on_session_ended: Callable[[], None],
) -> AsyncIterator[TransportStreams]:
    """The SDK's two streams to a URL; `on_unauthorized` gets the challenge of a 401."""

    async def watch(response: httpx2.Response) -> None:
        request = response.request
        has_session = request.method == "POST" and "mcp-session-id" in request.headers
        if response.status_code == 401:
            on_unauthorized(response.headers.get("www-authenticate", "")[:200])
        elif response.status_code == 404 and has_session:
            on_session_ended()
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = _LimitedStream(response.stream)

    def client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        # No read timeout: the call has its own limit.
        return httpx2.AsyncClient(
            headers={**base_headers, **(headers or {})},
            timeout=httpx2.Timeout(30.0, read=None),
            auth=auth,
            event_hooks={"response": [watch]},
        )

    if config.transport == "sse":
        async with sse_client(config.url, httpx_client_factory=client) as streams:
            yield streams
        return
    async with client() as http:
        async with streamable_http_client(
            config.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES
        ) as streams:
            yield streams


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
