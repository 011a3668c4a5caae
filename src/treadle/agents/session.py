"""A session: a conversation that is stored as it goes on, and continues after a crash.

    async with agent.session("order-42") as session:
        await session.run("Book two seats")

It owns the store, its lock and the driver, and closes them in the right order. Made by
`Agent.session`; where it is kept is decided in sessions/open_store.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, overload

from treadle.agents.agent_settings import STORE_EXPECTED
from treadle.agents.child_agents import ChildAgents, find_child_location
from treadle.agents.run import (
    OUTPUT_RETRIES,
    History,
    Prompt,
    Result,
    Run,
    RunSettings,
    SessionRunOptions,
    reject_unknown_argument,
)
from treadle.agents.stream import Stream, suspend_at_approval
from treadle.core.argument_checks import check, whole_number
from treadle.core.contracts.gate import Gate
from treadle.core.contracts.model import Model, ModelOptions
from treadle.core.contracts.store import Store
from treadle.core.errors import ConfigError, DriverBusy, LoopError, StoreError
from treadle.core.loop.driver import Driver
from treadle.core.loop.session_log import check_one_writer
from treadle.core.steps import Doubt, PendingApproval, Step, UserInput
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.items import Metadata
from treadle.core.transcript.state import QueuedMessage, SessionState
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage
from treadle.core.type_variables import DepsT, OutputT
from treadle.lib.shielded import complete
from treadle.lib.text.text import plural
from treadle.sessions.open_store import (
    OpenedStore,
    StoreLocation,
    check_session_exists,
    check_session_id,
    close_store,
    fork_store,
    make_missing_error,
    make_session_id,
    open_store,
)

if TYPE_CHECKING:
    from typing import Self, Unpack

    from typing_extensions import TypeForm

    from treadle.agents.run import UntypedOutput

_T = TypeVar("_T")

RUN_ARGUMENTS = ("prompt", "output", *SessionRunOptions.__annotations__)


class SessionStreamOptions(SessionRunOptions, total=False):
    suspend: bool


class SessionAgent(Protocol):
    """What a session uses of its agent."""

    @property
    def _has_approver(self) -> bool: ...
    def _make_run(self, driver: Driver, output: object | None, settings: RunSettings) -> Run: ...
    def start(
        self,
        *,
        deps: object,
        history: History | None,
        state: SessionState,
        store: Store,
        children: ChildAgents,
    ) -> Driver: ...


class SessionControls:
    """What a host does with an open session besides its runs: step, send messages, answer
    approvals, look."""

    def __init__(self, session_id: str | None) -> None:
        self.id = make_session_id() if session_id is None else check_session_id(session_id)
        self._driver: Driver | None = None
        self._is_closed = False

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

    def settle(
        self, call_id: str, result: str, *, is_error: bool = False, session_id: str = ""
    ) -> None:
        """Tell the outcome of a call in doubt: the model reads `result`, the call is not run.
        `session_id` is that of the doubt, if child agents use the same call ids. LoopError if no
        call in doubt has that id, as when it is settled already."""
        self._open_driver.settle(call_id, result, is_error=is_error, session_id=session_id)

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
        """The calls whose outcome is not known after a crash, also those of child agents; `settle`
        tells it."""
        return self._open_driver.doubts

    @property
    def driver(self) -> Driver:
        """The loop of this session, for what is not offered here."""
        return self._open_driver

    @property
    def _open_driver(self) -> Driver:
        if self._driver is not None:
            return self._driver
        if self._is_closed:
            raise LoopError(
                f"session {self.id} is closed: open it again with agent.session({self.id!r})"
            )
        raise LoopError("enter the session first: async with agent.session(...) as session")

    def _make_not_waiting_error(self, call_id: str, session_id: str) -> LoopError:
        waiting = [(one.call.id, one.session_id or self.id) for one in self.approvals]
        known = ", ".join(f"{call} (session {session})" for call, session in waiting) or "none"
        if not session_id and sum(call == call_id for call, _ in waiting) > 1:
            problem = f"several calls {call_id!r:.80} wait for a decision: give session_id"
        else:
            of_session = f" of session {session_id!r:.80}" if session_id else ""
            problem = f"no call {call_id!r:.80}{of_session} waits for a decision"
        return LoopError(f"{problem}; calls that wait for one: {known}")


class Session(SessionControls, Generic[DepsT, OutputT]):
    """One conversation of an agent. Use it in an `async with` block."""

    def __init__(
        self,
        agent: SessionAgent,
        session_id: str | None,
        location: StoreLocation | None,
        deps: object,
        history: History | None,
        *,
        must_exist: bool = False,
    ) -> None:
        super().__init__(session_id)
        check("store", location, STORE_EXPECTED)
        self.warnings: tuple[str, ...] = ()
        self._agent = agent
        self._location = location
        self._deps = deps
        self._history = history
        self._must_exist = must_exist
        self._children = ChildAgents()
        self._run: Run | None = None  # the one that is not over
        self._is_entered = False

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise LoopError("this session was entered before: call agent.session() again")
        self._is_entered = True
        is_own = hasattr(self._location, "append")
        if is_own:
            check_one_writer(cast(Store, self._location))
        if self._must_exist:
            await check_session_exists(self._location, self.id)
        opened = await open_store(self._location, self.id)
        self.warnings = opened.warnings
        ids = (self.id, *opened.state.origins)
        own, *origins = [(one, find_child_location(one, self._location)) for one in ids]
        self._children = ChildAgents(own[1], origins, opened.store)
        try:
            if self._must_exist and opened.store.is_empty:
                raise make_missing_error(self.id)
            self._driver = self._start_driver(opened)
            await self._driver.restore_approvals()
        except BaseException:
            driver, self._driver = self._driver, None
            await complete(self._children.aclose())
            if not is_own:  # the caller closes his own store
                await complete(close_store(opened.store) if driver is None else driver.aclose())
            raise
        return self

    if not TYPE_CHECKING:  # type checkers refuse it by themselves

        def __enter__(self):
            raise TypeError(
                "a session is entered with `async with agent.session(...)`; a program without an "
                "event loop uses `with agent.session_sync(...)`"
            )

        def __exit__(self, *_): ...

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            await self.aclose()
        except StoreError as failure:
            if error is None:
                raise
            error.add_note(f"closing session {self.id} failed as well: {failure}")

    async def aclose(self) -> None:
        """Interrupt what runs and wait for it, write all of it, and release the session for
        others: nothing of it happens afterwards. A suspended turn stays open; left at an
        `ApprovalRequest` of `next`, the turn is suspended."""
        driver = self._driver
        if driver is not None:
            driver.check_loop("aclose")
        self._is_closed, self._driver = True, None
        try:
            if driver is not None and driver.is_at_approval:
                await complete(suspend_at_approval(driver))
            if driver is not None and driver.state.suspended is not None:
                await complete(self._freeze(driver))
            await complete(self._children.aclose())
        finally:
            if driver is not None:
                await driver.aclose()

    async def _freeze(self, driver: Driver) -> None:
        await self._children.freeze()
        await driver.log.freeze()

    # --- work ----------------------------------------------------------------------------

    @overload
    async def run(
        self, prompt: Prompt = None, *, output: None = None, **options: Unpack[SessionRunOptions]
    ) -> Result[OutputT]: ...
    @overload
    async def run(
        self, prompt: Prompt = None, *, output: TypeForm[_T], **options: Unpack[SessionRunOptions]
    ) -> Result[_T]: ...
    @overload
    async def run(
        self, prompt: Prompt = None, *, output: UntypedOutput, **options: Unpack[SessionRunOptions]
    ) -> Result[Any]: ...
    async def run(
        self,
        prompt: Prompt = None,
        *,
        output: object | None = None,
        output_retries: int = OUTPUT_RETRIES,
        metadata: Metadata | None = None,
        model: str | Model | None = None,
        options: ModelOptions | None = None,
        gates: Sequence[Gate] = (),
        **unknown: object,
    ) -> Result[Any]:
        """Answer a prompt. Without one, continue what an interruption or a crash left; a LoopError
        if there is nothing to continue, see `can_continue`."""
        reject_unknown_argument("session.run", RUN_ARGUMENTS, unknown)
        settings = RunSettings(metadata, output_retries, model, options, gates)
        async with self._open_run(prompt, output, settings) as run:
            return await run.finish()

    @overload
    def stream(
        self, prompt: Prompt = None, *, output: None = None, **options: Unpack[SessionStreamOptions]
    ) -> Stream[OutputT]: ...
    @overload
    def stream(
        self,
        prompt: Prompt = None,
        *,
        output: TypeForm[_T],
        **options: Unpack[SessionStreamOptions],
    ) -> Stream[_T]: ...
    @overload
    def stream(
        self,
        prompt: Prompt = None,
        *,
        output: UntypedOutput,
        **options: Unpack[SessionStreamOptions],
    ) -> Stream[Any]: ...
    def stream(
        self,
        prompt: Prompt = None,
        *,
        output: object | None = None,
        output_retries: int = OUTPUT_RETRIES,
        metadata: Metadata | None = None,
        model: str | Model | None = None,
        options: ModelOptions | None = None,
        gates: Sequence[Gate] = (),
        suspend: bool = False,
        **unknown: object,
    ) -> Stream[Any]:
        """`async with session.stream(prompt) as events`: the events of a run. `suspend` is that of
        `agent.stream`."""
        reject_unknown_argument("session.stream", (*RUN_ARGUMENTS, "suspend"), unknown)
        settings = RunSettings(metadata, output_retries, model, options, gates)
        opening = self._open_run(prompt, output, settings)
        return Stream(opening, has_approver=self._agent._has_approver, suspend=suspend)

    @asynccontextmanager
    async def _open_run(
        self, prompt: Prompt, output: object | None, settings: RunSettings
    ) -> AsyncIterator[Run]:
        """A run that has begun with the prompt. DriverBusy if another is not over."""
        driver = self._open_driver
        if self._run is not None:
            raise DriverBusy(
                f"session {self.id} is running: await that run first, or send the message to it "
                "with session.steer(...)"
            )
        run = self._agent._make_run(driver, output, settings)
        run.begin(prompt)
        self._run = run
        try:
            yield run
        finally:
            await run.aclose()
            self._run = None

    # --- history -------------------------------------------------------------------------

    async def rewind(self, turns: int = 1) -> None:
        """Take back the last turns, with their messages. The log keeps them; files stay.
        DriverBusy while a run is not over."""
        driver = self._open_driver
        if self._run is not None:
            raise DriverBusy(f"session {self.id} is running: await or interrupt that run first")
        await driver.rewind(self._find_turn(turns))

    async def fork(self, session_id: str | None = None, *, turns_back: int = 0) -> str:
        """A new session with the history of this one, without its last `turns_back` turns; returns
        its id. This session does not change, also in the middle of a turn: what is open, and the
        messages that wait, stay here. What was spent is counted here only."""
        new_id = make_session_id() if session_id is None else check_session_id(session_id)
        driver = self._open_driver
        turn_id = self._find_turn(turns_back) if turns_back else None
        await driver.log.flush()
        await fork_store(driver.log, self._location, new_id, turn_id)
        return new_id

    def _find_turn(self, turns: int) -> str:
        """The id of the turn that is so many turns back."""
        starts = [one for one in self._open_driver.state.turn_starts if not one.continues]
        if not whole_number(1).fits(turns) or turns > len(starts):
            count = plural(len(starts), "turn")
            raise ConfigError(f"session {self.id} has {count}; it cannot go back by {turns!r}")
        return starts[-turns].turn_id

    def _start_driver(self, opened: OpenedStore) -> Driver:
        history, self._history = self._history, None
        store, state, deps, children = opened.store, opened.state, self._deps, self._children
        if history is not None and len(state.transcript):
            raise ConfigError(
                f"history: session {self.id} has a history of its own; leave `history` out, or "
                "choose another id"
            )
        return self._agent.start(
            history=history, state=state, store=store, deps=deps, children=children
        )
