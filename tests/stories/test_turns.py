"""Stories of whole turns: what a caller sees through each door.

The names follow the checklists of the loop: direct text, one call, several steps, an unknown
tool, the limit on rounds, a history that grows, events, truncation, a provider's error.
"""

from __future__ import annotations

import asyncio

import pytest

from treadle import Agent, Retry, Transcript, Usage, tool
from treadle.core.contracts.model import ModelCard, ModelRequest
from treadle.core.errors import (
    AccessDenied,
    ApprovalPending,
    BadRequest,
    ConfigError,
    DriverBusy,
    EmptyReply,
    LoopError,
    ModelError,
    Overloaded,
    RateLimited,
    ReplyTimedOut,
    StreamBroken,
    TreadleError,
)
from treadle.core.events import (
    ModelChanged,
    ReplyDiscarded,
    RetryScheduled,
    TextDelta,
    WarningRaised,
)
from treadle.core.steps import AfterToolResult, AwaitingInput, Finished
from treadle.core.transcript import (
    AssistantItem,
    Item,
    NoticeItem,
    Text,
    ToolCall,
    ToolResultItem,
    UserItem,
    to_user_item,
)
from treadle.core.transcript.entries import TurnBegan, TurnEnded
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.state import fold_entries
from treadle.models import Pause, Say, Scripted
from treadle.testing.clock import ManualClock
from treadle.testing.observers import RecordingObserver
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import RecordingTool


