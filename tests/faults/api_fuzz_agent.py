"""The agent of a fuzzed session: a scripted model, tools, a policy, hooks and mutators by seed.

Every effect of a tool is a line of the ledger, a file that survives the process. The amount of an
effect is chosen by the model and never twice, so that no identifier of the engine is trusted. Used
by api_fuzz_user.py.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from treadle import Agent
from treadle.context.compaction import Compactor
from treadle.core.contracts.hook import AddContext, Block, HookAnswer, HookInput, HookPoint
from treadle.core.contracts.model import ModelCard, ModelRequest, PartQuarantined
from treadle.core.contracts.mutator import MutationContext, MutationPoint, Mutator
from treadle.core.contracts.policy import Allow, Ask, BasePolicy, PermissionRequest, Verdict
from treadle.core.contracts.tool import BaseTool, ProbeResult, ToolContext, ToolOutput, ToolSpec
from treadle.core.errors import BadRequest, Overloaded, StreamBroken
from treadle.core.loop.driver import Driver
from treadle.core.steps import Approval, Denial, PendingApproval
from treadle.core.transcript import AssistantItem, NoticeItem, SummaryItem, Text, ToolCall, Usage
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.transcript import Transcript
from treadle.models.scripted import Say, Scripted
from treadle.sessions.open_store import StoreLocation
from treadle.testing.clock import ManualClock

WORDS = ("one", "two\n", "ünï", "x" * 1_500, "漢字" * 30, '"quoted"\\')
SIZES = (10, 100, 1_200, 5_000, 70_000)
EFFECTS = ("write", "pay", "sign", "slow")


class LedgerLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happened outside of the session. `kind`: effect (`name` is its key, `amount`), session,
    damaged, acknowledged or withdrawn (`name` is the text of a message), action."""

    kind: str
    name: str
    session: str = ""
    tool: str = ""
    amount: int = 0


class Ledger:
    """Lines that are written at once and outlive the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def add(self, kind: str, name: str, session: str = "", tool: str = "", amount: int = 0) -> None:
        line = LedgerLine(kind, name, session, tool, amount)
        os.write(self._file, msgspec.json.encode(line) + b"\n")

    def read(self, kind: str) -> list[LedgerLine]:
        lines = self._path.read_bytes().splitlines()
        found = [msgspec.json.decode(line, type=LedgerLine) for line in lines]
        return [one for one in found if one.kind == kind]

    def close(self) -> None:
        os.close(self._file)


class World:
    """What is outside of the engine in one process: the numbers, the ledger, and its progress."""

    def __init__(self, rng: random.Random, ledger: Ledger) -> None:
        self.rng = rng
        self.ledger = ledger
        self.driver: Driver | None = None
        self.errors: list[str] = []  # of tasks and callbacks, unhandled
        self.on_effect: Callable[[str], None] = lambda place: None  # before, after
        self._ticks = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def tick(self) -> None:
        """The model, a tool or a store did something."""
        self._ticks += 1
        for at, future in self._waiting:
            if at <= self._ticks and not future.done():
                future.set_result(None)

    def note_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The handler of the event loop for unhandled errors."""
        self.errors.append(f"{context}")

    async def wait(self, work: asyncio.Task[Any]) -> None:
        """Until some moment of the work, at the latest its end."""
        if self.rng.random() < 0.5:
            for _ in range(self.rng.randrange(60)):
                if not work.done():
                    await asyncio.sleep(0)
            return
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = (self._ticks + self.rng.randrange(1, 12), reached)
        self._waiting.append(waiting)
        await asyncio.wait([reached, work], return_when=asyncio.FIRST_COMPLETED)
        self._waiting.remove(waiting)
        await self.pass_steps(4)

    async def pass_steps(self, most: int) -> None:
        for _ in range(self.rng.randrange(most)):
            await asyncio.sleep(0)

    def make_text(self, kind: str = "message") -> str:
        """A message that is given only once."""
        return f"{kind} {self.rng.getrandbits(60):x} {self.rng.choice(WORDS)}"

    def make_amount(self) -> int:
        return self.rng.getrandbits(50)


