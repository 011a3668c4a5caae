"""Pages that speak AG-UI: a run of an agent as the events of that protocol.

    run_input = RunAgentInput.model_validate_json(body)
    return StreamingResponse(stream_sse(agent, run_input), media_type="text/event-stream")

The thread is the session, which is stored: of what the page sends only the new messages of the user
are read. A call that needs an approval ends the run as an interrupt, and the next run resumes it.
docs/front-ends.md tells it to the author of a page. Above: your server.

    RUN_STARTED  MESSAGES_SNAPSHOT?
      (REASONING_START … REASONING_END | TEXT_MESSAGE_START … TEXT_MESSAGE_END
       | TOOL_CALL_START TOOL_CALL_ARGS* TOOL_CALL_END | TOOL_CALL_RESULT)*
    RUN_FINISHED | RUN_ERROR
"""

from __future__ import annotations

from base64 import b64decode
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any, Literal

from treadle.agents.agent import Agent
from treadle.agents.run import Result
from treadle.agents.session import Session
from treadle.agents.stream import find_text
from treadle.apps.delivery import (
    ANSWER_SCHEMA,
    answer_approval,
    describe_failure,
    find_known_ids,
    make_approval_id,
    make_metadata,
    read_message_ids,
)
from treadle.core.contracts.observer import BaseObserver
from treadle.core.errors import TreadleError
from treadle.core.events import (
    Event,
    ReplyDiscarded,
    RequestStarted,
    ThinkingDelta,
    ToolCallBegan,
    ToolCallDelta,
    ToolCallRequested,
)
from treadle.core.extras import require_extra
from treadle.core.steps import PendingApproval
from treadle.core.transcript.content import Document, Image, Text, ToolCall, UserContent
from treadle.core.transcript.items import AssistantItem, Item, ToolResultItem, UserItem
from treadle.core.transcript.usage import Usage

require_extra("agui")
from ag_ui import core as agui  # noqa: E402 - the sentence about the extra comes first
from ag_ui.encoder import EventEncoder  # noqa: E402

__all__ = ["stream_events", "stream_sse"]

TextKind = Literal["text", "reasoning"]


async def stream_sse(
    agent: Agent[Any, Any], run_input: agui.RunAgentInput, *, deps: Any = None
) -> AsyncGenerator[bytes, None]:
    """The events of `stream_events` as server-sent events, for the body of a response."""
    encoder = EventEncoder()
    async with aclosing(stream_events(agent, run_input, deps=deps)) as events:
        async for event in events:
            yield encoder.encode(event).encode()


async def stream_events(
    agent: Agent[Any, Any], run_input: agui.RunAgentInput, *, deps: Any = None
) -> AsyncGenerator[agui.BaseEvent, None]:
    """Answer the new messages of a thread, or the interrupts of its last run.

    An input that brings nothing new continues what a crash or an interruption left; if there is
    nothing, its events are the messages of the thread. Closing the iterator interrupts the run.
    """
    place: dict[str, Any] = {"thread_id": run_input.thread_id, "run_id": run_input.run_id}
    yield agui.RunStartedEvent(
        **place,
        parent_run_id=run_input.parent_run_id,
        protocol_version=agui.PROTOCOL_VERSION,
    )
    translator = Translator(run_input.thread_id)
    result: Result[Any] | None = None
    waiting: Sequence[PendingApproval] = ()
    try:
        async with agent.session(run_input.thread_id, deps=deps) as session:
            translator.items.extend(session.history)
            answer_interrupts(session, run_input.resume or [])
            prompt = find_prompt(session, run_input.messages)
            if prompt is None:
                yield translator.make_snapshot()
            if prompt is not None or session.can_continue:
                async with session.stream(prompt, suspend=True) as events:
                    events.driver.watch(translator)
                    async for _ in events:
                        for event in translator.translate():
                            yield event
                if not (waiting := events.waiting):
                    result = events.result
        for event in translator.finish():
            yield event
    except Exception as error:  # noqa: BLE001 - the page has to hear of each end
        for event in translator.finish():
            yield event
        message, code = describe_failure(error)
        yield agui.RunErrorEvent(message=message, code=code)
        return
    usage = [make_usage(result.usage)] if result is not None else None
    reason = {"reason": result.reason} if result is not None else None
    outcome = make_outcome(run_input.thread_id, result, waiting)
    yield agui.RunFinishedEvent(**place, outcome=outcome, result=reason, usage=usage)


# --- what the page sends -----------------------------------------------------------------


