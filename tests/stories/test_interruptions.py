"""Stories of stopping: from wherever it is asked for, however often, and whatever is going on."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from treadle import Agent, Transcript, tool
from treadle.core.contracts.model import ModelRequest
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.contracts.policy import AllowAll, Ask, PermissionRequest, Verdict
from treadle.core.contracts.tool import ProbeResult, ToolContext
from treadle.core.errors import LawBroken, Overloaded
from treadle.core.events import (
    ChildEvent,
    Event,
    Notified,
    RetryScheduled,
    RunFailed,
    RunStarted,
    TaskFinished,
    ToolProgress,
    ToolStarted,
    TurnFinished,
    WarningRaised,
)
from treadle.core.loop.calls import tool_runner
from treadle.core.loop.driver import Driver
from treadle.core.steps import AfterToolResult, AwaitingInput, Finished, PendingApproval
from treadle.core.transcript import (
    Arguments,
    AssistantItem,
    Item,
    ToolCall,
    ToolResultItem,
    UserItem,
    to_user_item,
)
from treadle.core.transcript.entries import Entry, Intent, ItemAdded, TurnBegan
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.state import fold_entries
from treadle.models import Pause, Say, Scripted
from treadle.testing.clock import ManualClock
from treadle.testing.observers import RecordingObserver
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import ChangingSource, RecordingTool


def ended(step: object) -> str:
    assert isinstance(step, Finished)
    return step.result.reason


def answers(driver: Driver) -> list[str]:
    return [item.text for item in driver.transcript if isinstance(item, ToolResultItem)]


class Finger:
    """An observer that stops the run at the first event of a kind."""

    def __init__(self, driver: Driver, kind: type[Event]) -> None:
        self._driver = driver
        self._kind = kind

    def on_event(self, event: Event) -> None:
        if isinstance(event, self._kind):
            self._driver.interrupt("finger")

    def on_item(self, position: int, item: Item) -> None:
        return None


class Waits:
    """A mutator that waits at its point until it is let go."""

    name = "waits"

    def __init__(self, point: MutationPoint) -> None:
        self.points = frozenset({point})
        self.reached = asyncio.Event()
        self.go = asyncio.Event()

    async def mutate(self, context: MutationContext) -> Transcript | None:
        self.reached.set()
        await self.go.wait()
        return None


@tool
async def stop(context: ToolContext) -> str:
    context.services["driver"].interrupt("a tool said so")
    return "stopped"


@pytest.mark.parametrize("calls", [1, 2])
async def test_a_tool_may_stop_the_run_that_runs_it(calls: int):
    services: dict[str, Any] = {"driver": None}
    model = Scripted([Say(calls=[("stop", {})] * calls), "never asked"])
    driver = Agent(model, [stop], services=services).start(prompt="go")
    services["driver"] = driver
    step = await driver.next()
    assert ended(step) == "aborted"
    assert len(model.requests) == 1
    assert find_violations(driver.transcript) == []


@pytest.mark.parametrize("calls", [1, 2])
async def test_an_observer_that_stops_the_run_at_the_start_of_a_tool_keeps_it_from_running(calls):
    stuck = RecordingTool(release=asyncio.Event(), effect="irreversible")
    driver = Agent(Scripted([Say(calls=[("record", {})] * calls)]), [stuck]).start(prompt="go")
    driver.watch(Finger(driver, ToolStarted))
    assert ended(await driver.next()) == "aborted"
    assert stuck.calls == []
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


async def test_an_observer_may_stop_a_retry_wait():
    clock = ManualClock(blocked=True)
    driver = Agent(Scripted([Overloaded("busy"), "never"]), clock=clock).start(prompt="go")
    driver.watch(Finger(driver, RetryScheduled))
    assert ended(await driver.next()) == "aborted"


async def test_a_tool_that_swallows_the_cancellation_does_not_swallow_the_interruption():
    entered = asyncio.Event()

    @tool
    async def deaf() -> str:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "I go on"
        return "never"

    model = Scripted([Say(calls=[("deaf", {})]), "never asked"])
    driver = Agent(model, [deaf]).start(prompt="go")
    step = asyncio.create_task(driver.next())
    await entered.wait()
    driver.interrupt()
    assert ended(await step) == "aborted"
    assert answers(driver) == ["I go on"]
    assert step.cancelling() == 0


class Deaf:
    """A tool that goes on when it is cancelled, until it is let go."""

    def __init__(self, **options: Any) -> None:
        self.entered, self.go, self.gone = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.runs = 0

        @tool(**options)
        async def deaf(context: ToolContext) -> str:
            self.runs += 1
            self.entered.set()
            while not self.go.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await self.go.wait()
                    context.report_progress("still here")
            self.gone.set()
            return "late"

        self.tool = deaf

    async def let_go(self) -> None:
        self.go.set()
        await self.gone.wait()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("detachable", [False, True])
async def test_a_call_that_does_not_stop_is_left_to_itself_and_its_late_answer_is_only_told(
    calls: int, detachable: bool
):
    options = {"detachable": True, "detach_after": 60.0} if detachable else {}
    deaf, witness, store = (
        Deaf(effect="irreversible", **options),
        RecordingObserver(),
        MemoryStore(),
    )
    model = Scripted([Say(calls=[("deaf", {})] * calls), "Back."])
    driver = Agent(model, [deaf.tool], observers=[witness]).start(prompt="go", store=store)
    step = asyncio.create_task(driver.next())
    await deaf.entered.wait()
    driver.interrupt()
    assert ended(await step) == "aborted"  # the call has not ended
    assert "outcome unknown" in answers(driver)[0]
    assert [event.text for event in witness.events_of(WarningRaised)] == [
        "deaf does not stop; it was abandoned"
    ]

    before, told = list(driver.transcript), len(witness.events_of(ToolProgress))
    await deaf.let_go()
    assert list(driver.transcript) == before
    assert find_violations(driver.transcript) == []
    assert len(witness.events_of(ToolProgress)) == told
    assert "its late result is ignored: late" in witness.events_of(Notified)[-1].text
    assert (
        "outcome unknown" in fold_entries(store.entries).transcript[2].text
    )  # the log says the same
    driver.submit("and now?")
    assert ended(await driver.next()) == "end_turn"
    assert deaf.runs == 1
    await driver.aclose()


async def test_a_second_interruption_does_not_wait_for_the_call_at_all(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(tool_runner, "INTERRUPT_GRACE_SECONDS", 3600.0)
    deaf = Deaf()
    driver = Agent(Scripted([Say(calls=[("deaf", {})])]), [deaf.tool]).start(prompt="go")
    step = asyncio.create_task(driver.next())
    await deaf.entered.wait()
    driver.interrupt()
    await asyncio.sleep(0)
    driver.interrupt()
    assert ended(await step) == "aborted"
    assert "outcome unknown" in answers(driver)[0]
    await deaf.let_go()


async def test_a_call_that_runs_out_of_time_and_does_not_stop_is_answered(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(tool_runner, "TIMEOUT_GRACE_SECONDS", 0.01)
    deaf = Deaf(timeout=0.01)
    driver = Agent(Scripted([Say(calls=[("deaf", {})]), "Sorry."]), [deaf.tool]).start(prompt="go")
    assert isinstance(await driver.next(), AfterToolResult)
    assert answers(driver) == [
        "error: timed out after 0.01 s, but it does not stop: outcome unknown, "
        "and it may still be running"
    ]
    assert ended(await driver.next()) == "end_turn"
    await deaf.let_go()


async def test_closing_asks_a_call_that_was_left_once_more_and_waits_for_its_end(no_leaks: object):
    entered, asked = asyncio.Event(), 0

    @tool
    async def stubborn() -> str:
        nonlocal asked
        entered.set()
        while asked < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                asked += 1
        return "all right"

    driver = Agent(Scripted([Say(calls=[("stubborn", {})])]), [stubborn]).start(prompt="go")
    step = asyncio.create_task(driver.next())
    await entered.wait()
    driver.interrupt()
    assert ended(await step) == "aborted"
    await driver.aclose()
    assert asked == 2


async def test_a_cancellation_that_a_tool_swallows_still_reaches_whoever_runs_the_agent():
    entered = asyncio.Event()

    @tool
    async def deaf() -> str:
        entered.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "I go on"

    model = Scripted([Say(calls=[("deaf", {})]), "never asked"])
    driver = Agent(model, [deaf]).start(prompt="go")
    step = asyncio.create_task(driver.next())
    await entered.wait()
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    assert answers(driver) == ["I go on"]
    assert len(model.requests) == 1


async def test_a_second_interruption_while_it_winds_down_is_still_a_finished_turn():
    waits, pause, witness = Waits("after_turn_ended"), Pause(), RecordingObserver()
    agent = Agent(Scripted([["Half", pause]]), mutators=[waits], observers=[witness])
    driver = agent.start(prompt="go")
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    driver.interrupt()
    await waits.reached.wait()
    driver.interrupt()
    assert ended(await step) == "aborted"
    assert step.cancelling() == 0
    assert len(witness.events_of(TurnFinished)) == 1


async def test_a_cancellation_while_an_interruption_winds_down_goes_on_its_way():
    waits, pause = Waits("after_turn_ended"), Pause()
    driver = Agent(Scripted([["Half", pause]]), mutators=[waits]).start(prompt="go")
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    driver.interrupt()
    await waits.reached.wait()
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    waits.go.set()
    assert isinstance(await driver.next(), AwaitingInput)


async def test_a_compaction_by_hand_can_be_interrupted():
    waits = Waits("on_request")
    driver = Agent(Scripted(["hi"]), mutators=[waits]).start(prompt="go")
    await driver.next()
    compacting = asyncio.create_task(driver.compact())
    await waits.reached.wait()
    driver.interrupt()
    assert await compacting is False
    assert compacting.cancelling() == 0


async def test_stopping_while_the_tools_are_opened_is_told_and_the_message_is_kept():
    class Slow(ChangingSource):
        reached = asyncio.Event()

        async def open(self) -> None:
            await super().open()
            if self.open_count == 1:
                self.reached.set()
                await asyncio.Event().wait()

    source, witness = Slow([RecordingTool()]), RecordingObserver()
    driver = Agent(Scripted(["Hello!"]), [source], observers=[witness]).start(prompt="go")
    step = asyncio.create_task(driver.next())
    await source.reached.wait()
    driver.interrupt()
    assert ended(await step) == "aborted"
    assert len(witness.events_of(TurnFinished)) == 1
    assert ended(await driver.next()) == "end_turn"  # and the tools are opened this time
    assert source.open_count == 2


# --- the stream --------------------------------------------------------------------------


async def test_a_stream_that_is_left_at_once_does_not_run_on():
    model = Scripted([Say(calls=[("record", {})]), "never"])

    class Asks(AllowAll):
        async def decide(self, request: PermissionRequest) -> Verdict:
            return Ask("sure?")

    async with Agent(model, [RecordingTool()], policy=Asks()).stream("go") as events:
        pass
    assert events.result.reason == "aborted"


async def test_a_stream_that_is_interrupted_at_once_ends_aborted():
    model = Scripted([[Pause(), "never"]])
    async with Agent(model).stream("go") as events:
        events.interrupt()
        last = [event async for event in events][-1]
    assert isinstance(last, TurnFinished)
    assert last.result.reason == "aborted"


async def test_the_terminal_event_is_the_last_even_if_a_background_task_ends_behind_it():
    gate = asyncio.Event()
    build = RecordingTool("build", release=gate, detach_after=0, effect="irreversible")
    model = Scripted([Say(calls=[("build", {})]), "Building."])
    witness = RecordingObserver()
    agent = Agent(model, [build], observers=[witness])
    async with agent.stream("go", background_wait=0) as events:
        await events.wait()
        gate.set()
        await events.driver.tasks.wait()
        seen = [event async for event in events]
    assert isinstance(seen[-1], TurnFinished)
    assert len(witness.events_of(TaskFinished)) == 1


async def test_a_stream_ends_with_a_terminal_event_when_the_loop_itself_fails():
    class Breaks(Waits):
        async def mutate(self, context: MutationContext) -> Transcript:
            return Transcript([*context.transcript[:1], *context.transcript[2:]])

    agent = Agent(
        Scripted([Say(calls=[("record", {})])]),
        [RecordingTool()],
        mutators=[Breaks("after_tool_result")],
    )
    seen: list[Event] = []
    with pytest.raises(LawBroken):
        async with agent.stream("go") as events:
            seen = [event async for event in events]
    assert isinstance(seen[-1], RunFailed)
    assert seen[-1].kind == "LawBroken"
    assert seen[-1].seq > seen[-2].seq


async def test_cancelling_whoever_leaves_a_stream_leaves_nothing_behind(no_leaks: object):
    waits, pause = Waits("after_turn_ended"), Pause()
    agent = Agent(Scripted([["Half", pause]]), mutators=[waits])

    async def watch() -> None:
        async with agent.stream("go"):
            await pause.reached.wait()

    watching = asyncio.create_task(watch())
    await waits.reached.wait()
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


async def test_an_interruption_at_the_first_event_leaves_the_message_for_the_next_step():
    driver = Agent(Scripted(["Hello!"])).start(prompt="go")
    driver.watch(Finger(driver, RunStarted))
    assert ended(await driver.next()) == "aborted"
    assert ended(await driver.next()) == "end_turn"


async def test_an_interruption_between_two_steps_ends_the_turn_at_the_next():
    model = Scripted([Say(calls=[("record", {})]), "never"])
    driver = Agent(model, [RecordingTool()]).start(prompt="go")
    assert isinstance(await driver.next(), AfterToolResult)
    driver.interrupt()
    assert ended(await driver.next()) == "aborted"
    assert len(model.requests) == 1


class AsksAlways(AllowAll):
    async def decide(self, request: PermissionRequest) -> Verdict:
        return Ask("sure?")


async def test_leaving_a_stream_while_the_approver_thinks_ends_the_run():
    asked = asyncio.Event()

    async def approve(approval: PendingApproval) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    record = RecordingTool()
    agent = Agent(
        Scripted([Say(calls=[("record", {})])]), [record], policy=AsksAlways(), approve=approve
    )
    async with agent.stream("go") as events:
        await asked.wait()
    assert events.result.reason == "aborted"
    assert record.calls == []
    assert find_violations(events.driver.transcript) == []


@pytest.mark.parametrize("from_approver", [True, False])
async def test_interrupt_while_the_approver_thinks_ends_the_run(from_approver):
    asked = asyncio.Event()

    async def approve(approval: PendingApproval) -> bool:
        asked.set()
        if from_approver:
            driver.interrupt("from_approver")
        await asyncio.Event().wait()
        return True

    agent = Agent(
        Scripted([Say(calls=[("record", {})]), "again"]),
        [RecordingTool()],
        policy=AsksAlways(),
        approve=approve,
    )
    driver = agent.start(prompt="go")
    run = asyncio.create_task(agent.finish_turn(driver))
    await asked.wait()
    driver.interrupt()
    assert (await run).reason == "aborted"
    driver.submit("and now?")
    assert (await agent.finish_turn(driver)).text == "again"


async def test_a_run_that_is_cancelled_while_the_approver_thinks_ends_with_a_terminal_event():
    asked = asyncio.Event()

    async def approve(approval: PendingApproval) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    observer, store = RecordingObserver(), MemoryStore()
    agent = Agent(
        Scripted([Say(calls=[("record", {})])]),
        [RecordingTool()],
        policy=AsksAlways(),
        approve=approve,
        observers=[observer],
    )
    driver = agent.start(store=store)
    driver.submit("go")
    run = asyncio.create_task(agent.finish_turn(driver))
    await asked.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    last = observer.events[-1]
    assert isinstance(last, TurnFinished)
    assert last.result.reason == "aborted"
    assert find_violations(driver.transcript) == []
    assert fold_entries(store.entries).turn is None
    assert isinstance(await driver.next(), AwaitingInput)


async def test_a_timeout_around_a_run_that_waits_for_a_childs_approval_ends_parent_and_child():
    asked, observer, record = asyncio.Event(), RecordingObserver(), RecordingTool()

    async def approve(approval: PendingApproval) -> bool:
        if approval.call.name == "task":
            return True
        asked.set()
        await asyncio.Event().wait()
        return True

    def answer(request: ModelRequest) -> Say:
        first = request.transcript[0]
        is_child = isinstance(first, UserItem) and first.text == "child"
        arguments = {"description": "", "prompt": "child"}
        return Say(calls=[("record", {}) if is_child else ("task", arguments)])

    agent = Agent(
        Scripted(answer),
        [record],
        subagents=[],
        policy=AsksAlways(),
        approve=approve,
        observers=[observer],
    )

    async def run_with_a_limit() -> None:
        async with asyncio.timeout(None) as limit:
            run = asyncio.create_task(agent.run("go"))
            await asked.wait()
            limit.reschedule(0)
            await run

    with pytest.raises(TimeoutError):
        await run_with_a_limit()
    ends = [event for event in observer.events if isinstance(event, (TurnFinished, ChildEvent))]
    childs = [event.child for event in ends if isinstance(event, ChildEvent)]
    assert isinstance(childs[-1], TurnFinished)
    assert isinstance(observer.events[-1], TurnFinished)
    assert record.calls == []


async def test_a_call_that_an_earlier_process_may_have_run_is_not_said_to_be_cancelled_before():
    call = ToolCall("c1", "record", "{}")
    entries: list[Entry] = [
        TurnBegan("turn-1"),
        ItemAdded(to_user_item("go")),
        ItemAdded(AssistantItem((call,), "tool_use")),
        Intent("c1", "record", "key", "verifiable"),
    ]

    class Hangs(RecordingTool):
        async def probe(
            self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
        ) -> ProbeResult:
            self.started.set()
            await asyncio.Event().wait()
            raise AssertionError

    hangs = Hangs(effect="verifiable")
    driver = Agent(Scripted([]), [hangs]).start(state=fold_entries(entries))
    step = asyncio.create_task(driver.next())
    await hangs.started.wait()
    driver.interrupt()
    await step
    assert "its effect may be incomplete" in answers(driver)[0]


async def test_a_close_that_is_cancelled_writes_the_end_of_the_turn_and_of_its_tasks():
    pause, store = Pause(), MemoryStore()
    watch = RecordingTool("watch", release=asyncio.Event(), detach_after=0, effect="irreversible")
    model = Scripted([Say(calls=[("watch", {})]), "ok", ["be", pause, "gun"]])
    driver = Agent(model, [watch]).start(prompt="watch it", store=store)
    while not isinstance(await driver.next(), Finished):
        pass
    driver.submit("more")
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    closing = asyncio.create_task(driver.aclose())
    await asyncio.sleep(0)  # it waits for the step
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled()
    assert isinstance(await step, Finished)
    state = fold_entries(store.durable)
    assert state.turn is None
    assert [task.state for task in driver.tasks.list()] == ["cancelled"]
    assert ["is cancelled" in one.item.text for one in state.queued] == [True]
