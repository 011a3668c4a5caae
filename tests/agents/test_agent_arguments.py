"""What an agent is given: settings that are checked, deps, instructions, history, outputs."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest

import treadle
from treadle import (
    Agent,
    Approval,
    ConfigError,
    Image,
    LoopError,
    OutputMissing,
    RunContext,
    ToolContext,
    tool,
)
from treadle.agents import agent_settings
from treadle.agents.agent_runs import RUN_ARGUMENTS, STREAM_ARGUMENTS
from treadle.agents.agent_settings import AgentSettings
from treadle.budgets import CostBudget
from treadle.contracts import (
    Admit,
    Allow,
    Ask,
    BaseGate,
    BasePolicy,
    HookInput,
    PermissionRequest,
    PreToolUseData,
    RequestEstimate,
    ToolResultItem,
    Verdict,
)
from treadle.hooks import hook
from treadle.models import Say, Scripted
from treadle.testing import ChangingSource, ManualClock, MemoryStore, RecordingTool


@dataclass
class Shop:
    name: str


class Asks(BasePolicy):
    async def decide(self, request: PermissionRequest) -> Verdict:
        return Ask("sure?")


class OnlyAdmits:
    def admit(self, estimate: RequestEstimate) -> Admit:
        return Admit()


class AsyncGate(BaseGate):
    async def admit(self, estimate: RequestEstimate) -> Admit:  # type: ignore[override]
        return Admit()


class OnlyEvents:
    def on_event(self, event: object) -> None:
        return None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": 3}, "model is 3; expected a name such as"),
        ({"tools": "bash"}, "tools is 'bash'; expected a list of tools"),
        ({"tools": 3}, "tools is 3; expected a list of tools"),
        ({"tools": [3]}, "3 is not a tool, a function or a source of tools"),
        ({"max_turns": -1}, "max_turns is -1; expected a whole number of 0 or more"),
        ({"max_turns": 1.5}, "max_turns is 1.5; expected a whole number of 0 or more"),
        ({"max_turns": "3"}, "max_turns is '3'; expected a whole number of 0 or more"),
        ({"max_turns": True}, "max_turns is True; expected a whole number of 0 or more"),
        ({"max_parallel": 0}, "max_parallel is 0; expected a whole number of 1 or more"),
        ({"tool_timeout": -1}, "tool_timeout is -1; expected a number above 0"),
        ({"tool_timeout": float("nan")}, "tool_timeout is nan; expected a number above 0"),
        ({"hooks": [3]}, r"hooks\[0\] is 3; expected an object with the method run\(\)"),
        ({"hooks": [len]}, r"expected an object with the method run\(\) \(see @hook, which"),
        ({"hooks": RecordingTool()}, r"expected a list of objects with the method run\(\)"),
        ({"gates": [Asks()]}, r"expected an object with the methods admit\(\) and settle\(\)"),
        ({"gates": [OnlyAdmits()]}, r"gates\[0\] is .*; expected .* settle\(\).* \(see BaseGate\)"),
        ({"gates": [AsyncGate()]}, r"admit\(\) and settle\(\), without async"),
        ({"observers": [ManualClock()]}, r"with the methods on_event\(\) and on_item\(\)"),
        ({"observers": [OnlyEvents()]}, r"with the methods on_event\(\) and on_item\(\)"),
        ({"mutators": ["x"]}, r"mutators\[0\] is 'x'; expected an object with the method mutate"),
        ({"policy": Asks}, r"expected an object with the methods decide\(\) and save_rules\(\)"),
        ({"policy": Allow()}, r"expected an object with the methods decide\(\)"),
        ({"subagents": ["x"]}, r"subagents\[0\] is 'x'; expected an AgentDefinition"),
        ({"caller": "x"}, "caller is 'x'; expected library, terminal, headless or child"),
        ({"deps_type": 3}, "deps_type is 3; expected a type: the class of `deps`"),
        ({"deps_type": Shop("a")}, "expected a type: the class of `deps`, not an object of it"),
        ({"store": 3}, 'store is 3; expected a folder, a database file such as "sessions.db"'),
        ({"store": ""}, "store is ''; expected a folder"),
        ({"services": 3}, "services is 3; expected a dict"),
        ({"depth": "x"}, "depth is 'x'; expected a whole number"),
        ({"role": 3}, "role is 3; expected a text"),
        ({"instructions": lambda a, b: ""}, r"the parameters \(a, b\); expected one without"),
        ({"instructions": lambda *, a: ""}, r"the parameters \(\*, a\); expected one without"),
        ({"workspace": "/tmp"}, r"workspace is '/tmp'; expected an object"),
        ({"options": {"thinking": 1}}, "expected a ModelOptions"),
        ({"cache": True}, "cache is True; expected a CacheRequest"),
        ({"approve": True}, "approve is True; expected a function"),
        ({"instructions": None}, "instructions is None; expected a text, or a function"),
        ({"collision": "last"}, "collision is 'last'; expected first_wins"),
    ],
)
def test_a_wrong_setting_is_an_error_that_says_what_is_expected(settings: dict[str, Any], words):
    with pytest.raises(ConfigError, match=words):
        Agent(**{"model": Scripted([]), **settings})


def test_a_misspelt_setting_is_an_error():
    with pytest.raises(TypeError, match="no argument 'instruction'; did you mean 'instructions'"):
        Agent(Scripted([]), instruction="x")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="no argument 'max_turn'; did you mean 'max_turns'"):
        Agent(Scripted([])).replace(max_turn=3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="no argument 'hidden'; it has approve, ") as caught:
        Agent(Scripted([]), hidden=1)  # type: ignore[call-overload]
    listed = str(caught.value).partition("it has ")[2].split(", ")
    assert set(listed) == set(inspect.signature(Agent).parameters)


def test_a_class_of_another_library_or_module_is_imported_with_the_name_that_it_has_here():
    with pytest.raises(ImportError, match="treadle has no ModelRetry; here it is ToolError"):
        from treadle import ModelRetry  # noqa: F401
    with pytest.raises(ImportError, match=r"here it is Agent\(max_turns=.*treadle\.budgets"):
        from treadle import UsageLimits  # noqa: F401
    with pytest.raises(ImportError, match=r"here it is treadle\.models\.Scripted"):
        from treadle import TestModel  # noqa: F401
    with pytest.raises(ImportError, match="here it is Agent, with its run"):
        from treadle import Runner  # noqa: F401
    with pytest.raises(ImportError, match=r"testing has no Scripted; .* treadle\.models\.Scripted"):
        from treadle.testing import Scripted  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        from treadle import Nothing  # noqa: F401
    assert not hasattr(treadle, "Nothing")


async def test_a_name_of_another_library_gets_the_name_that_it_has_here():
    make: Any = Agent
    agent: Any = Agent(Scripted(["ok"]), store=MemoryStore)
    with pytest.raises(TypeError, match="argument 'system_prompt'; here it is instructions"):
        make(Scripted([]), system_prompt="x")
    with pytest.raises(TypeError, match="'result_type'; here it is output_type"):
        make(Scripted([]), result_type=int)
    with pytest.raises(TypeError, match=r"agent\.run has no .*; here it is history"):
        await agent.run("x", message_history=[])
    with pytest.raises(TypeError, match=r"agent\.stream has no .*; here it is history"):
        agent.stream("x", message_history=[])
    with pytest.raises(TypeError, match=r"agent\.stream has no .*; did you mean 'output'"):
        agent.stream("x", outptu=int)
    with pytest.raises(
        TypeError, match=r"here it is an argument of a run, .*output_retries=\.\.\."
    ):
        make(Scripted([]), output_retries=3)
    async with agent.session("a") as session:
        with pytest.raises(TypeError, match=r"session\.run has no argument 'deps'; .* agent\.s"):
            await session.run("x", deps=3)
    with pytest.raises(AttributeError, match="no attribute 'run_stream'; here it is stream"):
        agent.run_stream("x")
    with pytest.raises(AttributeError, match="no attribute 'data'; here it is output"):
        _ = (await agent.run("x")).data
    assert not hasattr(agent, "nothing")


@pytest.mark.parametrize(
    ("name", "here"),
    [
        ("checkpointer", "store"),
        ("prompt", "instructions; a prompt is an argument of a run"),
        ("recursion_limit", "max_turns"),
        ("middleware", "hooks, mutators or gates"),
        ("input_guardrails", "hooks"),
        ("state_schema", "deps_type"),
    ],
)
def test_an_argument_of_a_graph_gets_the_name_that_it_has_here(name: str, here: str):
    make: Any = Agent
    with pytest.raises(TypeError, match=f"no argument '{name}'; here it is {here}"):
        make(Scripted([]), **{name: 3})


async def test_a_thread_of_a_graph_is_a_session_here():
    agent: Any = Agent(Scripted([]), store=MemoryStore)
    for name in ("config", "thread_id"):
        with pytest.raises(TypeError, match=f"no argument '{name}'; here it is session"):
            await agent.run("x", **{name: "a"})
        async with agent.session("a") as session:
            with pytest.raises(TypeError, match=r"here it is .*agent\.session"):
                await session.run("x", **{name: "a"})
    with pytest.raises(TypeError, match="here it is session_id, the first argument"):
        agent.session(thread_id="a")
    with pytest.raises(AttributeError, match=r"'get_state'; here it is session\(id\)"):
        agent.get_state({})


def test_a_name_where_the_model_belongs_is_told_from_a_second_model():
    make: Any = Agent
    with pytest.raises(TypeError, match="argument is the model; a name is name='weather'"):
        make("weather", model="gpt-5")
    assert "model" in inspect.signature(Agent).parameters


async def test_messages_as_a_prompt_are_told_where_they_belong():
    prompt: Any = [{"role": "user", "content": "hi"}]
    with pytest.raises(TypeError, match="Earlier messages are given as `history`"):
        await Agent(Scripted([])).run(prompt)


def test_tools_may_come_from_a_generator():
    tools: Any = (one for one in [RecordingTool()])
    agent = Agent(Scripted([]), tools)
    assert [one.spec.name for one in agent.replace(max_turns=3).config.source.tools()] == ["record"]


async def test_a_tool_that_comes_later_under_a_taken_name_is_reported_in_the_log(caplog: Any):
    source = ChangingSource()
    agent = Agent(Scripted(["ok", "ok"]), [RecordingTool(), source])
    source.set_tools([RecordingTool()])
    with caplog.at_level("WARNING", "treadle"):
        await agent.run("x")
        await agent.run("x")
    [record] = caplog.records
    assert record.getMessage().startswith("tool 'record' of 'changing' is not offered: there is")


def read_annotations(name: str) -> dict[str, str]:
    """The fields of a class that only type checkers see."""
    tree = ast.parse(inspect.getsource(agent_settings))
    [found] = [one for one in ast.walk(tree) if isinstance(one, ast.ClassDef) and one.name == name]
    fields = [one for one in found.body if isinstance(one, ast.AnnAssign)]
    return {ast.unparse(one.target): ast.unparse(one.annotation) for one in fields}


def test_the_typed_settings_are_those_of_the_constructor():
    types, first = AgentSettings.__annotations__, {"model", "tools", "deps_type", "output_type"}
    typed, changes = read_annotations("AgentArguments"), read_annotations("AgentChanges")
    assert {name: str(types[name]) for name in types if name not in first} == {
        name: re.sub("DepsT|OutputT", "Any", one) for name, one in typed.items()
    }
    assert {*typed, *changes} == set(types) - {"deps_type", "output_type"}
    assert set(inspect.signature(Agent).parameters) == set(types)
    for method, known in ((Agent.run, RUN_ARGUMENTS), (Agent.stream, STREAM_ARGUMENTS)):
        own = set(inspect.signature(method).parameters) - {"self", "unknown"}
        assert set(known) == own


async def test_deps_reach_async_and_plain_functions_and_children():
    seen: list[str] = []

    @tool
    async def later(context: ToolContext[Shop]) -> str:
        seen.append(f"later {context.deps.name}")
        return "ok"

    @tool
    def now(context: ToolContext[Shop]) -> str:
        seen.append(f"now {context.deps.name}")
        return "ok"

    calls = Say(calls=[("later", {}), ("now", {})])
    child = Say(calls=[("task", {"description": "d", "prompt": "p"})])
    model = Scripted([calls, child, Say(calls=[("now", {})]), "child done", "done"])
    agent = Agent(model, [later, now], deps_type=Shop, subagents=())
    await agent.run("go", deps=Shop("Ada"))
    assert seen == ["later Ada", "now Ada", "now Ada"]


async def test_deps_of_another_type_or_none_are_refused():
    agent = Agent(Scripted([]), deps_type=Shop)
    with pytest.raises(ConfigError, match="deps: expected Shop, got int"):
        await agent.run("x", deps=3)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="deps: expected Shop, got nothing"):
        await agent.run("x")  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="deps: expected nothing, got int"):
        await Agent(Scripted([])).run("x", deps=3)  # type: ignore[call-overload]


def test_a_tool_that_wants_other_deps_is_refused_when_the_agent_is_made():
    @tool
    def sell(context: ToolContext[Shop]) -> str:
        return context.deps.name

    def sell_plain(context: ToolContext[Shop]) -> str:
        return context.deps.name

    @dataclass
    class Kiosk(Shop):
        pass

    for function in (sell, sell_plain):
        with pytest.raises(
            ConfigError, match=r"ToolContext\[Shop\], and .* is not set; give Agent"
        ):
            Agent(Scripted([]), [function])
        with pytest.raises(
            ConfigError, match=r"deps_type of the agent is int; give Agent\(deps_ty"
        ):
            Agent(Scripted([]), [function], deps_type=int)
        Agent(Scripted([]), [function], deps_type=Kiosk)
        Agent(Scripted([]), [function], deps_type=Any)


async def test_instructions_get_the_context_and_are_called_once_a_turn():
    contexts: list[RunContext[Shop]] = []

    async def instruct(context: RunContext[Shop]) -> str:
        contexts.append(context)
        return f"You work for {context.deps.name}."

    model = Scripted([Say(calls=[("record", {})]), "one", "two"])
    agent = Agent(model, [RecordingTool()], deps_type=Shop, instructions=instruct)
    async with agent.session("a", deps=Shop("Ada"), store=MemoryStore) as session:
        await session.run("go", metadata={"job": 7})
        await session.run("more")
    assert [context.turn_id for context in contexts] == ["turn-1", "turn-2"]
    assert contexts[0].metadata == {"job": 7}
    assert [request.system for request in model.requests] == ["You work for Ada."] * 3


async def test_instructions_that_are_no_text_end_the_run_with_an_error():
    with pytest.raises(ConfigError, match="instructions returned int; they must be a text"):
        await Agent(Scripted(["x"]), instructions=lambda: 3).run("x")  # type: ignore[arg-type]


async def test_a_prompt_may_be_a_list_of_texts_and_images():
    model = Scripted(["ok"])
    await Agent(model).run(["Look:", Image("image/png", b"\x89PNG")])
    [item] = model.requests[0].transcript
    assert [type(part).__name__ for part in item.content] == ["Text", "Image"]  # type: ignore[union-attr]


@pytest.mark.parametrize("prompt", [5, [3], object()])
async def test_a_prompt_that_is_none_is_refused(prompt):
    with pytest.raises(TypeError, match=r"a prompt is a text|content consists of"):
        await Agent(Scripted([])).run(prompt)


async def test_an_approver_may_edit_the_arguments():
    record = RecordingTool()
    agent = Agent(
        Scripted([Say(calls=[("record", {"n": 1})]), "done"]),
        [record],
        policy=Asks(),
        approve=lambda approval: Approval(arguments={"n": 2}),
    )
    result = await agent.run("go")
    assert record.calls == [{"n": 2}]
    answer = result.transcript[2]
    assert isinstance(answer, ToolResultItem)
    assert "The user changed the arguments" in answer.model_text


async def test_an_approval_with_the_same_arguments_is_no_edit():
    agent = Agent(
        Scripted([Say(calls=[("record", {"n": 1})]), "done"]),
        [RecordingTool()],
        policy=Asks(),
        approve=lambda approval: Approval(arguments={"n": 1}),
    )
    result = await agent.run("go")
    answer = result.transcript[2]
    assert isinstance(answer, ToolResultItem)
    assert answer.notes == ()


async def test_a_result_says_why_the_run_stopped():
    model = Scripted([Say(calls=[("record", {})]), Say(calls=[("record", {})])])
    result = await Agent(model, [RecordingTool()], max_turns=1).run("go")
    assert (result.reason, result.detail) == ("max_turns", result.turn.metadata["detail"])
    assert result.detail
    assert (await Agent(Scripted(["ok"])).run("go")).detail == ""


async def test_a_run_that_stops_before_its_answer_raises_and_keeps_what_there_is():
    model = Scripted([Say(calls=[("record", {})]), Say(calls=[("record", {})])])
    agent = Agent(model, [RecordingTool()], output_type=Shop, max_turns=1)
    with pytest.raises(OutputMissing, match="max_turns") as raised:
        await agent.run("go")
    assert raised.value.reason == "max_turns"
    assert len(raised.value.transcript) >= 3


async def test_the_output_of_the_agent_the_run_and_the_stream():
    answers = [Say(calls=[("final_answer", {"name": name})]) for name in ("a", "b", "c")]
    agent = Agent(Scripted([*answers[:2], Say(calls=[("final_answer", {"answer": 3})])]),
                  output_type=Shop)  # fmt: skip
    assert (await agent.run("go")).output == Shop("a")
    async with agent.stream("go") as events:
        async for _ in events:
            pass
    assert events.result.output == Shop("b")
    assert agent.replace(max_turns=3).config.options == agent.config.options


async def test_one_agent_serves_two_loops_one_after_the_other():
    agent = Agent(Scripted(lambda request: "ok"))
    first = await asyncio.to_thread(agent.run_sync, "one")
    second = await asyncio.to_thread(agent.run_sync, "two")
    assert (first.text, second.text) == ("ok", "ok")


async def test_a_closed_agent_says_so():
    async with Agent(Scripted(["ok"])) as agent:
        await agent.run("x")
    for use in (agent.run, agent.stream, agent.session, agent.start):
        with pytest.raises(LoopError, match="this agent is closed"):
            await made if inspect.isawaitable(made := use("x")) else None


def test_an_agent_can_be_written_with_one_or_two_types():
    assert Agent[Shop].__args__ == (Shop, str)  # type: ignore[attr-defined]
    assert Agent[Shop, int].__args__ == (Shop, int)  # type: ignore[attr-defined]
    assert "deps" in (ToolContext.__doc__ or "")


def test_a_hook_with_a_misspelt_point_is_refused():
    class Guard:
        points = frozenset({"pre_tol_use"})

        async def run(self, hook_input: object) -> None:
            return None

    with pytest.raises(ConfigError, match="pre_tool_use"):
        Agent(Scripted([]), hooks=[Guard()])  # type: ignore[list-item]


def test_a_run_context_is_not_for_tools():
    with pytest.raises(ConfigError, match="a tool gets a ToolContext"):

        @tool
        def look(context: RunContext[int], n: int) -> str:
            return ""


def test_a_tool_context_is_not_for_instructions():
    def instruct(context: ToolContext[int]) -> str:
        return ""

    def instruct_without_deps(context: ToolContext) -> str:
        return ""

    functions: list[Any] = [instruct, instruct_without_deps]
    for instructions in functions:
        with pytest.raises(ConfigError, match="instructions gets a RunContext"):
            Agent(Scripted([]), deps_type=int, instructions=instructions)


def test_instructions_that_want_other_deps_than_those_of_the_agent_are_refused():
    def instruct(context: RunContext[Shop]) -> str:
        return context.deps.name

    async def instruct_later(context: RunContext[Shop]) -> str:
        return context.deps.name

    functions: list[Any] = [instruct, instruct_later]
    for instructions in functions:
        with pytest.raises(ConfigError, match=r"instructions takes a RunContext\[Shop\], and deps"):
            Agent(Scripted([]), deps_type=int, instructions=instructions)
        with pytest.raises(ConfigError, match=r"is not set; give Agent\(deps_type=Shop\)"):
            Agent(Scripted([]), instructions=instructions)
        Agent(Scripted([]), deps_type=Shop, instructions=instructions)
        Agent(Scripted([]), deps_type=Any, instructions=instructions)
    Agent(Scripted([]), instructions=lambda context: "")


def test_deps_of_an_agent_are_said_to_be_an_argument_of_a_run():
    with pytest.raises(TypeError, match=r"here it is an argument of a run, agent\.run"):
        Agent(Scripted([]), deps=Shop("a"))  # type: ignore[call-overload]


def test_a_cost_budget_may_be_a_number():
    assert CostBudget(0.5).budget.limit == 0.5


def test_an_agent_is_made_without_modules_that_it_can_do_without():
    program = (
        "import sys, asyncio, msgspec\n"
        "before = set(sys.modules)\n"
        "from treadle import Agent, tool\n"
        "from treadle.models import Scripted\n"
        "def add(a: int, b: int = 1) -> int:\n"
        "    return a + b\n"
        "Agent(Scripted(['Hi']), [tool(add, effect='pure')], instructions='Be brief.')\n"
        "others = {name for name in set(sys.modules) - before if not name.startswith('treadle')}\n"
        "sys.exit(' '.join(sorted(others)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert done.stderr.decode().split() == []


async def test_deps_reach_hooks_and_policies():
    seen: list[Shop] = []

    class Watched(BasePolicy[Shop]):
        async def decide(self, request: PermissionRequest[Shop]) -> Verdict:
            seen.append(request.deps)
            return Allow()

    @hook("pre_tool_use", "stop")
    def watch(hook_input: HookInput[Any, Shop]) -> None:
        seen.append(hook_input.deps)

    model = Scripted([Say(calls=[("record", {})]), "ok"])
    shop = Shop("Ada")
    agent = Agent(model, [RecordingTool()], deps_type=Shop, policy=Watched(), hooks=[watch])
    await agent.run("x", deps=shop)
    assert seen == [shop, shop, shop]
    assert get_args(HookInput[PreToolUseData]) == (PreToolUseData, object)


async def test_an_overridden_agent_has_other_settings_for_the_block_only():
    seen: list[object] = []

    @tool
    def look(context: ToolContext[Shop]) -> str:
        seen.append(context.deps)
        return "ok"

    real = Scripted(["real"])
    agent = Agent(real, [look], deps_type=Shop)

    async def serve() -> str:
        """The code under test, which knows nothing of the test."""
        return (await agent.run("x", deps=Shop("real"))).output

    model = Scripted([Say(calls=[("look", {})]), "test"])
    with agent.override(model=model, deps=Shop("test")):
        assert await serve() == "test"
        async with agent.session("s", deps=Shop("real"), store=MemoryStore("s")) as session:
            assert session.driver.deps == Shop("test")
    assert seen == [Shop("test")]
    assert await serve() == "real"
    with pytest.raises(ConfigError, match="max_turns"), agent.override(max_turns=-1):
        pass
    assert agent.config.model is real


def test_the_docs_describe_each_setting_of_an_agent():
    page = (Path(__file__).parents[2] / "docs" / "library.md").read_text()
    section = page.split("\n## The settings of an agent\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| .", section, re.MULTILINE)
    assert rows == list(AgentSettings.__struct_fields__)


async def test_agent_and_result_are_shown_in_a_line():
    agent = Agent(Scripted(["x" * 999]), [RecordingTool()], name="clerk")
    assert repr(agent) == "<Agent 'clerk', scripted, 1 tool or source>"
    shown = repr(await agent.run("go"))
    assert shown.startswith("Result('xxx")
    assert shown.endswith("reason='end_turn', cost=0.0000)")
    assert len(shown) < 300
