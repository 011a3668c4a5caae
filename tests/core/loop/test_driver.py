"""The laws of a session at the edges of the driver: two at once, late, hanging, failing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.patience import PATIENCE
from treadle import Agent, Transcript, Usage
from treadle.core.contracts.gate import Admit, BaseGate, RequestEstimate, Stop
from treadle.core.contracts.hook import Block, HookAnswer, HookInput
from treadle.core.contracts.model import ModelEvent, ModelRequest, ModelUsageUpdated
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.contracts.policy import AllowAll, Ask, PermissionRequest, Verdict
from treadle.core.contracts.tool import ToolContext, ToolOutput
from treadle.core.errors import (
    ConfigError,
    DriverBusy,
    InputBlocked,
    LoopError,
    ModelError,
    StoreError,
)
from treadle.core.events import Event, LoopContinued, WarningRaised
from treadle.core.loop.calls import prepare
from treadle.core.loop.config import TurnSettings
from treadle.core.steps import AfterToolResult, ApprovalRequest, DriverSnapshot, Finished
from treadle.core.transcript import AssistantItem, NoticeItem, ToolResultItem
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.entries import Entry, UsageRecorded
from treadle.core.transcript.state import find_differences, fold_entries
from treadle.hooks import hook
from treadle.models import Pause, Say, Scripted
from treadle.testing.observers import RecordingObserver
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import RecordingTool

CALL = Say("Let me see. ", calls=[("record", {})])
COSTLY = Usage(10, 5, requests=1, cost=0.5)


@hook("user_prompt_submit")
def no_secrets(hook_input: HookInput) -> HookAnswer | None:
    return Block("a password") if "password" in hook_input.data["prompt"] else None


def result_of(driver_step: object) -> ToolResultItem:
    assert isinstance(driver_step, AfterToolResult)
    return driver_step.results[0]


# --- closing -----------------------------------------------------------------------------


async def test_two_closes_at_once_wait_for_the_same_step():
    tool, store = RecordingTool(release=asyncio.Event()), MemoryStore()
    driver = Agent(Scripted([CALL]), [tool]).start("go", store=store)
    step = asyncio.create_task(driver.next())
    await tool.started.wait()
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(driver.aclose(), driver.aclose())
    assert isinstance(await step, Finished)
    assert store.is_closed


async def test_a_second_close_does_not_close_the_log_under_the_hooks_of_the_first():
    store, in_hook, release = MemoryStore(), asyncio.Event(), asyncio.Event()

    @hook("session_end")
    async def slow(hook_input: HookInput) -> None:
        in_hook.set()
        await release.wait()

    driver = Agent(Scripted(["Hi."]), hooks=[slow]).start("go", store=store)
    await driver.next()
    closes = [asyncio.create_task(driver.aclose())]
    await in_hook.wait()
    closes.append(asyncio.create_task(driver.aclose()))
    for _ in range(100):  # more steps than a close has
        await asyncio.sleep(0)
    assert not store.is_closed
    release.set()
    await asyncio.gather(*closes)
    assert store.is_closed


async def test_a_closed_driver_asks_no_approver():
    agent = Agent(Scripted([CALL]), [RecordingTool()], policy=AsksAlways())
    driver = agent.start("go")
    request = await driver.next()
    assert isinstance(request, ApprovalRequest)
    await driver.aclose()

    async def decide(request: ApprovalRequest) -> None:
        raise AssertionError("the session is closed")

    with pytest.raises(LoopError, match="closed"):
        await driver.resolve(request, decide)


class AsksAlways(AllowAll):
    async def decide(self, request: PermissionRequest) -> Verdict:
        return Ask("sure?")


# --- messages ----------------------------------------------------------------------------


@pytest.mark.parametrize("left", ["a question", "a call"])
async def test_a_refused_prompt_is_told_also_if_it_would_continue_an_unfinished_turn(left):
    first = StoreError("x") if left == "a question" else CALL
    agent = Agent(Scripted([first, "Both."]), [RecordingTool()], hooks=[no_secrets])
    driver = agent.start("first")
    if left == "a question":
        with pytest.raises(StoreError):
            await driver.next()
    else:
        await driver.next()
    driver.offer("my password is x")
    with pytest.raises(InputBlocked):
        await agent.finish_turn(driver)
    driver.offer("second")
    assert (await agent.finish_turn(driver)).text == "Both."
    assert [item.text for item in driver.transcript if item.text == "my password is x"] == []
    await driver.aclose()


async def test_a_turn_that_is_continued_twice_has_one_notice_of_it():
    pause = Pause()
    driver = Agent(Scripted([["Let ", pause, "me"], "Done."])).start("go")
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    driver.interrupt()
    await step
    assert driver.retry()
    assert driver.retry()
    assert isinstance(await driver.next(), Finished)
    notices = [item for item in driver.transcript if isinstance(item, NoticeItem)]
    assert [notice.kind for notice in notices] == ["interrupted", "continued"]
    await driver.aclose()


# --- settings, tools ---------------------------------------------------------------------


async def test_tools_with_one_name_are_an_error_until_a_run_has_other_settings():
    driver = Agent(Scripted(["Hi."]), [RecordingTool()]).start()
    driver.configure_turns(TurnSettings(tools=(RecordingTool(),)))
    driver.offer("go")
    for _ in range(2):
        with pytest.raises(ConfigError, match="two tools are named"):
            await driver.next()
    driver.configure_turns(TurnSettings())
    assert isinstance(await driver.next(), Finished)
    await driver.aclose()


class Hanging(RecordingTool):
    async def evidence(self, arguments: Arguments, context: ToolContext) -> dict[str, object]:
        await asyncio.Event().wait()
        return {}

    async def preview(self, arguments: Arguments, context: ToolContext) -> None:
        await asyncio.Event().wait()


async def test_the_evidence_of_a_tool_has_the_time_of_the_tool():
    tool = Hanging(effect="verifiable", timeout=0.01)
    driver = Agent(Scripted([CALL]), [tool]).start("go")
    result = result_of(await driver.next())
    assert (result.is_error, result.text) == (
        True,
        "error: TimeoutError: it did not finish within 0.01 s",
    )
    assert tool.calls == []
    await driver.aclose()


async def test_an_approval_is_asked_without_a_preview_that_hangs():
    agent = Agent(Scripted([CALL]), [Hanging(timeout=0.01)], policy=AsksAlways())
    driver = agent.start("go")
    request = await driver.next()
    assert isinstance(request, ApprovalRequest)
    assert "within 0.01 s" in str(request.pending[0].preview)
    await driver.aclose()


async def test_a_policy_that_hangs_denies(monkeypatch):
    class Hangs(AllowAll):
        async def decide(self, request: PermissionRequest) -> Verdict:
            await asyncio.Event().wait()
            raise AssertionError

    monkeypatch.setattr(prepare, "POLICY_TIMEOUT", 0.01)
    tool = RecordingTool()
    driver = Agent(Scripted([CALL]), [tool], policy=Hangs()).start("go")
    assert result_of(await driver.next()).outcome == "denied"
    assert tool.calls == []
    await driver.aclose()


async def test_a_forwarding_tool_that_raises_is_the_result_of_the_call():
    class Forwards(RecordingTool):
        def target(self, arguments: Arguments) -> str:
            raise ValueError("no such target")

    driver = Agent(Scripted([CALL]), [Forwards()]).start("go")
    assert "no such target" in result_of(await driver.next()).text
    await driver.aclose()


# --- rewind, doubts, snapshots -----------------------------------------------------------


async def test_no_step_begins_while_a_rewind_stops_background_calls():
    slow, stopping = asyncio.Event(), asyncio.Event()

    class SlowToStop(RecordingTool):
        async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
            try:
                await asyncio.Event().wait()
            finally:
                stopping.set()
                await slow.wait()
            return ToolOutput("")

    agent = Agent(Scripted([CALL, "Done.", "Again."]), [SlowToStop(detach_after=0.0)])
    driver = agent.start("go")
    turn = await agent.finish_turn(driver)
    rewind = asyncio.create_task(driver.rewind(turn.turn_id))
    await stopping.wait()
    driver.submit("next")
    with pytest.raises(DriverBusy):
        await driver.next()
    driver.interrupt()  # a rewind that has begun is completed
    slow.set()
    await rewind
    assert len(driver.transcript) == 0
    await driver.aclose()


async def test_a_call_in_doubt_cannot_be_settled_while_its_probe_runs():
    probing, release, store = asyncio.Event(), asyncio.Event(), MemoryStore()

    class Probed(RecordingTool):
        async def probe(self, arguments: Arguments, evidence: object, context: ToolContext):
            probing.set()
            await release.wait()
            return await super().probe(arguments, {}, context)

    stuck = RecordingTool(effect="verifiable", release=asyncio.Event())
    first = Agent(Scripted([CALL]), [stuck]).start("go", store=store)
    step = asyncio.create_task(first.next())
    await stuck.started.wait()
    snapshot = DriverSnapshot("other", fold_entries(store.durable))
    again = Agent(Scripted([CALL]), [Probed(effect="verifiable")]).start(snapshot=snapshot)
    work = asyncio.create_task(again.next())
    await probing.wait()
    with pytest.raises(DriverBusy):
        again.settle(again.doubts[0].call.id, "done")
    release.set()
    await work
    first.interrupt()
    await step
    await first.aclose()
    await again.aclose()


async def test_a_snapshot_counts_the_changes_of_the_view():
    class Shortens:
        name = "shorten"
        points: frozenset[MutationPoint] = frozenset({"after_turn_ended"})

        async def mutate(self, context: MutationContext) -> Transcript | None:
            return Transcript(context.transcript[-2:])

    agent = Agent(Scripted(["a", "b", "c"]), mutators=[Shortens()])
    driver = agent.start()
    for text in "xyz":
        driver.submit(text)
        await driver.next()
    snapshot = driver.snapshot()
    assert driver.state.view_changes == 2
    again = DriverSnapshot.from_json(snapshot.to_json()).state
    assert "view_changes" not in find_differences(again, driver.state)
    await driver.aclose()


# --- money -------------------------------------------------------------------------------


class Counts(BaseGate):
    """Stops a turn once, with a closing reply; counts what is settled."""

    def __init__(self) -> None:
        self.reserved = 0
        self.has_stopped = False
        self.settled: list[Usage] = []

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        self.reserved += 1
        if estimate.rounds == 1 and not self.has_stopped:
            self.has_stopped = True
            return Stop("budget_exceeded", "used up", closing_tokens=10)
        return Admit()

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        self.reserved -= 1
        self.settled.append(usage)


async def test_a_message_that_continues_a_closing_turn_is_not_paid_twice():
    gate = Counts()

    class Steers(RecordingObserver):
        def on_event(self, event: Event) -> None:
            if isinstance(event, LoopContinued) and event.transition == "closing_summary":
                driver.steer("go on")

    model = Scripted([Say(calls=[("record", {})], usage=COSTLY), Say("Done.", usage=COSTLY)])
    agent = Agent(model, [RecordingTool()], gates=[gate], observers=[Steers()])
    driver = agent.start("go")
    assert (await agent.finish_turn(driver)).text == "Done."
    assert gate.reserved == 0
    assert sum(used.cost or 0.0 for used in gate.settled) == driver.usage.cost == 1.0
    await driver.aclose()


async def test_a_call_is_settled_also_if_the_log_fails():
    class Full(MemoryStore):
        def append(self, entry: Entry) -> None:
            if isinstance(entry, UsageRecorded):
                raise StoreError("disk full")
            super().append(entry)

    gate = Counts()
    driver = Agent(Scripted([["Let ", ModelError("gone")]]), gates=[gate]).start(store=Full())
    with pytest.raises(StoreError):
        await driver.ask_aside("and?")
    assert gate.reserved == 0
    await driver.aclose()


async def test_the_known_part_of_a_cost_is_kept_when_a_part_is_unknown():
    pause = Pause()
    agent = Agent(Scripted([Say("Hi.", usage=COSTLY), ["Let ", pause, "me"]]))
    driver = agent.start("go", store=MemoryStore())
    await driver.next()
    driver.submit("more")
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    driver.interrupt()
    await step
    assert (driver.usage.cost, driver.usage.known_cost, driver.usage.requests) == (None, 0.5, 2)
    again = driver.snapshot()
    assert DriverSnapshot.from_json(again.to_json()).state.usage == driver.usage
    await driver.aclose()


class FailsToClose(Scripted):
    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        try:
            async for event in super().stream(request):
                yield event
        finally:
            raise RuntimeError("the connection is gone")


async def test_a_whole_reply_is_kept_if_its_stream_cannot_be_closed():
    witness = RecordingObserver()
    result = await Agent(FailsToClose(["Hi."]), observers=[witness]).run("go")
    assert result.text == "Hi."
    texts = [event.text for event in witness.events if isinstance(event, WarningRaised)]
    assert any("the connection is gone" in text for text in texts)


async def test_a_reply_that_is_interrupted_while_its_stream_closes_is_counted():
    closing = asyncio.Event()

    class ClosesSlowly(Scripted):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            try:
                async for event in super().stream(request):
                    if not isinstance(event, ModelUsageUpdated):
                        yield event
            finally:
                closing.set()
                await asyncio.sleep(10)

    driver = Agent(ClosesSlowly([Say("Hi.", usage=COSTLY)])).start("go")
    step = asyncio.create_task(driver.next())
    await closing.wait()
    driver.interrupt()
    await step
    assert driver.usage == COSTLY
    assert isinstance(driver.transcript[1], AssistantItem)
    await driver.aclose()
