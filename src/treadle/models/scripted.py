"""A model that says what a script tells it to, and remembers what it was shown.

It speaks the whole event alphabet of the contract, so a loop cannot tell it from a provider:
text in small pieces, calls begun, grown and made ready, errors before or in the middle of a
reply. It thinks of nothing, reaches no network and takes microseconds. Above it stands whoever
wants to know exactly what a model will say: tests, examples, benchmarks.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

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

DELTA_CHARS = 16

# A tool's name and its arguments; a string stands for the arguments as the model wrote them,
# which need not be valid JSON.
ScriptedCall = ToolCall | tuple[str, dict[str, Any] | str]


class Say(msgspec.Struct, frozen=True):
    """One reply, or a part of one. `pieces` says in how many pieces the text arrives."""

    text: str = ""
    thinking: str = ""
    calls: Sequence[ScriptedCall] = ()
    stop: StopReason | None = None  # None: "tool_use" if there are calls, else "end_turn"
    usage: Usage | None = None
    deltas: int | None = None


class Pause:
    """A point in a reply where the stream waits until `until` is set.

    `reached` is set when the stream has come there, so that a test need not look at the clock.
    """

    def __init__(self, until: asyncio.Event | None = None) -> None:
        self.until = until if until is not None else asyncio.Event()
        self.reached = asyncio.Event()

    def release(self) -> None:
        self.until.set()

    async def wait(self) -> None:
        self.reached.set()
        await self.until.wait()


SideEvent = (
    ModelNotified | PartQuarantined | ModelUsageUpdated
)  # events that are not part of what is said
ScriptPart = str | Say | AssistantItem | Pause | SideEvent | BaseException
ReplyFunction = Callable[[ModelRequest], "ScriptElement | Awaitable[ScriptElement]"]
ScriptElement = ScriptPart | Sequence[ScriptPart] | type[BaseException] | ReplyFunction
ModelScript = ScriptElement | Iterable[ScriptElement]


class Scripted:
    """A model that follows a script, one element a request.

    An element is a string (text), a Say, a whole AssistantItem, an exception (raised), a
    function of the request that gives one of these (also `async`), or a list of parts that
    make up one reply: `["Let me ", Pause(), "see", Overloaded("gone")]`.
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
        self._name = name
        self._card = card if card is not None else ModelCard(name)
        self._fallback = fallback
        self._call_count = 0
        self.requests: list[ModelRequest] = []
        self.open_streams = 0  # streams that are open now
        self.closed = False

    @property
    def name(self) -> str:
        return self._name

    @property
    def card(self) -> ModelCard:
        return self._card

    @property
    def fallback(self) -> Model | None:
        return self._fallback

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
                said, stop, usage, pieces = self._to_content(part, request, stop, usage)
                for block in said:
                    for event in _stream_block(block, pieces):
                        yield event
                content += said
            if usage is not None:
                yield ModelUsageUpdated(usage)
            whole = _merge_texts(content)
            if stop is None:
                stop = "tool_use" if any(type(b) is ToolCall for b in whole) else "end_turn"
            yield Reply(AssistantItem(whole, stop, self._name, usage or Usage(requests=1)))
        finally:
            self.open_streams -= 1

    async def aclose(self) -> None:
        self.closed = True

    async def _next_parts(self, request: ModelRequest) -> Sequence[ScriptPart]:
        try:
            element = next(self._script)
        except StopIteration:
            asked = len(self.requests)
            raise ModelError(
                f"the script of {self._name} has {asked - 1} replies and was asked for one more; "
                f"the last item it was shown: {_describe_last_item(request)}",
                provider=self._name,
            ) from None
        while callable(element) and not isinstance(element, type):
            answer = element(request)
            element = await answer if inspect.isawaitable(answer) else answer
        if isinstance(element, type) and issubclass(element, BaseException):
            return (element(f"scripted: {element.__name__}"),)
        return element if isinstance(element, (list, tuple)) else (element,)

    def _to_content(
        self,
        part: ScriptPart,
        request: ModelRequest,
        stop: StopReason | None,
        usage: Usage | None,
    ) -> tuple[list[AssistantContent], StopReason | None, Usage | None, int | None]:
        if isinstance(part, str):
            return ([Text(part)] if part else [], stop, usage, None)
        if isinstance(part, AssistantItem):
            used = part.usage if part.usage != Usage() else usage
            return list(part.content), part.stop, used, None
        if not isinstance(part, Say):
            raise TypeError(f"a script cannot hold {part!r}; see treadle.models.scripted")
        content: list[AssistantContent] = []
        if part.thinking:
            content.append(Thinking(part.thinking, origin=self._name))
        if part.text:
            content.append(Text(part.text))
        content += [self._build_call(call, request) for call in part.calls]
        return content, part.stop or stop, part.usage or usage, part.deltas

    def _build_call(self, call: ScriptedCall, request: ModelRequest) -> ToolCall:
        if isinstance(call, ToolCall):
            return call
        name, arguments = call
        raw = arguments if isinstance(arguments, str) else _encode(arguments).decode()
        while True:
            self._call_count += 1
            call_id = f"call_{self._call_count}"
            if not request.transcript.has_call_id(call_id):
                return ToolCall(call_id, name, raw)


_encode = msgspec.json.Encoder().encode


def _iterate_script(script: ModelScript) -> Iterator[ScriptElement]:
    if isinstance(script, (str, Say, AssistantItem, BaseException, Pause)):
        return iter((script,))
    if isinstance(script, Iterable):
        return iter(script)
    if callable(script):
        return _repeat_forever(script)
    raise TypeError(f"a script is a list, a generator or a function, not {script!r}")


def _repeat_forever(element: ScriptElement) -> Iterator[ScriptElement]:
    while True:
        yield element


def _stream_block(block: AssistantContent, deltas: int | None) -> Iterator[ModelEvent]:
    """The events in which a provider would send this block."""
    if type(block) is Text:
        for piece in _split_text(block.text, deltas):
            yield ModelTextDelta(piece)
    elif type(block) is ToolCall:
        yield ModelToolCallBegan(block.id, block.name)
        for piece in _split_text(block.raw, 2):
            yield ModelToolCallDelta(block.id, piece)
        yield ModelToolCallRequested(block)
    elif type(block) is Thinking:
        for piece in _split_text(block.text, deltas):
            yield ModelThinkingDelta(piece)


def _split_text(text: str, deltas: int | None) -> list[str]:
    if not text:
        return []
    size = DELTA_CHARS if deltas is None else max(1, -(-len(text) // deltas))
    if len(text) <= size:
        return [text]
    return [text[start : start + size] for start in range(0, len(text), size)]


def _merge_texts(content: list[AssistantContent]) -> tuple[AssistantContent, ...]:
    """Text that was scripted in parts is one block, as it would be from a provider."""
    whole: list[AssistantContent] = []
    for block in content:
        last = whole[-1] if whole else None
        if type(block) is Text and type(last) is Text:
            whole[-1] = Text(last.text + block.text)
        else:
            whole.append(block)
    return tuple(whole)


def _describe_last_item(request: ModelRequest) -> str:
    if not len(request.transcript):
        return "none"
    shown = repr(request.transcript[-1])
    return shown if len(shown) <= 200 else shown[:200] + "..."
