"""Stories of tool rounds: dispatch, order, parallel work, approvals, hooks, background tasks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn

import msgspec
import pytest

from treadle import Access, Agent, ToolContext, ToolError, tool
from treadle.core.contracts.hook import (
    AddContext,
    Block,
    Change,
    HookAnswer,
    HookInput,
    HookPoint,
    Permit,
)
from treadle.core.contracts.policy import Allow, Ask, Deny, PermissionRequest, Verdict
from treadle.core.contracts.tool import BaseTool, ProbeResult, ToolOutput
from treadle.core.errors import (
    ApprovalPending,
    AuthRequired,
    ConfigError,
    StreamBroken,
    UnknownModel,
)
from treadle.core.events import (
    ApprovalRequired,
    ApprovalResolved,
    TaskFinished,
    ToolDetached,
    ToolFinished,
    ToolProgress,
    ToolsChanged,
    ToolStarted,
)
from treadle.core.loop.calls.background import BackgroundTasks
from treadle.core.steps import AfterToolResult, ApprovalRequest, Finished
from treadle.core.transcript import (
    AssistantItem,
    NoticeItem,
    Text,
    ToolCall,
    ToolResultItem,
    Transcript,
    UserItem,
    to_user_item,
)
from treadle.core.transcript.entries import EffectClass, Entry, Intent, ItemAdded
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.state import fold_entries
from treadle.hooks import hook
from treadle.hooks.function_hook import FunctionHook
from treadle.models import Pause, Say, Scripted
from treadle.testing.clock import ManualClock
from treadle.testing.observers import RecordingObserver
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import ChangingSource, RecordingTool
from treadle.tools.federation import Federation, StaticSource


def answers(transcript: Transcript) -> list[str]:
    return [item.model_text for item in transcript if isinstance(item, ToolResultItem)]


def calling(*calls: tuple[str, dict[str, Any] | str]) -> Scripted:
    return Scripted([Say(calls=list(calls)), "done"])


# --- the pipeline ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ('{"a": 1', "not valid JSON"),
        ('{"a": 1} and more', "not valid JSON"),
        ("[1, 2]", "must be a JSON object"),
        ('{"a": NaN}', "NaN"),
        ('{"a": 1, "a": 2}', "given twice"),
        ('{"a": "one"}', "invalid arguments"),
        ("{}", "invalid arguments"),
        ('{"a": 1, "b": 2}', "invalid arguments"),
    ],
)
async def test_fault_44_malformed_arguments_are_never_executed(raw: str, words: str):
    ran = []

    @tool(effect="pure")
    async def square(a: int) -> int:
        ran.append(a)
        return a * a

    result = await Agent(calling(("square", raw)), [square]).run("x")
    assert words in answers(result.transcript)[0]
    assert ran == []
    assert result.text == "done"


@pytest.mark.parametrize(
    "problem",
    [ValueError("odd"), MemoryError(), RecursionError("deep"), SystemExit(3), BaseException("?")],
)
async def test_fault_78_whatever_a_tool_raises_is_its_result(problem: BaseException):
    result = await Agent(calling(("record", {})), [RecordingTool(answer=problem)]).run("x")
    assert f"a fault in its code ({type(problem).__name__})" in answers(result.transcript)[0]
    assert result.text == "done"


async def test_a_fault_of_a_tool_is_logged_with_its_traceback_and_told_by_the_event(caplog):
    @tool
    def boom(text: str) -> str:
        """Fail."""
        raise KeyError(f"no {text}")

    watch = RecordingObserver()
    with caplog.at_level("ERROR", "treadle"):
        result = await Agent(calling(("boom", {"text": "x"})), [boom], observers=[watch]).run("x")
    text = "error: boom failed: a fault in its code (KeyError), of which the user is told"
    assert answers(result.transcript) == [text]
    [event] = watch.events_of(ToolFinished)
    assert event.fault is not None
    assert (event.fault.type, event.fault.message) == ("KeyError", "'no x'")
    assert 'raise KeyError(f"no {text}")' in event.fault.traceback
    assert "the tool boom failed: KeyError: 'no x'\nTraceback" in caplog.text


async def test_a_fault_of_a_tool_ends_the_run_if_the_program_wants_it():
    problem = KeyError("x")
    tools = [RecordingTool(answer=problem), RecordingTool("other")]
    agent = Agent(calling(("record", {}), ("other", {})), tools, tool_errors="raise")
    with pytest.raises(KeyError) as caught:
        await agent.run("x")
    assert caught.value is problem
    transcript: Transcript = caught.value.transcript  # type: ignore[attr-defined]
    assert answers(transcript)[1] == "ok"  # every call has its result: the session can continue
    failing = RecordingTool(answer=ToolError("Not now."))
    again = Agent(calling(("record", {})), [failing], tool_errors="raise")
    assert (await again.run("x")).text == "done"


@pytest.mark.parametrize("part", ["check", "access", "preview"])
async def test_a_fault_of_a_part_of_a_tool_is_one_of_the_tool(part, caplog):
    def nope(arguments: object) -> NoReturn:
        raise KeyError("nope")

    def add(a: int) -> str:
        """Add."""
        return "added"

    odd = tool(add, approval=True, **{part: nope})  # type: ignore[call-overload]
    watch, approve = RecordingObserver(), lambda approval: True
    model = calling(("add", {"a": 1}))
    with caplog.at_level("ERROR", "treadle"):
        result = await Agent(model, [odd], observers=[watch], approve=approve).run("x")
    failed = f"error: add was not run: its `{part}` failed: a fault in its code (KeyError)"
    expected = "added" if part == "preview" else f"{failed}, of which the user is told"
    assert answers(result.transcript) == [expected]
    [event] = watch.events_of(ToolFinished)
    assert event.fault is not None
    assert (event.fault.type, event.fault.message) == ("KeyError", "'nope'")
    assert caplog.text.count("the tool add failed: KeyError: 'nope'\nTraceback") == 1
    strict = Agent(calling(("add", {"a": 1})), [odd], approve=approve, tool_errors="raise")
    with pytest.raises(KeyError, match="nope"):
        await strict.run("x")


async def test_a_tool_error_is_told_in_its_own_words():
    failing = RecordingTool(answer=ToolError("The file is not there; try `ls`."))
    result = await Agent(calling(("record", {})), [failing]).run("x")
    assert answers(result.transcript) == ["error: The file is not there; try `ls`."]


async def test_a_server_that_wants_a_login_is_a_failed_call_not_an_interruption():
    failing = RecordingTool(answer=AuthRequired("tracker", "log in to tracker first"))
    result = await Agent(calling(("record", {})), [failing]).run("x")
    assert answers(result.transcript) == ["error: log in to tracker first"]
    assert result.reason == "end_turn"


async def test_fault_46_another_case_of_a_known_name_is_that_tool_and_another_name_gets_a_hint():
    model = calling(("Record", {}), ("recrod", {}))
    result = await Agent(model, [RecordingTool()]).run("x")
    assert answers(result.transcript) == [
        "ok\n[corrected: the tool is named `record`]",
        "error: unknown tool `recrod`; did you mean `record`? The tools are record.",
    ]


async def test_fault_44_arguments_that_were_encoded_twice_have_one_meaning():
    @tool(effect="pure")
    async def square(a: int) -> int:
        return a * a

    result = await Agent(calling(("square", '"{\\"a\\": 3}"')), [square]).run("x")
    assert answers(result.transcript) == ["9\n[corrected: the arguments were JSON encoded twice]"]


async def test_a_failed_check_skips_the_execution_and_goes_on_with_the_next_call():
    careful = RecordingTool(check=lambda given: "prohibited command" if given else None)
    result = await Agent(calling(("record", {"rm": 1}), ("record", {})), [careful]).run("x")
    assert answers(result.transcript) == ["error: prohibited command", "ok"]
    assert careful.calls == [{}]


@pytest.mark.parametrize(
    ("effect", "outcome", "said"),
    [
        ("pure", "interrupted", ""),
        ("irreversible", "unknown", ", outcome unknown: it may have had its effect"),
    ],
)
async def test_a_tool_that_never_returns_times_out(effect: EffectClass, outcome: str, said: str):
    stuck = RecordingTool(release=asyncio.Event(), timeout=0.01, effect=effect)
    result = await Agent(calling(("record", {})), [stuck]).run("x")
    [item] = [one for one in result.transcript if isinstance(one, ToolResultItem)]
    assert (item.text, item.outcome) == (f"error: timed out after 0.01 s{said}", outcome)
    assert stuck.cancel_count == 1


@tool(effect="pure")
def numbers() -> list[int]:
    return [1, 2]


@tool(effect="pure")
async def nothing() -> None:
    return None


class Oddity(BaseTool):
    spec = RecordingTool("odd").spec

    def check(self, arguments):
        return None

    def summary(self, arguments):
        raise RuntimeError("no words")

    def access(self, arguments, session_id):
        raise RuntimeError("no idea")

    async def call(self, arguments, context):
        return 42

    async def evidence(self, arguments, context):
        return {}

    async def probe(self, arguments, evidence, context):
        return ProbeResult("unknown", "")


async def test_a_tool_that_returns_no_string_still_answers():
    model = calling(("numbers", {}), ("nothing", {}), ("odd", {}))
    result = await Agent(model, [numbers, nothing, Oddity()]).run("x")
    assert answers(result.transcript)[:2] == ["[1,2]", "done"]
    assert answers(result.transcript)[2].startswith("error: ")


async def test_results_are_truncated_with_a_marker_and_a_flag():
    long = RecordingTool(answer="ä" * 200)
    result = await Agent(calling(("record", {})), [long], max_result_chars=50).run("x")
    cut = result.transcript[2]
    assert isinstance(cut, ToolResultItem)
    assert (cut.text, cut.user_text) == ("ä" * 50, cut.model_text)
    assert cut.model_text == "ä" * 50 + "... [truncated, 200 chars total]"
    assert (cut.is_truncated, cut.total_chars) == (True, 200)


async def test_what_was_cut_off_is_kept_where_the_model_can_read_on():
    kept: dict[str, str] = {}

    def keep(call_id: str, text: str) -> str:
        kept[call_id] = text
        return "outputs/1.txt"

    long = RecordingTool(answer="x" * 200)
    agent = Agent(calling(("record", {})), [long], max_result_chars=50, keep_output=keep)
    result = await agent.run("x")
    assert answers(result.transcript)[0].endswith("The whole is in outputs/1.txt")
    assert list(kept.values()) == ["x" * 200]


def test_default_limits_are_the_documented_ones():
    agent = Agent(Scripted([]))
    assert agent.config.max_result_chars == 100_000
    assert agent.config.gates[0].limit == 50  # type: ignore[attr-defined]
    assert agent.config.max_continuations == 3


async def test_without_tools_the_model_is_offered_none():
    model = Scripted(["hi"])
    await Agent(model).run("x")
    assert model.requests[0].tools == ()


# --- order and parallel work -------------------------------------------------------------


async def test_results_stand_right_behind_the_reply_in_the_models_order():
    first, second = asyncio.Event(), asyncio.Event()
    slow = RecordingTool("slow", "slow", release=first)

    def be_quick(given):
        first.set()
        return "quick"

    quick = RecordingTool("quick", be_quick, release=second)
    second.set()
    result = await Agent(calling(("slow", {}), ("quick", {})), [slow, quick]).run("x")
    assert answers(result.transcript) == ["slow", "quick"]
    reply = result.transcript[1]
    assert isinstance(reply, AssistantItem)
    assert [call.id for call in reply.calls] == [
        item.call_id for item in result.transcript if isinstance(item, ToolResultItem)
    ]


async def test_safe_calls_run_beside_each_other_under_a_bound():
    record = RecordingTool()
    model = calling(*[("record", {"n": n}) for n in range(100)])
    result = await Agent(model, [record], max_parallel=8).run("x")
    assert len(answers(result.transcript)) == 100
    assert 1 < record.max_running <= 8


async def test_undeclared_calls_run_one_after_the_other_in_order():
    record = RecordingTool(effect="irreversible")
    model = calling(*[("record", {"n": n}) for n in range(5)])
    await Agent(model, [record]).run("x")
    assert record.max_running == 1
    assert [given["n"] for given in record.calls] == list(range(5))


async def test_calls_on_one_resource_wait_for_each_other_and_others_do_not():
    def touches(given):
        return Access(writes=frozenset({given["path"]}))

    record = RecordingTool(effect="irreversible", concurrent=True, access=touches)
    paths = ["a", "b", "a", "c"]
    await Agent(calling(*[("record", {"path": path}) for path in paths]), [record]).run("x")
    assert record.max_running == 3


async def test_a_safe_call_starts_while_the_stream_still_runs():
    pause, look = Pause(), RecordingTool("look")
    model = Scripted([[Say(calls=[("look", {})]), pause, "and more"], "done"])
    driver = Agent(model, [look]).start(prompt="x")
    step = asyncio.create_task(driver.next())
    await look.started.wait()
    assert not step.done()
    pause.release()
    assert isinstance(await step, AfterToolResult)
    assert len(look.calls) == 1


async def test_an_eager_result_is_reused_when_the_stream_is_tried_again():
    look = RecordingTool("look")

    called = Say(calls=[ToolCall("c", "look", "{}")])

    async def first(request):
        return [called, Pause(look.started), StreamBroken("cut")]

    result = await Agent(Scripted([first, called, "done"]), [look], clock=ManualClock()).run("x")
    assert result.text == "done"
    assert len(look.calls) == 1


async def test_an_eager_result_is_not_reused_after_a_write_to_what_it_read():
    content = ["old"]
    look = RecordingTool("look", lambda _: content[0])

    def write(_):
        content[0] = "new"
        return "written"

    put = RecordingTool("put", write, effect="irreversible")
    see = ToolCall("c", "look", "{}")

    async def broken(request):
        return [Say(calls=[see]), Pause(look.started), StreamBroken("cut")]

    whole = Say(calls=[ToolCall("p", "put", "{}"), see])
    agent = Agent(Scripted([broken, whole, "done"]), [look, put], clock=ManualClock())
    result = await agent.run("x")
    answers = [item.text for item in result.transcript if isinstance(item, ToolResultItem)]
    assert answers == ["written", "new"]
    assert len(look.calls) == 2


async def test_an_eager_result_of_a_failed_attempt_is_not_used_in_a_later_round():
    content, has_looked = ["old"], asyncio.Event()

    def read(_):
        has_looked.set()
        return content[0]

    look = RecordingTool("look", read)
    see = ToolCall("c", "look", "{}")

    async def broken(request):
        return [Say(calls=[see]), Pause(has_looked), StreamBroken("cut")]

    def block_once(moment):
        is_first, content[0] = content[0] == "old", "new"
        return Block("look again") if is_first else None

    agent = Agent(
        Scripted([broken, "nothing to see", Say(calls=[see]), "done"]),
        [look],
        clock=ManualClock(),
        hooks=[FunctionHook(block_once, frozenset({"stop"}))],
    )
    result = await agent.run("x")
    answers = [item.text for item in result.transcript if isinstance(item, ToolResultItem)]
    assert answers == ["new"]


async def test_nothing_starts_early_behind_a_call_that_acts():
    pause, look, act = Pause(), RecordingTool("look"), RecordingTool("act", effect="irreversible")
    model = Scripted([[Say(calls=[("act", {}), ("look", {})]), pause], "done"])
    driver = Agent(model, [look, act]).start(prompt="x")
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    await asyncio.sleep(0)
    assert (look.calls, act.calls) == ([], [])
    pause.release()
    await step
    assert (len(look.calls), len(act.calls)) == (1, 1)


# --- sources -----------------------------------------------------------------------------


async def test_tools_are_looked_at_again_before_each_model_call():
    source, witness = ChangingSource([RecordingTool("one")]), RecordingObserver()

    def grow(given):
        source.set_tools([RecordingTool("one"), RecordingTool("two")])
        return "grown"

    source.set_tools([RecordingTool("one", grow)])
    model = calling(("one", {}))
    await Agent(model, [source], observers=[witness]).run("x")
    assert [spec.name for spec in model.requests[0].tools] == ["one"]
    assert [spec.name for spec in model.requests[1].tools] == ["one", "two"]
    assert [(event.added, event.removed) for event in witness.events_of(ToolsChanged)] == [
        (("two",), ())
    ]
    assert source.open_count == 1


def test_sources_federate_in_order_and_the_first_wins():
    first, second = RecordingTool("same"), RecordingTool("same")
    union = Federation([StaticSource([first], "one"), StaticSource([second], "two")])
    assert list(union.tools()) == [first]


def test_a_collision_can_be_an_error_or_get_a_prefix():
    sources = [
        StaticSource([RecordingTool("same")], "one"),
        StaticSource([RecordingTool("same")], "two"),
    ]
    with pytest.raises(ConfigError, match="'same' is offered by 'one' and by 'two'"):
        Federation(sources, "error")
    names = [tool.spec.name for tool in Federation(sources, "prefix").tools()]
    assert names == ["same", "two_same"]


def test_two_tools_of_one_name_are_refused_unless_a_collision_policy_is_chosen():
    first, second = RecordingTool("same"), RecordingTool("same")
    with pytest.raises(ConfigError, match=r"two tools are named 'same'; rename one"):
        Agent(Scripted([]), [first, second])
    agent = Agent(Scripted([]), [first, second], collision="first_wins")
    assert list(agent.config.source.tools()) == [first]
    with pytest.raises(ConfigError, match="collision is 'last_wins'; expected first_wins, error"):
        Agent(Scripted([]), [first], collision="last_wins")  # type: ignore[call-overload]  # the mistake


async def test_a_server_that_brings_a_name_that_is_taken_does_not_end_the_session():
    source = ChangingSource()

    def grow(given):
        source.set_tools([RecordingTool("one"), RecordingTool("two")])
        return "grown"

    model = calling(("one", {}))
    result = await Agent(model, [RecordingTool("one", grow), source]).run("x")
    assert result.reason == "end_turn"
    assert [spec.name for spec in model.requests[1].tools] == ["one", "two"]


def test_with_a_prefix_no_tool_is_dropped_however_many_have_the_name():
    tools = [RecordingTool("same") for _ in range(4)]
    sources = [StaticSource([tool, RecordingTool("two_same")], "two") for tool in tools]
    names = [tool.spec.name for tool in Federation(sources, "prefix").tools()]
    assert len(names) == len(set(names)) == 8
    assert names[:4] == ["same", "two_same", "two_same_2", "two_two_same"]


# --- approvals ---------------------------------------------------------------------------


class Asking:
    """Asks about everything, and remembers what it was told to."""

    def __init__(self, verdict: Verdict | None = None) -> None:
        self.verdict = verdict or Ask("because", ("Record(*)",))
        self.remembered: list[tuple[str, ...]] = []

    async def decide(self, request: PermissionRequest) -> Verdict:
        return self.verdict

    async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
        self.remembered.append(rules)


async def test_an_approval_blocks_until_every_call_is_resolved():
    record, witness = RecordingTool(effect="irreversible"), RecordingObserver()
    model = calling(("record", {"n": 1}), ("record", {"n": 2}))
    driver = Agent(model, [record], policy=Asking(), observers=[witness]).start(prompt="x")
    request = await driver.next()
    assert isinstance(request, ApprovalRequest)
    with pytest.raises(ApprovalPending):
        await driver.next()
    request.approve(request.calls[0].id)
    with pytest.raises(ApprovalPending):
        await driver.next()
    request.deny(request.calls[1].id, "not that one")
    assert request.unresolved == ()
    assert isinstance(await driver.next(), AfterToolResult)
    assert record.calls == [{"n": 1}]
    assert answers(driver.transcript) == ["ok", "denied: not that one"]
    assert len(witness.events_of(ApprovalRequired)) == len(witness.events_of(ApprovalResolved)) == 2


async def test_edited_arguments_that_no_session_can_store_leave_the_call_waiting():
    record = RecordingTool(effect="irreversible")
    driver = Agent(calling(("record", {"n": 1})), [record], policy=Asking()).start()
    driver.submit("x")
    request = await driver.next()
    assert isinstance(request, ApprovalRequest)
    call = request.calls[0]
    for bad in ({"x": object()}, "n=7"):
        with pytest.raises(TypeError, match="the edited arguments of the call cannot be stored"):
            request.approve(call.id, arguments=bad)  # type: ignore[arg-type]
    assert request.unresolved == (call.id,)
    request.approve_all()
    await driver.next()
    assert record.calls == [{"n": 1}]


async def test_an_approval_may_edit_the_arguments():
    record = RecordingTool(effect="irreversible")
    driver = Agent(calling(("record", {"n": 1})), [record], policy=Asking()).start(prompt="x")
    request = await driver.next()
    assert isinstance(request, ApprovalRequest)
    request.approve(request.calls[0].id, arguments={"n": 7})
    await driver.next()
    assert record.calls == [{"n": 7}]


async def test_always_saves_the_rules_that_were_shown():
    policy = Asking()
    driver = Agent(calling(("record", {})), [RecordingTool()], policy=policy).start(prompt="x")
    request = await driver.next()
    assert isinstance(request, ApprovalRequest)
    assert request.pending[0].rules == ("Record(*)",)
    request.approve(request.calls[0].id, always=True)
    await driver.next()
    assert policy.remembered == [("Record(*)",)]


async def test_without_anybody_to_ask_a_call_is_denied_and_the_model_reads_why():
    record = RecordingTool()
    result = await Agent(calling(("record", {})), [record], policy=Asking()).run("x")
    assert "the user cannot be asked" in answers(result.transcript)[0]
    assert record.calls == []


async def test_a_policy_that_fails_denies():
    class Broken(Asking):
        async def decide(self, request: PermissionRequest) -> Verdict:
            raise RuntimeError("no rules")

    record = RecordingTool()
    result = await Agent(calling(("record", {})), [record], policy=Broken()).run("x")
    assert answers(result.transcript)[0].startswith("denied: the policy failed")
    assert record.calls == []


async def test_a_ruling_survives_a_restart_and_is_not_asked_again():
    record, store = RecordingTool(effect="irreversible"), MemoryStore()
    agent = Agent(calling(("record", {})), [record], policy=Asking())
    driver = agent.start(prompt="x", store=store)
    request = await driver.next()
    assert isinstance(request, ApprovalRequest)
    request.approve_all()
    again = Agent(Scripted(["done"]), [record], policy=Asking()).start(
        state=fold_entries(store.entries)
    )
    assert isinstance(await again.next(), AfterToolResult)
    assert len(record.calls) == 1


async def test_fault_88_an_answer_after_the_interruption_is_ignored():
    record = RecordingTool(effect="irreversible")
    driver = Agent(calling(("record", {})), [record], policy=Asking()).start(prompt="x")
    request = await driver.next()
    assert isinstance(request, ApprovalRequest)
    driver.interrupt()
    step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.reason == "aborted"
    assert request.approve(request.calls[0].id) is False
    assert record.calls == []
    assert find_violations(driver.transcript) == []


# --- hooks -------------------------------------------------------------------------------


class At:
    """A hook that answers the same at one point."""

    def __init__(self, point: HookPoint, answer: HookAnswer | Exception | None) -> None:
        self.points = frozenset({point})
        self._answer = answer
        self.moments: list[HookInput] = []

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        self.moments.append(hook_input)
        if isinstance(self._answer, Exception):
            raise self._answer
        if len(self.moments) > 1 and isinstance(self._answer, Block):
            return None
        return self._answer


async def test_a_hook_before_a_tool_may_deny_change_or_add():
    record = RecordingTool()
    cases: list[tuple[HookAnswer | Exception, str]] = [
        (Block("not on Sundays"), "denied: not on Sundays"),
        (Change(arguments={"n": 2}), "ok"),
        (AddContext("mind the gap"), "ok"),
        (RuntimeError("broken"), "denied: hook At failed"),
    ]
    for answer, seen in cases:
        hook = At("pre_tool_use", answer)
        result = await Agent(calling(("record", {"n": 1})), [record], hooks=[hook]).run("x")
        assert answers(result.transcript)[0].startswith(seen)
        assert hook.moments[0].data["tool_input"] == {"n": 1}
    assert record.calls == [{"n": 2}, {"n": 1}]


async def test_a_hook_cannot_change_a_call_into_one_that_is_not_allowed():
    class Small(Asking):
        async def decide(self, request: PermissionRequest) -> Verdict:
            return Allow() if request.arguments["n"] < 5 else Deny("too large")

    record, hook = RecordingTool(), At("pre_tool_use", Change(arguments={"n": 9}))
    agent = Agent(calling(("record", {"n": 1})), [record], hooks=[hook], policy=Small())
    assert "not allowed: too large" in answers((await agent.run("x")).transcript)[0]
    assert record.calls == []


async def test_a_hook_after_a_tool_may_change_its_result():
    hook = At("post_tool_use", Change(text="[redacted]"))
    result = await Agent(calling(("record", {})), [RecordingTool()], hooks=[hook]).run("x")
    assert answers(result.transcript) == ["[redacted]"]


async def test_a_hook_may_answer_for_the_person():
    record = RecordingTool()
    hooks = [At("permission_request", Permit())]
    await Agent(calling(("record", {})), [record], policy=Asking(), hooks=hooks).run("x")
    assert len(record.calls) == 1


async def test_a_hook_hears_of_denied_calls_and_of_turns_that_fail():
    heard: list[tuple[str, str]] = []

    @hook("permission_denied", "stop_failure")
    def note(hook_input):
        heard.append((hook_input.point, hook_input.data.get("reason") or hook_input.data["error"]))

    denying = At("permission_request", Block("not on Sundays"))
    script = calling(("record", {}))
    await Agent(script, [RecordingTool()], policy=Asking(), hooks=[denying, note]).run("x")
    with pytest.raises(UnknownModel):
        await Agent(Scripted([UnknownModel("no such model")]), hooks=[note]).run("x")
    assert heard == [
        ("permission_denied", "denied: not on Sundays"),
        ("stop_failure", "no such model"),
    ]


async def test_a_stop_hook_sends_the_model_back_to_work():
    hook = At("stop", Block("the tests still fail"))
    result = await Agent(Scripted(["All done!", "Now it is."]), hooks=[hook]).run("x")
    assert result.text == "Now it is."
    notices = [item for item in result.transcript if isinstance(item, NoticeItem)]
    assert [notice.text for notice in notices] == ["the tests still fail"]


async def test_a_prompt_hook_may_refuse_a_message_or_add_to_it():
    hooked = Agent(Scripted(["ok"]), hooks=[At("user_prompt_submit", AddContext("It is Sunday."))])
    assert [type(item) for item in (await hooked.run("x")).transcript][:2] == [UserItem, NoticeItem]
    blocked = Agent(Scripted([]), hooks=[At("user_prompt_submit", Block("no secrets"))])
    driver = blocked.start(prompt="my password is …")
    await driver.next()
    assert len(driver.transcript) == 0


async def test_an_answer_that_its_point_does_not_allow_is_ignored_with_a_warning():
    witness = RecordingObserver()
    hook = At("stop", Permit())
    await Agent(Scripted(["ok"]), hooks=[hook], observers=[witness]).run("x")
    assert any("may not answer Permit at stop" in repr(event) for event in witness.events)


# --- background --------------------------------------------------------------------------


async def test_a_background_call_is_answered_at_once_and_its_result_comes_as_a_notice():
    gate, witness = asyncio.Event(), RecordingObserver()
    build = RecordingTool("build", "built", release=gate, detach_after=0, effect="irreversible")
    model = Scripted([Say(calls=[("build", {})]), "Building.", "It is built."])
    driver = Agent(model, [build], observers=[witness]).start(prompt="Build it")
    await driver.next()
    assert answers(driver.transcript)[0].startswith("Running as task t1.")
    assert isinstance(await driver.next(), Finished)
    assert [task.state for task in driver.tasks.list()] == ["running"]
    gate.set()
    await driver.tasks.wait()
    driver.submit("And?")
    await driver.next()
    notices = [item for item in driver.transcript if isinstance(item, NoticeItem)]
    assert notices[0].text == "Background task t1 [build] is done.\nbuilt"
    assert len(witness.events_of(ToolDetached)) == len(witness.events_of(TaskFinished)) == 1
    await driver.aclose()


async def test_a_background_call_that_ends_just_before_the_close_is_reported_once():
    reports: list[tuple[str, str]] = []
    manager = BackgroundTasks(lambda task, text: reports.append((task.state, text)))

    async def build() -> ToolResultItem:
        return ToolResultItem("c1", "build", (Text("built"),))

    work = asyncio.create_task(build())
    manager.add(ToolCall("c1", "build", "{}"), "[build]", work)
    await asyncio.sleep(0)
    assert work.done()
    assert reports == []  # its callback comes in the next step of the event loop
    await manager.aclose()
    assert reports == [("done", "built")]
    await asyncio.sleep(0)
    assert len(reports) == 1


async def test_a_call_detaches_only_if_it_takes_too_long():
    quick = RecordingTool("quick", "at once", detach_after=5.0)
    assert answers((await Agent(calling(("quick", {})), [quick]).run("x")).transcript) == [
        "at once"
    ]
    slow = RecordingTool("slow", release=asyncio.Event(), detach_after=0.01)
    result = await Agent(calling(("slow", {})), [slow]).run("x", background_wait=0)
    assert answers(result.transcript)[0].startswith("Running as task t1.")
    assert slow.cancel_count == 1  # the run is over, and leaves nothing behind


async def test_a_task_can_be_read_and_cancelled():
    gate = asyncio.Event()

    @tool(detach_after=0)
    async def watch(context: ToolContext) -> str:
        context.report_progress("line 1\n")
        await gate.wait()
        return "never"

    driver = Agent(calling(("watch", {})), [watch]).start(prompt="x")
    await driver.next()
    await asyncio.sleep(0)
    info = driver.tasks.read("t1")
    assert info is not None
    assert (info.state, info.output) == ("running", "line 1\n")
    assert await driver.tasks.cancel("t1") is True
    assert await driver.tasks.cancel("t1") is False
    assert driver.tasks.read("t9") is None
    assert [task.state for task in driver.tasks.list()] == ["cancelled"]
    await driver.aclose()


# --- effects and restarts ----------------------------------------------------------------


def crashed_during(effect: str, store: MemoryStore) -> list[Entry]:
    """The log of a process that died after writing down what it was about to do."""
    entries = store.entries
    cut = next(n for n, entry in enumerate(entries) if isinstance(entry, Intent))
    intent = entries[cut]
    assert isinstance(intent, Intent)
    assert intent.effect == effect
    return entries[: cut + 1]


@pytest.mark.parametrize(
    ("outcome", "executions", "words"),
    [
        ("done", 0, "Done before an interruption"),
        ("not_done", 1, "ok"),
        ("unknown", 0, "outcome unknown"),
    ],
)
async def test_a_verifiable_call_in_doubt_is_probed(outcome, executions: int, words: str):
    store = MemoryStore()
    await Agent(calling(("record", {})), [RecordingTool(effect="verifiable")]).run(
        "x", session=store
    )
    view = fold_entries(crashed_during("verifiable", store))
    record = RecordingTool(effect="verifiable", probe=ProbeResult(outcome, "the hash says so"))
    driver = Agent(Scripted(["done"]), [record]).start(state=view)
    await driver.next()
    assert len(record.calls) == executions
    assert words in answers(driver.transcript)[0]


async def test_an_irreversible_call_in_doubt_is_never_run_again():
    store = MemoryStore()
    await Agent(calling(("record", {})), [RecordingTool(effect="irreversible")]).run(
        "x", session=store
    )
    view = fold_entries(crashed_during("irreversible", store))
    record = RecordingTool(effect="irreversible")
    driver = Agent(Scripted(["done"]), [record]).start(state=view)
    await driver.next()
    assert record.calls == []
    assert "Interrupted, outcome unknown. Evidence:" in answers(driver.transcript)[0]


async def test_the_intent_is_durable_before_the_effect_and_pure_calls_do_not_wait():
    store = MemoryStore()
    seen: list[list[str]] = []

    def look(given):
        seen.append([type(entry).__name__ for entry in store.durable])
        return "ok"

    pure, act = RecordingTool("pure", look), RecordingTool("act", look, effect="irreversible")
    await Agent(calling(("pure", {}), ("act", {})), [pure, act]).run("x", session=store)
    assert "Intent" not in seen[0]
    assert seen[1][-1] == "Intent"


async def test_write_before_query_the_message_is_durable_before_the_model_hears_it():
    store = MemoryStore()
    durable: list[object] = []

    def answer(request):
        durable.extend(store.durable)
        return "hi"

    await Agent(Scripted(answer)).run("Remember me", session=store)
    assert to_user_item("Remember me") in [
        one.item for one in durable if isinstance(one, ItemAdded)
    ]


async def test_the_same_call_gets_the_same_key_after_a_crash():
    store = MemoryStore()
    first, second = RecordingTool(), RecordingTool()
    await Agent(calling(("record", {})), [first]).run("x", session=store)
    cut = next(
        n
        for n, entry in enumerate(store.entries)
        if isinstance(entry, ItemAdded) and isinstance(entry.item, AssistantItem)
    )
    view = fold_entries(store.entries[: cut + 1])
    await Agent(Scripted(["done"]), [second]).start(state=view, session_id="session").next()
    assert first.idempotency_keys == second.idempotency_keys
    assert view.turn is not None
    assert first.idempotency_keys == [f"session/{view.turn.key}/call_1"]


async def test_a_call_has_another_key_than_that_of_a_turn_that_the_log_has_lost():
    tool = RecordingTool()
    for _ in range(2):  # the second one with a log that was cut to nothing
        await Agent(calling(("record", {})), [tool]).run("x", session=MemoryStore())
    one, other = tool.idempotency_keys
    assert one != other


# --- functions as tools ------------------------------------------------------------------


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Box(msgspec.Struct):
    corner: Point
    colour: Colour = Colour.RED


def test_the_schema_comes_from_annotations_and_docstring():
    @tool
    def paint(box: Box, names: list[str], note: str | None = None, times: int = 1) -> str:
        """Paint a box.

        Args:
            box: what to paint,
                and where
            times (int): how often
        """
        return ""

    schema = paint.spec.schema
    assert paint.spec.description == "Paint a box."
    assert schema["required"] == ["box", "names"]
    assert schema["properties"]["times"] == {
        "type": "integer",
        "default": 1,
        "description": "how often",
    }
    assert schema["properties"]["box"]["description"] == "what to paint, and where"
    assert schema["additionalProperties"] is False
    assert schema["properties"]["box"]["properties"]["colour"]["enum"] == ["red", "blue"]
    assert "$defs" not in schema, "a type that is used once stands where it is used"


async def test_arguments_arrive_as_the_annotated_types():
    seen: list[object] = []

    @tool(effect="pure")
    def paint(box: Box, points: list[Point]) -> str:
        seen.extend([box, points])
        return "painted"

    given = {"box": {"corner": {"x": 1}, "colour": "blue"}, "points": [{"x": 2, "y": 3}]}
    await Agent(calling(("paint", given)), [paint]).run("x")
    assert seen == [Box(Point(1, 0), Colour.BLUE), [Point(2, 3)]]


async def test_a_pydantic_model_works_as_a_parameter():
    pydantic = pytest.importorskip("pydantic")
    Person = pydantic.create_model("Person", name=(str, ...), age=(int, 0))  # noqa: N806 - a class

    async def greet(person) -> str:
        return f"Hello, {person.name} ({person.age})"

    greet.__annotations__["person"] = Person
    model = calling(("greet", {"person": {"name": "Ada"}}), ("greet", {"person": {}}))
    result = await Agent(model, [tool(greet, effect="pure")]).run("x")
    assert answers(result.transcript)[0] == "Hello, Ada (0)"
    assert "invalid arguments" in answers(result.transcript)[1]


def test_a_parameter_without_a_schema_is_refused_at_once():
    with pytest.raises(ConfigError, match=r"\*rest has no schema"):
        tool(lambda *rest: None, name="collect")


async def test_progress_and_summary_are_told_to_the_person():
    witness = RecordingObserver()

    @tool
    async def bash(command: str, context: ToolContext) -> ToolOutput:
        context.report_progress("total 0")
        return ToolOutput("for the model", display="for the person")

    await Agent(calling(("bash", {"command": "ls -la"})), [bash], observers=[witness]).run("x")
    assert [event.summary for event in witness.events_of(ToolStarted)] == ["[bash: ls -la]"]
    assert [event.text for event in witness.events_of(ToolProgress)] == ["total 0"]
    assert [event.display for event in witness.events_of(ToolFinished)] == ["for the person"]


def test_a_tool_is_still_the_function_it_was():
    @tool
    def double(n: int) -> int:
        return 2 * n

    assert double(4) == 8


class OpensSlowly(ChangingSource):
    """Has its tools only when it is open, and fails to open when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.trouble: Exception | None = None

    async def open(self) -> None:
        await super().open()
        await self.go.wait()
        if self.trouble is not None:
            raise self.trouble
        self.set_tools([RecordingTool("late")])


