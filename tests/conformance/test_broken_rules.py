"""Each promise of a policy, hook, gate, mutator, observer and task manager: what breaks it is found
and named."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from tests.conformance.broken import assert_all_are_broken, assert_names_the_promise
from treadle.contracts import (
    AddContext,
    Admit,
    Allow,
    Ask,
    AssistantItem,
    BaseObserver,
    BasePolicy,
    Block,
    Deny,
    HookAnswer,
    HookInput,
    HookPoint,
    Item,
    MutationContext,
    MutationPoint,
    NoticeItem,
    PermissionRequest,
    RequestEstimate,
    Stop,
    SummaryItem,
    TaskInfo,
    ToolCall,
    ToolResultItem,
    Transcript,
    Usage,
    UserItem,
    Verdict,
    Wait,
)
from treadle.core.contracts.model import ModelRequest
from treadle.core.loop.calls.background import BackgroundTasks
from treadle.events import Event, ToolFinished
from treadle.models import Scripted
from treadle.testing import (
    check_gate,
    check_hook,
    check_mutator,
    check_observer,
    check_policy,
    check_task_manager,
)
from treadle.testing.conformance import gate as gate_promises
from treadle.testing.conformance import hook as hook_promises
from treadle.testing.conformance import mutator as mutator_promises
from treadle.testing.conformance import observer as observer_promises
from treadle.testing.conformance import policy as policy_promises
from treadle.testing.conformance import task_manager as task_manager_promises
from treadle.testing.conformance.promises import Promise

SUITES: dict[str, tuple[Callable[..., Any], tuple[Promise, ...]]] = {
    "policy": (check_policy, policy_promises.POLICY_PROMISES),
    "hook": (check_hook, hook_promises.HOOK_PROMISES),
    "gate": (
        lambda make: check_gate(make, at_once=1),
        gate_promises.GATE_PROMISES,
    ),
    "mutator": (check_mutator, mutator_promises.MUTATOR_PROMISES),
    "observer": (check_observer, observer_promises.OBSERVER_PROMISES),
    "task manager": (check_task_manager, task_manager_promises.TASK_MANAGER_PROMISES),
}

# --- policies ------------------------------------------------------------------------------


class GoodPolicy(BasePolicy):
    def __init__(self) -> None:
        self.rules: set[str] = set()

    async def decide(self, request: PermissionRequest) -> Verdict:
        name = request.tool.name
        if request.tool.effect == "pure" or name in self.rules:
            return Allow()
        return Ask(f"{name} changes something", rules=(name,))

    async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
        self.rules.update(rules)


class NoReason(GoodPolicy):
    async def decide(self, request: PermissionRequest) -> Verdict:
        return Deny("")


class Moody(GoodPolicy):
    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count()

    async def decide(self, request: PermissionRequest) -> Verdict:
        return Allow() if next(self._numbers) % 2 else Deny("not now")


class Fragile(GoodPolicy):
    async def decide(self, request: PermissionRequest) -> Verdict:
        str(request.arguments).encode("ascii" if not request.tool.name else "utf-8")
        for file in request.access.files:
            if "\0" in file.path:
                raise ValueError("embedded null byte")
        return await super().decide(request)


class Credulous(GoodPolicy):
    async def decide(self, request: PermissionRequest) -> Verdict:
        return Allow() if request.arguments.get("approved") else await super().decide(request)


class Corrects(GoodPolicy):
    async def decide(self, request: PermissionRequest) -> Verdict:
        request.arguments.setdefault("checked", True)
        return await super().decide(request)


class Forgetful(GoodPolicy):
    async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
        return None


# --- hooks ---------------------------------------------------------------------------------


class GoodHook:
    points: frozenset[HookPoint] = frozenset({"pre_tool_use", "session_start", "stop"})
    timeout: float | None = 5.0

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        return None


class NoPoints(GoodHook):
    points: frozenset[HookPoint] = frozenset()


class WrongAnswer(GoodHook):
    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        return AddContext("x") if hook_input.point == "stop" else Block("no")


class ChangesInput(GoodHook):
    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        if hook_input.point == "pre_tool_use":
            hook_input.data["tool_input"]["command"] = "true"
        return None


class LeavesTask(GoodHook):
    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        self.work = asyncio.create_task(asyncio.sleep(1_000))
        return None


class LeavesTaskWhenCancelled(GoodHook):
    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        try:
            for _ in range(5):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.work = asyncio.create_task(asyncio.sleep(1_000))
            raise
        return None


# --- gates ---------------------------------------------------------------------------------


class GoodGate:
    """One call at a time, ten in all."""

    def __init__(self) -> None:
        self.used = 0
        self.reserved: dict[int, RequestEstimate] = {}

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        if self.used + len(self.reserved) >= 10 or self.reserved:
            return Stop("budget_exceeded", "ten calls were made")
        self.reserved[id(estimate)] = estimate
        return Admit()

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        del self.reserved[id(estimate)]
        self.used += usage.requests


class NoDetail(GoodGate):
    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        return Stop("budget_exceeded", "")


class SlowGate(GoodGate):
    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        if estimate.rounds == 0:
            time.sleep(0.06)
        return super().admit(estimate)


class KeepsReservations(GoodGate):
    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        super().settle(estimate, usage)
        self.used += 1


class ReservesNothing(GoodGate):
    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        return Stop("budget_exceeded", "ten calls were made") if self.used >= 10 else Admit()

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        self.used += usage.requests


class NeverWakes(GoodGate):
    def admit(self, estimate: RequestEstimate) -> Admit | Stop | Wait:  # type: ignore[override]
        answer = super().admit(estimate)
        is_busy = isinstance(answer, Stop) and bool(self.reserved)
        return Wait("it is busy", self._wait_forever) if is_busy else answer

    async def _wait_forever(self) -> None:
        await asyncio.Event().wait()


class NeedsCost(GoodGate):
    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        super().settle(estimate, usage)
        assert usage.cost is not None


# --- mutators ------------------------------------------------------------------------------


class GoodMutator:
    name = "note"
    points: frozenset[MutationPoint] = frozenset({"before_model", "on_request"})

    async def mutate(self, context: MutationContext) -> Transcript | None:
        return None


class NoPointsMutator(GoodMutator):
    points: frozenset[MutationPoint] = frozenset()


class Copies(GoodMutator):
    async def mutate(self, context: MutationContext) -> Transcript | None:
        return Transcript(list(context.transcript))


class DropsResults(GoodMutator):
    async def mutate(self, context: MutationContext) -> Transcript | None:
        items = [item for item in context.transcript if not isinstance(item, ToolResultItem)]
        return Transcript(items) if len(items) < len(context.transcript) else None


class DropsOpenCalls(GoodMutator):
    async def mutate(self, context: MutationContext) -> Transcript | None:
        if len(context.transcript) < 3:
            return None
        return Transcript([SummaryItem("They talked.", len(context.transcript))])


class CopiesItems(GoodMutator):
    async def mutate(self, context: MutationContext) -> Transcript | None:
        items = [msgspec.structs.replace(item) for item in context.transcript]
        return Transcript([*items, NoticeItem("A note.")]) if is_closed(context) else None


class ChangesOldView(GoodMutator):
    async def mutate(self, context: MutationContext) -> Transcript | None:
        if context.transcript:
            copy = msgspec.structs.replace(context.transcript[0])
            context.transcript._shared.items[0] = copy
        return None


class NeedsBudget(GoodMutator):
    async def mutate(self, context: MutationContext) -> Transcript | None:
        await context.call_model(
            ModelRequest(Transcript()), "summary", Scripted(lambda _: "Notes.")
        )
        return None


def is_closed(context: MutationContext) -> bool:
    last = context.transcript[-1] if context.transcript else None
    return isinstance(last, (UserItem, AssistantItem)) and not getattr(last, "calls", ())


# --- observers -----------------------------------------------------------------------------


class KnowsSome(BaseObserver):
    def on_event(self, event: Event) -> None:
        event.text  # type: ignore[attr-defined]  # noqa: B018


class NeedsBeginning(BaseObserver):
    def __init__(self) -> None:
        self.started: dict[str, str] = {}

    def on_event(self, event: Event) -> None:
        if type(event).__name__ == "ToolStarted":
            self.started["call_1"] = "begun"
        elif isinstance(event, ToolFinished):
            self.started.pop(event.call_id)


class SlowObserver(BaseObserver):
    def on_item(self, position: int, item: Item) -> None:
        time.sleep(0.06)


class AsyncObserver(BaseObserver):
    async def on_event(self, event: Event) -> None:  # type: ignore[override]
        return None


class ChangesData(BaseObserver):
    def on_item(self, position: int, item: Item) -> None:
        if isinstance(item, NoticeItem) and item.data is not None:
            item.data["n"] = item.data["n"] + 1


# --- task managers -------------------------------------------------------------------------


class ListsForeground(BackgroundTasks):
    captured: tuple[TaskInfo, ...] = ()

    def stop_capture(self, call: ToolCall) -> None:
        self.captured = (TaskInfo("t", call.id, call.name, "", "done", ""),)
        super().stop_capture(call)

    def list(self) -> tuple[TaskInfo, ...]:
        return (*self.captured, *super().list())


class OneId(BackgroundTasks):
    def add(self, call: ToolCall, summary: str, work: Any) -> str:
        super().add(call, summary, work)
        return "task"


class ReportsTwice(BackgroundTasks):
    def __init__(self, report_end: Callable[[TaskInfo, str], None]) -> None:
        def report(task: TaskInfo, text: str) -> None:
            report_end(task, text)
            report_end(task, text)

        super().__init__(report)


class ForgetsEnded(BackgroundTasks):
    def read(self, task_id: str) -> TaskInfo | None:
        task = super().read(task_id)
        return task if task is not None and task.state == "running" else None


class CancelsLater(BackgroundTasks):
    async def cancel(self, task_id: str) -> bool:
        return any(task.id == task_id for task in self.list() if task.state == "running")


class LeavesRunning(BackgroundTasks):
    async def aclose(self) -> None:
        return None


class RepeatsIds(BackgroundTasks):
    def restore(self, known: Sequence[str], unfinished: Sequence[str]) -> Sequence[str]:
        return ()


BROKEN: dict[str, dict[Promise, Callable[..., object]]] = {
    "policy": {
        policy_promises.every_call_gets_a_verdict_with_a_reason: NoReason,
        policy_promises.the_same_request_gets_the_same_verdict: Moody,
        policy_promises.strange_calls_do_not_make_it_fail: Fragile,
        policy_promises.what_a_model_writes_does_not_widen_it: Credulous,
        policy_promises.deciding_runs_and_changes_nothing: Corrects,
        policy_promises.what_the_user_always_allows_is_allowed: Forgetful,
    },
    "hook": {
        hook_promises.has_points_and_a_timeout: NoPoints,
        hook_promises.answers_what_its_points_allow: WrongAnswer,
        hook_promises.does_not_change_its_input: ChangesInput,
        hook_promises.leaves_nothing_running: LeavesTask,
        hook_promises.ends_when_it_is_cancelled: LeavesTaskWhenCancelled,
    },
    "gate": {
        gate_promises.admits_or_stops_with_a_reason: NoDetail,
        gate_promises.does_not_block: SlowGate,
        gate_promises.gives_back_what_a_call_did_not_use: KeepsReservations,
        gate_promises.reserves_what_it_admits: ReservesNothing,
        gate_promises.settles_calls_in_any_order_and_of_unknown_cost: NeedsCost,
        gate_promises.ends_a_wait_when_another_call_is_settled: NeverWakes,
    },
    "mutator": {
        mutator_promises.has_a_name_and_points: NoPointsMutator,
        mutator_promises.a_view_without_a_change_is_none_or_the_same_object: Copies,
        mutator_promises.keeps_every_law: DropsResults,
        mutator_promises.keeps_the_open_calls: DropsOpenCalls,
        mutator_promises.items_that_stay_are_the_same_objects: CopiesItems,
        mutator_promises.does_not_change_the_old_view: ChangesOldView,
        mutator_promises.works_without_a_budget: NeedsBudget,
    },
    "observer": {
        observer_promises.accepts_every_event_and_item: KnowsSome,
        observer_promises.accepts_events_of_a_run_that_it_joins_late: NeedsBeginning,
        observer_promises.returns_at_once: SlowObserver,
        observer_promises.changes_nothing: ChangesData,
    },
    "task manager": {
        task_manager_promises.a_call_that_ends_in_the_foreground_is_no_task: ListsForeground,
        task_manager_promises.a_task_has_an_id_and_can_be_read: OneId,
        task_manager_promises.each_end_is_reported_once_with_its_result: ReportsTwice,
        task_manager_promises.a_task_can_be_read_after_its_end: ForgetsEnded,
        task_manager_promises.cancel_returns_when_the_work_has_ended: CancelsLater,
        task_manager_promises.close_leaves_nothing_running: LeavesRunning,
        task_manager_promises.an_id_of_an_earlier_process_is_not_given_again: RepeatsIds,
    },
}
CASES = [
    (contract, promise, made) for contract, all_ in BROKEN.items() for promise, made in all_.items()
]


@pytest.mark.parametrize(
    ("contract", "good"),
    [
        ("policy", GoodPolicy),
        ("hook", GoodHook),
        ("gate", GoodGate),
        ("mutator", GoodMutator),
        ("observer", BaseObserver),
        ("task manager", BackgroundTasks),
    ],
)
async def test_what_the_broken_ones_change_keeps_every_promise(contract: str, good):
    check, promises = SUITES[contract]
    await check(good)
    assert_all_are_broken(BROKEN[contract], promises)


@pytest.mark.parametrize(("contract", "promise", "broken"), CASES)
async def test_a_broken_promise_is_found(contract: str, promise: Promise, broken):
    with assert_names_the_promise(contract, promise):
        await SUITES[contract][0](broken)


async def test_an_async_observer_is_found():
    with pytest.raises(AssertionError, match="on_event is an async function"):
        await check_observer(AsyncObserver)  # type: ignore[arg-type]
