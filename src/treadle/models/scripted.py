"""A model that follows a script and records its requests.

It emits every kind of event of the contract, like a provider: text in small deltas, calls that
begin, grow and are complete, errors before or in the middle of a reply. It uses no network and
takes microseconds. Used by tests, examples and benchmarks.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any

import msgspec

from treadle.core.argument_checks import (
    TEXT,
    Expected,
    check_fields,
    list_of,
    optional,
    whole_number,
)
from treadle.core.contracts.model import (
    Model,
    ModelCard,
    ModelEvent,
    ModelNotified,
    ModelRequest,
    ModelTextDelta,
    ModelThinkingDelta,
    ModelToolCallBegan,
    ModelToolCallDelta,
    ModelToolCallRequested,
    ModelUsageUpdated,
    PartQuarantined,
    Reply,
)
from treadle.core.errors import ModelError
from treadle.core.transcript.content import AssistantContent, Text, Thinking, ToolCall
from treadle.core.transcript.items import AssistantItem, StopReason
from treadle.core.transcript.usage import Usage
from treadle.lib.text.text import plural

DELTA_CHARS = 16

# A tool's name and its arguments; a string is the raw arguments, which need not be valid JSON.
ScriptedCall = ToolCall | tuple[str, dict[str, Any] | str]


def _is_call(value: object) -> bool:
    if isinstance(value, ToolCall):
        return True
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    return isinstance(value[0], str) and isinstance(value[1], (dict, str))


_CALL = Expected(_is_call, 'the name of a tool and its arguments: ("book", {"seats": 2})')
_SAY: Mapping[str, Expected] = {
    "text": TEXT,
    "thinking": TEXT,
    "calls": list_of(_CALL, "tools and their arguments"),
    "deltas": optional(whole_number(1)),
}


class Say(msgspec.Struct, frozen=True):
    """One reply, or a part of one. `deltas` is the number of deltas of the text."""

    text: str = ""
    thinking: str = ""
    calls: Sequence[ScriptedCall] = ()
    stop: StopReason | None = None  # None: "tool_use" if there are calls, else "end_turn"
    usage: Usage | None = None
    deltas: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, _SAY)


class Pause:
    """A point in a reply where the stream waits until `until` is set.

    `reached` is set when the stream waits there, so that a test does not depend on the clock.
    """

    def __init__(self, until: asyncio.Event | None = None) -> None:
        self.until = until if until is not None else asyncio.Event()
        self.reached = asyncio.Event()

    def release(self) -> None:
        self.until.set()

    async def wait(self) -> None:
        self.reached.set()
        await self.until.wait()


SideEvent = ModelNotified | PartQuarantined | ModelUsageUpdated  # not part of the reply
ScriptPart = str | Say | AssistantItem | Pause | SideEvent | BaseException
ReplyFunction = Callable[[ModelRequest], "ScriptElement | Awaitable[ScriptElement]"]
ScriptElement = ScriptPart | Sequence[ScriptPart] | type[BaseException] | ReplyFunction
ModelScript = ScriptElement | Iterable[ScriptElement]


class Scripted:
    """A model that follows a script, one element per request.

    An element is a string (text), a Say, a whole AssistantItem, an exception (raised), a
    function of the request that returns one of these (also `async`), or a list of parts of one
    reply: `["Let me ", Pause(), "see", Overloaded("gone")]`.
    `replies` is a list of elements, a generator of them, or one function for every request.
    """

    def __init__(
        self,
        replies: ModelScript,
        *,
        name: str = "scripted",
        card: ModelCard | None = None,
        fallback: Model | None = None,
    ) -> None:
        self._script = _iterate_script(replies)
        self._given = 0  # replies of the script so far
        self.name = name
        self.card = card if card is not None else ModelCard(name)
        self.fallback = fallback
        self._call_count = 0
        self.requests: list[ModelRequest] = []
        self.open_streams = 0  # streams that are open now
        self.closed = False

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        self.requests.append(request)
        content: list[AssistantContent] = []
        stop: StopReason | None = None
        usage: Usage | None = None
        self.open_streams += 1
        try:
            for part in await self._next_parts(request):
                if isinstance(part, BaseException):
                    raise part
                if isinstance(part, Pause):
                    await part.wait()
                    continue
                if isinstance(part, SideEvent):
                    yield part
                    continue
                blocks, stop, usage, deltas = self._to_content(part, request, stop, usage)
                for block in blocks:
                    for event in _stream_block(block, deltas):
                        yield event
                content += blocks
            if usage is not None:
                yield ModelUsageUpdated(usage)
            merged = _merge_texts(content)
            if stop is None:
                stop = "tool_use" if any(type(b) is ToolCall for b in merged) else "end_turn"
            yield Reply(AssistantItem(merged, stop, self.name, usage or Usage(requests=1)))
        finally:
            self.open_streams -= 1

    async def aclose(self) -> None:
        self.closed = True

    async def _next_parts(self, request: ModelRequest) -> Sequence[ScriptPart]:
        try:
            element = next(self._script)
            self._given += 1
        except StopIteration:
            replies = plural(self._given, "reply", "replies")
            raise ModelError(
                f"the scripted model has {replies}, but was asked once more; "
                f"the last item of the request: {_describe_last_item(request)}",
                provider=self.name,
            ) from None
        while callable(element) and not isinstance(element, type):
            answer = element(request)
            element = await answer if inspect.isawaitable(answer) else answer
        if isinstance(element, type) and issubclass(element, BaseException):
            return (element(f"scripted: {element.__name__}"),)
        return element if isinstance(element, (list, tuple)) else (element,)

    def _to_content(
        self, part: ScriptPart, request: ModelRequest, stop: StopReason | None, usage: Usage | None
    ) -> tuple[list[AssistantContent], StopReason | None, Usage | None, int | None]:
        if isinstance(part, str):
            return ([Text(part)] if part else [], stop, usage, None)
        if isinstance(part, AssistantItem):
            used = part.usage if part.usage != Usage() else usage
            return list(part.content), part.stop, used, None
        if not isinstance(part, Say):
            raise TypeError(
                f"a script cannot contain {part!r}: write a text, an error, or a call as "
                'Say(calls=[("book", {"seats": 2})])'
            )
        content: list[AssistantContent] = []
        if part.thinking:
            content.append(Thinking(part.thinking, origin=self.name))
        if part.text:
            content.append(Text(part.text))
        content += [self._build_call(call, request) for call in part.calls]
        return content, part.stop or stop, part.usage or usage, part.deltas

    def _build_call(self, call: ScriptedCall, request: ModelRequest) -> ToolCall:
        if isinstance(call, ToolCall):
            return call
        name, arguments = call
        raw = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        while True:
            self._call_count += 1
            call_id = f"call_{self._call_count}"
            if not request.transcript.has_call_id(call_id):
                return ToolCall(call_id, name, raw)


def _iterate_script(script: ModelScript) -> Iterator[ScriptElement]:
    if isinstance(script, (str, Say, AssistantItem, BaseException, Pause)):
        return iter((script,))
    if isinstance(script, Iterable):
        return iter(script)
    if callable(script):
        return itertools.repeat(script)
    raise TypeError(f"a script is a list, a generator or a function, not {script!r}")


def _stream_block(block: AssistantContent, deltas: int | None) -> Iterator[ModelEvent]:
    """The events in which a provider would send this block."""
    if type(block) is Text:
        for text in _split_text(block.text, deltas):
            yield ModelTextDelta(text)
    elif type(block) is ToolCall:
        yield ModelToolCallBegan(block.id, block.name)
        for text in _split_text(block.raw, 2):
            yield ModelToolCallDelta(block.id, text)
        yield ModelToolCallRequested(block)
    elif type(block) is Thinking:
        for text in _split_text(block.text, deltas):
            yield ModelThinkingDelta(text)


def _split_text(text: str, deltas: int | None) -> list[str]:
    size = DELTA_CHARS if deltas is None else max(1, -(-len(text) // deltas))
    return [text[start : start + size] for start in range(0, len(text), size)]


def _merge_texts(content: list[AssistantContent]) -> tuple[AssistantContent, ...]:
    """Consecutive texts become one block, as from a provider."""
    merged: list[AssistantContent] = []
    for block in content:
        last = merged[-1] if merged else None
        if type(block) is Text and type(last) is Text:
            merged[-1] = Text(last.text + block.text)
        else:
            merged.append(block)
    return tuple(merged)


def _describe_last_item(request: ModelRequest) -> str:
    if not len(request.transcript):
        return "none"
    text = repr(request.transcript[-1])
    return text if len(text) <= 200 else text[:200] + "..."