def find_prompt(session: Session[Any, Any], messages: Sequence[agui.Message]) -> UserItem | None:
    """The messages of the user at the end that the session does not have, as one."""
    known = find_known_ids(session)
    new: list[agui.UserMessage] = []
    for message in reversed(messages):
        if isinstance(message, agui.UserMessage):
            if message.id not in known:
                new.insert(0, message)
        elif isinstance(message, agui.AssistantMessage):
            break
    content = tuple(part for message in new for part in read_content(message))
    return UserItem(content, metadata=make_metadata([one.id for one in new])) if new else None


def read_content(message: agui.UserMessage) -> Iterator[UserContent]:
    if isinstance(message.content, str):
        yield Text(message.content)
        return
    for part in message.content:
        if isinstance(part, agui.TextPart):
            yield Text(part.text)
        elif isinstance(part, (agui.ImagePart, agui.DocumentPart)) and part.source.type != "file":
            kind = Image if isinstance(part, agui.ImagePart) else Document
            if part.source.type == "data":
                yield kind(part.source.mime_type, data=b64decode(part.source.value))
            else:
                yield kind(part.source.mime_type or "", url=part.source.value)
        else:
            raise TreadleError(
                f"message {message.id!r:.80} has a part that agents do not read ({part.type}): "
                "send texts, images and documents, as data or by their URL"
            )


def answer_interrupts(session: Session[Any, Any], entries: Sequence[agui.ResumeEntry]) -> None:
    """Give the answers to the calls that wait; one that is answered already is left out."""
    waiting = {make_approval_id(session.id, one): one for one in session.approvals}
    for entry in entries:
        approval = waiting.pop(entry.interrupt_id, None)
        if approval is None:
            continue
        answer = entry.payload if entry.status == "resolved" else None
        answer_approval(session, approval, answer)


# --- what the page reads -----------------------------------------------------------------


