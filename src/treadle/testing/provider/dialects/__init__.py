"""The three formats that the loopback provider speaks, one module each.

A dialect renders a reply (as stream events or as one object), shapes errors, and judges requests
as strictly as the real service does. It touches no socket: `server` above does.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from treadle.testing.provider.script import Reply

from .judging import Problem, Rules


class Event(NamedTuple):
    """One stream event. `kind` is start, text, thinking, arguments, ping or end."""

    name: str
    data: bytes
    kind: str


class Dialect(Protocol):
    def turn(self, request: Mapping[str, object]) -> int:
        """How many assistant turns the request's history holds."""
        ...

    def judge(self, request: Mapping[str, object], rules: Rules) -> list[Problem]:
        """Everything that the real service would refuse."""
        ...

    def stream(self, reply: Reply, model: str, serial: int) -> list[Event]: ...

    def whole(self, reply: Reply, model: str, serial: int) -> dict[str, object]: ...

    def error(self, status: int, kind: str, message: str) -> dict[str, object]: ...

    def error_event(self, kind: str, message: str) -> Event: ...

    def ping(self) -> Event | None:
        """The service's keep-alive event; None where a comment line does that work."""
        ...
