"""A model over HTTP: the Model contract, made of a codec and a transport.

It sends an encoded request, feeds the response to a decoder and maps every failure to one of the
project's errors. A request that is refused is sent again without what is refused (quarantine.py).
Other failures are not retried here: the loop does that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager

import msgspec

from treadle.core.contracts.model import (
    Model,
    ModelEvent,
    ModelNotified,
    ModelRequest,
    ModelUsageUpdated,
    Reply,
)
from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import BadRequest, ContextTooLong, ModelError, StreamBroken
from treadle.lib.http.sse import SSEReader
from treadle.lib.http.timeouts import DEFAULT_TIMEOUTS, Timeouts
from treadle.lib.http.transport import Response, Transport, TransportError
from treadle.models.provider_base.codec import Codec, DecodeFailed, Decoder, EncodedRequest
from treadle.models.provider_base.effort import explain_effort, get_effort
from treadle.models.provider_base.error_map import (
    UNREADABLE,
    ProviderInfo,
    find_refused_tool,
    has_field,
    is_error_body,
    map_response_error,
    map_stream_error,
    map_transport_error,
)
from treadle.models.provider_base.quarantine import RefusalSearch, with_effort, without_tools

EventBatch = list[ModelEvent]

MAX_REPLY_BYTES = 64 << 20  # of a reply in one piece
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
        self._refused_tools: list[ToolSpec] = []
        self._lowered_efforts: dict[str, str] = {}
        self._explained_wishes: set[int | str | None] = set()  # of thinking
        if client is None:
            codec.endpoint()  # an invalid base URL is an error here, not at the first request

    @property
    def codec(self) -> Codec:
        return self._codec

    @property
    def has_client(self) -> bool:
        """Whether requests go through a client of the caller, or of a cloud."""
        return self._client is not None

    def change_timeouts(self, changes: Mapping[str, float]) -> None:
        """Set some fields of the timeouts, in seconds."""
        if changes:
            self._timeouts = msgspec.structs.replace(self._timeouts, **changes)

    def check_key(self) -> None:
        """Raise AccessDenied if there is no key; a client of the caller has its own."""
        if self._client is None:
            self._codec.auth_headers()
        elif check_access := getattr(self._client, "check_access", None):
            check_access()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        if line := self._explain_effort(request):
            yield ModelNotified(line)
        request = self.without_refused(request)
        search: RefusalSearch | None = None
        while True:
            has_streamed = False
            try:
                async with aclosing(self._exchange(request)) as batches:
                    async for events in batches:
                        if not has_streamed:
                            has_streamed = any(type(e) is not ModelUsageUpdated for e in events)
                        if search is not None:  # it is accepted without these
                            self._refused_tools += search.take_refused_tools()
                            self._lowered_efforts |= search.lowered_efforts
                            self._lowered_efforts.pop(get_effort(request.options, self.card), "")
                        for event in events:
                            yield event
                return
            except ContextTooLong:
                raise
            except BadRequest as refusal:
                if has_streamed:  # events that were emitted cannot be taken back
                    raise
                if line := self._codec.adapt(refusal):
                    yield ModelNotified(line)
                    request = _with_other_key(request)
                    continue
                search = search or RefusalSearch(self._open_exchange, request, self.card)
                request = await search.next_request(request, refusal)
            for event in search.take_events():
                yield event

    def _explain_effort(self, request: ModelRequest) -> str:
        """What becomes of a wish of thinking that cannot be sent as it is, once."""
        wish = request.options.thinking
        if request.purpose != "turn" or wish in self._explained_wishes:
            return ""
        self._explained_wishes.add(wish)
        has_field = self._codec.has_effort_field(request.options)
        return explain_effort(request.options, self.card, has_field)

    def _open_exchange(self, request: ModelRequest) -> aclosing[AsyncGenerator[EventBatch, None]]:
        return aclosing(self._exchange(request))

    def without_refused(self, request: ModelRequest) -> ModelRequest:
        """The request without the effort and the tools that the provider is known to refuse."""
        if not (self._refused_tools or self._lowered_efforts):
            return request
        effort = wanted = get_effort(request.options, self.card)
        while effort in self._lowered_efforts:
            effort = self._lowered_efforts[effort]
        if effort != wanted:
            request = with_effort(request, effort)
        shorter = without_tools(request, self._refused_tools, self.card)
        if shorter.tools == request.tools:
            return request
        # Another body: it needs another key than the one that was refused.
        key = f"{request.idempotency_key}/{len(shorter.tools)}" if request.idempotency_key else ""
        return msgspec.structs.replace(shorter, idempotency_key=key)

    async def _exchange(self, request: ModelRequest) -> AsyncGenerator[EventBatch, None]:
        """Send the request once: the events of each chunk, and the reply as the last event."""
        codec = self._codec
        encoded = codec.encode_request(request)
        decoder = codec.create_decoder(request)
        transport, url, headers = self._resolve_target(encoded)
        if request.idempotency_key:
            headers["idempotency-key"] = request.idempotency_key
        reader = SSEReader()
        unread: list[bytes] | None = []  # the chunks up to the first event
        try:
            async with transport.post(url, headers, encoded.body, self._timeouts) as response:
                for events in await self._read_whole_reply(response, decoder):
                    yield events
                async for chunk in response:
                    progress, failure = decoder.progress, None
                    parts = reader.feed(chunk)
                    if parts:
                        unread = None
                    elif unread is not None:
                        unread.append(chunk)
                    try:
                        events = decoder.feed(parts)
                    except DecodeFailed as failed:
                        events, failure = failed.events, failed.error
                    if decoder.progress != progress:
                        response.mark_content()
                    if events:
                        yield events
                    if failure is not None:
                        raise failure
                    if decoder.done:
                        if not response.is_read:
                            await _drain(response)
                        break
                if unread is not None and _is_json(body := b"".join(unread)):
                    yield decode_reply(codec, decoder, body)
                elif reader.pending and not decoder.done:
                    # Some servers leave out the blank line after the last event.
                    events, failure = _decode(decoder, reader.feed(b"\n\n"))
                    yield events
                    if failure is not None and not isinstance(failure, StreamBroken):
                        raise failure
        except BadRequest as error:
            self._locate_refusal(request, error)
            raise
        except TransportError as error:
            if not decoder.done:
                self._raise_reason(reader)
                raise map_transport_error(codec.provider, error) from error
        try:
            reply = decoder.finish()
        except StreamBroken:
            self._raise_reason(reader)
            raise
        yield [Reply(reply)]

    def _raise_reason(self, reader: SSEReader) -> None:
        """Raise the error for which the server ended the stream, if it sent one."""
        if reader.pending:
            reader.feed(b"\n\n")
        if reader.error:
            raise map_stream_error(self._codec.provider, reader.error) from None

    def _locate_refusal(self, request: ModelRequest, error: BadRequest) -> None:
        """Set the part and the tool that the error names."""
        if error.position is None:
            part = self._codec.locate_part(request, error)
            if part is not None:
                error.position, error.part = part
        error.tool = error.tool or find_refused_tool(error, request.tools)

    @asynccontextmanager
    async def open_response(
        self, request: EncodedRequest, method: str = "POST", *, once: bool = False
    ) -> AsyncIterator[Response]:
        """The response to a request that is no call of the model. Raises ModelError. With `once`
        it is never sent again, as a client does whose pooled connection was closed."""
        codec = self._codec
        transport, url, headers = self._resolve_target(request)
        if once:
            from treadle.lib.http.client import Client

            transport = Client(max_idle=0)
        if method == "GET":
            exchange = transport.get(url, headers, self._timeouts)
        else:
            exchange = transport.post(url, headers, request.body, self._timeouts)
        try:
            async with exchange as response:
                if response.status != 200:
                    body = await response.read()
                    raise map_response_error(
                        codec.provider, response.status, response.headers, body
                    )
                yield response
        except TransportError as error:
            raise map_transport_error(codec.provider, error) from error

    async def send_request(
        self, request: EncodedRequest, method: str = "POST", *, once: bool = False
    ) -> bytes:
        """One request with one JSON body as its response."""
        async with self.open_response(request, method, once=once) as response:
            return await response.read(MAX_REPLY_BYTES)

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
                from treadle.lib.http.client import get_shared_client

                self._transport = get_shared_client()
            else:
                from treadle.models.provider_base.sdk_transport import as_transport

                self._transport = as_transport(self._client)
        return self._transport

    async def _read_whole_reply(self, response: Response, decoder: Decoder) -> list[EventBatch]:
        """The events of a reply that comes in one piece; none if the response is a stream."""
        kind = response.headers.get("content-type", "")
        if response.status == 200 and "html" not in kind and "application/json" not in kind:
            return []
        if response.status != 200 or "html" in kind:
            body = await response.read()
            raise map_response_error(self._codec.provider, response.status, response.headers, body)
        return [decode_reply(self._codec, decoder, await response.read(MAX_REPLY_BYTES))]


def _with_other_key(request: ModelRequest) -> ModelRequest:
    """For another body: the same key would mean the same answer."""
    key = f"{request.idempotency_key}/again" if request.idempotency_key else ""
    return msgspec.structs.replace(request, idempotency_key=key)


def decode_reply(codec: Codec, decoder: Decoder, body: bytes) -> EventBatch:
    """The events of a reply in one piece; `decoder.finish` returns the reply."""
    if body.lstrip().startswith((b"data:", b"event:", b":")):
        parts = SSEReader().feed(body + b"\n\n")  # a stream with the wrong type
    else:
        parts = [] if has_field(body, "error") else codec.split_reply(body)
        if not parts and is_error_body(body):
            raise map_stream_error(codec.provider, body)
        if not parts:
            raise make_not_a_reply_error(codec.provider)
    events, failure = _decode(decoder, parts)
    if failure is not None:
        raise failure
    return events


def _decode(
    decoder: Decoder, parts: list[tuple[bytes, bytes]]
) -> tuple[EventBatch, ModelError | None]:
    """The events of these parts, and the error that ended them."""
    try:
        return decoder.feed(parts), None
    except DecodeFailed as failed:
        return failed.events, failed.error
    except ModelError as error:
        return [], error


def _is_json(body: bytes) -> bool:
    """Whether this is an object or an array: a reply or an error in one piece, with another type
    than JSON, or none."""
    if not body.lstrip().startswith((b"{", b"[")):
        return False
    try:
        msgspec.json.decode(body)
    except UNREADABLE:
        return False
    return True


def make_not_a_reply_error(provider: ProviderInfo) -> StreamBroken:
    what = "the base URL and the proxy" if provider.has_own_url else "the proxy"
    message = f"{provider.name} sent JSON that is not a reply: check {what}."
    return StreamBroken(message, provider=provider.name, status=200)


async def _drain(response: Response) -> None:
    """Read the rest of the body, so that the connection can be reused."""
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in response:
                pass
    except TimeoutError:
        await response.aclose()
