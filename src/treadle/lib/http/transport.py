"""The Protocol of a transport, which sends one request and streams its response; its errors.

client.py implements it; the clients of SDKs are wrapped as transports elsewhere. Callers map these
errors to their own. It knows no JSON and no retries.

    TransportError
     ├─ ConnectFailed       unknown host, refused, unreachable
     ├─ TLSFailed           certificate or handshake
     ├─ ProxyFailed         the proxy refused, or its kind is not supported
     ├─ Disconnected        the server closed the connection before the end
     ├─ TimedOut            connect, first_byte, first_content, idle or total
     ├─ ResponseTooLarge    more bytes than allowed
     ├─ BadRedirect         to another host, which must not get the key
     └─ MalformedResponse   the response is not HTTP
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, Self, runtime_checkable

from .timeouts import DEFAULT_TIMEOUTS, TimeoutKind, Timeouts

REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})


class TransportError(Exception):
    """The exchange with a server failed; `address` is its host and port."""

    def __init__(self, message: str, address: str = "") -> None:
        super().__init__(message)
        self.address = address


class ConnectFailed(TransportError):
    pass


class TLSFailed(TransportError):
    pass


class ProxyFailed(TransportError):
    pass


class Disconnected(TransportError):
    """`bytes_received` counts body bytes; -1 means that not even the headers arrived."""

    def __init__(self, message: str, address: str = "", bytes_received: int = -1) -> None:
        super().__init__(message, address)
        self.bytes_received = bytes_received


class TimedOut(TransportError):
    def __init__(self, kind: TimeoutKind, seconds: float, address: str = "") -> None:
        super().__init__(_TIMEOUT_MESSAGES[kind].format(address=address, seconds=seconds), address)
        self.kind: TimeoutKind = kind


class ResponseTooLarge(TransportError):
    pass


class BadRedirect(TransportError):
    """`target` is the host of the redirect."""

    def __init__(self, message: str, address: str = "", target: str = "") -> None:
        super().__init__(message, address)
        self.target = target


class MalformedResponse(TransportError):
    pass


def too_large_error(address: str, limit: int) -> ResponseTooLarge:
    return ResponseTooLarge(
        f"the response from {address} is larger than {limit} bytes: "
        "raise the max_bytes limit if that is expected",
        address,
    )


def other_host_error(address: str, host: str) -> BadRedirect:
    return BadRedirect(
        f"{address} redirects to another host, {host or 'without a name'}: the request was not "
        "sent there, because it contains a key; if you trust that host, set the base URL to it",
        address,
        host,
    )


# A setting of the program has the name of the limit and `_timeout`.
_TIMEOUT_MESSAGES: dict[TimeoutKind, str] = {
    "connect": "no connection to {address} within {seconds:g} s: check the network, "
    "the proxy and the base URL",
    "first_byte": "{address} accepted the request but did not answer within {seconds:g} s: "
    "try again, or raise first_byte_timeout",
    "first_content": "{address} keeps the stream alive but sent no content within {seconds:g} s: "
    "try again, or raise first_content_timeout",
    "idle": "the stream from {address} was silent for {seconds:g} s: "
    "try again, or raise idle_timeout",
    "total": "the exchange with {address} was not over after {seconds:g} s: "
    "ask for less, or raise total_timeout",
}


class Headers(Mapping[str, str]):
    """Response headers, by name in any case; repeated ones are joined with a comma."""

    __slots__ = ("_raw", "_values")

    def __init__(self, raw: Sequence[tuple[bytes, bytes]]) -> None:
        self._raw = raw
        self._values: dict[str, str] | None = None

    def _parse(self) -> dict[str, str]:
        if self._values is None:
            self._values = {}
            for raw_name, raw_value in self._raw:
                name = raw_name.decode("latin-1").lower()
                value = raw_value.decode("latin-1")
                known = self._values.get(name)
                self._values[name] = value if known is None else f"{known}, {value}"
        return self._values

    def __getitem__(self, name: str) -> str:
        return self._parse()[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parse())

    def __len__(self) -> int:
        return len(self._parse())

    def __repr__(self) -> str:
        return f"Headers({self._parse()!r})"


class Response(Protocol):
    """One response, while it arrives."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Headers: ...

    @property
    def url(self) -> str:
        """The URL of the response, after redirects."""

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> bytes:
        """Every body byte that arrived since the last call, decoded; never empty."""

    async def read(self, limit: int = 1 << 20) -> bytes:
        """The rest of the body, cut after `limit` bytes."""

    @property
    def is_read(self) -> bool:
        """Whether the whole body was read, as far as is known."""

    def mark_content(self) -> None:
        """The chunk just read had content, not only pings: restart the idle limit."""

    async def aclose(self) -> None:
        """Close at once; if the body was not read to its end, so is the connection."""


@runtime_checkable
class Transport(Protocol):
    """Sends a request and streams its response: `async with transport.post(...) as response`.

    Leaving the block before the body's end, also by cancellation, closes the socket at once.
    It never retries a request after the first byte of a response, never follows a redirect to
    another origin, and never puts a header value into an error.
    """

    @property
    def base_url(self) -> str | None:
        """The endpoint of an SDK's client, which must be used; else None."""

    def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes | Sequence[bytes],
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> AbstractAsyncContextManager[Response]: ...

    def get(
        self, url: str, headers: Mapping[str, str], timeouts: Timeouts = DEFAULT_TIMEOUTS
    ) -> AbstractAsyncContextManager[Response]: ...

    async def aclose(self) -> None:
        """Close the idle connections; the transport stays usable."""


async def read_all(chunks: AsyncIterator[bytes], limit: int) -> bytes:
    """The implementation of `Response.read`."""
    parts: list[bytes] = []
    room = limit
    async for chunk in chunks:
        parts.append(chunk[:room])
        room -= len(chunk)
        if room <= 0:
            break
    return b"".join(parts)
