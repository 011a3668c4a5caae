"""The promises of a Model (core/contracts/model.py), as checks.

Each promise is one async function that sends the model a request and checks the events. A test is
parametrised over MODEL_CHECKS:

    @pytest.mark.parametrize("check", MODEL_CHECKS, ids=check_name)
    async def test_my_model(check):
        await check(MyModel(...), ConformanceRequests())

The requests can be changed for a model that needs other ones to answer, call a tool or fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, cast

import msgspec

from treadle.core.contracts.model import (
    Model,
    ModelEvent,
    ModelOptions,
    ModelRequest,
    ModelTextDelta,
    ModelThinkingDelta,
    ModelToolCallBegan,
    ModelToolCallDelta,
    ModelToolCallRequested,
    Reply,
)
from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import ModelError
from treadle.core.transcript import AssistantItem, Item, NoticeItem, SummaryItem, ToolResultItem
from treadle.core.transcript.content import RedactedThinking, Text, Thinking, ToolCall
from treadle.core.transcript.items import to_user_item
from treadle.core.transcript.transcript import Transcript

ADD_TOOL = ToolSpec(
    "add",
    "Add two numbers.",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
    effect="pure",
)


class ConformanceRequests(msgspec.Struct, frozen=True):
    """The requests of the suite. None leaves out a check that this model cannot pass by design.

    text              answered with text
    call              answered with at least one call of the tool `add`
    text_token_limit  the max_tokens that truncates a text answer
    call_token_limit  the max_tokens that truncates a call in the middle
    failing           a request that must fail
    concurrency       how many streams run at once
    """

    text: ModelRequest = ModelRequest(Transcript([to_user_item("Say hello.")]))
    call: ModelRequest | None = ModelRequest(
        Transcript([to_user_item("add 2 and 3")]),
        tools=(ADD_TOOL,),
        options=ModelOptions(tool_choice="any"),
    )
    text_token_limit: int | None = 4
    call_token_limit: int | None = None
    failing: ModelRequest | None = None
    concurrency: int = 4


ModelCheck = Callable[[Model, ConformanceRequests], Awaitable[None]]


async def has_a_name_and_a_card(model: Model, requests: ConformanceRequests) -> None:
    provider, slash, rest = model.name.partition("/")
    assert provider
    assert not slash or rest
    assert model.card.name == model.name
    assert model.card.window > 0
    assert model.card.max_output > 0


async def ends_with_exactly_one_reply(model: Model, requests: ConformanceRequests) -> None:
    events = await _collect_events(model, requests.text)
    assert [type(event) for event in events].count(Reply) == 1
    assert isinstance(events[-1], Reply)
    assert events[-1].item.content, "a reply has content"
    assert events[-1].item.model == model.name


async def deltas_add_up_to_the_reply(model: Model, requests: ConformanceRequests) -> None:
    _assert_deltas_match_reply(await _collect_events(model, requests.text))


async def announces_every_call_once(model: Model, requests: ConformanceRequests) -> None:
    if requests.call is None:
        return
    events = await _collect_events(model, requests.call)
    reply = _get_reply(events)
    assert reply.calls, "the model must call a tool"
    assert reply.stop == "tool_use"
    requested = [event.call for event in events if isinstance(event, ModelToolCallRequested)]
    began = [(event.id, event.name) for event in events if isinstance(event, ModelToolCallBegan)]
    assert requested == list(reply.calls)
    assert began == [(call.id, call.name) for call in reply.calls]
    assert len({call.id for call in reply.calls}) == len(reply.calls)
    assert all(call.id and call.name for call in reply.calls)
    _assert_deltas_match_reply(events)


async def continues_after_a_tool_round(model: Model, requests: ConformanceRequests) -> None:
    if requests.call is None:
        return
    reply = _get_reply(await _collect_events(model, requests.call))
    answers = [ToolResultItem(call.id, call.name, (Text("5"),)) for call in reply.calls]
    longer = requests.call.transcript.extend([reply, *answers])
    options = msgspec.structs.replace(requests.call.options, tool_choice="auto")
    request = msgspec.structs.replace(requests.call, transcript=longer, options=options)
    after = await _get_short_reply(model, request, requests)
    assert not {call.id for call in reply.calls} & {call.id for call in after.calls}


async def reports_max_tokens(model: Model, requests: ConformanceRequests) -> None:
    if requests.text_token_limit is not None:
        reply = await _get_short_reply(model, requests.text, requests)
        assert reply.stop == "max_tokens"
    if requests.call_token_limit is not None and requests.call is not None:
        limited = _with_max_tokens(requests.call, requests.call_token_limit)
        events = await _collect_events(model, limited)
        reply = _get_reply(events)
        assert reply.stop == "max_tokens"
        assert all(call.problem is None for call in reply.calls), "no truncated call in the reply"
        requested = [event.call for event in events if isinstance(event, ModelToolCallRequested)]
        assert requested == list(reply.calls)


async def accepts_any_valid_history(model: Model, requests: ConformanceRequests) -> None:
    """Thinking of other models, calls with unusual ids, failed calls, notices, summaries."""
    foreign = (
        Thinking("The thinking of another model.", signature="not yours", origin="other"),
        RedactedThinking("encrypted by another provider", origin="other"),
        Text("I add."),
        ToolCall("an id: of /another/ kind", "add", '{"a": 1, "b": 2}'),
        ToolCall("", "add", '{"a": 1, "b"'),
    )
    history: list[Item] = [
        SummaryItem("They greeted each other.", replaces=4),
        to_user_item("add 1 and 2"),
        AssistantItem(foreign, stop="tool_use", model="other/model"),
        ToolResultItem("an id: of /another/ kind", "add", (Text("3"),)),
        ToolResultItem("", "add", (Text("the arguments were cut off"),), is_error=True),
        NoticeItem("The clock strikes.", kind="time"),
        AssistantItem((Thinking("Only thinking.", origin="other"),)),
        to_user_item("Say hello. \ud800 \x00"),
    ]
    longer = Transcript(history)
    request = msgspec.structs.replace(requests.text, transcript=longer, tools=(ADD_TOOL,))
    await _get_short_reply(model, request, requests)


async def does_not_change_the_transcript(model: Model, requests: ConformanceRequests) -> None:
    before = list(requests.text.transcript)
    await _get_short_reply(model, requests.text, requests)
    assert len(requests.text.transcript) == len(before)
    assert all(one is two for one, two in zip(before, requests.text.transcript, strict=True))


async def reports_usage(model: Model, requests: ConformanceRequests) -> None:
    usage = (await _get_short_reply(model, requests.text, requests)).usage
    assert usage.requests == 1
    assert min(usage.input, usage.output, usage.cache_read, usage.cache_write) >= 0
    assert usage.cost is None or usage.cost >= 0


async def serves_many_streams_at_once(model: Model, requests: ConformanceRequests) -> None:
    request = _with_max_tokens(requests.text, requests.text_token_limit or 4)
    streams = [_collect_events(model, request) for _ in range(requests.concurrency)]
    for events in await asyncio.gather(*streams):
        text = "".join(event.text for event in events if isinstance(event, ModelTextDelta))
        assert text == _get_reply(events).text


async def can_be_closed_and_cancelled(model: Model, requests: ConformanceRequests) -> None:
    """The consumer closes one stream and is cancelled in another; then the model still works."""
    began = asyncio.Event()

    async def close_early() -> None:
        stream = cast(AsyncGenerator[ModelEvent, None], model.stream(requests.text))
        async with aclosing(stream):
            await anext(stream)

    async def listen() -> None:
        stream = cast(AsyncGenerator[ModelEvent, None], model.stream(requests.text))
        async with aclosing(stream):
            async for _ in stream:
                began.set()
                await asyncio.Event().wait()

    with _track_tasks() as tasks:
        await close_early()
        listener = asyncio.create_task(listen())
        await began.wait()
        listener.cancel()
        await asyncio.wait([listener])
    assert listener.cancelled()
    assert [task for task in tasks if not task.done()] == [], "nothing is left running"
    await _get_short_reply(model, requests.text, requests)


@contextmanager
def _track_tasks() -> Iterator[list[asyncio.Task[Any]]]:
    """The tasks that the current one starts, and those that they start."""
    loop = asyncio.get_running_loop()
    started: list[asyncio.Task[Any]] = []
    parents = {asyncio.current_task()}
    before = loop.get_task_factory()

    def make(
        loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **more: Any
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **more)
        if asyncio.current_task() in parents:
            parents.add(task)
            started.append(task)
        return task

    loop.set_task_factory(make)  # type: ignore[arg-type]
    try:
        yield started
    finally:
        loop.set_task_factory(before)


async def fails_with_a_model_error(model: Model, requests: ConformanceRequests) -> None:
    if requests.failing is None:
        return
    try:
        await _collect_events(model, requests.failing)
    except ModelError:
        return
    raise AssertionError("a failing request raises a ModelError")


MODEL_CHECKS: tuple[ModelCheck, ...] = (
    has_a_name_and_a_card,
    ends_with_exactly_one_reply,
    deltas_add_up_to_the_reply,
    announces_every_call_once,
    continues_after_a_tool_round,
    reports_max_tokens,
    accepts_any_valid_history,
    does_not_change_the_transcript,
    reports_usage,
    serves_many_streams_at_once,
    can_be_closed_and_cancelled,
    fails_with_a_model_error,
)


async def check_model(model: Model, requests: ConformanceRequests | None = None) -> None:
    """The whole suite; raises AssertionError at the first broken promise."""
    for check in MODEL_CHECKS:
        await check(model, requests or ConformanceRequests())


def check_name(check: ModelCheck) -> str:
    return getattr(check, "__name__", repr(check))


async def _collect_events(model: Model, request: ModelRequest) -> list[ModelEvent]:
    return [event async for event in model.stream(request)]


def _get_reply(events: list[ModelEvent]) -> AssistantItem:
    assert events, "a stream that does not raise ends with a Reply"
    last = events[-1]
    assert isinstance(last, Reply), "a stream that does not raise ends with a Reply"
    return last.item


async def _get_short_reply(
    model: Model, request: ModelRequest, requests: ConformanceRequests
) -> AssistantItem:
    limited = _with_max_tokens(request, requests.text_token_limit or 4)
    return _get_reply(await _collect_events(model, limited))


def _assert_deltas_match_reply(events: list[ModelEvent]) -> None:
    reply = _get_reply(events)
    assert "".join(e.text for e in events if isinstance(e, ModelTextDelta)) == reply.text
    thoughts = [part.text for part in reply.content if isinstance(part, Thinking)]
    assert "".join(e.text for e in events if isinstance(e, ModelThinkingDelta)) == "".join(thoughts)
    for call in reply.calls:
        pieces = [e.text for e in events if isinstance(e, ModelToolCallDelta) and e.id == call.id]
        assert "".join(pieces) == call.raw, "the deltas of a call are its arguments"


def _with_max_tokens(request: ModelRequest, tokens: int) -> ModelRequest:
    options = msgspec.structs.replace(request.options, max_tokens=tokens)
    return msgspec.structs.replace(request, options=options)