@tool(effect="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def summing() -> Scripted:
    return Scripted([Say(calls=[("add", {"a": 2, "b": 3})]), "2 + 3 = 5"])


async def test_direct_text_response():
    model = Scripted(["Hello!"])
    result = await Agent(model).run("Hi")
    assert (result.text, result.reason) == ("Hello!", "end_turn")
    assert len(model.requests) == 1


async def test_single_tool_call_is_two_provider_calls_one_execution_four_messages():
    record = RecordingTool("add", "5")
    model = summing()
    result = await Agent(model, [record]).run("What is 2 + 3?")
    assert len(model.requests) == 2
    assert record.calls == [{"a": 2, "b": 3}]
    assert [type(item) for item in result.transcript] == [
        UserItem,
        AssistantItem,
        ToolResultItem,
        AssistantItem,
    ]
    assert result.text == "2 + 3 = 5"


async def test_multi_step_loop_runs_until_the_model_is_done():
    model = Scripted([Say(calls=[("add", {"a": n, "b": 1})]) for n in range(3)] + ["Three times."])
    result = await Agent(model, [add]).run("Count")
    assert [item.text for item in result.transcript if isinstance(item, ToolResultItem)] == [
        "1",
        "2",
        "3",
    ]
    assert result.turn.rounds == 3


async def test_unknown_tool_is_an_error_result_and_the_model_recovers():
    model = Scripted([Say(calls=[("foo", {})]), "Sorry."])
    result = await Agent(model, [add]).run("Try")
    answer = result.transcript[2]
    assert isinstance(answer, ToolResultItem)
    assert answer.text.startswith("error: unknown tool `foo`")
    assert answer.is_error
    assert result.text == "Sorry."


@pytest.mark.parametrize("most", [0, 1, 3])
async def test_max_turns_allows_exactly_that_many_tool_rounds(most: int):
    record = RecordingTool("again")
    model = Scripted(lambda request: Say(calls=[("again", {})]))
    result = await Agent(model, [record], max_turns=most).run("Go")
    assert result.reason == "max_turns"
    assert result.turn.rounds == most
    assert len(record.calls) == most


async def test_a_text_answer_never_counts_as_a_turn():
    result = await Agent(summing(), [add], max_turns=2).run("x")
    assert (result.reason, result.turn.rounds) == ("end_turn", 1)
    driver = Agent(Scripted(["one", "two", "three"]), max_turns=1).start()
    for _ in range(3):
        driver.submit("more")
        step = await driver.next()
        assert isinstance(step, Finished)
        assert (step.result.reason, step.result.rounds) == ("end_turn", 0)


async def test_a_turn_that_is_taken_up_after_a_crash_counts_what_it_has_done_already():
    """Cut at every entry of the log: whoever goes on gets to the same limit with the same books."""
    store = MemoryStore()
    used = Usage(100, 10, requests=1, cost=0.5)
    twice = Say(calls=[("record", {}), ("record", {})], usage=used)
    agent = Agent(Scripted([twice] * 9), [RecordingTool()], max_turns=3)
    whole = await agent.run("Go", session=store)
    end = next(n for n, entry in enumerate(store.entries) if isinstance(entry, TurnEnded))
    for cut in range(2, end):
        view = fold_entries(store.entries[:cut])
        answered = sum(isinstance(item, ToolResultItem) for item in view.transcript)
        assert view.turn is not None
        assert (view.turn.rounds, view.turn.calls) == (answered // 2, answered)
        driver = Agent(Scripted([twice] * 9), [RecordingTool()], max_turns=3).start(state=view)
        while not isinstance(step := await driver.next(), Finished):
            pass
        assert (step.result.reason, step.result.rounds) == ("max_turns", 3)
        assert len(driver.transcript) == len(whole.transcript)
        assert step.result.usage == driver.usage


async def test_a_turn_that_the_user_stopped_is_over_and_the_next_counts_from_nothing():
    store = MemoryStore()
    call = Say(calls=[("record", {})])
    driver = Agent(Scripted([call] * 9), [RecordingTool()], max_turns=2).start(
        prompt="Go", store=store
    )
    await driver.next()
    driver.interrupt()
    assert isinstance(await driver.next(), Finished)
    again = Agent(Scripted([call] * 9), [RecordingTool()], max_turns=2).start(
        state=fold_entries(store.entries), prompt="Go on"
    )
    while not isinstance(step := await again.next(), Finished):
        pass
    assert (step.result.turn_id, step.result.rounds) == ("turn-2", 2)


@pytest.mark.parametrize("most", [0, 1, 2])
async def test_the_answer_after_the_last_tool_round_is_given(most: int):
    model = Scripted([Say(calls=[("add", {"a": 1, "b": 1})])] * most + ["Two."])
    result = await Agent(model, [add], max_turns=most).run("Go")
    assert (result.reason, result.text, result.turn.rounds) == ("end_turn", "Two.", most)


async def test_calls_beyond_max_turns_are_not_run_and_the_turn_can_be_continued():
    record, witness = RecordingTool(), RecordingObserver()
    calls = [Say("On it.", calls=[("record", {"n": n})]) for n in range(3)]
    model = Scripted([*calls[:2], "Half of it is done.", calls[2], "Done."])
    driver = Agent(model, [record], max_turns=1, observers=[witness]).start(prompt="Go")
    await driver.next()
    step = await driver.next()
    assert isinstance(step, Finished)
    assert (step.result.reason, step.result.text) == ("max_turns", "Half of it is done.")
    assert record.calls == [{"n": 0}]
    kept, notice, closing, ended = driver.transcript[-4:]
    assert isinstance(kept, AssistantItem)
    assert (kept.text, kept.calls) == ("On it.", ())  # it was paid for
    assert isinstance(notice, NoticeItem)
    assert "the limit of 1 tool round is reached. Without tools, sum up" in notice.text
    assert closing.text == step.result.text
    assert isinstance(ended, NoticeItem)
    assert find_violations(driver.transcript) == []
    assert witness.events_of(ReplyDiscarded) == []
    assert driver.usage.requests == 3
    assert driver.retry()
    await driver.next()
    step = await driver.next()
    assert isinstance(step, Finished)
    assert (step.result.reason, step.result.text) == ("end_turn", "Done.")
    assert record.calls == [{"n": 0}, {"n": 2}]


async def test_a_reply_beyond_max_turns_that_only_calls_tools_is_discarded():
    witness = RecordingObserver()
    model = Scripted([Say(thinking="hm", calls=[("record", {})]), Say(calls=[("record", {})])])
    agent = Agent(model, [RecordingTool()], max_turns=0, observers=[witness])
    result = await agent.run("Go")
    user, notice = result.transcript
    assert (result.reason, user.text) == ("max_turns", "Go")
    assert isinstance(notice, NoticeItem)  # the closing request
    assert len(witness.events_of(ReplyDiscarded)) == 1


async def test_max_turns_3_makes_three_rounds_and_one_closing_request_without_calls():
    store, calls = MemoryStore(), [Say(calls=[("record", {})])] * 4
    model = Scripted([*calls, "Three of four."])
    result = await Agent(model, [RecordingTool()], max_turns=3).run("Go", session=store)
    assert (result.reason, result.text, result.turn.rounds) == ("max_turns", "Three of four.", 3)
    choices = [request.options.tool_choice for request in model.requests]
    assert choices == [*[choices[0]] * 4, "none"]
    assert [spec.name for spec in model.requests[-1].tools] == ["record"]  # the prefix stays cached
    view = fold_entries(store.entries)
    assert list(view.transcript) == list(result.transcript)
    assert view.transcript[-2].text == "Three of four."


async def test_a_closing_request_that_fails_does_not_change_why_the_turn_ended():
    witness = RecordingObserver()
    model = Scripted([Say(calls=[("record", {})]), AccessDenied("no key")])
    agent = Agent(model, [RecordingTool()], max_turns=0, observers=[witness])
    result = await agent.run("Go")
    assert (result.reason, result.detail) == ("max_turns", "the limit of 0 tool rounds is reached")
    [warning] = witness.events_of(WarningRaised)
    assert warning.text == "there is no closing summary: no key"


async def test_a_pure_call_beyond_max_turns_does_not_start_while_the_reply_streams():
    record, pause = RecordingTool(), Pause()
    model = Scripted([[Say(calls=[("record", {})]), pause]])
    run = asyncio.create_task(Agent(model, [record], max_turns=0).run("Go"))
    await pause.reached.wait()
    pause.release()
    assert (await run).reason == "max_turns"
    assert record.calls == []


async def test_a_run_continues_the_history_that_it_is_given_and_leaves_it_alone():
    model = Scripted(["Hello, Ada.", "You are Ada."])
    agent = Agent(model)
    history: list[Item] = [to_user_item("I am Ada.")]
    first = await agent.run(history=history)
    assert len(history) == 1
    result = await agent.run("Who am I?", history=first.transcript)
    assert result.text == "You are Ada."
    assert [item.text for item in result.transcript if isinstance(item, UserItem)] == [
        "I am Ada.",
        "Who am I?",
    ]
    assert len(model.requests[1].transcript) == 3


async def test_a_history_that_begins_with_a_reply_gets_no_invented_item():
    model, store = Scripted(["Ada, then."]), MemoryStore()
    greeting = AssistantItem((Text("Hello, who are you?"),))
    result = await Agent(model).run("Ada.", history=[greeting], session=store)
    assert list(result.transcript)[:2] == [greeting, to_user_item("Ada.")]
    assert list(model.requests[0].transcript) == [greeting, to_user_item("Ada.")]
    assert fold_entries(await store.load()).transcript == result.transcript


async def test_a_new_session_begins_with_the_history_that_it_is_given():
    store = MemoryStore()
    logged_at_call: list[Transcript] = []

    async def answer(request: ModelRequest) -> str:
        logged_at_call.append(fold_entries(await store.load()).transcript)
        return f"reply {len(logged_at_call)}"

    agent = Agent(Scripted(answer))
    await agent.run(history=[to_user_item("I am Ada.")], session=store)
    for message in ("Who am I?", "Sure?"):
        result = await agent.run(message, session=store)
        assert fold_entries(await store.load()).transcript == result.transcript
    assert [len(transcript) for transcript in logged_at_call] == [1, 3, 5]
    turns = [entry.turn_id for entry in store.entries if isinstance(entry, TurnBegan)]
    assert turns == ["turn-1", "turn-2", "turn-3"]


async def test_the_history_that_a_stream_is_given_is_in_the_log_of_its_session():
    store = MemoryStore()
    history: list[Item] = [to_user_item("I am Ada."), AssistantItem((Text("Hello."),))]
    async with Agent(Scripted(["Ada."])).stream("Who am I?", history=history, session=store) as run:
        await run.wait()
    logged = fold_entries(await store.load()).transcript
    assert logged == run.result.transcript
    assert list(logged)[:2] == history


async def test_a_session_that_has_a_history_takes_no_other_one():
    store = MemoryStore()
    agent = Agent(Scripted(["Hello, Ada.", "never"]))
    await agent.run("I am Ada.", session=store)
    before = list(store.entries)
    with pytest.raises(ConfigError, match="has a history of its own"):
        await agent.run(history=[to_user_item("I am Eve.")], session=store)
    assert store.entries == before


async def test_a_stream_and_a_driver_log_the_transcript_that_they_were_given():
    prior = (to_user_item("I am Ada."), AssistantItem((Text("Hello, Ada."),)))
    store = MemoryStore()
    async with Agent(Scripted(["Ada."])).stream("Who am I?", history=prior, session=store) as run:
        await run.wait()
    assert list(fold_entries(await store.load()).transcript) == list(run.driver.transcript)
    store = MemoryStore()
    driver = Agent(Scripted(["Ada."])).start(history=prior, prompt="Who am I?", store=store)
    await driver.next()
    assert list(fold_entries(await store.load()).transcript) == list(driver.transcript)


async def test_run_begins_with_a_fresh_history_each_time():
    model = Scripted(["one", "two"])
    agent = Agent(model)
    await agent.run("First")
    await agent.run("Second")
    assert len(model.requests[1].transcript) == 1


async def test_provider_error_is_raised_by_run_and_typed():
    with pytest.raises(AccessDenied, match="no key"):
        await Agent(Scripted([AccessDenied("no key")])).run("Hi")


async def test_provider_error_leaves_the_history_that_was_there():
    history: list[Item] = [to_user_item("Hi")]
    with pytest.raises(BadRequest):
        await Agent(Scripted([BadRequest("odd")])).run(history=history)
    assert history == [to_user_item("Hi")]


def test_run_sync_is_run_for_a_program_without_a_loop():
    agent = Agent(Scripted(["Hello!", "Again!"]))
    assert agent.run_sync("Hi").text == "Hello!"
    assert agent.run_sync("Hi").text == "Again!"


async def test_single_turn_by_hand_with_the_driver():
    driver = Agent(summing(), [add]).start(prompt="What is 2 + 3?")
    step = await driver.next()
    assert isinstance(step, AfterToolResult)
    assert [result.text for result in step.results] == ["5"]
    step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.text == "2 + 3 = 5"
    assert step.result.turn_id == "turn-1"


async def test_nothing_preloaded_awaits_input():
    driver = Agent(Scripted(["Hello!"])).start()
    step = await driver.next()
    assert isinstance(step, AwaitingInput)
    assert isinstance(await driver.next(), AwaitingInput)  # cooperative: it may be dropped
    step.submit("Hi")
    step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.text == "Hello!"


async def test_a_preloaded_transcript_is_passive_once_it_is_finished():
    prior: list[Item] = [to_user_item("Hi"), AssistantItem((Text("Hello!"),))]
    driver = Agent(Scripted([])).start(history=prior)
    assert isinstance(await driver.next(), AwaitingInput)


async def test_a_preloaded_transcript_with_an_opener_goes_on():
    prior: list[Item] = [to_user_item("Hi"), AssistantItem((Text("Hello!"),))]
    model = Scripted(["Fine."])
    driver = Agent(model).start(history=prior, prompt="How are you?")
    assert isinstance(await driver.next(), Finished)
    assert len(model.requests[0].transcript) == 3


async def test_multi_turn_on_one_driver_numbers_its_turns():
    driver = Agent(Scripted(["one", "two"])).start(prompt="First")
    first = await driver.next()
    driver.submit("Second")
    second = await driver.next()
    assert isinstance(first, Finished)
    assert isinstance(second, Finished)
    assert [first.result.turn_id, second.result.turn_id] == ["turn-1", "turn-2"]
    assert [item.text for item in second.result.items if not isinstance(item, ToolResultItem)] == [
        "Second",
        "two",
    ]


async def test_one_agent_serves_many_sessions_at_once():
    agent = Agent(Scripted(lambda request: request.transcript[0].text.upper()))
    results = await asyncio.gather(*(agent.run(f"hello {n}") for n in range(20)))
    assert [result.text for result in results] == [f"HELLO {n}" for n in range(20)]
    assert len({result.session_id for result in results}) == 20


async def test_replace_makes_another_agent_that_differs():
    agent = Agent(Scripted(["one"]), instructions="Be brief.")
    other = agent.replace(model=Scripted(["two"]))
    assert (await other.run("x")).text == "two"
    assert other.config.instructions == "Be brief."
    with pytest.raises(TypeError, match="no argument 'modell'"):
        agent.replace(modell="x")  # type: ignore[call-overload]


async def test_the_result_accumulates_usage_over_the_turn():
    model = Scripted(
        [
            Say(calls=[("add", {"a": 1, "b": 1})], usage=Usage(10, 5, requests=1, cost=0.25)),
            Say("2", usage=Usage(20, 1, requests=1, cost=0.5)),
        ]
    )
    result = await Agent(model, [add]).run("x")
    assert (result.usage.input, result.usage.output, result.usage.requests) == (30, 6, 2)
    assert result.cost == 0.75


async def test_a_price_that_is_not_known_makes_the_cost_unknown_not_wrong():
    result = await Agent(Scripted([Say("x", usage=Usage(10, 5, requests=1, cost=None))])).run("x")
    assert result.cost is None


# --- recovery ----------------------------------------------------------------------------


async def test_retry_with_backoff_happens_in_the_loop_and_is_announced():
    clock, witness = ManualClock(random_value=0.5), RecordingObserver()
    model = Scripted([Overloaded("busy"), Overloaded("busy"), Overloaded("busy"), "Hello!"])
    result = await Agent(model, clock=clock, observers=[witness]).run("Hi")
    assert result.text == "Hello!"
    assert clock.sleeps == [1.5, 2.5, 4.5]
    assert [event.attempt for event in witness.events_of(RetryScheduled)] == [1, 2, 3]
    assert len(result.transcript) == 2


async def test_a_half_streamed_reply_is_discarded_and_one_answer_is_kept():
    witness = RecordingObserver()
    model = Scripted([["Hel", StreamBroken("cut")], "Hello!"])
    result = await Agent(model, clock=ManualClock(), observers=[witness]).run("Hi")
    assert result.text == "Hello!"
    assert [event.chars for event in witness.events_of(ReplyDiscarded)] == [3]
    assert sum(isinstance(item, AssistantItem) for item in result.transcript) == 1


async def test_the_fallback_model_takes_over_and_stays():
    witness = RecordingObserver()
    spare = Scripted([Say(calls=[("add", {"a": 1, "b": 1})]), "2"], name="spare")
    model = Scripted(lambda request: Overloaded("busy"), name="first", fallback=spare)
    result = await Agent(model, [add], clock=ManualClock(), observers=[witness]).run("Hi")
    assert result.text == "2"
    assert [(event.old, event.new) for event in witness.events_of(ModelChanged)] == [
        ("first", "spare")
    ]
    assert len(spare.requests) == 2


@pytest.mark.parametrize("kind", [ReplyTimedOut, StreamBroken])
async def test_a_silent_model_is_replaced_after_its_retries(kind: type[ModelError]):
    model = Scripted(lambda request: kind("silent"), fallback=Scripted(["from the spare"]))
    result = await Agent(model, clock=ManualClock()).run("Hi")
    assert result.text == "from the spare"


async def test_a_rate_limit_for_an_hour_is_not_waited_for():
    clock = ManualClock()
    limited = Scripted(
        lambda request: RateLimited("Limit per day.", retry_after=3600.0),
        fallback=Scripted(["from the spare"]),
    )
    assert (await Agent(limited, clock=clock).run("Hi")).text == "from the spare"
    alone = Agent(limited, clock=clock, retry=Retry(fallback=False))
    with pytest.raises(
        RateLimited, match=r"^Limit per day\. .* wait 3600 s, .* is 300 s"
    ) as caught:
        await alone.run("Hi")
    assert (caught.value.retry_after, caught.value.max_wait) == (3600.0, 300.0)
    assert clock.sleeps == []


async def test_a_reply_that_was_cut_off_and_continued_is_one_text():
    first = Say("one, ", stop="max_tokens", calls=[])
    model = Scripted(
        ["Not this.", Say("Nor this.", calls=[("add", {"a": 1, "b": 1})]), first, "two."]
    )
    agent = Agent(model, [add])
    await agent.run("Hi")
    result = await agent.run("Tell")
    assert (result.text, result.turn.text) == ("one, two.", "one, two.")
    async with Agent(Scripted([first, first, "end"])).stream("Tell") as events:
        await events.wait()
    assert events.result.text == "one, one, end"


async def test_a_structured_answer_may_come_in_pieces():
    card = ModelCard("able", abilities=frozenset({"schema"}))
    model = Scripted([Say('{"a": 1, ', stop="max_tokens"), '"b": 2}'], card=card)
    assert (await Agent(model).run("x", output=dict[str, int])).output == {"a": 1, "b": 2}


async def test_up_to_three_continuations_after_the_output_limit():
    parts = [Say(f"part {n} ", stop="max_tokens") for n in range(4)]
    model, witness = Scripted(parts), RecordingObserver()
    result = await Agent(model, observers=[witness]).run("Tell")
    assert "cut off at the output limit" in witness.events_of(WarningRaised)[0].text
    assert len(model.requests) == 4
    assert result.text == "part 0 part 1 part 2 part 3 "
    assert result.turn.metadata["truncated"] is True
    driver = Agent(Scripted([*parts[:2], "end"])).start(prompt="Tell")
    await driver.next()
    assert "max_tokens_recovery" in [transition.reason for transition in driver.trace]


async def test_an_empty_reply_is_nudged_once_and_then_a_typed_error():
    model = Scripted([Say(), "Here I am."])
    result = await Agent(model).run("Hi")
    assert result.text == "Here I am."
    assert [item.kind for item in result.transcript if isinstance(item, NoticeItem)] == ["nudge"]
    with pytest.raises(EmptyReply):
        await Agent(Scripted([Say(), Say()])).run("Hi")


async def test_a_reply_that_only_thinks_is_nudged_once_and_then_a_typed_error():
    model = Scripted([Say(thinking="Well..."), "Here I am."])
    result = await Agent(model).run("Hi")
    assert result.text == "Here I am."
    kinds = [item.kind for item in result.transcript if isinstance(item, NoticeItem)]
    assert kinds == ["nudge"]
    with pytest.raises(EmptyReply):
        await Agent(Scripted([Say(thinking="Hm"), Say("  ", thinking="Hm")])).run("Hi")


async def test_a_paused_reply_that_only_thinks_is_sent_back_as_it_is():
    model = Scripted([Say(thinking="Searching", stop="pause"), "Found."])
    result = await Agent(model).run("x")
    assert result.text == "Found."
    assert not [item for item in result.transcript if isinstance(item, NoticeItem)]


async def test_a_refusal_ends_the_turn_with_its_own_reason():
    result = await Agent(Scripted([Say("I can't.", stop="refusal")])).run("x")
    assert (result.reason, result.text) == ("refused", "I can't.")


async def test_a_paused_reply_is_sent_back_as_it_is():
    model = Scripted([Say("Searching", stop="pause"), "Found."])
    assert (await Agent(model).run("x")).text == "Found."
    endless = Scripted(lambda request: Say("...", stop="pause"))
    assert (await Agent(endless).run("x")).turn.metadata == {"paused": True}


async def test_a_model_that_ends_without_a_reply_is_a_broken_stream():
    class Mute(Scripted):
        async def stream(self, request):
            return
            yield

    with pytest.raises(ModelError, match="without a reply"):
        await Agent(Mute([]), clock=ManualClock()).run("x")


async def test_repeated_and_empty_call_ids_are_made_unique_and_stay_paired():
    twice = [
        ToolCall("same", "add", '{"a": 1, "b": 1}'),
        ToolCall("same", "add", '{"a": 2, "b": 2}'),
    ]
    model = Scripted([Say(calls=twice), Say(calls=[ToolCall("", "add", '{"a": 3, "b": 3}')]), "ok"])
    result = await Agent(model, [add]).run("x")
    assert find_violations(result.transcript) == []
    answers = [item for item in result.transcript if isinstance(item, ToolResultItem)]
    assert [answer.text for answer in answers] == ["2", "4", "6"]
    assert len({answer.call_id for answer in answers}) == 3


# --- misuse ------------------------------------------------------------------------------


async def test_next_while_next_runs_is_a_typed_error():
    pause = Pause()
    driver = Agent(Scripted([[pause, "x"]])).start(prompt="Hi")
    running = asyncio.create_task(driver.next())
    await pause.reached.wait()
    with pytest.raises(DriverBusy):
        await driver.next()
    pause.release()
    await running


async def test_a_run_without_anything_to_answer_says_so():
    with pytest.raises(LoopError, match="nothing to answer"):
        await Agent(Scripted([])).run(history=[])


def test_every_error_of_ours_is_a_treadle_error():
    assert issubclass(ModelError, TreadleError)
    assert issubclass(ApprovalPending, TreadleError)


async def test_a_broken_history_is_made_lawful_before_it_is_used():
    orphan = AssistantItem((ToolCall("c1", "add", "{}"),), "tool_use")
    driver = Agent(Scripted(["ok"]), [add]).start(
        history=Transcript([to_user_item("a"), orphan, to_user_item("b")])
    )
    assert find_violations(driver.transcript) == []
    await driver.next()


async def test_text_arrives_in_pieces_and_adds_up():
    async with Agent(Scripted([Say("abcdefgh", deltas=4)])).stream("x") as events:
        pieces = [event.text async for event in events if isinstance(event, TextDelta)]
    assert pieces == ["ab", "cd", "ef", "gh"]


async def test_a_closing_reply_that_a_crash_prevented_is_asked_for_afterwards():
    store = MemoryStore()
    call = Say(calls=[("record", {})])
    agent = Agent(Scripted([call, call, "closed"]), [RecordingTool()], max_turns=1)
    await agent.run("Go", session=store)
    asked = [
        n
        for n, one in enumerate(store.entries)
        if getattr(getattr(one, "item", None), "kind", "") == "closing"
    ]
    model = Scripted(["Closed after all."])
    again = Agent(model, [RecordingTool()], max_turns=1)
    driver = again.start(state=fold_entries(store.entries[: asked[0] + 1]))
    step = await driver.next()
    assert isinstance(step, Finished)
    assert (step.result.reason, step.result.text) == ("max_turns", "Closed after all.")
    assert [(one.purpose, one.options.tool_choice) for one in model.requests] == [
        ("closing", "none")
    ]
