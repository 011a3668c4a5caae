"""Stories of hooks, policies, models, observers and others that misbehave or call back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import pytest

from tests.patience import pass_time, until
from treadle import Agent, Transcript, Usage, tool
from treadle.agents.agent_definition import AgentDefinition
from treadle.budgets import CostBudget, RepetitionGuard, SharedBudget, TimeLimit
from treadle.context.compaction import Compactor
from treadle.core.contracts.gate import Gate
from treadle.core.contracts.hook import (
    DEFAULT_HOOK_TIMEOUT,
    AddContext,
    HookAnswer,
    HookInput,
    HookPoint,
)
from treadle.core.contracts.model import ModelCard, ModelEvent, ModelRequest
from treadle.core.contracts.mutator import MutationContext
from treadle.core.contracts.observer import BaseObserver
from treadle.core.contracts.policy import Allow, AllowAll, Ask, PermissionRequest, Verdict
from treadle.core.contracts.source import BaseSource
from treadle.core.contracts.tool import Access, ProbeResult, Tool, ToolOutput
from treadle.core.events import (
    ApprovalRequired,
    ApprovalResolved,
    Event,
    RetryScheduled,
    RunFailed,
    ToolFinished,
    WarningRaised,
)
from treadle.core.loop import hooks as loop_hooks
from treadle.core.loop.calls.background import BackgroundTasks
from treadle.core.session_cache import SessionCache
from treadle.core.steps import Denial, Finished, PendingApproval
from treadle.core.transcript import (
    AssistantItem,
    Item,
    NoticeItem,
    Text,
    ToolCall,
    ToolResultItem,
    to_user_item,
)
from treadle.core.transcript.entries import Intent
from treadle.core.transcript.state import SessionState, fold_entries
from treadle.hooks import hook
from treadle.lib import tasks as lib_tasks
from treadle.models import Say, Scripted
from treadle.testing.clock import ManualClock
from treadle.testing.observers import RecordingObserver
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import RecordingTool


def warnings(witness: RecordingObserver) -> list[str]:
    return [event.text for event in witness.events if isinstance(event, WarningRaised)]


# --- a cancellation from inside ----------------------------------------------------------


async def cancelled_inside() -> None:
    task = asyncio.ensure_future(asyncio.sleep(60))
    task.cancel()
    await task


class CancelsItself(AllowAll):
    """A hook, a mutator and a policy, each of which awaits a task that was cancelled."""

    name = "cancels_itself"

    def __init__(self, points: frozenset[str]) -> None:
        self.points = points

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        await cancelled_inside()
        return None

    async def mutate(self, context: MutationContext) -> Transcript | None:
        await cancelled_inside()
        return None

    async def decide(self, request: PermissionRequest) -> Verdict:
        await cancelled_inside()
        return Ask("never")


@pytest.mark.parametrize("kind", ["hook", "mutator", "policy"])
async def test_a_cancellation_inside_a_hook_a_mutator_or_a_policy_does_not_cancel_the_run(kind):
    points = {"hook": "user_prompt_submit", "mutator": "before_model", "policy": ""}
    odd = CancelsItself(frozenset({points[kind]}))
    model = Scripted([Say(calls=[("record", {})]), "done"])
    witness = RecordingObserver()
    agent = Agent(
        model,
        [RecordingTool()],
        hooks=[odd] if kind == "hook" else [],  # type: ignore[list-item]
        mutators=[odd] if kind == "mutator" else [],  # type: ignore[list-item]
        policy=odd if kind == "policy" else None,
        observers=[witness],
    )
    result = await agent.run("go")
    assert (result.reason, result.text) == ("end_turn", "done")
    answers = [item.text for item in result.transcript if isinstance(item, ToolResultItem)]
    told = [*warnings(witness), *answers]
    assert any("it was cancelled from inside" in text for text in told)


async def test_a_cancellation_inside_a_model_is_a_broken_stream_and_tried_again():
    class CancelsOnce(Scripted):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            if not self.closed:
                self.closed = True
                await cancelled_inside()
            async for event in super().stream(request):
                yield event

    witness = RecordingObserver()
    agent = Agent(CancelsOnce(["done"]), clock=ManualClock(), observers=[witness])
    assert (await agent.run("go")).text == "done"
    assert len(witness.events_of(RetryScheduled)) == 1


@pytest.mark.parametrize("method", ["on_event", "on_item"])
async def test_a_cancellation_that_an_observer_raises_costs_no_request(method):
    class Cancels(BaseObserver):
        pass

    def cancel(self: Cancels, *given: object) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        future.result()

    setattr(Cancels, method, cancel)
    model, witness = Scripted([Say(calls=[("record", {})]), "done"]), RecordingObserver()
    result = await Agent(model, [RecordingTool()], observers=[Cancels(), witness]).run("go")
    assert (result.text, len(model.requests)) == ("done", 2)
    assert warnings(witness) == ["observer Cancels failed: CancelledError"]


# --- hooks that hang ---------------------------------------------------------------------


async def hang(hook_input: HookInput) -> None:
    await asyncio.Event().wait()


async def test_a_hook_that_hangs_is_stopped_and_denies_the_call():
    record = RecordingTool()
    model = Scripted([Say(calls=[("record", {})]), "done"])
    slow = hook("pre_tool_use", timeout=0.01)(hang)
    result = await Agent(model, [record], hooks=[slow]).run("go")
    assert record.calls == []
    [answer] = [item for item in result.transcript if isinstance(item, ToolResultItem)]
    assert answer.outcome == "denied"
    assert "it did not finish within 0.01 s" in answer.text


async def test_a_plain_hook_that_hangs_is_left_alone_after_its_time(monkeypatch):
    monkeypatch.setattr(lib_tasks, "STOP_GRACE_SECONDS", 0.01)
    record, release, threads = RecordingTool(), threading.Event(), list[str]()

    @hook("pre_tool_use", timeout=60.0)
    def hang_in_thread(hook_input: HookInput) -> None:
        threads.append(threading.current_thread().name)
        release.wait()

    @hook("pre_tool_use", timeout=None)
    def return_at_once(hook_input: HookInput) -> None:
        threads.append(threading.current_thread().name)

    model = Scripted([Say(calls=[("record", {})]), "done"])
    hooks = [return_at_once, hang_in_thread]
    try:
        run = asyncio.create_task(Agent(model, [record], hooks=hooks).run("go"))
        await until(lambda: len(threads) == 2, "the hook in its thread")
        pass_time(61)
        result = await run
    finally:
        release.set()
    assert (result.text, record.calls) == ("done", [])
    assert threads == ["MainThread", "treadle-function"]


async def test_a_plain_hook_has_the_default_time_and_answers_from_its_thread():
    @hook("user_prompt_submit")
    def add_context(hook_input: HookInput) -> str:
        return f"It is Monday in {threading.current_thread().name}."

    assert (add_context.timeout, DEFAULT_HOOK_TIMEOUT) == (60.0, 60.0)
    result = await Agent(Scripted(["ok"]), hooks=[add_context]).run("go")
    assert [item.text for item in result.transcript if isinstance(item, NoticeItem)] == [
        "It is Monday in treadle-function."
    ]


async def test_a_session_end_hook_that_hangs_does_not_keep_the_session_open(monkeypatch):
    monkeypatch.setattr(loop_hooks, "SESSION_END_TIMEOUT", 0.01)
    witness = RecordingObserver()
    slow = hook("session_end", timeout=None)(hang)
    assert (await Agent(Scripted(["ok"]), hooks=[slow], observers=[witness]).run("go")).text == "ok"
    assert "it did not finish within 0.01 s" in warnings(witness)[0]


async def test_an_interrupted_session_start_hook_is_asked_again():
    began = asyncio.Event()

    @hook("session_start")
    async def slow_once(hook_input: HookInput) -> str:
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()
        return "The sky is blue."

    model = Scripted(["ok"])
    driver = Agent(model, hooks=[slow_once]).start(prompt="go")
    step = asyncio.create_task(driver.next())
    await began.wait()
    driver.interrupt()
    await step
    assert isinstance(await driver.next(), Finished)
    [notice] = [item for item in model.requests[0].transcript if isinstance(item, NoticeItem)]
    assert notice.text == "The sky is blue."


async def test_a_message_that_arrives_during_the_stop_hook_is_answered_in_this_turn():
    class Steers:
        points: frozenset[HookPoint] = frozenset({"stop"})
        count = 0

        async def run(self, hook_input: HookInput) -> HookAnswer | None:
            self.count += 1
            if self.count == 1:
                driver.steer("And the moon?")
            return None

    steers = Steers()
    driver = Agent(Scripted(["The sky is blue.", "It is grey."]), hooks=[steers]).start(
        prompt="Sky?"
    )
    step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.text == "It is grey."
    assert steers.count == 2


# --- observers ---------------------------------------------------------------------------


class AsksAlways(AllowAll):
    async def decide(self, request: PermissionRequest) -> Verdict:
        return Ask("sure?")


async def test_an_approval_inside_on_event_reaches_every_observer_in_order():
    class Approves(BaseObserver):
        def on_event(self, event: Event) -> None:
            if isinstance(event, ApprovalRequired):
                driver.approve(event.call.id)

    later = RecordingObserver()
    model = Scripted([Say(calls=[("record", {})]), "done"])
    agent = Agent(model, [RecordingTool()], policy=AsksAlways(), observers=[Approves(), later])
    driver = agent.start(prompt="go")
    while not isinstance(await driver.next(), Finished):
        pass
    kinds = [type(event) for event in later.events]
    assert kinds.index(ApprovalRequired) < kinds.index(ApprovalResolved)
    numbers = [event.seq for event in later.events]
    assert numbers == sorted(numbers)


# --- gates and mutators that serve many sessions -----------------------------------------


async def test_gates_and_the_compactor_do_not_keep_every_session(monkeypatch):
    made: list[SessionCache[object]] = []
    original = SessionCache.__init__

    def count(self: SessionCache[object], make: object) -> None:
        made.append(self)
        original(self, make, 3)  # type: ignore[arg-type]

    monkeypatch.setattr(SessionCache, "__init__", count)
    budget = CostBudget(SharedBudget(1e9), (1.0, 1.0))
    gates: list[Gate] = [TimeLimit(1e9), RepetitionGuard(1), budget]
    model = Scripted(lambda request: "ok")
    agent = Agent(model, gates=gates, mutators=[Compactor()])
    for _ in range(10):
        await agent.run("go")
    assert len(made) == 5
    assert all(len(cache) <= 3 for cache in made)


async def test_a_threshold_that_a_child_passed_is_told_to_its_parent_too():
    card = ModelCard("priced", window=9_000, max_output=10, input_price=0.01, output_price=0.01)
    costly = Usage(10, 10, requests=1, cost=0.6)
    task = ("task", {"description": "work", "prompt": "child", "subagent_type": "helper"})
    model = Scripted(
        [Say(calls=[task]), Say(calls=[("record", {})], usage=costly), "found", "done"], card=card
    )
    helper = AgentDefinition("helper", "helps", "Help.")
    result = await Agent(
        model, [RecordingTool()], gates=[CostBudget(SharedBudget(1.0))], subagents=[helper]
    ).run("parent")
    assert result.text == "done"
    told = [item for item in result.transcript if isinstance(item, NoticeItem)]
    assert [notice.kind for notice in told] == ["budget"]
    assert "$0.40 of $1.00" in told[0].text


@pytest.mark.parametrize("cycle", [("a", "b"), ("a", "b", "c")])
async def test_rounds_that_are_repeated_in_turn_are_noticed_and_stopped(cycle):
    numbers = iter(range(1_000))

    def answer(request: ModelRequest) -> Say:
        return Say(calls=[("record", {"of": cycle[next(numbers) % len(cycle)]})])

    agent = Agent(Scripted(answer), [RecordingTool()], gates=[RepetitionGuard(3, 5)])
    result = await agent.run("go")
    assert result.reason == "repetition"
    assert result.turn.rounds == 5 * len(cycle)
    notices = [item.text for item in result.transcript if isinstance(item, NoticeItem)]
    assert f"The same {len(cycle)} rounds of calls have given the same result 3 times" in notices[0]


async def test_rounds_that_differ_are_not_taken_for_a_repetition():
    numbers = iter(range(1_000))
    model = Scripted(
        [Say(calls=[("record", {"of": n % 2, "n": n // 6})]) for n in range(24)] + ["done"]
    )
    varied = RecordingTool(answer=lambda given: str(next(numbers)))
    assert (await Agent(model, [varied], gates=[RepetitionGuard(3, 5)]).run("go")).text == "done"


async def test_context_of_a_hook_that_was_added_in_time_is_kept():
    quick = hook("user_prompt_submit", timeout=5)(lambda hook_input: AddContext("It rains."))
    model = Scripted(["ok"])
    await Agent(model, hooks=[quick]).run("go")
    notices = [item.text for item in model.requests[0].transcript if isinstance(item, NoticeItem)]
    assert notices == ["It rains."]


# --- approvers ---------------------------------------------------------------------------


async def read_stream(agent: Agent, seen: list[Event]) -> None:
    async with agent.stream("go") as events:
        seen.extend([event async for event in events])


@pytest.mark.parametrize("kind", [RuntimeError, asyncio.CancelledError, StopIteration])
@pytest.mark.parametrize("is_async", [True, False])
async def test_an_approver_that_raises_ends_the_run_with_a_terminal_event(kind, is_async):
    def fail(approval: PendingApproval) -> bool:
        raise kind("mine")

    async def fail_later(approval: PendingApproval) -> bool:
        raise kind("mine")

    for way in ("run", "stream"):
        witness = RecordingObserver()
        agent = Agent(
            Scripted([Say(calls=[("record", {})])]),
            [RecordingTool()],
            policy=AsksAlways(),
            approve=fail_later if is_async else fail,
            observers=[witness],
        )
        seen: list[Event] = []
        with pytest.raises(RuntimeError):
            await (agent.run("go") if way == "run" else read_stream(agent, seen))
        assert isinstance(witness.events[-1], RunFailed)
        assert len(witness.events_of(RunFailed)) == 1
        assert seen == [] or seen == witness.events


@pytest.mark.parametrize(
    ("answer", "is_error"),
    [(1, True), ("yes", True), (None, False), (Denial("The user said no."), False)],
)
async def test_an_approver_must_return_true_false_an_approval_or_a_denial(answer, is_error, caplog):
    record = RecordingTool()
    agent = Agent(
        Scripted([Say(calls=[("record", {})]), "done"]),
        [record],
        policy=AsksAlways(),
        approve=lambda approval: answer,
    )
    if is_error:
        with pytest.raises(TypeError, match=r"the approver returned .*; it must return True"):
            await agent.run("go")
    else:
        result = await agent.run("go")
        assert result.transcript[2].text == "denied: The user said no."
        assert ("`approve` returned None" in caplog.text) is (answer is None)
    assert record.calls == []


async def test_the_turn_continues_after_an_approver_that_failed():
    failures = iter([RuntimeError("mine")])

    def approve(approval: PendingApproval) -> bool:
        for failure in failures:
            raise failure
        return True

    record = RecordingTool()
    agent = Agent(
        Scripted([Say(calls=[("record", {})]), "done"]),
        [record],
        policy=AsksAlways(),
        approve=approve,
    )
    driver = agent.start(prompt="go")
    with pytest.raises(RuntimeError):
        await agent.finish_turn(driver)
    [approval] = driver.approvals
    driver.approve(approval.call.id)
    assert (await agent.finish_turn(driver)).text == "done"
    assert len(record.calls) == 1


# --- exceptions without a text -----------------------------------------------------------


class Unreadable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class FailsUnreadably(CancelsItself):
    def on_event(self, event: Event) -> None:
        raise Unreadable

    def on_item(self, position: int, item: Item) -> None:
        raise Unreadable

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        raise Unreadable

    async def mutate(self, context: MutationContext) -> Transcript | None:
        raise Unreadable

    async def decide(self, request: PermissionRequest) -> Verdict:
        raise Unreadable


@pytest.mark.parametrize("kind", ["tool", "hook", "mutator", "policy", "observer"])
async def test_an_exception_whose_text_cannot_be_read_does_not_end_the_run(kind):
    points = {"hook": "user_prompt_submit", "mutator": "before_model"}
    odd = FailsUnreadably(frozenset({points.get(kind, "")}))
    record = RecordingTool(answer=Unreadable() if kind == "tool" else "ok")
    witness = RecordingObserver()
    result = await Agent(
        Scripted([Say(calls=[("record", {})]), "done"]),
        [record],
        hooks=[odd] if kind == "hook" else [],  # type: ignore[list-item]
        mutators=[odd] if kind == "mutator" else [],  # type: ignore[list-item]
        policy=odd if kind == "policy" else None,
        observers=[odd, witness] if kind == "observer" else [witness],
    ).run("go")
    assert (result.reason, result.text) == ("end_turn", "done")
    faults = [event.fault for event in witness.events_of(ToolFinished) if event.fault is not None]
    told = [*warnings(witness), *(f"{fault.type}: {fault.message}" for fault in faults)]
    told.append(result.transcript[2].text)
    expected = "Unreadable: its message cannot be read, because __str__ raised ValueError"
    assert any(expected in text for text in told)


async def test_a_run_that_fails_with_an_unreadable_exception_has_its_terminal_event():
    class BadModel(Scripted):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            raise Unreadable
            yield

    witness = RecordingObserver()
    with pytest.raises(Unreadable):
        await Agent(BadModel([]), observers=[witness]).run("go")
    [failed] = witness.events_of(RunFailed)
    assert failed.kind == "Unreadable"


async def test_an_output_whose_display_has_no_text_is_an_error_of_the_tool():
    @tool
    async def odd() -> ToolOutput:
        return ToolOutput("fine", Unreadable())  # type: ignore[arg-type]

    result = await Agent(Scripted([Say(calls=[("odd", {})]), "done"]), [odd]).run("go")
    assert result.text == "done"
    assert "its output cannot be stored: no text" in result.transcript[2].text


# --- a task manager ----------------------------------------------------------------------


def raise_error(error: BaseException) -> Access:
    raise error


ODD_ACCESSES = {
    "an error": lambda given: raise_error(RuntimeError("no idea")),
    "a cancellation": lambda given: raise_error(asyncio.CancelledError()),
    "nothing": lambda given: None,
    "another value": lambda given: {"reads": ["a"]},
    "a list": lambda given: Access(reads=["a"]),  # type: ignore[arg-type]
    "a text": lambda given: Access(writes="a"),  # type: ignore[arg-type]
    "keys of another kind": lambda given: Access(writes=frozenset({1})),  # type: ignore[arg-type]
    "a path": lambda given: Access(files=("a",)),  # type: ignore[arg-type]
    "a list of words": lambda given: Access(command=["ls"]),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("kind", ODD_ACCESSES)
async def test_an_access_that_cannot_be_used_is_the_result_of_its_call(kind):
    odd = RecordingTool("odd", access=ODD_ACCESSES[kind])  # type: ignore[arg-type]
    fine = RecordingTool("fine", access=lambda given: Access(reads=frozenset({"a"})))
    model = Scripted([Say(calls=[("odd", {}), ("fine", {})]), "done"])
    result = await Agent(model, [odd, fine], policy=AsksNever()).run("go")
    wrong, right = [item for item in result.transcript if isinstance(item, ToolResultItem)]
    assert (result.text, right.text, odd.calls) == ("done", "ok", [])
    assert wrong.is_error
    assert wrong.text.startswith("error: odd was not run: its `access` failed: a fault")


class AsksNever(AllowAll):
    """A policy that reads the access, as a policy of rules does."""

    async def decide(self, request: PermissionRequest) -> Verdict:
        return Allow() if request.access.reads | request.access.writes else Ask("odd")


@pytest.mark.parametrize("good_count", [0, 1])
async def test_an_access_that_fails_after_a_crash_is_the_result_of_its_call(good_count):
    model = Scripted([Say(calls=[("record", {})]), "done"])
    probe = ProbeResult("not_done", "it is not there")
    store = MemoryStore()
    first = RecordingTool(effect="verifiable", probe=probe)
    await Agent(model, [first]).run("go", session=store)
    cut = next(n for n, entry in enumerate(store.entries) if isinstance(entry, Intent)) + 1
    accesses = iter([Access()] * good_count)
    again = RecordingTool(effect="verifiable", probe=probe, access=lambda given: next(accesses))
    driver = Agent(Scripted(["done"]), [again]).start(state=fold_entries(store.entries[:cut]))
    while not isinstance(step := await driver.next(), Finished):
        pass
    [answer] = [item for item in driver.transcript if isinstance(item, ToolResultItem)]
    assert (step.result.text, answer.is_error, again.calls) == ("done", True, [])
    is_unknown = answer.outcome == "unknown"  # without its access, nothing is probed
    assert is_unknown or "its `access` failed: a fault in its code (StopIteration)" in answer.text


class BrokenTasks(BackgroundTasks):
    """Fails in one method; every call is to become a task at once."""

    broken = ""

    def foreground_seconds(self, call: ToolCall, declared: float | None) -> float | None:
        if self.broken == "wrong seconds":
            return "soon"  # type: ignore[return-value]
        self._break("foreground_seconds")
        return 0 if self.broken == "add" else declared

    def start_capture(self, call: ToolCall) -> None:
        self._break("start_capture")
        super().start_capture(call)

    def stop_capture(self, call: ToolCall) -> None:
        self._break("stop_capture")
        super().stop_capture(call)

    def add(self, call: ToolCall, summary: str, work: asyncio.Task[ToolResultItem]) -> str:
        self._break("add")
        return super().add(call, summary, work)

    def _break(self, method: str) -> None:
        if self.broken == method:
            raise ValueError(f"{method} is broken")


@pytest.mark.parametrize(
    "method", ["foreground_seconds", "wrong seconds", "start_capture", "stop_capture", "add"]
)
async def test_a_task_manager_that_fails_is_told_and_the_call_ends_in_the_foreground(method: str):
    class Broken(BrokenTasks):
        broken = method

    witness, done = RecordingObserver(), []

    @tool(detachable=True)
    async def slow() -> str:
        """Takes a while."""
        for _ in range(20):
            await asyncio.sleep(0)
        done.append(1)
        return "slow is done"

    model = Scripted([Say(calls=[("slow", {})]), "fine"])
    result = await Agent(model, [slow], task_manager=Broken, observers=[witness]).run("go")
    assert (result.text, done) == ("fine", [1])
    [answer] = [item for item in result.transcript if isinstance(item, ToolResultItem)]
    assert answer.text == "slow is done"
    [warning] = warnings(witness)
    assert warning.startswith("the task manager failed: ")


async def test_a_task_manager_that_cannot_close_is_told_and_the_session_ends():
    class Broken(BackgroundTasks):
        async def aclose(self) -> None:
            await super().aclose()
            raise ValueError("aclose is broken")

    witness, ended = RecordingObserver(), []

    @hook("session_end")
    async def note_end(hook_input: HookInput) -> None:
        ended.append(1)

    agent = Agent(Scripted(["fine"]), task_manager=Broken, observers=[witness], hooks=[note_end])
    assert (await agent.run("go")).text == "fine"
    assert (warnings(witness), ended) == (
        ["the task manager failed: ValueError: aclose is broken"],
        [1],
    )


async def test_a_task_manager_that_cannot_restore_is_told_and_its_tasks_are_lost():
    class Broken(BackgroundTasks):
        def restore(self, known: Sequence[str], unfinished: Sequence[str]) -> Sequence[str]:
            raise ValueError("restore is broken")

    witness = RecordingObserver()
    started = ToolResultItem("1", "slow", (Text("x"),), data={"task_id": "t1"})
    earlier = Transcript([to_user_item("go"), _reply_with_call("1"), started, _reply()])
    driver = Agent(Scripted(["fine"]), task_manager=Broken, observers=[witness]).start(
        prompt="again", state=SessionState(earlier, turns=1)
    )
    await driver.next()
    await driver.aclose()
    assert warnings(witness) == ["the task manager failed: ValueError: restore is broken"]
    [lost] = [item for item in driver.transcript if isinstance(item, NoticeItem)]
    assert lost.data == {"task_id": "t1", "state": "lost"}


def _reply_with_call(call_id: str) -> AssistantItem:
    return AssistantItem((ToolCall(call_id, "slow", "{}"),), model="m")


def _reply() -> AssistantItem:
    return AssistantItem((Text("It runs."),), model="m")


async def test_a_call_that_no_task_manager_takes_over_is_stopped_by_an_interruption():
    class Broken(BrokenTasks):
        broken = "add"

    failed, stopped = asyncio.Event(), []

    class Watch(BaseObserver):
        def on_event(self, event: Event) -> None:
            if isinstance(event, WarningRaised):
                failed.set()

    @tool(detachable=True)
    async def endless() -> str:
        """Does not end."""
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(1)
        return ""

    model = Scripted([Say(calls=[("endless", {})]), "never"])
    driver = Agent(model, [endless], task_manager=Broken, observers=[Watch()]).start()
    driver.submit("go")
    step = asyncio.create_task(driver.next())
    await failed.wait()
    driver.interrupt()
    finished = await step
    assert isinstance(finished, Finished)
    assert (finished.result.reason, stopped) == ("aborted", [1])
    await driver.aclose()


async def test_a_source_that_fails_later_keeps_its_tools_and_is_told_once(
    caplog: pytest.LogCaptureFixture,
):
    class Flaky(BaseSource):
        name = "flaky"
        is_broken = False

        def tools(self) -> Sequence[Tool]:
            if self.is_broken:
                raise ValueError("the registry is away")
            return (tool(look),)

    def look() -> str:
        """Look around."""
        source.is_broken = True
        return "seen"

    source = Flaky()
    model = Scripted([Say(calls=[("look", {})]), Say(calls=[("look", {})]), "done"])
    with caplog.at_level("WARNING", "treadle"):
        result = await Agent(model, [source]).run("go")
    assert result.text == "done"
    assert [one.content for one in result.transcript if isinstance(one, ToolResultItem)] == [
        (Text("seen"),),
        (Text("seen"),),
    ]
    told = [one.getMessage() for one in caplog.records if "flaky" in one.getMessage()]
    assert told == [
        "tools() of 'flaky' failed, its last list stays: ValueError('the registry is away')"
    ]