async def test_two_sessions_that_begin_at_once_both_wait_until_the_tools_are_there():
    source, model = OpensSlowly(), Scripted(["one", "two"])
    agent = Agent(model, [source])
    runs = asyncio.gather(agent.run("x"), agent.run("y"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    source.go.set()
    await runs
    assert source.open_count == 1
    assert [[spec.name for spec in request.tools] for request in model.requests] == [["late"]] * 2


async def test_a_source_that_could_not_be_opened_is_opened_again_and_the_others_are_not():
    broken, fine = OpensSlowly(), ChangingSource([RecordingTool()])
    broken.go.set()
    broken.trouble = ToolError("the server does not start")
    driver = Agent(Scripted(["hi"]), [broken, fine]).start(prompt="x")
    with pytest.raises(ToolError):
        await driver.next()
    broken.trouble = None
    assert isinstance(await driver.next(), Finished)
    assert (broken.open_count, fine.open_count) == (2, 1)


async def test_a_source_that_cannot_be_closed_does_not_keep_the_others_open():
    class Stuck(ChangingSource):
        async def aclose(self) -> None:
            raise ToolError("it does not end")

    fine = ChangingSource()
    with pytest.raises(ToolError):
        await Agent(Scripted([]), [fine, Stuck()]).aclose()
    assert fine.close_count == 1


def test_the_schema_of_nested_pydantic_models_holds_together():
    pydantic = pytest.importorskip("pydantic")
    street = pydantic.create_model("Street", name=(str, ...))
    person = pydantic.create_model("Person", street=(street, ...))

    async def greet(person) -> str:
        return str(person.street.name)

    greet.__annotations__["person"] = person
    schema = tool(greet).spec.schema
    street_schema = schema["properties"]["person"]["properties"]["street"]
    assert street_schema["properties"]["name"]["type"] == "string"
