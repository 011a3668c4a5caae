"""A model behind HTTP: one codec, one transport, and the Model contract made of both.

It sends a prepared request, feeds the answer to a decoder and turns every failure into one of
the project's errors. It does not retry, heal or remember: the loop and the wrappers do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from treadle.core.contracts.model import Model, ModelCard, ModelEvent, ModelRequest, Reply
from treadle.core.errors import BadRequest, StreamBroken
from treadle.models.codec import Codec, Failed, Prepared
from treadle.models.failures import Provider, from_wire
from treadle.models.wire.limits import DEFAULT_LIMITS, Limits
from treadle.models.wire.sse import EventReader
from treadle.models.wire.transport import Response, Transport, WireError

# After the final event the connection's own end is due at once; no reply waits for it longer.
LAST_BYTES_SECONDS = 0.2


class ProviderModel:
    """The Model contract over a codec. `client` is anything that `as_transport` takes."""

    def __init__(
        self,
        codec: Codec,
        who: Provider,
        *,
        card: ModelCard,
        client: object | None = None,
        fallback: Model | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._codec = codec
        self._who = who
        self._card = card
        self._client = client
        self._fallback = fallback
        self._limits = limits or DEFAULT_LIMITS
        self._transport: Transport | None = None

    @property
    def name(self) -> str:
        return self._card.name

    @property
    def card(self) -> ModelCard:
        return self._card

    @property
    def fallback(self) -> Model | None:
        return self._fallback

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        codec = self._codec
        prepared = codec.prepare(request)
        decoder = codec.decoder(request)
        reader = EventReader()
        transport, url, headers = self._address(prepared)
        if request.key:
            headers["idempotency-key"] = request.key
        try:
            async with transport.post(url, headers, prepared.body, self._limits) as response:
                await self._check(response)
                async for piece in response:
                    progress, failure = decoder.progress, None
                    try:
                        events = decoder.feed(reader.feed(piece))
                    except Failed as failed:
                        events, failure = failed.events, failed.error
                    if decoder.progress != progress:
                        response.content_seen()
                    for event in events:
                        yield event
                    if failure is not None:
                        raise failure
                    if decoder.done:
                        # A response may know that nothing follows; waiting has its price.
                        if not getattr(response, "ended", False):
                            await _drain(response)
                        break
        except BadRequest as error:
            if error.position is None:
                place = codec.locate(request, error)
                if place is not None:
                    error.position, error.part = place
            raise
        except WireError as error:
            if not decoder.done:
                raise from_wire(self._who, error) from error
        yield Reply(decoder.finish())

    async def exchange(self, prepared: Prepared) -> bytes:
        """One request that is answered by one JSON body."""
        transport, url, headers = self._address(prepared)
        try:
            async with transport.post(url, headers, prepared.body, self._limits) as response:
                body = await response.read()
                if response.status != 200:
                    raise self._codec.error(response.status, response.headers, body)
                return body
        except WireError as error:
            raise from_wire(self._who, error) from error

    async def aclose(self) -> None:
        """The shared client and a caller's own stay as they are: others may be using them."""
        self._transport = None

    def _address(self, prepared: Prepared) -> tuple[Transport, str, dict[str, str]]:
        transport = self._carrier()
        if transport.base_url is not None:  # an SDK's client knows its endpoint and its key
            return transport, transport.base_url + prepared.path, dict(prepared.headers)
        headers = {**prepared.headers, **self._codec.authorization()}
        return transport, self._codec.endpoint() + prepared.path, headers

    def _carrier(self) -> Transport:
        """Made at the first call: most models that are named are never asked."""
        if self._transport is None:
            if self._client is None:
                from treadle.models.wire.client import shared

                self._transport = shared()
            else:
                from treadle.models.wire.adapters import as_transport

                self._transport = as_transport(self._client)
        return self._transport

    async def _check(self, response: Response) -> None:
        kind = response.headers.get("content-type", "")
        if response.status == 200 and "html" not in kind and "application/json" not in kind:
            return
        body = await response.read()
        if response.status == 200 and "html" not in kind and b'"error"' not in body[:4096]:
            raise StreamBroken(
                f"{self._who.name} answered in one piece instead of a stream: "
                "the server or a proxy before it does not stream; check the base URL.",
                provider=self._who.name,
                status=200,
            )
        raise self._codec.error(response.status, response.headers, body)


async def _drain(response: Response) -> None:
    """Read what is left after the final event, so that the connection can be used again."""
    try:
        async with asyncio.timeout(LAST_BYTES_SECONDS):
            async for _ in response:
                pass
    except TimeoutError:
        await response.aclose()
