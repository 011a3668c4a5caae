"""A session: a conversation that is stored as it goes on, and continues after a crash.

    async with agent.session("order-42") as session:
        await session.run("Book two seats")

It owns the store, its lock and the driver, and closes them in the right order. Made by
`Agent.session`; where it is kept is decided in sessions/open_store.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from treadle.agents.agent_runs import OUTPUT_RETRIES, AgentRuns, History, check_run
from treadle.agents.agent_settings import STORE_EXPECTED
from treadle.agents.child_agents import ChildAgents, find_child_location
from treadle.agents.result import Result
from treadle.agents.stream import Stream
from treadle.core.argument_checks import check
from treadle.core.contracts.store import Store
from treadle.core.contracts.wrapped import WrappedStore
from treadle.core.errors import ConfigError, DriverBusy, LoopError, StoreError
from treadle.core.loop.driver import Driver
from treadle.core.loop.session_state import check_one_writer
from treadle.core.steps import Doubt, PendingApproval, QueuedMessage, Step, UserInput
from treadle.core.text import plural
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.entries import (
    Entry,
    Rewound,
    TurnBegan,
    UsageRecorded,
    View,
    fold_entries,
)
from treadle.core.transcript.items import Metadata
from treadle.core.transcript.repair import repair_entries
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage
from treadle.core.type_variables import DepsT, OutputT
from treadle.sessions.open_store import (
    StoreLocation,
    check_session_id,
    make_session_id,
    open_store,
)

if TYPE_CHECKING:
    from typing import Self

_T = TypeVar("_T")

RUN_ARGUMENTS = ("prompt", "output", "output_retries", "metadata")

WRITE_DELAY = 0.1  # seconds that entries may wait to be written together


class Session(Generic[DepsT, OutputT]):
    """One conversation of an agent. Use it in an `async with` block."""

    def __init__(
        self,
        agent: AgentRuns[DepsT, OutputT],
        session_id: str | None,
        location: StoreLocation | None,
        deps: object,
        history: History | None,
    ) -> None:
        self.id = make_session_id() if session_id is None else check_session_id(session_id)
        check("store", location, STORE_EXPECTED)
        self.warnings: tuple[str, ...] = ()
        self._agent = agent
        self._location = location
        self._deps = deps
        self._history = history
        self._children = ChildAgents()
        self._store: Store | None = None
        self._driver: Driver | None = None
        self._driver_agent: AgentRuns[Any, Any] = agent
        self._is_closed = self._is_running = False

    async def __aenter__(self) -> Self:
        if self._store is not None or self._is_closed:
            raise LoopError("this session was entered before: call agent.session() again")
        own_store = self._location if hasattr(self._location, "append") else None
        if own_store is not None:
            check_one_writer(cast(Store, own_store))
        opened = await open_store(self._location, self.id)
        self._store, self.warnings = opened.store, opened.warnings
        self._children = ChildAgents(find_child_location(self.id, self._location))
        try:
            await self._begin(opened.view)
        except BaseException:
            if own_store is not None:
                self._store = None  # the caller closes it
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop what runs, write all of it, and release the session for others."""
        self._is_closed = True
        driver, self._driver = self._driver, None
        store, self._store = self._store, None
        try:
            if driver is not None:
                await driver.aclose()
        finally:
            if store is not None:
                await store.aclose()

    # --- work ----------------------------------------------------------------------------

    @overload
    async def run(
        self,
        prompt: UserInput | None = None,
        *,
        output: None = None,
        output_retries: int = ...,
        metadata: Metadata | None = None,
    ) -> Result[OutputT]: ...
    @overload
    async def run(
        self,
        prompt: UserInput | None = None,
        *,
        output: type[_T],
        output_retries: int = ...,
        metadata: Metadata | None = None,
    ) -> Result[_T]: ...
    @overload
    async def run(
        self,
        prompt: UserInput | None = None,
        *,
        output: object,
        output_retries: int = ...,
        metadata: Metadata | None = None,
    ) -> Result[Any]: ...
    async def run(
        self,
        prompt: UserInput | None = None,
        *,
        output: object | None = None,
        output_retries: int = OUTPUT_RETRIES,
        metadata: Metadata | None = None,
        **unknown: object,
    ) -> Result[Any]:
        """Answer a prompt. Without one, continue what an interruption or a crash left; a LoopError
        if there is nothing to continue, see `can_continue`."""
        check_run("session.run", RUN_ARGUMENTS, unknown, output_retries)
        agent = self._agent.for_output(output)
        driver = await self.begin_run(agent, prompt, metadata)
        try:
            return await agent.finish_with_result(driver, output_retries)
        finally:
            self._is_running = False

    @overload
    def stream(
        self,
        prompt: UserInput | None = None,
        *,
        output: None = None,
        output_retries: int = ...,
        metadata: Metadata | None = None,
    ) -> Stream[OutputT]: ...
    @overload
    def stream(
        self,
        prompt: UserInput | None = None,
        *,
        output: type[_T],
        output_retries: int = ...,
        metadata: Metadata | None = None,
    ) -> Stream[_T]: ...
    @overload
    def stream(
        self,
        prompt: UserInput | None = None,
        *,
        output: object,
        output_retries: int = ...,
        metadata: Metadata | None = None,
    ) -> Stream[Any]: ...
    def stream(
        self,
        prompt: UserInput | None = None,
        *,
        output: object | None = None,
        output_retries: int = OUTPUT_RETRIES,
        metadata: Metadata | None = None,
        **unknown: object,
    ) -> Stream[Any]:
        """`async with session.stream(prompt) as events`: the events of a run."""
        check_run("session.run", RUN_ARGUMENTS, unknown, output_retries)
        agent = self._agent.for_output(output)

        async def open_driver() -> Driver:
            return await self.begin_run(agent, prompt, metadata)

        async def release(driver: Driver) -> None:
            self._is_running = False  # the session keeps the driver

        return agent.make_stream(open_driver, release, output_retries)

    async def begin_run(
        self, agent: AgentRuns[Any, Any], prompt: UserInput | None, metadata: Metadata | None
    ) -> Driver:
        """The driver for a run of the session's agent, or of its copy for another output, with the
        prompt. DriverBusy if another run is not over."""
        if self._is_running:
            raise DriverBusy(
                f"session {self.id} is running: await that run first, or send the message to it "
                "with session.steer(...)"
            )
        driver = await self._get_driver(agent)
        if prompt is None:
            driver.retry()  # what an error, a limit or an interruption left
        else:
            driver.submit(prompt, metadata=metadata)
        self._is_running = True
        return driver

    async def next(self) -> Step:
        """One step of the loop; see `Driver.next`."""
        return await self._open_driver.next()

    def submit(self, prompt: UserInput, *, metadata: Metadata | None = None) -> str:
        """Queue a message for `next`; returns its id."""
        return self._open_driver.submit(prompt, metadata=metadata)

    def steer(self, prompt: UserInput, *, metadata: Metadata | None = None) -> str:
        """Queue a message for the agent at work; returns its id."""
        return self._open_driver.steer(prompt, metadata=metadata)

    def withdraw(self, message_id: str) -> bool:
        """Take back a queued message; False if it is too late."""
        return self._open_driver.withdraw(message_id)

    def interrupt(self, reason: str = "user_cancelled") -> None:
        """Stop the model and every tool; the turn ends `aborted`."""
        self._open_driver.interrupt(reason)

    def approve(
        self,
        call_id: str,
        *,
        arguments: Arguments | None = None,
        always: bool = False,
        session_id: str = "",
    ) -> None:
        """Let a call of `approvals` run, as it is or edited. `session_id` is that of the approval,
        if child agents use the same call ids. LoopError if no such call waits, as when it is
        answered already."""
        if not self._open_driver.approve(
            call_id, arguments=arguments, always=always, session_id=session_id
        ):
            raise self._make_not_waiting_error(call_id, session_id)

    def deny(
        self, call_id: str, reason: str = "The user said no.", *, session_id: str = ""
    ) -> None:
        """Answer a call of `approvals` with the reason instead of running it. LoopError as for
        `approve`."""
        if not self._open_driver.deny(call_id, reason, session_id=session_id):
            raise self._make_not_waiting_error(call_id, session_id)

    def settle(self, call_id: str, result: str, *, is_error: bool = False) -> None:
        """Tell the outcome of a call in doubt: the model reads `result`, the call is not run.
        LoopError if no call in doubt has that id, as when it is settled already."""
        self._open_driver.settle(call_id, result, is_error=is_error)

    # --- history -------------------------------------------------------------------------

    async def rewind(self, turns: int = 1) -> None:
        """Take back the last turns, with their messages. The log keeps them; files stay."""
        store = self._open_store
        begun = _list_turns(await self._load_entries())
        if turns not in range(1, len(begun) + 1):
            count = plural(len(begun), "turn")
            raise ConfigError(f"session {self.id} has {count}; it cannot go back by {turns!r}")
        await self._close_driver()
        store.append(Rewound(begun[-turns]))
        await store.flush()
        await self._reload()

    async def fork(self, session_id: str | None = None, *, turns_back: int = 0) -> str:
        """A new session with the history of this one, without its last `turns_back` turns; returns
        its id. This session does not change; what was spent is counted here only."""
        new_id = make_session_id() if session_id is None else check_session_id(session_id)
        entries = await self._load_entries()
        begun = _list_turns(entries)
        if turns_back:
            if turns_back not in range(1, len(begun) + 1):
                raise ConfigError(f"session {self.id} has {plural(len(begun), 'turn')}")
            entries = entries[: _find_turn(entries, begun[-turns_back])]
        if self._location is not None and hasattr(self._location, "append"):
            raise ConfigError("this store holds one session: give a folder or a function to fork")
        opened = await open_store(self._location, new_id)
        try:
            if len(opened.view.transcript):
                raise StoreError(f"there is a session {new_id} already; choose another id")
            for entry in entries:
                if not isinstance(entry, UsageRecorded):
                    opened.store.append(entry)
        finally:
            await opened.store.aclose()
        return new_id

    @property
    def transcript(self) -> Transcript:
        """What the model is shown; `history` has also what compaction took out of it."""
        return self._open_driver.transcript

    @property
    def history(self) -> Transcript:
        return self._open_driver.history

    @property
    def usage(self) -> Usage:
        """Of the whole session, with that of child agents since it was opened."""
        return self._open_driver.total_usage

    @property
    def cost(self) -> float | None:
        """In USD; None when a price is not known."""
        return self.usage.cost

    @property
    def approvals(self) -> tuple[PendingApproval, ...]:
        """The calls that wait for a decision, also those that an earlier process left waiting: they
        are here before the first step."""
        return self._open_driver.approvals

    @property
    def can_continue(self) -> bool:
        """Whether `run` without a prompt has something to do: what a crash, an error, a limit or an
        interruption left, or a queued message."""
        return self._open_driver.can_continue

    @property
    def queued_messages(self) -> tuple[QueuedMessage, ...]:
        return self._open_driver.queued_messages

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """The calls whose outcome is not known after a crash; `settle` tells it."""
        return self._open_driver.doubts

    @property
    def driver(self) -> Driver:
        """The loop of this session, for what is not offered here."""
        return self._open_driver

    # --- details -------------------------------------------------------------------------

    @property
    def _open_driver(self) -> Driver:
        if self._driver is None:
            raise LoopError(self._describe_closed())
        return self._driver

    @property
    def _open_store(self) -> Store:
        if self._store is None:
            raise LoopError(self._describe_closed())
        return self._store

    def _make_not_waiting_error(self, call_id: str, session_id: str) -> LoopError:
        waiting = [(one.call.id, one.session_id or self.id) for one in self.approvals]
        known = ", ".join(f"{call} (session {session})" for call, session in waiting) or "none"
        if not session_id and sum(call == call_id for call, _ in waiting) > 1:
            problem = f"several calls {call_id!r:.80} wait for a decision: give session_id"
        else:
            of_session = f" of session {session_id!r:.80}" if session_id else ""
            problem = f"no call {call_id!r:.80}{of_session} waits for a decision"
        return LoopError(f"{problem}; calls that wait for one: {known}")

    def _describe_closed(self) -> str:
        if self._is_closed:
            return f"session {self.id} is closed: open it again with agent.session({self.id!r})"
        return "enter the session first: async with agent.session(...) as session"

    async def _begin(self, view: View) -> Driver:
        self._driver = driver = self._start_driver(view)
        await driver.restore_approvals()
        return driver

    def _start_driver(self, view: View) -> Driver:
        history, self._history = self._history, None
        store = KeptStore(self._open_store)
        agent, children = self._driver_agent, self._children
        if history is None:
            return agent.start(view=view, store=store, deps=self._deps, children=children)
        if len(view.transcript):
            raise ConfigError(
                f"history: session {self.id} has a history of its own; leave `history` out, or "
                "choose another id"
            )
        return agent.start(history=history, store=store, deps=self._deps, children=children)

    async def _get_driver(self, agent: AgentRuns[Any, Any]) -> Driver:
        """The driver, made anew if this run answers with another type than the one before."""
        driver = self._open_driver
        if agent is self._driver_agent:
            return driver
        view = driver.snapshot().view
        await self._close_driver()
        self._driver_agent = agent
        return await self._begin(view)

    async def _close_driver(self) -> None:
        driver, self._driver = self._open_driver, None
        await driver.aclose()

    async def _load_entries(self) -> Sequence[Entry]:
        store = self._open_store
        await store.flush()
        return await store.load()

    async def _reload(self) -> None:
        store = self._open_store
        view = fold_entries(await store.load())
        repair = repair_entries(view)
        for entry in repair:
            store.append(entry)
        await self._begin(fold_entries(repair, view))


