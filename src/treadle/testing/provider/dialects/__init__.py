"""The formats of the loopback provider, one module each.

A dialect renders a reply (as stream events or as one object), renders errors, and checks requests
as strictly as the real service does. No sockets: `server` uses them.
"""

from typing import NamedTuple, Protocol

from treadle.testing.provider.script import FakeReply

from .request_checks import JsonObject, RequestViolation, ServerLimits


class SseEvent(NamedTuple):
    """One stream event. `kind` is start, text, thinking, arguments, ping or end."""

    name: str
    data: bytes
    kind: str


class FakeDialect(Protocol):
    def count_assistant_turns(self, request: JsonObject) -> int:
        """How many assistant turns the request's history holds."""
        ...

    def check_request(self, request: JsonObject, limits: ServerLimits) -> list[RequestViolation]:
        """Everything that the real service would refuse."""
        ...

    def render_stream(self, reply: FakeReply, model: str, serial: int) -> list[SseEvent]: ...

    def render_response(self, reply: FakeReply, model: str, serial: int) -> dict[str, object]: ...

    def render_error(self, status: int, kind: str, message: str) -> dict[str, object]: ...

    def render_error_event(self, kind: str, message: str) -> SseEvent: ...

    def render_ping(self) -> SseEvent | None:
        """The service's keep-alive event; None if it uses a comment line."""
        ...

    def context_violation(self, tokens: int, window: int) -> RequestViolation:
        """The service's error for a request that is larger than the context window."""
        ...
