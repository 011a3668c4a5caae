"""The plan of one answer of the loopback provider, and the fault that may change it.

Plain data: `server` makes a plan, `faults` spoil it, `playing` carries it out byte by byte.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from .dialects import Dialect, Event
from .script import Reply

Ending = Literal["clean", "close", "reset", "hang"]


class Fault(msgspec.Struct, frozen=True):
    """One fault: which, from the how many-th generation request on, and how often (-1: for ever).

    The rest are its settings; each fault reads the ones that it knows.
    """

    name: str
    at: int = 0
    times: int = 1
    status: int = 0
    value: str | None = None
    count: int = 0
    seconds: float = 0.0
    message: str | None = None

    def hits(self, number: int) -> bool:
        return self.at <= number and (self.times < 0 or number < self.at + self.times)


@dataclass
class Plan:
    """How one answer will go over the socket."""

    dialect: Dialect
    reply: Reply
    streaming: bool
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    events: list[Event] = field(default_factory=list)
    encode: Callable[[Event], bytes] = lambda event: encode(event)
    prefix: bytes = b""
    chunk: int = 0
    cut: int | None = None
    ending: Ending = "clean"
    drop_last_blank: bool = False
    pause: float = 0.0
    pause_first: float = 0.0
    pings_first: int = 0
    endless: Event | None = None
    silent: bool = False
    gzip: bool = False

    def refuse(self, status: int, kind: str, message: str) -> None:
        self.status = status
        self.body = msgspec.json.encode(self.dialect.error(status, kind, message))
        self.headers.setdefault("content-type", "application/json")


def encode(event: Event) -> bytes:
    """The common shape of an event."""
    head = b"event: %s\n" % event.name.encode() if event.name else b""
    return head + b"data: " + event.data + b"\n\n"