class KeptStore(WrappedStore):
    """The store of a session for one of its drivers, which does not close it.

    What is appended becomes durable a moment later, also between two flushes of the loop.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    def append(self, entry: Entry) -> None:
        super().append(entry)
        if self._timer is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                return  # no event loop to write in the background: a flush will
            self._timer = loop.call_later(WRITE_DELAY, self._start_writing)

    async def flush(self) -> None:
        self._stop_timer()
        await super().flush()

    async def aclose(self) -> None:
        self._stop_timer()
        if self._writing is not None:
            await asyncio.wait([self._writing])
        await super().flush()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_writing(self) -> None:
        self._timer = None
        self._writing = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        with contextlib.suppress(StoreError):  # the next flush of the loop raises it
            await super().flush()


def _list_turns(entries: Sequence[Entry]) -> list[str]:
    """The ids of the turns that are in the view, oldest first."""
    turns: list[str] = []
    for entry in entries:
        if isinstance(entry, TurnBegan):
            turns.append(entry.turn_id)
        elif isinstance(entry, Rewound) and entry.turn_id in turns:
            del turns[turns.index(entry.turn_id) :]
    return turns


def _find_turn(entries: Sequence[Entry], turn_id: str) -> int:
    positions = (i for i, e in enumerate(entries) if isinstance(e, TurnBegan))
    return next(i for i in reversed([*positions]) if getattr(entries[i], "turn_id", "") == turn_id)
