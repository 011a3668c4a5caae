"""The seam between a codec and whatever carries its bytes: one Protocol, its errors.

It is not a client: `client` is ours, `adapters` wraps other people's. It knows no provider, no
JSON, no retry policy: the codecs above translate these errors into the project's.

    WireError
     ├─ ConnectFailed    no such host, refused, unreachable
     ├─ TLSFailed        certificate or handshake
     ├─ ProxyFailed      the proxy refused, or is of an unknown kind
     ├─ Disconnected     the peer went away before the end
     ├─ TimedOut         connect, first_byte, first_content, idle or total
     ├─ TooLarge         more bytes than allowed
     ├─ BadRedirect      to somewhere a key must not go
     └─ Malformed        what came back is not HTTP
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, Self, runtime_checkable

from .timeouts import DEFAULT_TIMEOUTS, TimeoutKind, Timeouts

__all__ = [
    "DEFAULT_TIMEOUTS",
    "BadRedirect",
    "ConnectFailed",
    "Disconnected",
    "Headers",
    "Timeouts",
    "MalformedResponse",
    "ProxyFailed",
    "Response",
    "TLSFailed",
    "TimedOut",
    "ResponseTooLarge",
    "Transport",
    "TimeoutKind",
    "TransportError",
]


class TransportError(Exception):
    """Something between us and the server; `where` is its host and port."""

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
    """`bytes_seen` counts body bytes; -1 means that not even the headers arrived."""

    def __init__(self, message: str, address: str = "", bytes_received: int = -1) -> None:
        super().__init__(message, address)
        self.bytes_received = bytes_received


class TimedOut(TransportError):
    def __init__(self, kind: TimeoutKind, seconds: float, address: str = "") -> None:
        super().__init__(_TIMEOUT_MESSAGES[kind].format(where=address, seconds=seconds), address)
        self.kind: TimeoutKind = kind


class ResponseTooLarge(TransportError):
    pass


class BadRedirect(TransportError):
    """`target` is the host that the server pointed to."""

    def __init__(self, message: str, address: str = "", target: str = "") -> None:
        super().__init__(message, address)
        self.target = target


class MalformedResponse(TransportError):
    pass


_TIMEOUT_MESSAGES: dict[TimeoutKind, str] = {
    "connect": "no connection to {where} within {seconds:g} s: check the network, "
    "the proxy and the base URL",
    "first_byte": "{where} took the request but did not answer within {seconds:g} s: "
    "try again, or raise the first_byte limit",
    "first_content": "{where} keeps the stream alive but sent no content within {seconds:g} s: "
    "try again, or raise the first_content limit",
    "idle": "the stream from {where} went silent for {seconds:g} s: "
    "try again, or raise the idle limit",
    "total": "the exchange with {where} was not over after {seconds:g} s: "
    "ask for less in one reply, or raise the total limit",
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
    """One answer, while it arrives."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Headers: ...

    @property
    def url(self) -> str:
        """Where the answer came from, after redirects."""
        ...

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> bytes:
        """Every body byte that arrived since the last call, decoded; never empty."""
        ...

    async def read(self, limit: int = 1 << 20) -> bytes:
        """The rest of the body, cut after `limit` bytes."""
        ...

    def mark_content(self) -> None:
        """The piece just read held content, not only pings: the idle limit starts afresh."""
        ...

    async def aclose(self) -> None:
        """Let go at once; a body not read to its end costs the connection."""
        ...


@runtime_checkable
class Transport(Protocol):
    """Carries one request and streams its answer. Use as `async with transport.post(...)`.

    Leaving the block before the body's end, by cancellation too, closes the socket at once.
    It never retries a request of which a response byte was seen, never follows a redirect to
    another origin, and never puts a header value into an error.
    """

    @property
    def base_url(self) -> str | None:
        """The endpoint that this client insists on (an SDK's), or None."""
        ...

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
        """Drop the idle connections; the transport stays usable."""
        ...


async def read_all(pieces: AsyncIterator[bytes], limit: int) -> bytes:
    """What `Response.read` promises, for any iteration of pieces."""
    parts: list[bytes] = []
    room = limit
    async for piece in pieces:
        parts.append(piece[:room])
        room -= len(piece)
        if room <= 0:
            break
    return b"".join(parts)
