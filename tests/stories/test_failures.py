"""Stories of trouble that stays where it is: in a call, a hook, a task, an empty message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from treadle import Agent, tool
from treadle.core.contracts.gate import Admit, BaseGate
from treadle.core.contracts.hook import AddContext, Block, Change, HookAnswer, HookInput, HookPoint
from treadle.core.contracts.model import ModelEvent, ModelRequest, ModelUsageUpdated
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.contracts.policy import Allow, AllowAll, Ask, Deny, PermissionRequest, Verdict
from treadle.core.contracts.tool import ProbeResult, ToolContext
from treadle.core.errors import (
    AccessDenied,
    ConfigError,
    ContextTooLong,
    LawBroken,
    LoopError,
    StoreError,
    StoreFull,
    StreamBroken,
)
from treadle.core.events import (
    Notified,
    RunFailed,
    TaskFinished,
    ToolCallRequested,
    ToolFinished,
    ToolStarted,
    WarningRaised,
)
from treadle.core.steps import AfterToolResult, ApprovalRequest, AwaitingInput, Finished
from treadle.core.transcript import (
    AssistantItem,
    NoticeItem,
    SummaryItem,
    Text,
    ToolCall,
    ToolResultItem,
    Transcript,
    Usage,
    UserItem,
)
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.entries import InputDropped, Intent
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.state import SessionState, fold_entries
from treadle.models import Pause, Say, Scripted
from treadle.testing.clock import ManualClock
from treadle.testing.observers import RecordingObserver
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import ChangingSource, RecordingTool


def answers(transcript: Transcript) -> list[str]:
    return [item.model_text for item in transcript if isinstance(item, ToolResultItem)]


def calling(*calls: tuple[str, dict[str, Any] | str]) -> Scripted:
    return Scripted([Say(calls=list(calls)), "done"])


class Hooked:
    """A hook that is a function of the moment."""

    def __init__(self, point: HookPoint, answer: Any) -> None:
        self.points: frozenset[HookPoint] = frozenset({point})
        self._answer = answer

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        given: HookAnswer | None = self._answer(hook_input)
        return given


class Asks(AllowAll):
    async def decide(self, request: PermissionRequest) -> Verdict:
        return Ask("because", (f"rule for {request.arguments}",))


# --- calls -------------------------------------------------------------------------------


async def test_where_the_whole_output_cannot_be_kept_the_result_is_cut_all_the_same():
    def full(call_id: str, text: str) -> str:
        raise OSError(28, "No space left on device")

    witness, long = RecordingObserver(), RecordingTool(answer="x" * 200)
    result = await Agent(
        calling(("record", {})),
        [long],
        max_result_chars=50,
        keep_output=full,
        observers=[witness],
    ).run("x")
    assert answers(result.transcript) == ["x" * 50 + "... [truncated, 200 chars total]"]
    assert any("No space left" in event.text for event in witness.events_of(WarningRaised))


async def test_half_of_a_character_in_a_result_does_not_break_the_log():
    odd = RecordingTool(answer="caf\ud83d!")
    result = await Agent(calling(("record", {})), [odd]).run("x")
    answers(result.transcript)[0].encode()


async def test_a_message_with_half_of_a_character_can_be_written():
    result = await Agent(Scripted(["ok"])).run("file \udce9.txt")
    said = result.transcript[0]
    assert isinstance(said, UserItem)
    said.text.encode()


async def test_a_rule_that_cannot_be_saved_is_told_and_the_call_happens():
    class Forgetful(Asks):
        async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
            raise OSError(30, "Read-only file system")

    witness, record = RecordingObserver(), RecordingTool(effect="irreversible")
    agent = Agent(calling(("record", {})), [record], policy=Forgetful(), observers=[witness])
    driver = agent.start(prompt="x")
    request = await driver.next()
    assert isinstance(request, ApprovalRequest)
    request.approve(request.calls[0].id, always=True)
    assert isinstance(await driver.next(), AfterToolResult)
    assert len(record.calls) == 1
    assert any("Read-only" in event.text for event in witness.events_of(WarningRaised))


async def test_always_saves_nothing_that_was_not_shown():
    class Keeps(Asks):
        def __init__(self) -> None:
            self.kept: list[tuple[str, ...]] = []

        async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
            self.kept.append(rules)

    policy, record, witness = Keeps(), RecordingTool(effect="irreversible"), RecordingObserver()
    agent = Agent(calling(("record", {"n": 1})), [record], policy=policy, observers=[witness])
    driver = agent.start(prompt="x")
    request = await driver.next()
    assert isinstance(request, ApprovalRequest)
    request.approve(request.calls[0].id, arguments={"n": 2}, always=True)
    await driver.next()
    assert record.calls == [{"n": 2}]
    assert policy.kept == []
    assert any("no rule was saved" in event.text for event in witness.events_of(Notified))


async def test_a_call_that_a_hook_changed_is_shown_as_it_is():
    witness = RecordingObserver()

    @tool
    async def bash(command: str) -> str:
        return command

    seen: list[str] = []

    class Sees(AllowAll):
        async def decide(self, request: PermissionRequest) -> Verdict:
            seen.append(request.summary)
            return Allow()

    hook = Hooked("pre_tool_use", lambda moment: Change(arguments={"command": "rm -rf build"}))
    agent = Agent(
        calling(("bash", {"command": "ls"})),
        [bash],
        hooks=[hook],
        policy=Sees(),
        observers=[witness],
    )
    await agent.run("x")
    assert [event.summary for event in witness.events_of(ToolStarted)] == ["[bash: rm -rf build]"]
    assert seen == ["[bash: ls]", "[bash: rm -rf build]"]


async def test_a_hook_that_changes_a_call_into_nonsense_is_an_error_result():
    def check(given: dict[str, Any]) -> str | None:
        return "too large" if given["n"] > 5 else None  # raises KeyError without n

    record = RecordingTool(check=check)
    hook = Hooked("pre_tool_use", lambda moment: Change(arguments={}))
    result = await Agent(calling(("record", {"n": 1})), [record], hooks=[hook]).run("x")
    failed = "error: record was not run: its `check` failed: a fault in its code (KeyError)"
    assert answers(result.transcript)[0].startswith(failed)
    assert record.calls == []


async def test_a_call_of_a_reply_that_was_refused_is_never_run():
    act = RecordingTool("act", effect="irreversible")
    model = Scripted([Say("I can't.", calls=[("act", {})], stop="refusal"), "Hello."])
    driver = Agent(model, [act]).start(prompt="x")
    step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.reason == "refused"
    driver.submit("hello")
    await driver.next()
    assert act.calls == []
    assert find_violations(driver.transcript) == []


async def test_whole_calls_of_a_reply_that_reached_the_end_of_the_window_are_run():
    record = RecordingTool()
    model = Scripted([Say("Look: ", calls=[("record", {})], stop="context"), "done"])
    result = await Agent(model, [record]).run("x")
    assert result.text == "done"
    assert len(record.calls) == 1


async def test_an_early_call_is_told_under_the_id_that_it_has_in_the_transcript():
    look, witness = RecordingTool("look"), RecordingObserver()

    async def first(request: object) -> list[Any]:
        return [Say(calls=[ToolCall("old", "look", "{}")]), Pause(look.started), StreamBroken("x")]

    second = Say(calls=[ToolCall("new", "look", "{}")])
    model = Scripted([first, second, "done"])
    await Agent(model, [look], clock=ManualClock(), observers=[witness]).run("x")
    assert len(look.calls) == 1
    assert [event.call.id for event in witness.events_of(ToolCallRequested)] == ["old", "new"]
    assert "new" in [event.call_id for event in witness.events_of(ToolStarted)]
    assert "new" in [event.call_id for event in witness.events_of(ToolFinished)]


@pytest.mark.parametrize("verdict", [Deny("not any more"), Ask("are you sure?")])
async def test_a_call_that_was_not_done_before_a_crash_is_judged_again(verdict: Verdict):
    class Narrow(AllowAll):
        async def decide(self, request: PermissionRequest) -> Verdict:
            return verdict

    store = MemoryStore()
    await Agent(calling(("record", {})), [RecordingTool(effect="verifiable")]).run(
        "x", session=store
    )
    cut = next(n for n, entry in enumerate(store.entries) if isinstance(entry, Intent))
    view = fold_entries(store.entries[: cut + 1])
    record = RecordingTool(effect="verifiable", probe=ProbeResult("not_done", "it is not there"))
    driver = Agent(Scripted(["done"]), [record], policy=Narrow()).start(state=view)
    await driver.next()
    assert record.calls == []
    assert answers(driver.transcript)[0].startswith("denied: ")


class Probed(RecordingTool):
    """Keeps what it was asked to look for."""

    def __init__(self) -> None:
        super().__init__(effect="verifiable")
        self.looked_for: list[Arguments] = []

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        self.looked_for.append(arguments)
        return ProbeResult("done", "there it is")


def up_to_the_intent(store: MemoryStore) -> tuple[Intent, SessionState]:
    cut = next(n for n, entry in enumerate(store.entries) if isinstance(entry, Intent))
    intent = store.entries[cut]
    assert isinstance(intent, Intent)
    return intent, fold_entries(store.entries[: cut + 1])


@pytest.mark.parametrize("changed_by", ["hook", "user", "nobody"])
async def test_what_is_looked_for_after_a_crash_is_what_was_really_run(changed_by: str):
    store, record = MemoryStore(), RecordingTool(effect="verifiable")
    hooks = [Hooked("pre_tool_use", lambda moment: Change({"path": "b"}))]
    agent = Agent(
        calling(("record", {"path": "a"})),
        [record],
        hooks=hooks if changed_by == "hook" else [],
        policy=Asks() if changed_by == "user" else None,
    )
    driver = agent.start(prompt="x", store=store)
    step = await driver.next()
    if isinstance(step, ApprovalRequest):
        step.approve("call_1", arguments={"path": "b"})
        await driver.next()
    intent, view = up_to_the_intent(store)
    assert intent.raw == (None if changed_by == "nobody" else '{"path":"b"}')
    assert record.calls == [{"path": "a" if changed_by == "nobody" else "b"}]

    # Whoever goes on has no such hook: what was run is in the log, not in the configuration.
    probed = Probed()
    await Agent(Scripted(["done"]), [probed]).start(state=view).next()
    assert probed.looked_for == record.calls
    assert probed.calls == []


async def test_of_a_call_in_doubt_the_model_is_told_what_a_hook_made_of_it():
    store = MemoryStore()
    hook = Hooked("pre_tool_use", lambda moment: Change({"path": "b"}))
    record = RecordingTool(effect="irreversible")
    await Agent(calling(("record", {"path": "a"})), [record], hooks=[hook]).run("x", session=store)
    _, view = up_to_the_intent(store)
    driver = Agent(Scripted(["done"]), [record]).start(state=view)
    await driver.next()
    assert 'was about to run with {"path":"b"}' in answers(driver.transcript)[0]
    assert len(record.calls) == 1


async def test_arguments_that_cannot_be_written_down_are_not_run():
    hook = Hooked("pre_tool_use", lambda moment: Change({"path": object()}))
    record = RecordingTool(effect="irreversible")
    result = await Agent(calling(("record", {})), [record], hooks=[hook]).run("x")
    assert record.calls == []
    assert answers(result.transcript)[0].startswith("error: ")


@pytest.mark.parametrize("effect", ["verifiable", "irreversible"])
async def test_a_call_in_doubt_whose_tool_is_gone_is_not_said_to_be_undone(effect: Any):
    store = MemoryStore()
    await Agent(calling(("record", {})), [RecordingTool(effect=effect)]).run("x", session=store)
    cut = next(n for n, entry in enumerate(store.entries) if isinstance(entry, Intent))
    driver = Agent(Scripted(["done"])).start(state=fold_entries(store.entries[: cut + 1]))
    await driver.next()
    assert "outcome unknown" in answers(driver.transcript)[0]


async def test_a_call_whose_intent_could_not_be_stored_in_time_is_made_after_a_resume():
    store, record = MemoryStore(), RecordingTool(effect="irreversible")
    model = Scripted([Say(calls=[("record", {})])])
    store_flush = store.flush

    async def flush() -> None:
        if any(isinstance(entry, Intent) for entry in store.queued):
            raise StoreFull("no space left")
        await store_flush()

    store.flush = flush  # type: ignore[method-assign]
    with pytest.raises(StoreFull):
        await Agent(model, [record]).run("x", session=store)
    await store_flush()  # there is room again, and what waited is written
    intents = [entry for entry in store.entries if isinstance(entry, Intent)]
    assert ([one.is_withdrawn for one in intents], record.calls) == ([False, True], [])

    view = fold_entries(store.entries)
    assert view.intents == {}
    driver = Agent(Scripted(["done"]), [record]).start(state=view)
    await driver.next()
    assert (len(record.calls), answers(driver.transcript)) == (1, ["ok"])


# --- tasks -------------------------------------------------------------------------------


async def test_a_background_task_whose_intent_cannot_be_written_fails_and_says_so():
    witness, store = RecordingObserver(), MemoryStore()
    build = RecordingTool("build", detach_after=0, effect="irreversible")
    model = Scripted([Say(calls=[("build", {})]), "ok"])
    driver = Agent(model, [build], observers=[witness]).start(prompt="x", store=store)
    store_flush = store.flush

    async def flush() -> None:
        if any(isinstance(entry, Intent) for entry in store.queued):
            for _ in range(5):
                await asyncio.sleep(0)
            raise StoreFull("no space left")
        await store_flush()

    store.flush = flush  # type: ignore[method-assign]
    await driver.next()
    await driver.tasks.wait()
    assert build.calls == []
    assert [task.state for task in driver.tasks.list()] == ["failed"]
    assert [event.is_error for event in witness.events_of(TaskFinished)] == [True]
    notice = driver.snapshot().pending_input[0]
    assert isinstance(notice, NoticeItem)
    assert "no space left" in notice.text
    store.flush = store_flush  # type: ignore[method-assign]
    await driver.aclose()


# --- what is said ------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["", " \n\t", ()])
async def test_an_empty_message_is_no_message(said: Any):
    model = Scripted([])
    with pytest.raises(LoopError, match="nothing to answer"):
        await Agent(model).run(said)
    assert model.requests == []


async def test_a_reply_of_nothing_but_white_space_is_empty():
    blank = AssistantItem((Text(" \n"),))
    model = Scripted([blank, "Here I am."])
    result = await Agent(model).run("x")
    assert result.text == "Here I am."
    assert blank not in list(result.transcript)
    assert find_violations(result.transcript) == []


async def test_a_hook_that_adds_nothing_adds_nothing():
    hooks = [
        Hooked("user_prompt_submit", lambda moment: AddContext("")),
        Hooked("pre_tool_use", lambda moment: AddContext(" ")),
    ]
    result = await Agent(calling(("record", {})), [RecordingTool()], hooks=hooks).run("x")
    assert not any(isinstance(item, NoticeItem) for item in result.transcript)
    assert find_violations(result.transcript) == []


async def test_a_steered_message_that_a_hook_refuses_does_not_ask_the_model_again():
    pause = Pause()
    model = Scripted([["Working", pause], "asked for nothing"])

    def judge(moment: HookInput) -> HookAnswer | None:
        return Block("no secrets") if "secret" in moment.data["prompt"] else None

    driver = Agent(model, hooks=[Hooked("user_prompt_submit", judge)]).start(prompt="x")
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    driver.steer("my secret is ...")
    pause.release()
    finished = await step
    assert isinstance(finished, Finished)
    assert finished.result.text == "Working"
    assert len(model.requests) == 1


async def test_what_was_refused_does_not_come_back_after_a_restart():
    store = MemoryStore()
    hook = Hooked("user_prompt_submit", lambda m: Block("no") if m.data["prompt"] == "b" else None)
    driver = Agent(Scripted(["ok"]), hooks=[hook]).start(store=store)
    driver.submit("a")
    refused = driver.steer("b")
    assert isinstance(await driver.next(), Finished)
    assert InputDropped(message_id=refused) in store.entries
    assert fold_entries(store.entries).queued == ()


async def test_a_stop_hook_that_always_objects_is_not_an_endless_loop():
    model = Scripted(lambda request: "All done!")
    hook = Hooked("stop", lambda moment: Block("never enough"))
    result = await Agent(model, hooks=[hook]).run("x")
    assert result.reason == "end_turn"
    assert result.turn.metadata == {"stop_hook": "never enough"}
    assert len(model.requests) == 101


async def test_a_mutator_that_finds_the_request_hopeless_ends_the_turn_with_its_error():
    class Hopeless:
        name = "hopeless"
        points = frozenset({"before_model", "context_too_long"})

        async def mutate(self, context: object) -> Transcript | None:
            raise ContextTooLong("nothing fits")

    witness = RecordingObserver()
    driver = Agent(Scripted([]), mutators=[Hopeless()], observers=[witness]).start(prompt="x")  # type: ignore[list-item]
    step = await driver.next()
    assert isinstance(step, Finished)
    assert (step.result.reason, str(step.result.error)) == ("error", "nothing fits")
    assert witness.event_names[-1] == "RunFailed"
    assert isinstance(await driver.next(), AwaitingInput)


async def test_no_two_different_requests_have_the_same_key():
    class Shrinks:
        name = "shrinks"
        points = frozenset({"before_model", "context_too_long"})

        async def mutate(self, context: Any) -> Transcript | None:
            kept = 0 if context.point == "context_too_long" else 2
            if len(context.transcript) <= kept + 1:
                return None
            return Transcript(
                [SummaryItem("before"), *context.transcript[len(context.transcript) - kept :]]
            )

    script = [Say(calls=[("record", {"n": n})]) for n in range(6)]
    model = Scripted([*script[:4], ContextTooLong("x"), *script[4:], "done"])
    result = await Agent(model, [RecordingTool()], mutators=[Shrinks()]).run("x")  # type: ignore[list-item]
    assert result.text == "done"
    keys = [request.idempotency_key for request in model.requests]
    assert len(set(keys)) == len(keys)


async def test_a_task_that_died_with_its_process_is_not_waited_for_for_ever():
    build = RecordingTool("build", release=asyncio.Event(), detach_after=0, effect="irreversible")
    store = MemoryStore()
    model = Scripted([Say(calls=[("build", {}), ("build", {})]), "Both are running."])
    driver = Agent(model, [build]).start(prompt="x", store=store)
    while not isinstance(await driver.next(), Finished):
        pass
    await driver.tasks.cancel("t1")
    await asyncio.sleep(0)
    view = fold_entries(store.entries)  # and here the process is killed
    await driver.aclose()

    again = Agent(Scripted([Say(calls=[("build", {})]), "Oh."]), [build]).start(state=view)
    again.submit("And?")
    while not isinstance(await again.next(), Finished):
        pass
    told = [item.text for item in again.transcript if isinstance(item, NoticeItem)]
    assert [text.split("\n")[0] for text in told] == [
        "Background task t1 [build] is cancelled.",
        "Background task t2 [build] is lost: it does not run here. Its outcome is unknown.",
    ]
    assert [task.id for task in again.tasks.list()] == ["t3"]
    await again.aclose()


# --- when the loop itself fails ----------------------------------------------------------


class BreaksALaw:
    name = "breaks"
    points: frozenset[MutationPoint] = frozenset({"before_model"})

    def __init__(self) -> None:
        self.is_mended = False

    async def mutate(self, context: MutationContext) -> Transcript | None:
        return None if self.is_mended else Transcript([AssistantItem((Text("me first"),))])


class FailsOnce(Scripted):
    """A model with a bug."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        if not self.closed:
            self.closed = True
            raise ZeroDivisionError("a bug")
        async for event in super().stream(request):
            yield event