class Translator(BaseObserver):
    """Observes a run; `translate` gives what was observed as events of the protocol."""

    def __init__(self, session_id: str) -> None:
        self.items: list[Item] = []
        self._session_id = session_id
        self._observed: deque[Event | Item] = deque()
        self._message_ids: dict[int, str] = {}  # of replies, by their place in `items`
        self._reply_id = ""
        self._texts: Counter[TextKind] = Counter()  # of this reply
        self._open_text: tuple[TextKind, str] | None = None  # and its id
        self._open_calls: dict[str, int] = {}  # characters of arguments so far
        self._is_told = False  # whether the page has something of this reply

    def on_event(self, event: Event) -> None:
        self._observed.append(event)

    def on_item(self, position: int, item: Item) -> None:
        self._observed.append(item)

    def translate(self) -> Iterator[agui.BaseEvent]:
        while self._observed:
            for event in self._translate(self._observed.popleft()):
                self._is_told = True
                yield event

    def finish(self) -> Iterator[agui.BaseEvent]:
        """What is observed and not translated, and the ends of what is open."""
        yield from self.translate()
        yield from self._end_reply()

    def make_snapshot(self) -> agui.BaseEvent:
        return agui.MessagesSnapshotEvent(messages=list(self._make_messages()))

    def _translate(self, observed: Event | Item) -> Iterator[agui.BaseEvent]:
        match observed:
            case RequestStarted(attempt=attempt):
                yield from self._end_reply()
                self._reply_id = self._make_id(len(self.items))
                if attempt > 1:
                    self._reply_id += f"-{attempt}"
                self._texts.clear()
                self._is_told = False
            case ThinkingDelta(text=text) if text:
                yield from self._add_text("reasoning", text)
            case ToolCallBegan(call_id=call_id, name=name):
                yield from self._begin_call(call_id, name)
            case ToolCallDelta(call_id=call_id, text=text) if text and call_id in self._open_calls:
                yield self._add_arguments(call_id, text)
            case ToolCallRequested(call=call):
                if call.id not in self._open_calls:
                    yield from self._begin_call(call.id, call.name)
                if call.raw and not self._open_calls[call.id]:
                    yield self._add_arguments(call.id, call.raw)
                yield self._end_call(call.id)
            case ReplyDiscarded():
                yield from self._end_reply()
                if self._is_told:
                    yield self.make_snapshot()
            case Event():
                if text := find_text(observed):
                    yield from self._add_text("text", text)
            case _:
                yield from self._add_item(observed)

    def _add_item(self, item: Item) -> Iterator[agui.BaseEvent]:
        if isinstance(item, AssistantItem):
            yield from self._end_reply()
            self._message_ids[len(self.items)] = self._reply_id
        elif isinstance(item, ToolResultItem):
            yield agui.ToolCallResultEvent(
                message_id=self._make_id(len(self.items)),
                tool_call_id=item.call_id,
                content=item.user_text,
                role="tool",
            )
        self.items.append(item)

    def _add_text(self, kind: TextKind, text: str) -> Iterator[agui.BaseEvent]:
        if self._open_text is None or self._open_text[0] != kind:
            yield from self._end_text()
            self._texts[kind] += 1
            is_first = kind == "text" and self._texts[kind] == 1  # it has the id of the reply
            message_id = (
                self._reply_id if is_first else f"{self._reply_id}-{kind}-{self._texts[kind]}"
            )
            self._open_text = kind, message_id
            if kind == "reasoning":
                yield agui.ReasoningStartEvent(message_id=message_id)
                yield agui.ReasoningMessageStartEvent(message_id=message_id)
            else:
                yield agui.TextMessageStartEvent(message_id=message_id, role="assistant")
        message_id = self._open_text[1]
        if kind == "reasoning":
            yield agui.ReasoningMessageContentEvent(message_id=message_id, delta=text)
        else:
            yield agui.TextMessageContentEvent(message_id=message_id, delta=text)

    def _end_text(self) -> Iterator[agui.BaseEvent]:
        if self._open_text is not None:
            (kind, message_id), self._open_text = self._open_text, None
            if kind == "reasoning":
                yield agui.ReasoningMessageEndEvent(message_id=message_id)
                yield agui.ReasoningEndEvent(message_id=message_id)
            else:
                yield agui.TextMessageEndEvent(message_id=message_id)

    def _begin_call(self, call_id: str, name: str) -> Iterator[agui.BaseEvent]:
        yield from self._end_text()
        self._open_calls[call_id] = 0
        yield agui.ToolCallStartEvent(
            tool_call_id=call_id, tool_call_name=name, parent_message_id=self._reply_id
        )

    def _add_arguments(self, call_id: str, text: str) -> agui.BaseEvent:
        self._open_calls[call_id] += len(text)
        return agui.ToolCallArgsEvent(tool_call_id=call_id, delta=text)

    def _end_call(self, call_id: str) -> agui.BaseEvent:
        del self._open_calls[call_id]
        return agui.ToolCallEndEvent(tool_call_id=call_id)

    def _end_reply(self) -> Iterator[agui.BaseEvent]:
        yield from self._end_text()
        for call_id in [*self._open_calls]:
            yield self._end_call(call_id)

    def _make_id(self, position: int) -> str:
        return f"{self._session_id}-{position}"

    def _make_messages(self) -> Iterator[agui.Message]:
        for position, item in enumerate(self.items):
            message_id = self._message_ids.get(position, self._make_id(position))
            if isinstance(item, UserItem):
                message_id = (read_message_ids(item) or [message_id])[-1]
                yield agui.UserMessage(id=message_id, content=item.text)
            elif isinstance(item, AssistantItem):
                calls = [make_call(call) for call in item.calls]
                text = item.text or None
                yield agui.AssistantMessage(id=message_id, content=text, tool_calls=calls or None)
            elif isinstance(item, ToolResultItem):
                error = item.user_text if item.is_error else None
                yield agui.ToolMessage(
                    id=message_id, content=item.user_text, tool_call_id=item.call_id, error=error
                )


def make_call(call: ToolCall) -> agui.ToolCall:
    function = agui.FunctionCall(name=call.name, arguments=call.raw)
    return agui.ToolCall(id=call.id, function=function)


def make_outcome(
    thread_id: str, result: Result[Any] | None, waiting: Sequence[PendingApproval]
) -> agui.RunFinishedOutcome:
    if waiting:
        return agui.RunFinishedInterruptOutcome(
            interrupts=[make_interrupt(thread_id, approval) for approval in waiting]
        )
    if result is not None and result.reason == "aborted":
        return agui.RunFinishedCancelledOutcome()
    return agui.RunFinishedSuccessOutcome()


def make_interrupt(thread_id: str, approval: PendingApproval) -> agui.Interrupt:
    is_own = approval.session_id in ("", thread_id)
    return agui.Interrupt(
        id=make_approval_id(thread_id, approval),
        reason=approval.kind,
        message=f"{approval.summary}: {approval.reason}",
        tool_call_id=approval.call.id if is_own else None,  # the page does not know a child's calls
        response_schema=ANSWER_SCHEMA,
    )


def make_usage(usage: Usage) -> agui.TokenUsage:
    return agui.TokenUsage(
        input_tokens=usage.total_input,
        output_tokens=usage.output,
        total_tokens=usage.total,
        reasoning_tokens=usage.reasoning,
        cached_input_tokens=usage.cache_read,
        cache_write_input_tokens=usage.cache_write,
    )
