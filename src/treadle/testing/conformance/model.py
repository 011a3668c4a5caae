"""The promises of a Model (core/contracts/model.py), as checks.

    await check_model(lambda: MyModel(...), ConformanceRequests(text_token_limit=None))

The requests can be changed for a model that needs other ones to answer, call a tool or fail.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

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
from treadle.core.contracts.wrapped import open_stream
from treadle.core.errors import ModelError
from treadle.core.transcript import AssistantItem, Item, NoticeItem, SummaryItem, ToolResultItem
from treadle.core.transcript.content import RedactedThinking, Text, Thinking, ToolCall
from treadle.core.transcript.items import to_user_item
from treadle.core.transcript.transcript import Transcript
from treadle.testing.conformance.promises import (
    Promise,
    assert_nothing_runs,
    build,
    keep_promises,
    track_tasks,
)

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


CALLS_NO_TOOL = (
    "the model calls no tool; for a model that never does, give ConformanceRequests(call=None)"
)


async def check_model(
    make: Callable[[], Model | Awaitable[Model]], requests: ConformanceRequests | None = None
) -> None:
    """Raise an AssertionError that names the first broken promise. One model is made and closed:
    it has to serve all requests."""
    model = await build(make)
    try:
        await keep_promises("model", MODEL_PROMISES, model, requests or ConformanceRequests())
    finally:
        with contextlib.suppress(Exception):  # that it can be closed is a promise
            await model.aclose()


async def has_a_name_and_a_card(model: Model, requests: ConformanceRequests) -> None:
    provider, slash, rest = model.name.partition("/")
    assert provider, "the name is empty"
    assert not slash or rest, f"the name {model.name!r} has no model"
    assert model.card.name == model.name, f"the card is for {model.card.name!r}"
    assert model.card.window > 0, "the window of the card is not positive"
    assert model.card.max_output > 0, "max_output of the card is not positive"
    assert model.fallback is None or model.fallback.name, "the fallback is not a model"


async def ends_with_exactly_one_reply(model: Model, requests: ConformanceRequests) -> None:
    events = await _collect_events(model, requests.text)
    reply = _get_reply(events)
    count = [type(event) for event in events].count(Reply)
    assert count == 1, f"the stream has {count} replies"
    assert reply.content, "the reply is empty"
    assert reply.model == model.name, f"the reply is of {reply.model!r}, not of {model.name!r}"


async def deltas_add_up_to_the_reply(model: Model, requests: ConformanceRequests) -> None:
    _assert_deltas_match_reply(await _collect_events(model, requests.text))


async def announces_every_call_once(model: Model, requests: ConformanceRequests) -> None:
    if requests.call is None:
        return
    events = await _collect_events(model, requests.call)
    reply = _get_reply(events)
    assert reply.calls, CALLS_NO_TOOL
    assert reply.stop == "tool_use", f"the reply with calls stops with {reply.stop}"
    requested = [event.call for event in events if isinstance(event, ModelToolCallRequested)]
    began = [(event.id, event.name) for event in events if isinstance(event, ModelToolCallBegan)]
    assert requested == list(reply.calls), f"announced are {requested}, in the reply {reply.calls}"
    assert began == [(call.id, call.name) for call in reply.calls], f"begun are {began}"
    assert len({call.id for call in reply.calls}) == len(reply.calls), "two calls have one id"
    assert all(call.id and call.name for call in reply.calls), "a call has no id or no name"
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
    repeated = {call.id for call in reply.calls} & {call.id for call in after.calls}
    assert not repeated, f"the next reply has calls with the same ids: {repeated}"


async def reports_max_tokens(model: Model, requests: ConformanceRequests) -> None:
    if requests.text_token_limit is not None:
        reply = await _get_short_reply(model, requests.text, requests)
        assert reply.stop == "max_tokens", f"a cut text stops with {reply.stop}"
    if requests.call_token_limit is not None and requests.call is not None:
        limited = _with_max_tokens(requests.call, requests.call_token_limit)
        events = await _collect_events(model, limited)
        reply = _get_reply(events)
        assert reply.stop == "max_tokens", f"a cut call stops with {reply.stop}"
        assert all(call.problem is None for call in reply.calls), "a cut call is in the reply"
        requested = [event.call for event in events if isinstance(event, ModelToolCallRequested)]
        assert requested == list(reply.calls), "a cut call is announced"


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
    after = list(requests.text.transcript)
    assert [id(item) for item in before] == [id(item) for item in after], "its items are others"


async def reports_usage(model: Model, requests: ConformanceRequests) -> None:
    usage = (await _get_short_reply(model, requests.text, requests)).usage
    assert usage.requests == 1, f"one request is counted as {usage.requests}"
    counts = (usage.input, usage.output, usage.cache_read, usage.cache_write)
    assert min(counts) >= 0, f"a count of tokens is negative: {counts}"
    assert usage.cost is None or usage.cost >= 0, f"the cost is {usage.cost}"


async def serves_many_streams_at_once(model: Model, requests: ConformanceRequests) -> None:
    request = _with_max_tokens(requests.text, requests.text_token_limit or 4)
    streams = [_collect_events(model, request) for _ in range(requests.concurrency)]
    for events in await asyncio.gather(*streams):
        text = "".join(event.text for event in events if isinstance(event, ModelTextDelta))
        assert text == _get_reply(events).text, "the deltas of one stream are in another"


async def can_be_closed_and_cancelled(model: Model, requests: ConformanceRequests) -> None:
    """The consumer closes one stream and is cancelled in another; then the model still works."""
    began = asyncio.Event()

    async def close_early() -> None:
        async with open_stream(model, requests.text) as stream:
            await anext(stream)

    async def listen() -> None:
        try:
            async with open_stream(model, requests.text) as stream:
                async for _ in stream:
                    began.set()
                    await asyncio.Event().wait()
        finally:
            began.set()

    with track_tasks() as tasks:
        await close_early()
        listener = asyncio.create_task(listen())
        await began.wait()
        listener.cancel()
        await asyncio.wait([listener])
    assert listener.cancelled(), "the cancellation is swallowed"
    await assert_nothing_runs(tasks, "a stream")
    await _get_short_reply(model, requests.text, requests)


async def fails_with_a_model_error(model: Model, requests: ConformanceRequests) -> None:
    if requests.failing is None:
        return
    try:
        await _collect_events(model, requests.failing)
    except ModelError:
        return
    raise AssertionError("the request that has to fail is answered")


async def can_be_closed_twice(model: Model, requests: ConformanceRequests) -> None:
    await model.aclose()
    await model.aclose()


MODEL_PROMISES: tuple[Promise, ...] = (
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
    can_be_closed_twice,
)


async def _collect_events(model: Model, request: ModelRequest) -> list[ModelEvent]:
    return [event async for event in model.stream(request)]


def _get_reply(events: list[ModelEvent]) -> AssistantItem:
    last = events[-1] if events else None
    assert isinstance(last, Reply), f"the last event of a stream is a Reply, not {last}"
    return last.item


async def _get_short_reply(
    model: Model, request: ModelRequest, requests: ConformanceRequests
) -> AssistantItem:
    limited = _with_max_tokens(request, requests.text_token_limit or 4)
    return _get_reply(await _collect_events(model, limited))


def _assert_deltas_match_reply(events: list[ModelEvent]) -> None:
    reply = _get_reply(events)
    text = "".join(event.text for event in events if isinstance(event, ModelTextDelta))
    assert text == reply.text, f"the deltas are {text!r}, the reply is {reply.text!r}"
    thoughts = "".join(part.text for part in reply.content if isinstance(part, Thinking))
    thinking = "".join(event.text for event in events if isinstance(event, ModelThinkingDelta))
    assert thinking == thoughts, f"the deltas of thinking are {thinking!r}, not {thoughts!r}"
    for call in reply.calls:
        pieces = [e.text for e in events if isinstance(e, ModelToolCallDelta) and e.id == call.id]
        assert "".join(pieces) == call.raw, "the deltas of a call are its arguments"


def _with_max_tokens(request: ModelRequest, tokens: int) -> ModelRequest:
    options = msgspec.structs.replace(request.options, max_tokens=tokens)
    return msgspec.structs.replace(request, options=options)