@pytest.mark.parametrize("fault", ["law", "store", "model"])
async def test_when_the_loop_fails_observers_get_a_terminal_event_and_next_tries_again(fault):
    store, breaks, witness = MemoryStore(), BreaksALaw(), RecordingObserver()
    breaks.is_mended = fault != "law"
    store.failure = StoreError("the disk is full") if fault == "store" else None
    model = FailsOnce(["done"]) if fault == "model" else Scripted(["done"])
    agent = Agent(model, mutators=[breaks], observers=[witness])
    driver = agent.start(prompt="go", store=store)
    with pytest.raises((LawBroken, StoreError, ZeroDivisionError)) as raised:
        await driver.next()
    assert witness.event_names[-1] == "RunFailed"
    [failed] = witness.events_of(RunFailed)
    assert failed.result.error is raised.value
    assert failed.turn_id == "turn-1"
    breaks.is_mended, store.failure = True, None
    step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.text == "done"
    kinds = [kind for kind in witness.event_names if kind in TURN_KINDS]
    assert kinds == ["TurnStarted", "RunFailed", "TurnStarted", "TurnFinished"]


TURN_KINDS = ("TurnStarted", "RunFailed", "TurnFinished")


async def test_a_stream_whose_loop_fails_has_one_terminal_event():
    with pytest.raises(ZeroDivisionError):
        async with Agent(FailsOnce([])).stream("go") as events:
            seen = [event async for event in events]
    assert [type(event) for event in seen].count(RunFailed) == 1


