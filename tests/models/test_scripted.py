from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from tests.work import count_work
from treadle.core.contracts.model import (
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
    Reply,
)
from treadle.core.errors import ModelError, Overloaded, RateLimited
from treadle.core.transcript import (
    AssistantItem,
    Text,
    Thinking,
    ToolCall,
    Transcript,
    Usage,
    to_user_item,
)
from treadle.models.scripted import Pause, Say, Scripted, ScriptElement


def asking(text: str = "Hello") -> ModelRequest:
    return ModelRequest(Transcript([to_user_item(text)]))


async def collect_events(model: Scripted, request: ModelRequest | None = None) -> list[ModelEvent]:
    return [event async for event in model.stream(request or asking())]


async def listen(model: Scripted, tell: Callable[[ModelEvent], None]) -> None:
    async for event in model.stream(asking()):
        tell(event)


async def reply(model: Scripted, request: ModelRequest | None = None) -> AssistantItem:
    last = (await collect_events(model, request))[-1]
    assert isinstance(last, Reply)
    return last.item


async def test_a_string_is_streamed_in_small_pieces_and_ends_with_one_reply():
    text = "The quick brown fox jumps over the lazy dog."
    events = await collect_events(Scripted([text]))
    pieces = [event.text for event in events if isinstance(event, ModelTextDelta)]
    assert len(pieces) == 3
    assert "".join(pieces) == text
    assert events[-1] == Reply(
        AssistantItem((Text(text),), "end_turn", "scripted", Usage(requests=1))
    )
    assert sum(isinstance(event, Reply) for event in events) == 1


async def test_a_call_is_begun_grows_in_two_pieces_and_becomes_ready_before_the_reply():
    events = await collect_events(Scripted([Say(text="I look.", calls=[("ls", {"path": "src"})])]))
    call = ToolCall("call_1", "ls", '{"path":"src"}')
    assert events[1:-1] == [
        ModelToolCallBegan("call_1", "ls"),
        ModelToolCallDelta("call_1", '{"path"'),
        ModelToolCallDelta("call_1", ':"src"}'),
        ModelToolCallRequested(call),
    ]
    last = events[-1]
    assert isinstance(last, Reply)
    assert last.item.stop == "tool_use"
    assert last.item.calls == (call,)


async def test_thinking_usage_stop_and_the_number_of_pieces_are_as_scripted():
    usage = Usage(input=7, output=3, requests=1, cost=0.5)
    script = Say(text="abcd", thinking="hm", stop="max_tokens", usage=usage, deltas=4)
    events = await collect_events(Scripted(script, name="test/one"))
    assert ModelThinkingDelta("h") in events
    assert [event.text for event in events if isinstance(event, ModelTextDelta)] == list("abcd")
    assert ModelUsageUpdated(usage) in events
    item = (await reply(Scripted(script, name="test/one"))).content
    assert item == (Thinking("hm", origin="test/one"), Text("abcd"))
    assert events[-1] == Reply(AssistantItem(item, "max_tokens", "test/one", usage))


async def test_a_script_may_hold_arguments_that_are_not_json_and_calls_with_ids_of_their_own():
    item = await reply(Scripted(Say(calls=[("ls", '{"path": "s'), ToolCall("x", "ls", "{}")])))
    assert [call.id for call in item.calls] == ["call_1", "x"]
    assert item.calls[0].arguments is None
    assert item.calls[0].problem


async def test_call_ids_avoid_those_that_the_transcript_already_knows():
    earlier = AssistantItem((ToolCall("call_1", "ls", "{}"),), "tool_use")
    request = ModelRequest(Transcript([to_user_item("go"), earlier]))
    item = await reply(Scripted(Say(calls=[("ls", {})])), request)
    assert item.calls[0].id == "call_2"


async def test_a_whole_item_can_be_scripted():
    item = AssistantItem((Text("sealed"),), "refusal", "elsewhere", Usage(output=9, requests=1))
    answer = await reply(Scripted([item]))
    assert answer == AssistantItem((Text("sealed"),), "refusal", "scripted", item.usage)


