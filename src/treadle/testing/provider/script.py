"""What the loopback provider says: replies as values, the same for every dialect.

Plain data that also reads from JSON (`Script` is the shape of a script file). It knows nothing of
HTTP or of any provider's format; `dialects` renders it, `server` plays it.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

Stop = Literal[
    "end_turn",
    "tool_use",
    "max_tokens",
    "stop_sequence",
    "refusal",
    "pause_turn",
    "context_window",
]


class Text(msgspec.Struct, frozen=True, tag="text"):
    """Text, in one delta for each string (a single string is cut into small ones)."""

    text: str | tuple[str, ...]

    @property
    def deltas(self) -> Sequence[str]:
        return _deltas(self.text)


class Thinking(msgspec.Struct, frozen=True, tag="thinking"):
    text: str | tuple[str, ...]

    @property
    def deltas(self) -> Sequence[str]:
        return _deltas(self.text)


class Redacted(msgspec.Struct, frozen=True, tag="redacted"):
    data: str = "cmVkYWN0ZWQ="


class Call(msgspec.Struct, frozen=True, tag="call"):
    """A tool call. Arguments given as a string are sent as they are, valid or not."""

    name: str
    arguments: dict[str, object] | str = msgspec.field(default_factory=dict)
    id: str | None = None

    @property
    def raw(self) -> str:
        if isinstance(self.arguments, str):
            return self.arguments
        return msgspec.json.encode(self.arguments).decode()


Part = Text | Thinking | Redacted | Call


class Usage(msgspec.Struct, frozen=True):
    """Token counts; `output` is estimated from the reply unless given."""

    input: int = 100
    output: int | None = None
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


class Reply(msgspec.Struct, frozen=True):
    """One answer. Without `parts` it is thinking, then text, then calls; `stop` follows from it.

    `usage=None` leaves the counts out altogether.
    """

    text: str | tuple[str, ...] = ""
    thinking: str | tuple[str, ...] = ""
    calls: tuple[Call, ...] = ()
    parts: tuple[Part, ...] = ()
    stop: Stop | None = None
    usage: Usage | None = Usage()

    def all_parts(self) -> tuple[Part, ...]:
        if self.parts:
            return self.parts
        made: list[Part] = []
        if self.thinking:
            made.append(Thinking(self.thinking))
        if self.text:
            made.append(Text(self.text))
        return (*made, *self.calls)

    def natural_stop(self) -> Stop:
        if self.stop is not None:
            return self.stop
        has_call = any(isinstance(part, Call) for part in self.all_parts())
        return "tool_use" if has_call else "end_turn"

    def output_tokens(self) -> int:
        if self.usage is not None and self.usage.output is not None:
            return self.usage.output
        return 1 + sum(len(_written(part)) for part in self.all_parts()) // 4


class Script(msgspec.Struct, frozen=True):
    """Replies in order. By "request" each one is used once, whoever asks; by "turn" the number of
    assistant turns in the request picks it, so that many conversations can run at once."""

    replies: tuple[Reply, ...]
    by: Literal["request", "turn"] = "request"


def _deltas(text: str | tuple[str, ...]) -> Sequence[str]:
    if not isinstance(text, str):
        return text
    return [text[start : start + 12] for start in range(0, len(text), 12)]


def _written(part: Part) -> str:
    if isinstance(part, Text | Thinking):
        return "".join(part.deltas)
    return part.raw if isinstance(part, Call) else part.data
