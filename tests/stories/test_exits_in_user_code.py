"""Stories of code of a program that raises what is no `Exception`, as `sys.exit()` does: it costs
no request where the run can do without it, else the run fails, and its session continues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from treadle import Agent, Transcript, Usage, tool
from treadle.contracts import (
    Access,
    Admit,
    Ask,
    BaseGate,
    BaseObserver,
    BasePolicy,
    BaseSource,
    HookInput,
    ModelEvent,
    ModelRequest,
    MutationContext,
    PermissionRequest,
    ProbeResult,
    RequestEstimate,
    Tool,
    Verdict,
)
from treadle.hooks import hook
from treadle.models import Say, Scripted
from treadle.testing.observers import RecordingObserver
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import RecordingTool


class OddExit(BaseException):
    """As a test runner or another event loop has them."""


KINDS = [SystemExit, GeneratorExit, StopIteration, asyncio.CancelledError, OddExit]
kinds = pytest.mark.parametrize("kind", KINDS)


class Fault:
    """Raises an error while it is switched on; counts how often it did."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind
        self.is_on = True
        self.count = 0

    def hit(self, *_: object) -> Any:
        if self.is_on:
            self.count += 1
            raise self.kind("mine")

    async def hit_later(self, *_: object) -> Any:
        await asyncio.sleep(0)
        self.hit()


class FaultyObserver(BaseObserver):
    def __init__(self, fault: Fault, method: str) -> None:
        setattr(self, method, fault.hit)


class FaultySource(BaseSource):
    name = "faulty"

    def __init__(self, fault: Fault, method: str) -> None:
        self._fault, self._method, self._look = fault, method, RecordingTool("look")

    def tools(self) -> Sequence[Tool]:
        if self._method == "tools" and self._look.calls:
            self._fault.hit()
        return [self._look]

    def instructions(self) -> str:
        if self._method == "instructions":
            self._fault.hit()
        return ""


class FaultyMutator:
    name = "faulty"
    points = frozenset({"before_model"})

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    async def mutate(self, context: MutationContext) -> Transcript | None:
        self._fault.hit()
        return None


class FaultyHook:
    """A hook by its contract, at one that runs before each call and one that runs after it."""

    points = frozenset({"user_prompt_submit", "post_tool_use"})
    timeout = None

    def __init__(self, run: Callable[[HookInput], Any]) -> None:
        self.run: Any = run


class FaultyPolicy(BasePolicy):
    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    async def decide(self, request: PermissionRequest) -> Verdict:
        self._fault.hit()
        return Ask("why not")


class AsksAlways(BasePolicy):
    async def decide(self, request: PermissionRequest) -> Verdict:
        return Ask("why not")


class FaultyGate(BaseGate):
    def __init__(self, fault: Fault, method: str) -> None:
        self._fault, self._method = fault, method

    def admit(self, estimate: RequestEstimate) -> Admit:
        if self._method == "admit":
            self._fault.hit()
        return Admit()

    def settle(self, estimate: RequestEstimate, used: Usage) -> None:
        if self._method == "settle":
            self._fault.hit()


def function_hook(function: Callable[..., Any], **options: Any) -> Any:
    return hook("user_prompt_submit", "post_tool_use", **options)(function)


def tool_of(function: Callable[..., Any], **options: Any) -> Any:
    return tool(function, name="look", description="Look.", **options)


async def look() -> str:
    return "seen"


def make_tool(fault: Fault) -> Any:
    async def search() -> str:
        await fault.hit_later()
        return "seen"

    return tool_of(search)


def raise_in_summary(fault: Fault) -> RecordingTool:
    class Summarized(RecordingTool):
        def summary(self, arguments: dict[str, Any]) -> str:
            fault.hit()
            return "looks"

    return Summarized("look")


def forgive(fault: Fault) -> Callable[..., Access]:
    def access(arguments: dict[str, Any]) -> Access:
        fault.hit()
        return Access()

    return access