class FuzzTool(BaseTool):
    """Has its effect, and may steer or interrupt the agent while it runs."""

    def __init__(self, world: World, spec: ToolSpec) -> None:
        self._world = world
        self._spec = spec

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        world, rng, name = self._world, self._world.rng, self._spec.name
        world.tick()
        if self._spec.detachable and rng.random() < 0.7:
            context.detach()
            await world.pass_steps(60)
        await world.pass_steps(3)
        if rng.random() < 0.03:
            raise ValueError("it failed")
        amount = arguments.get("amount", 0)
        if self._spec.effect != "pure":
            world.on_effect("before")
            world.ledger.add("effect", context.idempotency_key, context.session_id, name, amount)
            world.on_effect("after")
            world.tick()
        chance, driver = rng.random(), world.driver
        if chance < 0.03 and driver is not None:
            driver.steer(world.make_text())
        elif chance < 0.05 and driver is not None:
            driver.interrupt()
        await world.pass_steps(3)
        return ToolOutput(f"done {amount} " + "a" * rng.choice(SIZES), data={"n": rng.randrange(9)})

    async def evidence(self, arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        await self._world.pass_steps(2)
        return {"key": context.idempotency_key}

    async def probe(
        self, arguments: dict[str, Any], evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        await self._world.pass_steps(2)
        # A damaged log has no evidence: as a tool that compares a file, it looks for what it does.
        effects = self._world.ledger.read("effect")
        keys, amounts = [one.name for one in effects], [one.amount for one in effects]
        is_done = evidence.get("key") in keys or arguments.get("amount") in amounts
        return ProbeResult("done" if is_done else "not_done", "looked it up")


def make_tools(world: World) -> list[FuzzTool]:
    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}}

    def spec(name: str, effect: Any, **more: Any) -> ToolSpec:
        return ToolSpec(name, f"Does {name}.", schema, effect, **more)

    return [
        FuzzTool(world, spec("look", "pure", concurrent=True)),
        FuzzTool(world, spec("write", "verifiable", concurrent=True)),
        FuzzTool(world, spec("pay", "irreversible")),
        FuzzTool(world, spec("sign", "irreversible", concurrent=True, needs_approval=True)),
        FuzzTool(world, spec("slow", "irreversible", concurrent=True, detachable=True)),
    ]


