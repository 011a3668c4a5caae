"""The plan of one answer of the loopback provider, and the fault that may change it.

Plain data: `server` makes a plan, `faults` change it, `http` sends it byte by byte.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from .dialects import FakeDialect, SseEvent
from .script import FakeReply

ConnectionEnding = Literal["clean", "close", "reset", "hang"]


class ProviderFault(msgspec.Struct, frozen=True):
    """Fault name, index of the first generation request it applies to, repeat count (-1: always).

    The other fields are settings; each fault reads those that it uses.
    """

    name: str
    at: int = 0
    times: int = 1
    status: int = 0
    value: str | None = None
    count: int = 0
    seconds: float = 0.0
    message: str | None = None

    def applies_to(self, number: int) -> bool:
        return self.at <= number and (self.times < 0 or number < self.at + self.times)


@dataclass
class PlannedAnswer:
    """How one answer is sent."""

    dialect: FakeDialect
    reply: FakeReply
    is_streaming: bool
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    events: list[SseEvent] = field(default_factory=list)
    encode: Callable[[SseEvent], bytes] = lambda event: encode_event(event)
    prefix: bytes = b""
    chunk_bytes: int = 0
    cut_at: int | None = None
    ending: ConnectionEnding = "clean"
    drops_last_blank_line: bool = False
    pause_seconds: float = 0.0
    ping_seconds: float = 0.0
    ping_count: int = 0
    repeated_event: SseEvent | None = None
    is_silent: bool = False
    is_gzipped: bool = False

    def refuse(self, status: int, kind: str, message: str) -> None:
        self.status = status
        self.body = msgspec.json.encode(self.dialect.render_error(status, kind, message))
        self.headers.setdefault("content-type", "application/json")


def encode_event(event: SseEvent) -> bytes:
    """The common shape of an event."""
    head = b"event: %s\n" % event.name.encode() if event.name else b""
    return head + b"data: " + event.data + b"\n\n"
