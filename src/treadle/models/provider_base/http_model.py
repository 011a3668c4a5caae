"""A model over HTTP: the Model contract, made of a codec and a transport.

It sends an encoded request, feeds the response to a decoder and maps every failure to one of the
project's errors. It does not retry, repair or remember: the loop and the wrappers do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from treadle.core.contracts.model import Model, ModelEvent, ModelRequest, Reply
from treadle.core.errors import BadRequest, StreamBroken
from treadle.models.http.sse import SSEReader
from treadle.models.http.timeouts import DEFAULT_TIMEOUTS, Timeouts
from treadle.models.http.transport import Response, Transport, TransportError
from treadle.models.provider_base.codec import Codec, DecodeFailed, EncodedRequest
from treadle.models.provider_base.error_mapping import map_transport_error

# After the final event the body should end at once; the reply waits no longer than this for it.
DRAIN_SECONDS = 0.2


class HTTPModel:
    """The Model contract over a codec. `client` is anything that `as_transport` accepts."""

    def __init__(
        self, codec: Codec, client: object | None, fallback: Model | None, timeouts: Timeouts | None
    ) -> None:
        self.card = codec.card
        self.name = codec.card.name
        self.fallback = fallback
        self._codec = codec
        self._client = client
        self._timeouts = timeouts or DEFAULT_TIMEOUTS
        self._transport: Transport | None = None
        if client is None:
            codec.endpoint()  # an invalid base URL is an error here, not at the first request

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        codec = self._codec
        encoded = codec.encode_request(request)
        decoder = codec.create_decoder(request)
        reader = SSEReader()
        transport, url, headers = self._resolve_target(encoded)
        if request.idempotency_key:
            headers["idempotency-key"] = request.idempotency_key
        try:
            async with transport.post(url, headers, encoded.body, self._timeouts) as response:
                await self._check_response(response)
                async for chunk in response:
                    progress, failure = decoder.progress, None
                    try:
                        events = decoder.feed(reader.feed(chunk))
                    except DecodeFailed as failed:
                        events, failure = failed.events, failed.error
                    if decoder.progress != progress:
                        response.mark_content()
                    for event in events:
                        yield event
                    if failure is not None:
                        raise failure
                    if decoder.done:
                        await _drain(response)
                        break
        except BadRequest as error:
            if error.position is None:
                part = codec.locate_part(request, error)
                if part is not None:
                    error.position, error.part = part
            raise
        except TransportError as error:
            if not decoder.done:
                raise map_transport_error(codec.provider, error) from error
        yield Reply(decoder.finish())

    async def send_request(self, request: EncodedRequest) -> bytes:
        """One request with one JSON body as its response."""
        codec = self._codec
        transport, url, headers = self._resolve_target(request)
        try:
            async with transport.post(url, headers, request.body, self._timeouts) as response:
                body = await response.read()
                if response.status != 200:
                    raise codec.map_error(response.status, response.headers, body)
                return body
        except TransportError as error:
            raise map_transport_error(codec.provider, error) from error

    async def aclose(self) -> None:
        """Leaves the client open: it is shared, or the caller's own."""
        self._transport = None

    def _resolve_target(self, request: EncodedRequest) -> tuple[Transport, str, dict[str, str]]:
        transport = self._get_transport()
        if transport.base_url is not None:  # an SDK client has its own endpoint and key
            return transport, transport.base_url + request.path, dict(request.headers)
        headers = {**request.headers, **self._codec.auth_headers()}
        return transport, self._codec.endpoint() + request.path, headers

    def _get_transport(self) -> Transport:
        """Created at the first request: most models that are named are never used."""
        if self._transport is None:
            if self._client is None:
                from treadle.models.http.client import get_shared_client

                self._transport = get_shared_client()
            else:
                from treadle.models.http.sdk_transport import as_transport

                self._transport = as_transport(self._client)
        return self._transport

    async def _check_response(self, response: Response) -> None:
        kind = response.headers.get("content-type", "")
        if response.status == 200 and "html" not in kind and "application/json" not in kind:
            return
        body = await response.read()
        if response.status == 200 and "html" not in kind and b'"error"' not in body[:4096]:
            name = self._codec.provider.name
            message = (
                f"{name} answered in one piece instead of a stream: "
                "the server or a proxy does not stream; check the base URL."
            )
            raise StreamBroken(message, provider=name, status=200)
        raise self._codec.map_error(response.status, response.headers, body)


async def _drain(response: Response) -> None:
    """Read the rest of the body, so that the connection can be reused."""
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in response:
                pass
    except TimeoutError:
        await response.aclose()
