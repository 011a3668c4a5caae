"""Random sessions by seed: after every step the live state equals what the log says.

    python tests/faults/session_fuzz.py 10000 [FIRST_SEED]

A session mixes turns with pure, verifiable and irreversible calls, approvals, edited arguments,
refused messages, steering, interruptions, failed attempts, refused parts, compaction, structured
output, rewinds, forks, processes that end at any point, and damaged logs. Not a test by itself:
test_session_fuzz.py runs some. A failure names its seed.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from treadle import Agent
from treadle.core.contracts.hook import Block, HookAnswer, HookInput, HookPoint
from treadle.core.contracts.model import ModelRequest, PartQuarantined
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.contracts.policy import Allow, Ask, BasePolicy, PermissionRequest, Verdict
from treadle.core.contracts.tool import BaseTool, ProbeResult, ToolContext, ToolOutput, ToolSpec
from treadle.core.errors import (
    InputBlocked,
    LoopError,
    ModelError,
    OutputMissing,
    Overloaded,
    StreamBroken,
)
from treadle.core.loop.driver import Driver
from treadle.core.steps import ApprovalRequest, AwaitingInput, Finished
from treadle.core.transcript import (
    AssistantItem,
    NoticeItem,
    SummaryItem,
    Text,
    ToolCall,
    Transcript,
    Usage,
)
from treadle.core.transcript.entries import EffectClass
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.state import View, find_differences, fold_entries
from treadle.models.scripted import Say, Scripted
from treadle.sessions import Journal, Library, resume
from treadle.sessions.history import fork, list_turns, load_view, rewind
from treadle.sessions.log.journal import read_entries
from treadle.testing.clock import ManualClock

WORDS = ("one", "two\n", "ünï", "x" * 1_500, "漢字" * 30, '"quoted"\\')
SIZES = (10, 100, 1_200, 5_000, 70_000)


class Answer(msgspec.Struct):
    """What a structured run asks for."""

    number: int


class FuzzTool(BaseTool):
    """Does its effect once per key; may steer or interrupt the agent while it runs."""

    def __init__(self, name: str, effect: EffectClass, session: FuzzSession) -> None:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        is_concurrent = effect != "irreversible"
        self._spec = ToolSpec(name, f"Does {name}.", schema, effect, concurrent=is_concurrent)
        self._session = session

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        session, rng = self._session, self._session.rng
        await asyncio.sleep(0)
        if self._spec.effect != "pure":
            assert context.idempotency_key not in session.effects, "an effect happened twice"
            session.effects.add(context.idempotency_key)
        chance = rng.random()
        if chance < 0.05:
            session.driver.steer(f"steered {rng.choice(WORDS)}")
        elif chance < 0.08:
            session.driver.interrupt()
        elif chance < 0.1:
            raise ValueError("it failed")
        for _ in range(rng.randrange(3)):
            await asyncio.sleep(0)
        return ToolOutput(rng.choice("abc") * rng.choice(SIZES), data={"n": rng.randrange(9)})

    async def evidence(self, arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        return {"key": context.idempotency_key}

    async def probe(
        self, arguments: dict[str, Any], evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        is_done = evidence["key"] in self._session.effects
        return ProbeResult("done" if is_done else "not_done", "looked it up")


class FuzzPolicy(BasePolicy):
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    async def decide(self, request: PermissionRequest) -> Verdict:
        return Ask("why not") if self._rng.random() < 0.15 else Allow()


class RefuseSome:
    """A hook that refuses some messages."""

    points: frozenset[HookPoint] = frozenset({"user_prompt_submit"})

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        return Block("not this one") if self._rng.random() < 0.05 else None


class SummarizeSome:
    """Replaces a random part of the view, or adds a notice; the view stays lawful."""

    name = "summarize-some"
    points: frozenset[MutationPoint] = frozenset({"on_request", "before_model"})

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    async def mutate(self, context: MutationContext) -> Transcript | None:
        view, rng = context.transcript, self._rng
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


class FuzzSession:
    """One session and the process that drives it."""

    def __init__(self, seed: int, root: Path) -> None:
        self.rng = rng = random.Random(seed)
        self.library = Library(root / "sessions")
        self.folder = root
        self.effects: set[str] = set()
        self.trace: list[str] = []
        self._is_structured = False
        self.model = Scripted(self._reply)
        tools = [
            FuzzTool("look", "pure", self),
            FuzzTool("write", "verifiable", self),
            FuzzTool("pay", "irreversible", self),
        ]
        self.agent = Agent(
            self.model,
            tools,
            policy=FuzzPolicy(rng),
            hooks=[RefuseSome(rng)],
            mutators=[SummarizeSome(rng)],
            clock=ManualClock(),
            approve=lambda approval: rng.random() < 0.7,
        )
        self.journal: Journal = self.library.create(root)
        self.driver: Driver = self.agent.start(store=self.journal)

    # --- the model -------------------------------------------------------------------------

    def _reply(self, request: ModelRequest) -> Any:
        rng = self.rng
        chance = rng.random()
        if chance < 0.03:
            return Overloaded("busy")
        if chance < 0.07:
            return [*self._parts(request), StreamBroken("cut")]
        if chance < 0.09:
            return AssistantItem((Text("more to come"),), rng.choice(["pause", "max_tokens"]))
        return self._parts(request)

    def _parts(self, request: ModelRequest) -> list[Any]:
        rng = self.rng
        usage = Usage(input=rng.randrange(99), output=rng.randrange(99), requests=1, cost=0.25)
        parts: list[Any] = []
        if rng.random() < 0.05 and len(request.transcript):
            parts.append(PartQuarantined(rng.randrange(len(request.transcript)), 0, "refused"))
        calls = [self._call() for _ in range(rng.choice([0, 0, 1, 1, 2, 3]))]
        if self._is_structured and rng.random() < 0.5:
            answer = rng.choice(['{"number":1}', '{"number":"x"}'])
            calls = [ToolCall("final", "final_answer", answer)]
        text = rng.choice(WORDS) * (rng.random() < 0.7) or ("" if calls else "done")
        return [*parts, Say(text, calls=calls, usage=usage)]

    def _call(self) -> ToolCall:
        rng = self.rng
        name = rng.choice(["look", "look", "write", "pay", "unknown"])
        raw = rng.choice(['{"n":1}', '{"n":2}', "{}", '{"n":', '{"x":"%s"}' % ("y" * 2_000)])
        return ToolCall(
            rng.choice(["call_0", "call_1", f"call_{rng.randrange(50)}", ""]), name, raw
        )

    # --- what happens ------------------------------------------------------------------------

    async def run(self, steps: int) -> None:
        actions = {
            self.take_turn: 10,
            self.take_step: 6,
            self.compact: 3,
            self.uncompact: 1,
            self.reopen: 3,
            self.crash: 3,
            self.damage: 3,
            self.rewind: 2,
            self.fork: 2,
        }
        if self.rng.random() < 0.15:
            await self.run_structured()
        for _ in range(steps):
            [action] = self.rng.choices(list(actions), list(actions.values()))
            self.trace.append(action.__name__)
            await action()
            await self.check()
        await self.close()

    async def take_turn(self) -> None:
        self.submit()
        for _ in range(60):
            if not await self.advance():
                return

    async def take_step(self) -> None:
        if self.rng.random() < 0.5:
            self.submit()
        await self.advance()

    def submit(self) -> None:
        self.driver.submit(f"message {self.rng.choice(WORDS)}")

    async def advance(self) -> bool:
        """One step; False when the turn is over."""
        rng, driver = self.rng, self.driver
        if driver.approvals:
            for approval in driver.approvals:
                chance = rng.random()
                if chance < 0.3:
                    driver.deny(approval.call.id, "no")
                else:
                    driver.approve(approval.call.id, arguments={"n": 9} if chance < 0.5 else None)
        step = await driver.next()
        self.trace.append(type(step).__name__)
        if isinstance(step, (Finished, AwaitingInput)):
            return False
        chance = rng.random()
        if chance < 0.1:
            driver.steer(f"steered {rng.choice(WORDS)}")
        elif chance < 0.15:
            driver.interrupt()
        return not (isinstance(step, ApprovalRequest) and chance > 0.9)

    async def compact(self) -> None:
        if self.driver.approvals:
            return
        await self.driver.compact()

    async def uncompact(self) -> None:
        self.driver.uncompact()

    async def run_structured(self) -> None:
        """A new session whose first turns have a structured output."""
        await self.close()
        self.journal, self._is_structured = self.library.create(self.folder), True
        try:
            await self.agent.run("count", output=Answer, session=self.journal)
        except (ModelError, LoopError, InputBlocked, OutputMissing):
            pass  # no answer that fits, a failed model, or a refused message
        self._is_structured = False
        self.continue_from(*self.open(self.journal.session_dir))

    async def reopen(self) -> None:
        await self.close()
        self.continue_from(*self.open(self.journal.session_dir))

    async def crash(self) -> None:
        """The process ends now: what is on the disk at this moment is what remains."""
        place = self.journal.session_dir
        if not (place / "journal.jsonl").exists():
            return
        copy = place.with_name("copy")
        shutil.copytree(place, copy)
        await self.close()
        shutil.rmtree(place)
        copy.rename(place)
        self.continue_from(*self.open(place))

    async def damage(self) -> None:
        """Some lines of the log become unreadable while no process has it open."""
        await self.close()
        path = self.journal.session_dir / "journal.jsonl"
        if path.exists():
            for _ in range(self.rng.choice([1, 1, 2])):
                path.write_bytes(self._damage_bytes(path.read_bytes()))
        self.continue_from(*self.open(self.journal.session_dir))

    def _damage_bytes(self, data: bytes) -> bytes:
        rng, lines = self.rng, data.splitlines(keepends=True)
        if len(lines) < 2:
            return data
        position = rng.randrange(1, len(lines))
        match rng.choice(["spoil", "spoil", "remove", "repeat", "cut", "zeros"]):
            case "spoil":
                lines[position] = b"#" * (len(lines[position]) - 1) + b"\n"
            case "remove":
                del lines[position]
            case "repeat":
                lines.insert(position, lines[position])
            case "zeros":
                lines[position] = bytes(len(lines[position]))
            case _:
                cut = len(lines[0]) + rng.randrange(max(1, len(data) - len(lines[0])))
                return data[: max(cut, len(data) - 3_000)]
        return b"".join(lines)

    async def rewind(self) -> None:
        await self.close()
        if not (self.journal.session_dir / "journal.jsonl").exists():
            self.continue_from(*self.open(self.journal.session_dir))
            return
        journal, view = self.open(self.journal.session_dir)
        await journal.flush()
        turns = list_turns(journal.session_dir)
        if turns:
            view = await rewind(journal, self.rng.choice(turns).turn_id)
        self.continue_from(journal, view)

    async def fork(self) -> None:
        await self.close()
        place = self.journal.session_dir
        if not (place / "journal.jsonl").exists():
            self.continue_from(*self.open(place))
            return
        turns = [turn.turn_id for turn in list_turns(place)]
        before = self.rng.choice([None, *turns])
        self.continue_from(*fork(self.library, place, folder=self.folder, before_turn=before))

    # --- processes and checks ----------------------------------------------------------------

    def open(self, place: Path) -> tuple[Journal, View]:
        if not (place / "journal.jsonl").exists():  # nothing was written before
            shutil.rmtree(place)
            return self.library.create(self.folder), View()
        resumed = resume(place)
        return resumed.journal, resumed.view

    def continue_from(self, journal: Journal, view: View) -> None:
        self.journal = journal
        self.driver = self.agent.start(view=view, store=journal)

    async def close(self) -> None:
        await self.driver.aclose()

    async def check(self) -> None:
        """The live state is what the log says, and lawful."""
        await self.journal.flush()
        assert find_violations(self.driver.transcript) == [], "the view breaks a law"
        if not (self.journal.session_dir / "journal.jsonl").exists():
            return
        loaded = load_view(self.journal.session_dir)
        folded = fold_entries(read_entries(self.journal.session_dir))
        compare_views(folded, loaded)
        compare_states(self.driver, loaded)


def compare_views(folded: View, loaded: View) -> None:
    """The loader, which decodes few lines, computes the same state as a plain fold."""
    for name in find_differences(folded, loaded):
        one, two = getattr(folded, name), getattr(loaded, name)
        raise AssertionError(f"{name}: {describe_difference(one, two)}")


def compare_states(driver: Driver, view: View) -> None:
    """What the driver has in memory, and what the log says."""
    compare_views(driver.state, view)


def describe_difference(one: Any, two: Any) -> str:
    if isinstance(one, (list, Transcript)) and isinstance(two, (list, Transcript)):
        pairs = enumerate(itertools.zip_longest(one, two))
        position, (one, two) = next(pair for pair in pairs if pair[1][0] != pair[1][1])
        return f"at {position}: {one!r:.300} and {two!r:.300}"
    return f"{one!r:.600} and {two!r:.600}"


async def fuzz_session(seed: int, base: Path) -> None:
    """One session; an AssertionError with its seed and steps if something differs."""
    root = base / f"session-{seed}"
    root.mkdir()
    session = FuzzSession(seed, root)
    try:
        await session.run(session.rng.randint(4, 20))
    except BaseException as error:
        error.add_note(f"seed {seed}: {' '.join(session.trace[-30:])}")
        raise
    shutil.rmtree(root)


def main(count: int, first: int) -> int:
    memory = Path("/dev/shm")
    base = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    started = time.monotonic()
    try:
        for seed in range(first, first + count):
            asyncio.run(fuzz_session(seed, base))
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print(f"{count} sessions in {time.monotonic() - started:.0f} s, no difference")
    return 0


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    sys.exit(main(numbers[0] if numbers else 300, numbers[1] if len(numbers) > 1 else 0))
