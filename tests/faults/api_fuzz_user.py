"""One process of a fuzzed session: a user who does with it, in any order, what the API offers.

Opens the session, acts at random, closes it; after each action api_fuzz_checks.py says whether all
laws hold. The process may be killed at any moment, by api_fuzz.py. Not a test by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from tests.faults.api_fuzz_agent import make_model
from tests.faults.api_fuzz_checks import check_effects, check_fork, check_live, check_log, compare
from tests.faults.api_fuzz_session import FuzzSession
from treadle.agents.session import Session
from treadle.core.errors import LoopError
from treadle.core.events import ApprovalRequired, ChildEvent, Event
from treadle.core.loop.driver import Driver
from treadle.core.steps import ApprovalRequest, AwaitingInput, Finished, Step
from treadle.core.transcript.items import UserItem
from treadle.sessions.open_store import read_session

Action = Callable[[], Awaitable[None]]


class Answer(msgspec.Struct):
    """What a structured run asks for."""

    number: int


class FuzzUser(FuzzSession):
    """What the user does, an action a method."""

    # --- a life ----------------------------------------------------------------------------

    async def live(self, actions: int) -> None:
        await self.open(self.session.id)
        weights: dict[Action, int] = {
            self.run: 10,
            self.stream: 5,
            self.step: 6,
            self.queue: 3,
            self.answer_approvals: 3,
            self.settle_doubts: 2,
            self.rewind: 2,
            self.fork: 3,
            self.ask_aside: 1,
            self.compact: 2,
            self.use_model: 1,
            self.interrupt: 1,
            self.reopen: 2,
            self.open_and_cancel: 2,
            self.run_closed: 2,
        }
        for _ in range(actions):
            [action] = self.rng.choices(list(weights), list(weights.values()))
            self.ledger.add("action", action.__name__)
            await action()
            await self.check()

    async def finish(self) -> None:
        """Let everything that waits be answered, and close."""
        for _ in range(30):
            await self.answer_approvals(is_all=True)
            if not self.session.can_continue:
                break
            await self.settle_run(self.session.run)
        left = [one for one in self.session.driver.state.queued if isinstance(one.item, UserItem)]
        assert not left, f"messages without an answer: {left!r:.300}"
        await self.close()
        for session in self.ledger.read("session"):
            await self.check_family(session.name, self.location)
        check_effects(self.ledger)

    # --- opening and closing ---------------------------------------------------------------

    async def reopen(self) -> None:
        await self.close()
        await self.open(self.session.id)

    async def open_and_cancel(self) -> None:
        """A cancelled opening holds nothing: the session can be opened at once."""
        await self.close()
        session = self.agent.session(self.session.id)
        opening = asyncio.create_task(session.__aenter__())
        await self.world.wait(opening)
        opening.cancel()
        await asyncio.wait([opening])
        if not opening.cancelled():
            await opening
            await session.aclose()
        await self.open(self.session.id)

    async def run_closed(self) -> None:
        """`agent.run` and `agent.stream`, which open the session and close it."""
        await self.close()
        text, session_id = self.world.make_text(), self.session.id
        output = Answer if self.rng.random() < 0.3 else None

        async def stream() -> None:
            async with self.agent.stream(text, session=session_id) as events:
                async for _ in events:
                    if self.rng.random() < 0.02:
                        break

        async def run() -> None:
            await self.agent.run(text, session=session_id, output=output, background_wait=0.0)

        await self.cancel_some(self.rng.choice([run, stream]))
        await self.open(session_id)
        self.check_prompt(text)

    # --- runs ------------------------------------------------------------------------------

    async def run(self) -> None:
        text = self.world.make_text()
        output = Answer if self.rng.random() < 0.2 else None
        prompt = None if self.rng.random() < 0.1 else text
        session = self.session
        is_answered = False

        async def start() -> None:
            nonlocal is_answered
            result = await session.run(prompt, output=output)
            is_answered = result.reason == "end_turn" and prompt is not None

        work = self._work = asyncio.create_task(self.settle_run(start))
        disturb = self.rng.choice([*self.list_disturbances(work), self.do_nothing])
        if self.rng.random() < 0.7:
            await self.world.wait(work)
            self.ledger.add("action", f"({disturb.__name__})")
            await disturb()
        await self.finish_task(work)
        self.check_prompt(text)
        is_same = disturb not in (self.rewind, self.queue) and self.session.id == session.id
        # A hook may refuse the message of a run that continues an earlier turn.
        if is_answered and is_same and not self.agent.config.hooks:
            given = [one.text for one in self.session.history if isinstance(one, UserItem)]
            assert text in given, "answered, but not in the history"

    def list_disturbances(self, work: asyncio.Task[None]) -> list[Action]:
        """What happens to a session at work."""

        async def cancel() -> None:
            work.cancel()
            await asyncio.wait([work])

        async def close() -> None:
            await self.close_at_work(work)

        async def run_twice() -> None:
            await self.settle_run(partial(self.session.run, self.world.make_text()))

        async def interrupt_and_cancel() -> None:
            self.session.interrupt()
            await self.world.pass_steps(6)
            await cancel()

        return [
            cancel,
            cancel,
            close,
            interrupt_and_cancel,
            run_twice,
            self.queue,
            self.queue,
            self.interrupt,
            self.ask_aside,
            self.answer_approvals,
            self.fork,
            self.rewind,
            self.compact,
            self.use_model,
        ]

    async def close_at_work(self, work: asyncio.Task[None]) -> None:
        closing = asyncio.create_task(self.session.aclose())
        if self.rng.random() < 0.3:
            await self.world.wait(closing)
            closing.cancel()
        await self.finish_task(closing)
        await self.session.aclose()  # it may have been cancelled before it began
        await self.finish_task(work)
        self.acknowledge()
        await self.open(self.session.id)

    async def do_nothing(self) -> None:
        return None

    async def stream(self) -> None:
        """Read the events of a run; leave early, answer approvals late, or not at all."""
        events = self.session.stream(self.world.make_text())
        count = self.rng.choice([3, 20, 10_000])
        answers: list[asyncio.Task[None]] = []

        async def read() -> None:
            async with events:
                seen = 0
                async for event in events:
                    seen += 1
                    if (asked := find_approval(event)) is not None:
                        answers.append(asyncio.create_task(answer(asked)))
                        if self.rng.random() < 0.7:
                            events.answer_later(asked.call.id, asked.session_id)
                    if self.rng.random() < 0.02:
                        self.give(events.steer)
                    if seen >= count:
                        break

        async def answer(asked: ApprovalRequired) -> None:
            await self.world.pass_steps(20)
            if self.rng.random() < 0.6:
                events.approve(asked.call.id, session_id=asked.session_id)
            else:
                events.deny(asked.call.id, session_id=asked.session_id)

        work = asyncio.create_task(self.settle_run(read))
        if self.rng.random() < 0.2:
            await self.world.wait(work)
            work.cancel()
        await self.finish_task(work)
        if answers:
            await asyncio.wait(answers)

    async def step(self) -> None:
        """Some steps, with approvals in between that may be left open."""
        for _ in range(self.rng.randrange(1, 8)):
            if self.rng.random() < 0.3:
                self.give(self.session.submit)
            steps: list[Step] = []

            async def take(steps: list[Step] = steps) -> None:
                steps.append(await self.session.next())

            await self.cancel_some(take)
            if not steps or isinstance(steps[0], (Finished, AwaitingInput)):
                break
            if isinstance(steps[0], ApprovalRequest) and self.rng.random() < 0.8:
                await self.answer_approvals(is_all=True)

    # --- messages and approvals ------------------------------------------------------------

    async def queue(self) -> None:
        """Messages that wait, some of which are moved or taken back."""
        session, rng = self.session, self.rng
        for _ in range(rng.randrange(1, 4)):
            self.give(rng.choice([session.submit, session.steer]))
            await self.world.pass_steps(3)
        for message in session.queued_messages:
            chance = rng.random()
            if chance < 0.3:
                await self.withdraw(message.id)
            elif chance < 0.5:
                session.driver.move_message(message.id, rng.choice([-2, -1, 1]))
        if rng.random() < 0.4:
            self.acknowledge_flushed(await self.flush())

    async def answer_approvals(self, *, is_all: bool = False) -> None:
        """Answer what waits, by the session or its driver, also for child agents."""
        rng, session = self.rng, self.session
        for approval in session.approvals:
            if not is_all and rng.random() < 0.3:
                continue
            call_id, owner = approval.call.id, approval.session_id
            target: Session[Any, Any] | Driver = session if rng.random() < 0.5 else session.driver
            chance = rng.random()
            try:
                if chance < 0.3:
                    target.deny(call_id, "no", session_id=owner)
                elif chance < 0.5:
                    arguments = {"amount": self.world.make_amount()}
                    if approval.call.name == "task":
                        arguments = approval.arguments
                    target.approve(call_id, arguments=arguments, session_id=owner)
                else:
                    target.approve(call_id, session_id=owner)
            except LoopError:
                pass  # answered meanwhile
            await self.world.pass_steps(3)

    async def settle_doubts(self) -> None:
        for doubt in self.session.doubts:
            if self.rng.random() < 0.5:
                self.session.settle(doubt.call.id, "it was looked up", is_error=True)

    async def interrupt(self) -> None:
        self.session.interrupt()

    # --- history ---------------------------------------------------------------------------

    async def rewind(self) -> None:
        turns = count_turns(self.session)
        if not turns:
            return
        before = self.session.driver.state.last_start
        await self.cancel_some(partial(self.session.rewind, self.rng.randint(1, min(turns, 3))))
        if self.session.driver.state.last_start is not before:
            self._queued.clear()  # they are dropped

    async def fork(self) -> None:
        """A fork leaves its session as it is, and runs nothing of it."""
        session, rng = self.session, self.rng
        turns = count_turns(session)
        back = rng.randint(0, min(turns, 2)) if rng.random() < 0.4 else 0
        is_idle, before = self.is_idle, session.driver.state
        is_quiet = is_idle and session.driver._open_round is None
        is_quiet &= all(one.state != "running" for one in session.driver.tasks.list())
        new_id = f"{session.id[:60]}-{rng.getrandbits(40):x}"
        await self.cancel_some(partial(session.fork, new_id, turns_back=back))
        if not await read_session(self.location, new_id):
            await session.fork(new_id, turns_back=back)  # a cancelled one holds nothing
        self.ledger.add("session", new_id)
        if is_quiet:
            compare(before, session.driver.state, "the session before and after its fork")
        check_fork(await read_session(self.location, new_id))
        if rng.random() < 0.3 and is_idle:
            await self.close()
            await self.open(new_id)
        elif rng.random() < 0.5:
            await self.run_fork(new_id)

    async def run_fork(self, session_id: str) -> None:
        async with self.agent.session(session_id) as forked:
            assert forked.queued_messages == ()
            await check_live(forked.driver)
            if self.rng.random() < 0.5:
                await self.settle_run(forked.run)
            await self.settle_run(partial(forked.run, self.world.make_text()))
            entries = await check_live(forked.driver)
            check_log(session_id, entries, self.ledger)

    async def ask_aside(self) -> None:
        before = self.session.driver.transcript
        is_idle = self.is_idle
        asking = asyncio.create_task(
            self.settle_run(partial(self.session.driver.ask_aside, "why?"))
        )
        if self.rng.random() < 0.4:
            await self.world.wait(asking)
            self.rng.choice([asking.cancel, self.session.driver.stop_aside])()
        await self.finish_task(asking)
        if is_idle:
            assert before is self.session.driver.transcript, "a side question changed the view"

    async def compact(self) -> None:
        driver = self.session.driver
        if self.rng.random() < 0.7:
            await self.cancel_some(driver.compact)
        if self.rng.random() < 0.6:
            return
        with suppress(LoopError):  # a step runs
            driver.uncompact()

    async def use_model(self) -> None:
        self.session.driver.use_model(make_model(self.world))


def find_approval(event: Event) -> ApprovalRequired | None:
    while isinstance(event, ChildEvent):
        event = event.child
    return event if isinstance(event, ApprovalRequired) else None


def count_turns(session: Session[Any, Any]) -> int:
    return len([one for one in session.driver.state.turn_starts if not one.continues])
