"""A fuzzed session in one process: opened and closed with all checks, and the messages given to it.

What a user does with it is api_fuzz_user.py, what has to hold api_fuzz_checks.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.faults.api_fuzz_agent import World, make_agent
from tests.faults.api_fuzz_checks import (
    check_effects,
    check_live,
    check_log,
    check_replay,
    compare,
)
from treadle.agents.child_agents import find_child_location
from treadle.agents.session import Session
from treadle.core.errors import InputBlocked, LoopError, ModelError, OutputMissing, SessionBusy
from treadle.core.transcript.entries import ChildUsageRecorded
from treadle.core.transcript.items import UserItem
from treadle.core.transcript.state import fold_entries
from treadle.sessions.open_store import StoreLocation, read_session

# What a run may raise: no answer, a message that a hook refused, a wrong moment.
EXPECTED = (ModelError, LoopError, InputBlocked, OutputMissing)


class FuzzSession:
    """The session that is open. `was_killed`: the process before this one was."""

    def __init__(
        self, world: World, location: StoreLocation, session_id: str, *, was_killed: bool
    ) -> None:
        self.world, self.rng, self.ledger = world, world.rng, world.ledger
        self.location = location
        self.agent = make_agent(world, location)
        self.session: Session[Any, Any] = self.agent.session(session_id)
        self._was_killed = was_killed
        self._queued: dict[str, str] = {}  # the texts of messages, by their ids
        self._work: asyncio.Task[None] | None = None  # the run that is disturbed

    # --- opening and closing ---------------------------------------------------------------

    async def open(self, session_id: str) -> None:
        for attempt in range(1_000):
            self.session = self.agent.session(session_id)
            try:
                await self.session.__aenter__()
                break
            except SessionBusy:
                # A server needs a moment to see that a process is gone.
                if not self._was_killed or attempt == 999:
                    raise
                await asyncio.sleep(0.005)
        self._was_killed = False
        self.world.driver = self.session.driver
        await self.check_now()

    async def close(self) -> None:
        """Nothing of the session happens afterwards."""
        driver, session_id = self.session.driver, self.session.id
        await self.session.aclose()
        self.acknowledge()
        entries = await read_session(self.location, session_id)
        compare(driver.state, fold_entries(entries), "the state at the close and the log")
        check_log(session_id, entries, self.ledger)
        await check_replay(session_id, entries, self.ledger)
        effects = len(self.ledger.read("effect"))
        for _ in range(10):
            await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()} - find_pool_tasks()
        assert not left, f"tasks after the close: {left}"
        again = await read_session(self.location, session_id)
        assert len(again) == len(entries), "entries after the close"
        assert len(self.ledger.read("effect")) == effects, "effects after the close"

    # --- checks ----------------------------------------------------------------------------

    async def check_family(self, session_id: str, location: StoreLocation | None) -> None:
        """The log of a session and those of its child agents."""
        entries = await read_session(location, session_id)
        check_log(session_id, entries, self.ledger)
        await check_replay(session_id, entries, self.ledger)
        children = {one.session_id for one in entries if isinstance(one, ChildUsageRecorded)}
        place = find_child_location(session_id, location)
        for child in sorted(children):
            if await read_session(place, child):
                await self.check_family(child, place)

    async def check(self) -> None:
        check_effects(self.ledger)
        assert self.world.errors == [], self.world.errors
        if self.rng.random() < 0.6:
            await self.check_now()

    async def check_now(self) -> None:
        entries = await check_live(self.session.driver)
        self.acknowledge()
        check_log(self.session.id, entries, self.ledger)

    def acknowledge(self) -> None:
        """What was given is durable now."""
        for text in self._queued.values():
            self.ledger.add("acknowledged", text, self.session.id)
        self._queued.clear()

    def check_prompt(self, text: str) -> None:
        """The message of a run is in a turn, or nowhere."""
        queued = [one.item for one in self.session.driver.queued_messages]
        assert all(one.text != text for one in queued if isinstance(one, UserItem)), text

    # --- work ------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        return self._work is None or self._work.done()

    async def settle_run(self, start: Callable[[], Awaitable[Any]]) -> None:
        try:
            await start()
        except EXPECTED:
            pass
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise

    async def cancel_some(self, work: Callable[[], Awaitable[Any]]) -> None:
        """The work, which is sometimes cancelled at one of its awaits."""
        task = asyncio.create_task(self.settle_run(work))
        if self.rng.random() < 0.2:
            self.ledger.add("action", "(cancel)")
            await self.world.wait(task)
            task.cancel()
        await self.finish_task(task)

    async def finish_task(self, task: asyncio.Task[None]) -> None:
        """Wait for its end; what it raises, besides its cancellation, is raised."""
        await asyncio.wait([task])
        if not task.cancelled():
            await task

    # --- messages --------------------------------------------------------------------------

    def give(self, give: Callable[[str], str]) -> None:
        text = self.world.make_text()
        message_id = give(text)
        assert message_id
        self._queued[message_id] = text

    async def withdraw(self, message_id: str) -> None:
        found = [one for one in self.session.queued_messages if one.id == message_id]
        if found and self.session.withdraw(message_id):
            await self.session.driver.log.flush()
            item = found[0].item
            assert isinstance(item, UserItem)
            self.ledger.add("withdrawn", item.text, self.session.id)

    async def flush(self) -> list[str]:
        """The ids of the messages that are durable now."""
        ids = list(self._queued)
        await self.session.driver.log.flush()
        return ids

    def acknowledge_flushed(self, ids: list[str]) -> None:
        for message_id in ids:
            if message_id in self._queued:
                self.ledger.add("acknowledged", self._queued.pop(message_id), self.session.id)


def find_pool_tasks() -> set[asyncio.Task[Any]]:
    """The tasks of the connections, which stay for a moment for the next session."""
    found: set[asyncio.Task[Any]] = set()
    for task in asyncio.all_tasks():
        lines = [frame.f_code.co_filename for frame in task.get_stack()]
        is_wait = (
            getattr(task.get_coro(), "__qualname__", "") == "Event.wait"
        )  # of the pool's scheduler
        if is_wait or any("psycopg_pool" in one or "postgres_server" in one for one in lines):
            found.add(task)
    return found
