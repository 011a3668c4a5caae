"""Stories of what is told and what is kept: events, observers, snapshots, mutators, gates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from tests.patience import PATIENCE
from treadle import Agent, CacheRequest, Transcript, tool
from treadle.core.contracts.gate import Admit, RequestEstimate, Stop
from treadle.core.contracts.hook import HookInput, HookPoint
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.contracts.policy import AllowAll, Ask
from treadle.core.errors import (
    AccessDenied,
    ContextTooLong,
    DriverBusy,
    LawBroken,
    Overloaded,
    StoreFull,
)
from treadle.core.events import (
    ApprovalRequired,
    Event,
    InputAccepted,
    MutationFinished,
    RequestStarted,
    RunFailed,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    UsageUpdated,
    WarningRaised,
)
from treadle.core.steps import AfterToolResult, Finished
from treadle.core.transcript import (
    AssistantItem,
    Item,
    NoticeItem,
    SummaryItem,
    Text,
    ToolCall,
    ToolResultItem,
    Usage,
    UserItem,
    to_user_item,
)
from treadle.core.transcript.entries import TurnEnded, ViewRewritten
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.state import fold_entries
from treadle.models import Pause, Say, Scripted
from treadle.testing.clock import ManualClock
from treadle.testing.observers import FailingObserver, RecordingObserver
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import RecordingTool


@tool(effect="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def summing() -> Scripted:
    return Scripted([Say("Let me see. ", calls=[("add", {"a": 2, "b": 3})]), "5"])


async def all_events(agent: Agent, prompt: str = "go") -> list[Event]:
    async with agent.stream(prompt) as events:
        return [event async for event in events]


# --- events ------------------------------------------------------------------------------


async def test_events_are_emitted_in_their_order():
    kinds = [type(event).__name__ for event in await all_events(Agent(summing(), [add]))]
    assert kinds == [
        "RunStarted",
        "TurnStarted",
        "InputAccepted",
        "RequestStarted",
        "PartBegan",
        "TextDelta",
        "PartCommitted",
        "ToolCallBegan",
        "ToolCallDelta",
        "ToolCallDelta",
        "ToolCallRequested",
        "UsageUpdated",
        "ToolStarted",
        "ToolFinished",
        "LoopContinued",
        "RequestStarted",
        "PartBegan",
        "TextDelta",
        "PartCommitted",
        "UsageUpdated",
        "TurnFinished",
    ]


async def test_every_event_carries_its_ids_and_a_number_that_only_grows():
    events = await all_events(Agent(summing(), [add]))
    assert len({event.session_id for event in events}) == 1
    assert [event.seq for event in events] == sorted({event.seq for event in events})
    assert {event.turn_id for event in events[1:]} == {"turn-1"}


async def test_a_request_start_names_the_model():
    events = await all_events(Agent(Scripted(["x"], name="anthropic/claude")))
    assert [event.model for event in events if isinstance(event, RequestStarted)] == [
        "anthropic/claude"
    ]


async def test_errors_arrive_as_events_and_there_is_exactly_one_terminal_event():
    fine = await all_events(Agent(Scripted(["fine"])))
    bad = await all_events(Agent(Scripted([AccessDenied("no key")])))
    for events in (fine, bad):
        terminal = [event for event in events if isinstance(event, (TurnFinished, RunFailed))]
        assert terminal == [events[-1]]
    failed = bad[-1]
    assert isinstance(failed, RunFailed)
    assert (failed.kind, failed.error) == ("AccessDenied", "no key")


async def test_a_result_is_previewed_at_200_characters():
    events = await all_events(
        Agent(Scripted([Say(calls=[("record", {})]), "x"]), [RecordingTool(answer="y" * 500)])
    )
    finished = [event for event in events if isinstance(event, ToolFinished)]
    assert finished[0].result == "y" * 200 + "..."


async def test_thinking_is_told_apart_from_text():
    events = await all_events(Agent(Scripted([Say("Yes.", thinking="Hm.")])))
    assert [event.text for event in events if isinstance(event, ThinkingDelta)] == ["Hm."]
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Yes."]


async def test_usage_is_updated_after_each_call():
    used = Usage(10, 2, requests=1, cost=0.5)
    agent = Agent(Scripted([Say("hi", usage=used)]))
    updates = [event for event in await all_events(agent) if isinstance(event, UsageUpdated)]
    assert [(event.last, event.turn) for event in updates] == [(used, used)]


async def test_observers_are_called_in_order_and_inline():
    order: list[str] = []

    class Named(RecordingObserver):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def on_event(self, event: Event) -> None:
            order.append(self.name)

    await Agent(Scripted(["x"]), observers=[Named("one"), Named("two")]).run("go")
    assert order[:4] == ["one", "two", "one", "two"]


async def test_an_observer_with_kinds_gets_only_these_events_and_every_item():
    class Ends(RecordingObserver):
        kinds = frozenset({TurnFinished, WarningRaised})

    ends, late = Ends(), Ends()
    driver = Agent(summing(), [add], observers=[ends, FailingObserver()]).start()
    driver.submit("go")
    assert isinstance(await driver.next(), AfterToolResult)
    driver.watch(late)
    assert isinstance(await driver.next(), Finished)
    await driver.aclose()
    assert [type(one) for one in ends.events] == [WarningRaised, TurnFinished]
    assert [type(one) for one in late.events] == [TurnFinished]
    assert len(ends.items) == 4


async def test_a_broken_observer_is_warned_about_once_and_harms_nobody():
    witness, broken = RecordingObserver(), FailingObserver()
    result = await Agent(summing(), [add], observers=[broken, witness]).run("go")
    assert result.text == "5"
    assert len(witness.events_of(WarningRaised)) == 1
    assert broken.call_count > 5


async def test_the_engine_finishes_when_nobody_reads_the_stream():
    over = asyncio.Event()

    def last(given):
        over.set()
        return "read by nobody"

    record = RecordingTool("record", last, effect="irreversible")
    agent = Agent(Scripted([Say(calls=[("record", {})]), "5"]), [record])
    async with agent.stream("go") as events:
        async for event in events:
            if isinstance(event, InputAccepted):
                break
        await over.wait()
        await events.wait()
    assert events.result.text == "5"


async def test_leaving_the_stream_early_interrupts_the_run():
    pause = Pause()
    async with Agent(Scripted([[pause, "never"]])).stream("go") as events:
        await pause.reached.wait()
    assert events.result.reason == "aborted"
    assert events.driver.snapshot().transcript[0] == to_user_item("go")


async def test_the_transcript_channel_gets_each_item_once_in_order():
    witness = RecordingObserver()
    result = await Agent(summing(), [add], observers=[witness]).run("go")
    assert [item for _, item in witness.items] == list(result.transcript)
    assert [position for position, _ in witness.items] == [0, 1, 2, 3]


class AlwaysAsk(AllowAll):
    async def decide(self, request):
        return Ask("sure?")


async def test_approvals_can_be_answered_from_the_stream():
    record = RecordingTool(effect="irreversible")
    agent = Agent(Scripted([Say(calls=[("record", {})]), "ok"]), [record], policy=AlwaysAsk())
    async with agent.stream("go") as events:
        async for event in events:
            if isinstance(event, ApprovalRequired):
                events.approve(event.call.id)
    assert len(record.calls) == 1


async def test_a_call_on_which_the_reader_of_a_stream_does_not_decide_is_denied(caplog):
    pay = RecordingTool("pay", effect="irreversible")
    calls = Say(calls=[("pay", {"n": 1}), ("pay", {"n": 2})])
    agent = Agent(Scripted([calls, "ok"]), [pay], policy=AlwaysAsk())
    async with asyncio.timeout(PATIENCE), agent.stream("go") as events:
        async for _ in events:
            pass
    results = [item for item in events.result.transcript if isinstance(item, ToolResultItem)]
    assert ["the user cannot be asked" in item.text for item in results] == [True, True]
    assert not pay.calls
    assert "the call of pay is denied: the reader" in caplog.text


async def test_another_task_can_decide_later_on_a_call_of_a_stream():
    pay = RecordingTool("pay", effect="irreversible")
    agent = Agent(Scripted([Say(calls=[("pay", {})]), "ok"]), [pay], policy=AlwaysAsk())
    asked: asyncio.Queue[str] = asyncio.Queue()

    async def decide() -> None:
        assert events.approve(await asked.get())

    async with (
        asyncio.timeout(PATIENCE),
        agent.stream("go") as events,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(decide())
        async for event in events:
            if isinstance(event, ApprovalRequired):
                events.answer_later(event.call.id)
                asked.put_nowait(event.call.id)
    assert len(pay.calls) == 1


async def test_the_approver_decides_while_a_stream_is_read():
    pay = RecordingTool("pay", effect="irreversible")

    async def approve(approval: object) -> bool:
        for _ in range(20):
            await asyncio.sleep(0)  # the reader waits for the next event meanwhile
        return True

    model = Scripted([Say(calls=[("pay", {})]), "ok"])
    agent = Agent(model, [pay], policy=AlwaysAsk(), approve=approve)
    async with agent.stream("go") as events:
        async for _ in events:
            pass
    assert len(pay.calls) == 1


# --- steering and cancellation -----------------------------------------------------------


async def test_a_message_submitted_after_a_tool_round_stands_behind_the_result():
    driver = Agent(summing(), [add]).start(prompt="go")
    step = await driver.next()
    assert isinstance(step, AfterToolResult)
    step.submit("In German, please.")
    await driver.next()
    assert [type(item) for item in driver.transcript] == [
        UserItem,
        AssistantItem,
        ToolResultItem,
        UserItem,
        AssistantItem,
    ]


async def test_steering_enters_at_the_next_legal_point_without_cancelling():
    pause = Pause()
    model = Scripted([["Working", pause], "In German."])
    driver = Agent(model).start(prompt="go")
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    driver.steer("In German, please.")
    assert driver.snapshot().pending_input == (UserItem((Text("In German, please."),), True),)
    pause.release()
    finished = await step
    assert isinstance(finished, Finished)
    assert finished.result.text == "In German."
    assert [item.text for item in driver.transcript if isinstance(item, UserItem)] == [
        "go",
        "In German, please.",
    ]


async def test_a_queued_message_survives_a_crash():
    pause, store = Pause(), MemoryStore()
    driver = Agent(Scripted([["Working", pause]])).start(prompt="go", store=store)
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    driver.steer("Do not forget me.")
    step.cancel()
    view = fold_entries(store.entries)
    queued = [one.item for one in view.queued]
    assert [item.text for item in queued] == ["Do not forget me."]
    await asyncio.wait([step])
    await driver.aclose()

    model = Scripted(["Yes, both."])
    again = Agent(model).start(state=view)
    await again.next()
    assert [item.text for item in model.requests[0].transcript if isinstance(item, UserItem)] == [
        "go",
        "Do not forget me.",
    ]


async def test_an_interruption_reaches_the_stream_and_ends_the_turn_aborted():
    pause = Pause()
    model = Scripted([["Half a th", pause]])
    driver = Agent(model).start(prompt="go")
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    driver.interrupt()
    finished = await step
    assert isinstance(finished, Finished)
    assert finished.result.reason == "aborted"
    assert finished.result.metadata == {"interrupted": True, "interrupt_reason": "user_cancelled"}
    assert model.open_streams == 0
    kept = driver.transcript[1]
    assert isinstance(kept, AssistantItem)
    assert (kept.text, kept.stop) == ("Half a th", "aborted")


async def test_an_interruption_reaches_every_tool_and_open_calls_are_answered():
    stuck = RecordingTool(release=asyncio.Event(), effect="irreversible")
    driver = Agent(Scripted([Say(calls=[("record", {}), ("record", {})]), "Back."]), [stuck]).start(
        prompt="go"
    )
    step = asyncio.create_task(driver.next())
    await stuck.started.wait()
    driver.interrupt()
    finished = await step
    assert isinstance(finished, Finished)
    assert stuck.cancel_count == 1
    answers = [item.text for item in driver.transcript if isinstance(item, ToolResultItem)]
    assert len(answers) == 2
    assert answers == [
        "Interrupted by the user before it finished, outcome unknown: it may have had its effect.",
        "Cancelled by the user before it ran; nothing was done.",
    ]
    assert find_violations(driver.transcript) == []
    driver.submit("Go on")
    assert isinstance(await driver.next(), Finished)


async def test_cancelling_the_task_is_heard_too_and_not_swallowed():
    pause = Pause()
    running = asyncio.create_task(Agent(Scripted([[pause]])).run("go"))
    await pause.reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_an_interruption_works_during_a_retry_wait():
    clock = ManualClock(blocked=True)
    driver = Agent(Scripted([Overloaded("busy")]), clock=clock).start(prompt="go")
    step = asyncio.create_task(driver.next())
    await clock.sleeping.wait()
    driver.interrupt()
    finished = await step
    assert isinstance(finished, Finished)
    assert finished.result.reason == "aborted"


# --- state -------------------------------------------------------------------------------


async def test_a_snapshot_is_read_only_and_stays_as_it_was():
    driver = Agent(Scripted(["one", "two"])).start(prompt="go")
    before = driver.snapshot()
    assert before.pending_input == (to_user_item("go"),)
    await driver.next()
    assert len(before.transcript) == 0
    assert len(driver.snapshot().transcript) == 2
    with pytest.raises(AttributeError):
        before.session_id = "other"  # type: ignore[misc]


async def test_the_trace_says_why_the_loop_went_on():
    driver = Agent(summing(), [add]).start(prompt="go")
    await driver.next()
    await driver.next()
    assert [str(transition) for transition in driver.trace] == [
        "turn-1  began",
        "turn-1  tool_use",
        "turn-1  ended: end_turn",
    ]


async def test_the_cache_request_for_the_next_turn_is_used_once():
    model = Scripted(["one", "two"])
    driver = Agent(model).start(prompt="go")
    driver.set_next_turn_cache(CacheRequest(ttl="1h"))
    await driver.next()
    driver.submit("again")
    await driver.next()
    assert [request.cache.ttl for request in model.requests] == ["1h", "5m"]


async def test_instructions_may_be_a_function_and_reach_the_model():
    model = Scripted(["x"])
    await Agent(model, instructions=lambda: "Be brief.").run("go")
    assert model.requests[0].system == "Be brief."


async def test_the_log_says_how_the_turn_ended():
    store = MemoryStore()
    await Agent(Scripted(["x"])).run("go", session=store)
    assert store.durable[-1] == TurnEnded("turn-1", "end_turn")
    assert store.is_closed


async def test_fault_9_a_full_disk_stops_before_the_model_is_asked_and_goes_on_later():
    store, model = MemoryStore(), Scripted(["Hello!"])
    store.failure = StoreFull("no space left on the device")
    driver = Agent(model).start(prompt="go", store=store)
    with pytest.raises(StoreFull):
        await driver.next()
    assert model.requests == []
    store.failure = None
    finished = await driver.next()
    assert isinstance(finished, Finished)
    assert finished.result.text == "Hello!"


# --- mutators ----------------------------------------------------------------------------


class Rewrites:
    def __init__(
        self, point: MutationPoint, change: Callable[[Transcript], Transcript | None]
    ) -> None:
        self.points = frozenset({point})
        self.name = "rewrites"
        self._change = change
        self.scenes: list[MutationContext] = []

    async def mutate(self, context: MutationContext) -> Transcript | None:
        self.scenes.append(context)
        return self._change(context.transcript)


def summed_up(transcript: Transcript) -> Transcript | None:
    if len(transcript) < 3 or isinstance(transcript[0], SummaryItem):
        return None
    return Transcript([SummaryItem("They added.", 2), *transcript[3:]])


async def test_a_mutator_rewrites_the_view_and_the_log_keeps_everything():
    witness, store, model = RecordingObserver(), MemoryStore(), summing()
    agent = Agent(model, [add], mutators=[Rewrites("after_tool_result", summed_up)])
    await agent.replace(observers=[witness]).run("go", session=store)
    assert [type(item) for item in model.requests[1].transcript] == [SummaryItem]
    assert len([entry for entry in store.durable if isinstance(entry, ViewRewritten)]) == 1
    assert [event.changed for event in witness.events_of(MutationFinished)] == [True]
    assert [type(item) for _, item in witness.items] == [
        UserItem,
        AssistantItem,
        ToolResultItem,
        AssistantItem,
    ]
    assert [type(item) for item in fold_entries(store.durable).transcript] == [
        SummaryItem,
        AssistantItem,
    ]


async def test_a_mutator_that_breaks_a_law_is_a_hard_error_naming_the_law():
    def orphaned(transcript: Transcript) -> Transcript:
        return Transcript([*transcript[:1], *transcript[2:]])

    agent = Agent(summing(), [add], mutators=[Rewrites("after_tool_result", orphaned)])
    driver = agent.start(prompt="go")
    with pytest.raises(LawBroken, match="answers_belong"):
        await driver.next()
    assert find_violations(driver.transcript) == []
    assert len(driver.transcript) == 3


async def test_a_mutator_cannot_make_a_call_run_twice_by_dropping_its_answer():
    act = RecordingTool("act", effect="irreversible")
    drops = Rewrites("after_tool_result", lambda transcript: Transcript(transcript[:2]))
    driver = Agent(Scripted([Say(calls=[("act", {})])]), [act], mutators=[drops]).start(prompt="go")
    with pytest.raises(LawBroken, match="open_calls_kept"):
        await driver.next()
    assert len(act.calls) == 1


async def test_a_mutator_cannot_change_the_calls_that_wait_to_be_run():
    def cut(transcript: Transcript) -> Transcript:
        reply = AssistantItem((ToolCall("c", "act", "{}"),), "tool_use")
        return Transcript([*transcript[:1], reply])

    act = RecordingTool("act", effect="irreversible")
    call = ToolCall("c", "act", '{"path": "x"}')
    history: list[Item] = [to_user_item("go"), AssistantItem((call,), "tool_use")]
    driver = Agent(Scripted(["ok"]), [act], mutators=[Rewrites("on_request", cut)]).start(
        history=history
    )
    with pytest.raises(LawBroken, match="open_calls_kept"):
        await driver.compact()
    await driver.next()
    assert act.calls == [{"path": "x"}]


@pytest.mark.parametrize("point", ["before_model", "after_tool_result", "after_turn_ended"])
async def test_mutators_are_asked_at_their_points(point: MutationPoint):
    looks = Rewrites(point, lambda transcript: None)
    await Agent(summing(), [add], mutators=[looks]).run("go")
    lengths = [len(scene.transcript) for scene in looks.scenes]
    assert (
        lengths
        == {"before_model": [1, 3], "after_tool_result": [3], "after_turn_ended": [4]}[point]
    )


async def test_a_context_that_is_too_long_is_compacted_once_and_tried_again():
    shrinks = Rewrites("context_too_long", lambda old: Transcript([SummaryItem("short")]))
    result = await Agent(Scripted([ContextTooLong("too long"), "ok"]), mutators=[shrinks]).run("go")
    assert result.text == "ok"
    with pytest.raises(ContextTooLong):
        await Agent(Scripted([ContextTooLong("a"), ContextTooLong("b")]), mutators=[shrinks]).run(
            "go"
        )
    with pytest.raises(ContextTooLong):
        await Agent(Scripted([ContextTooLong("too long")])).run("go")


# --- gates -------------------------------------------------------------------------------


class Purse:
    def __init__(self, answers: list[Admit | Stop]) -> None:
        self._answers = answers
        self.seen: list[RequestEstimate] = []
        self.settled: list[Usage] = []

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        self.seen.append(estimate)
        return self._answers.pop(0)

    def settle(self, estimate: RequestEstimate, used: Usage) -> None:
        self.settled.append(used)


async def test_a_gate_stands_before_every_model_call_and_is_told_what_was_used():
    purse = Purse([Admit(), Admit()])
    await Agent(summing(), [add], gates=[purse]).run("go")
    assert [account.rounds for account in purse.seen] == [0, 1]
    assert [used.requests for used in purse.settled] == [1, 1]


async def test_a_gate_may_stop_the_turn_with_a_typed_reason():
    purse, model = Purse([Stop("budget_exceeded", "5 USD are spent")]), Scripted([])
    result = await Agent(model, gates=[purse]).run("go")
    assert result.reason == "budget_exceeded"
    assert result.turn.metadata == {"detail": "5 USD are spent"}
    assert model.requests == []


async def test_a_gate_may_leave_room_for_one_closing_reply_without_tools():
    purse = Purse([Admit(), Stop("budget_exceeded", "nearly spent", closing_tokens=500)])
    model = Scripted([Say(calls=[("add", {"a": 1, "b": 1})]), "Half of it is done."])
    result = await Agent(model, [add], gates=[purse]).run("go")
    assert (result.reason, result.text) == ("budget_exceeded", "Half of it is done.")
    assert model.requests[1].options.tool_choice == "none"
    assert model.requests[1].options.max_tokens == 500
    assert [used.requests for used in purse.settled] == [1, 1]


async def test_a_gate_may_tell_the_model_what_is_left():
    model = Scripted(["ok"])
    result = await Agent(model, gates=[Purse([Admit("1 USD is left")])]).run("go")
    assert NoticeItem("1 USD is left", "budget") in list(result.transcript)


async def test_a_failed_call_settles_with_nothing():
    purse = Purse([Admit()])
    with pytest.raises(AccessDenied):
        await Agent(Scripted([AccessDenied("no")]), gates=[purse]).run("go")
    assert purse.settled == [Usage()]


# --- encoding ----------------------------------------------------------------------------


async def test_every_event_and_item_can_be_written_as_json():
    events = await all_events(Agent(summing(), [add]))
    for event in events:
        msgspec.json.encode(event, enc_hook=repr)
    items = list((await Agent(summing(), [add]).run("go")).transcript)
    assert msgspec.json.decode(msgspec.json.encode(items), type=list[Item]) == items


# --- closing -----------------------------------------------------------------------------


async def test_the_session_is_closed_though_whoever_closes_it_is_cancelled():
    gate, store = asyncio.Event(), MemoryStore()
    entered = asyncio.Event()

    @tool(detach_after=0)
    async def slow() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            entered.set()
            await gate.wait()
        return "never"

    driver = Agent(Scripted([Say(calls=[("slow", {})]), "ok"]), [slow]).start(
        prompt="go", store=store
    )
    await driver.next()
    await driver.next()
    closing = asyncio.create_task(driver.aclose())
    await entered.wait()
    closing.cancel()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert store.is_closed


async def test_closing_twice_is_harmless():
    ended: list[str] = []

    class Ends:
        points: frozenset[HookPoint] = frozenset({"session_end"})

        async def run(self, hook_input: HookInput) -> None:
            ended.append(hook_input.session_id)

    driver = Agent(Scripted(["x"]), hooks=[Ends()]).start(prompt="go")
    await driver.next()
    await driver.aclose()
    await driver.aclose()
    assert len(ended) == 1


async def test_the_whole_history_does_not_come_back_in_the_middle_of_a_step():
    pause = Pause()
    driver = Agent(Scripted([[pause, "x"]])).start(prompt="go")
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    with pytest.raises(DriverBusy):
        driver.uncompact()
    pause.release()
    await step
    assert driver.uncompact() is False


async def test_the_start_of_a_call_says_what_kind_of_tool_runs():
    @tool(kind="read")
    def look() -> str:
        return "a cat"

    @tool
    def paint() -> str:
        return "painted"

    seen = RecordingObserver()
    model = Scripted([Say(calls=[("look", {}), ("paint", {})]), "done"])
    await Agent(model, [look, paint], observers=[seen]).run("go")
    started = [event for event in seen.events if isinstance(event, ToolStarted)]
    assert {event.name: event.kind for event in started} == {"look": "read", "paint": "other"}