# What of an agent raises it; the run can do without.
SPARED: dict[str, Callable[[Fault], dict[str, Any]]] = {
    "observer": lambda fault: {"observers": [FaultyObserver(fault, "on_event")]},
    "reader of items": lambda fault: {"observers": [FaultyObserver(fault, "on_item")]},
    "hook": lambda fault: {"hooks": [FaultyHook(fault.hit_later)]},
    "hook that is not async": lambda fault: {"hooks": [FaultyHook(fault.hit)]},
    "function as a hook": lambda fault: {"hooks": [function_hook(fault.hit)]},
    "async function as a hook": lambda fault: {"hooks": [function_hook(fault.hit_later)]},
    "quick function as a hook": lambda fault: {"hooks": [function_hook(fault.hit, timeout=None)]},
    "mutator": lambda fault: {"mutators": [FaultyMutator(fault)]},
    "policy": lambda fault: {"policy": FaultyPolicy(fault)},
    "settlement of a gate": lambda fault: {"gates": [FaultyGate(fault, "settle")]},
    "later list of a source": lambda fault: {"tools": [FaultySource(fault, "tools")]},
    "tool": lambda fault: {"tools": [make_tool(fault)]},
    "plain tool": lambda fault: {"tools": [tool_of(lambda: fault.hit())]},
    "access": lambda fault: {"tools": [tool_of(look, access=forgive(fault))]},
    "check": lambda fault: {"tools": [RecordingTool("look", check=fault.hit)]},
    "summary": lambda fault: {"tools": [raise_in_summary(fault)]},
    "preview": lambda fault: {
        "tools": [tool_of(look, preview=fault.hit)],
        "policy": AsksAlways(),
        "approve": lambda approval: True,
    },
    "evidence": lambda fault: {
        "tools": [tool_of(look, effect="verifiable", evidence=fault.hit_later, probe=probe)]
    },
}
# What the run cannot do without.
NEEDED: dict[str, Callable[[Fault], dict[str, Any]]] = {
    "instructions": lambda fault: {"instructions": lambda context: fault.hit() or "Be brief."},
    "async instructions": lambda fault: {"instructions": lambda context: instruct(fault)},
    "gate": lambda fault: {"gates": [FaultyGate(fault, "admit")]},
    "instructions of a source": lambda fault: {"tools": [FaultySource(fault, "instructions")]},
    "approver": lambda fault: {"policy": AsksAlways(), "approve": fault.hit},
    "async approver": lambda fault: {"policy": AsksAlways(), "approve": fault.hit_later},
    "check of the output": lambda fault: {"check_output": fault.hit},
    "async check of the output": lambda fault: {"check_output": fault.hit_later},
    "output function": lambda fault: {"output_type": make_finish(fault)},
}


async def probe(*_: object) -> ProbeResult:
    return ProbeResult("not_done", "nothing")


async def instruct(fault: Fault) -> str:
    await fault.hit_later()
    return "Be brief."


def make_finish(fault: Fault) -> Callable[..., Any]:
    async def finish(answer: str) -> str:
        """Finish."""
        await fault.hit_later()
        return answer

    return finish


def make_agent(settings: dict[str, Any]) -> tuple[Agent[Any, Any], Scripted]:
    model = Scripted([Say(calls=[("look", {})]), '{"answer": "done"}'] * 2)
    settings = {"tools": [RecordingTool("look")], "store": MemoryStore("s"), **settings}
    return Agent(model, **settings), model


@kinds
@pytest.mark.parametrize("make", SPARED.values(), ids=SPARED)
async def test_an_exit_in_user_code_costs_no_request(make, kind):
    fault = Fault(kind)
    agent, model = make_agent(make(fault))
    async with agent.session("s") as session:
        assert "done" in (await session.run("go")).text
    assert fault.count > 0
    fault.is_on = False
    async with agent.session("s") as session:
        assert "done" in (await session.run("again")).text
    assert len(model.requests) == 4


@kinds
@pytest.mark.parametrize("make", NEEDED.values(), ids=NEEDED)
async def test_an_exit_in_code_that_a_run_needs_fails_the_run_alone(make, kind):
    fault, seen = Fault(kind), RecordingObserver()
    agent, _ = make_agent({**make(fault), "observers": [seen]})
    async with agent.session("s") as session:
        with pytest.raises(RuntimeError, match=r"mine|raised StopIteration|cancelled from inside"):
            await session.run("go")
    assert fault.count == 1
    fault.is_on = False
    async with agent.session("s") as session:
        assert "done" in str((await session.run("again")).output)


@pytest.mark.parametrize("method", ["on_event", "on_item"])
async def test_a_keyboard_interrupt_is_never_kept_from_the_program(method):
    agent, _ = make_agent({"observers": [FaultyObserver(Fault(KeyboardInterrupt), method)]})
    with pytest.raises(KeyboardInterrupt):
        await agent.run("go")


async def test_the_task_of_a_run_can_be_cancelled_inside_of_user_code():
    started = asyncio.Event()

    async def instruct_forever(context: object) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    agent, model = make_agent({"instructions": instruct_forever})
    run = asyncio.create_task(agent.run("go"))
    await started.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert model.requests == []


async def test_an_exit_in_a_model_of_the_program_fails_the_run_alone():
    fault = Fault(SystemExit)

    class Exits(Scripted):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            fault.hit()
            async for event in super().stream(request):
                yield event

    agent = Agent(Exits(["done"]), store=MemoryStore("s"))
    async with agent.session("s") as session:
        with pytest.raises(RuntimeError, match="it raised SystemExit: mine"):
            await session.run("go")
        fault.is_on = False
        assert (await session.run()).text == "done"