async def test_an_exception_is_raised_and_the_next_request_gets_the_next_reply():
    model = Scripted([Overloaded("busy", status=529), RateLimited, "back"])
    with pytest.raises(Overloaded, match="busy"):
        await collect_events(model)
    with pytest.raises(RateLimited):
        await collect_events(model)
    assert (await reply(model)).text == "back"


async def test_a_list_is_one_reply_that_can_break_in_the_middle():
    model = Scripted([["half of ", ModelNotified("careful"), "it", Overloaded("gone")]])
    seen: list[ModelEvent] = []
    with pytest.raises(Overloaded):
        await listen(model, seen.append)
    assert seen == [ModelTextDelta("half of "), ModelNotified("careful"), ModelTextDelta("it")]


async def test_parts_of_one_reply_are_joined_to_one_text():
    item = await reply(Scripted([["one ", "two", Say(text=" three", calls=[("ls", {})])]]))
    assert item.content[0] == Text("one two three")
    assert len(item.content) == 2


async def test_a_function_sees_the_request_and_may_be_async():
    async def slowly(request: ModelRequest) -> ScriptElement:
        await asyncio.sleep(0)
        return f"later: {len(request.transcript)}"

    model = Scripted([lambda request: Say(text=request.system), slowly])
    request = ModelRequest(Transcript([to_user_item("x")]), system="Be brief.")
    assert (await reply(model, request)).text == "Be brief."
    assert (await reply(model, request)).text == "later: 1"
    assert model.requests == [request, request]


async def test_one_function_can_answer_every_request():
    model = Scripted(lambda request: f"echo {request.system}")
    for word in ("a", "b", "c"):
        answer = await reply(model, ModelRequest(Transcript(), system=word))
        assert answer.text == f"echo {word}"


async def test_a_pause_holds_the_stream_until_it_is_released():
    pause = Pause()
    model = Scripted([["before ", pause, "after"]])
    seen: list[ModelEvent] = []

    listening = asyncio.create_task(listen(model, seen.append))
    await pause.reached.wait()
    assert seen == [ModelTextDelta("before ")]
    assert model.open_streams == 1
    pause.release()
    await listening
    assert isinstance(seen[-1], Reply)
    assert model.open_streams == 0


async def test_cancelling_a_paused_stream_leaves_nothing_running():
    pause = Pause(asyncio.Event())
    model = Scripted([[pause, "never"]])
    listening = asyncio.create_task(collect_events(model))
    await pause.reached.wait()
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
    assert model.open_streams == 0


async def test_the_end_of_the_script_says_how_long_it_was_and_what_was_asked():
    model = Scripted(["only one"])
    await collect_events(model)
    with pytest.raises(ModelError, match=r"has 1 reply, .* once more.*What now\?"):
        await collect_events(model, asking("What now?"))


async def test_a_text_is_one_reply():
    model = Scripted("abc")
    events = await collect_events(model)
    assert [event.text for event in events if isinstance(event, ModelTextDelta)] == ["abc"]
    with pytest.raises(ModelError, match="has 1 reply, but was asked once more"):
        await collect_events(model)


async def test_something_that_is_no_reply_is_refused_by_name():
    with pytest.raises(TypeError, match="cannot contain 42"):
        await collect_events(Scripted([42]))  # type: ignore[list-item]
    with pytest.raises(TypeError, match="not 42"):
        Scripted(42)  # type: ignore[arg-type]


async def test_name_card_and_fallback_are_what_was_given():
    other = Scripted([])
    card = ModelCard("scripted/large", window=10)
    model = Scripted([], name="scripted/large", card=card, fallback=other)
    assert (model.name, model.card, model.fallback) == ("scripted/large", card, other)
    assert other.card.name == "scripted"
    await model.aclose()
    assert model.closed


async def test_each_of_many_replies_of_a_generator_costs_some_calls():
    def rounds() -> Iterator[ScriptElement]:
        for number in range(1_000):
            yield Say(calls=[("add", {"a": number, "b": 1})])

    model, request, made = Scripted(rounds()), asking(), 0
    with count_work() as work:
        while made < 1_000:
            async for event in model.stream(request):
                if type(event) is Reply:
                    made += 1
    assert work.calls < 100 * made