async def test_tools_that_cannot_be_opened_are_a_terminal_event_too():
    class Closed(ChangingSource):
        async def open(self) -> None:
            raise ConfigError("no such server")

    witness = RecordingObserver()
    with pytest.raises(ConfigError):
        await Agent(Scripted([]), [Closed()], observers=[witness]).run("go")
    assert witness.event_names == ["RunFailed"]


async def test_a_failed_turn_can_be_tried_again():
    driver = Agent(Scripted([AccessDenied("no key"), "Here I am."])).start(prompt="Hi")
    step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.reason == "error"
    assert isinstance(await driver.next(), AwaitingInput)
    assert driver.retry() is True
    step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.text == "Here I am."
    assert driver.retry() is False
    assert isinstance(await driver.next(), AwaitingInput)


async def test_notices_between_paid_failures_do_not_give_the_model_more_attempts():
    class Reminding(BaseGate):
        def admit(self, estimate):
            return Admit(notice="mind the budget")

    def fail(request):
        return ["half", ModelUsageUpdated(Usage(output=5, requests=1)), StreamBroken("cut")]

    model = Scripted(fail)
    agent = Agent(model, gates=[Reminding()], clock=ManualClock())
    with pytest.raises(StreamBroken):
        await agent.run("x")
    assert len(model.requests) == 4