class FuzzModel:
    """Answers whatever the state of the session is."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def reply(self, request: ModelRequest) -> Any:
        world, rng = self._world, self._world.rng
        world.tick()
        await world.pass_steps(4)
        chance = rng.random()
        if chance < 0.03:
            return Overloaded("busy")
        if chance < 0.045:
            return BadRequest("no")
        if chance < 0.08:
            return [*self._make_parts(request), StreamBroken("cut")]
        if chance < 0.1:
            return AssistantItem((Text("more to come"),), rng.choice(["pause", "max_tokens"]))
        return self._make_parts(request)

    def _make_parts(self, request: ModelRequest) -> list[Any]:
        rng = self._world.rng
        usage = Usage(input=rng.randrange(99), output=rng.randrange(99), requests=1, cost=0.25)
        parts: list[Any] = []
        if rng.random() < 0.04 and len(request.transcript):
            parts.append(PartQuarantined(rng.randrange(len(request.transcript)), 0, "refused"))
        names = [tool.name for tool in request.tools]
        calls = [self._make_call(names) for _ in range(rng.choice([0, 0, 1, 1, 2, 3]))]
        if "final_answer" in names and rng.random() < 0.5:
            answer = rng.choice(['{"number":1}', '{"number":1}', '{"number":"x"}'])
            calls = [*calls[:1], ToolCall(f"final_{rng.getrandbits(30)}", "final_answer", answer)]
        text = rng.choice(WORDS) * (rng.random() < 0.7) or ("" if calls else "done")
        return [*parts, Say(text, calls=calls, usage=usage)]

    def _make_call(self, names: list[str]) -> ToolCall:
        rng = self._world.rng
        known = ["look", "look", *EFFECTS, *EFFECTS, "unknown"]
        name = "task" if "task" in names and rng.random() < 0.15 else rng.choice(known)
        arguments: dict[str, Any] = {"amount": self._world.make_amount()}
        if name == "task":
            arguments = {"description": "x", "prompt": self._world.make_text("task")}
            if rng.random() < 0.3:
                arguments["run_in_background"] = True
            if rng.random() < 0.3:
                arguments["continue_agent"] = rng.choice(["general-1", "general-2"])
        raw = msgspec.json.encode(arguments).decode()
        if rng.random() < 0.04:
            raw = rng.choice(['{"amount":', "{}" if name == "look" else "[", raw[:-1]])
        call_id = rng.choice(["call_0", "", f"call_{rng.randrange(50)}", f"c{rng.getrandbits(30)}"])
        return ToolCall(call_id, name, raw)


class FuzzPolicy(BasePolicy):
    def __init__(self, world: World) -> None:
        self._world = world

    async def decide(self, request: PermissionRequest) -> Verdict:
        await self._world.pass_steps(2)
        return Ask("why not") if self._world.rng.random() < 0.15 else Allow()


class FuzzHook:
    """Refuses some messages, adds some notices, sends the model back to work now and then."""

    points: frozenset[HookPoint] = frozenset(
        {"session_start", "user_prompt_submit", "post_tool_use", "stop", "session_end"}
    )

    def __init__(self, world: World) -> None:
        self._world = world

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        await self._world.pass_steps(2)
        chance, point = self._world.rng.random(), hook_input.point
        if point in ("user_prompt_submit", "stop") and chance < 0.06:
            return Block("not this one")
        if point not in ("stop", "session_end") and chance > 0.95:
            return AddContext("by the way")
        return None


class SummarizeSome:
    """Replaces a random part of the view, or adds a notice; the view stays lawful."""

    name = "summarize-some"
    points: frozenset[MutationPoint] = frozenset({"on_request", "before_model"})

    def __init__(self, world: World) -> None:
        self._world = world

    async def mutate(self, context: MutationContext) -> Transcript | None:
        view, rng = context.transcript, self._world.rng
        await self._world.pass_steps(2)
        if context.point == "before_model":
            if rng.random() < 0.05:
                return view.append(NoticeItem("remember"))
            if rng.random() > 0.08:
                return None
        if len(view) < 2 or isinstance(pending(view), RunTools):
            return None
        start = rng.randrange(len(view) - 1)
        stop = rng.randrange(start + 1, len(view))
        new = Transcript([*view[:start], SummaryItem("summary", stop - start), *view[stop:]])
        is_kept = not find_violations(new) and pending(new) == pending(view)
        return new if is_kept else None


def make_approver(world: World) -> Callable[[PendingApproval], Any]:
    async def approve(approval: PendingApproval) -> bool | Approval | Denial:
        await world.pass_steps(6)
        chance = world.rng.random()
        if chance < 0.2:
            return Approval({"amount": world.make_amount()})
        return chance < 0.8 or Denial("not this one")

    return approve


def make_model(world: World) -> Scripted:
    window = world.rng.choice([128_000, 128_000, 8_000])
    return Scripted(FuzzModel(world).reply, card=ModelCard("scripted", window, 1_000))


def make_agent(world: World, location: StoreLocation) -> Agent:
    rng = world.rng
    model = make_model(world)
    mutators: list[Mutator] = [SummarizeSome(world)] if rng.random() < 0.4 else []
    if rng.random() < 0.3:
        mutators.append(Compactor(model))
    return Agent(
        model,
        make_tools(world),
        max_turns=rng.choice([2, 6, 6]),
        policy=FuzzPolicy(world),
        approve=make_approver(world) if rng.random() < 0.5 else None,
        hooks=[FuzzHook(world)] if rng.random() < 0.4 else [],
        mutators=mutators,
        clock=ManualClock(),
        subagents=[],
        store=location,
    )
