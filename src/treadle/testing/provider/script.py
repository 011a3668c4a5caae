"""The replies of the loopback provider as values, the same for every dialect.

Plain data that can be read from JSON. Independent of HTTP and of the formats: `dialects` renders
it, `server` uses it.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

FakeStop = Literal[
    "end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause_turn", "context_window"
]


class FakeText(msgspec.Struct, frozen=True, tag="text"):
    """Text, one delta per string (a single string is split into small ones)."""

    text: str | tuple[str, ...]

    @property
    def deltas(self) -> Sequence[str]:
        return _split_deltas(self.text)


class FakeThinking(msgspec.Struct, frozen=True, tag="thinking"):
    text: str | tuple[str, ...]

    @property
    def deltas(self) -> Sequence[str]:
        return _split_deltas(self.text)


class FakeRedactedThinking(msgspec.Struct, frozen=True, tag="redacted"):
    data: str = "cmVkYWN0ZWQ="


class FakeCall(msgspec.Struct, frozen=True, tag="call"):
    """A tool call. Arguments given as a string are sent unchanged, valid or not; with
    `is_free_text` they are the input of a tool with a grammar (Responses)."""

    name: str
    arguments: Mapping[str, object] | str = msgspec.field(default_factory=dict)
    id: str | None = None
    is_free_text: bool = False

    @property
    def raw(self) -> str:
        if isinstance(self.arguments, str):
            return self.arguments
        return msgspec.json.encode(self.arguments).decode()


FakePart = FakeText | FakeThinking | FakeRedactedThinking | FakeCall


class FakeUsage(msgspec.Struct, frozen=True):
    """Token counts; `output` is estimated from the reply unless given."""

    input: int = 100
    output: int | None = None
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


class FakeReply(msgspec.Struct, frozen=True):
    """One answer. Without `parts` it is thinking, then text, then calls.

    `stop` is derived if not given; `usage=None` leaves the counts out.
    """

    text: str | tuple[str, ...] = ""
    thinking: str | tuple[str, ...] = ""
    calls: tuple[FakeCall, ...] = ()
    parts: tuple[FakePart, ...] = ()
    stop: FakeStop | None = None
    usage: FakeUsage | None = FakeUsage()

    def all_parts(self) -> tuple[FakePart, ...]:
        if self.parts:
            return self.parts
        parts: list[FakePart] = []
        if self.thinking:
            parts.append(FakeThinking(self.thinking))
        if self.text:
            parts.append(FakeText(self.text))
        return (*parts, *self.calls)

    def stop_reason(self) -> FakeStop:
        if self.stop is not None:
            return self.stop
        has_call = any(isinstance(part, FakeCall) for part in self.all_parts())
        return "tool_use" if has_call else "end_turn"

    def count_output_tokens(self) -> int:
        if self.usage is not None and self.usage.output is not None:
            return self.usage.output
        return 1 + sum(len(_part_text(part)) for part in self.all_parts()) // 4


class ReplyScript(msgspec.Struct, frozen=True):
    """Replies in order. By "request" each one is used once, for any client; by "turn" the number
    of assistant turns in the request selects it, so that many conversations can run at once."""

    replies: tuple[FakeReply, ...]
    by: Literal["request", "turn"] = "request"


def _split_deltas(text: str | tuple[str, ...]) -> Sequence[str]:
    if not isinstance(text, str):
        return text
    return [text[start : start + 12] for start in range(0, len(text), 12)]


def _part_text(part: FakePart) -> str:
    if isinstance(part, FakeText | FakeThinking):
        return "".join(part.deltas)
    return part.raw if isinstance(part, FakeCall) else part.data
