"""What the ways to run an agent share: sessions, the loop itself, what is closed at the end.

Inherited by agent_runs.py, which has `run` and `stream`, and so by Agent, which has the settings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

import msgspec

from treadle.agents.agent_settings import is_checkable
from treadle.agents.child_agents import ChildAgents, ParentSettings
from treadle.agents.run import (
    DecideApprovals,
    History,
    Prompt,
    Result,
    Run,
    RunSettings,
    reject_unknown_argument,
)
from treadle.core.argument_checks import is_list
from treadle.core.contracts.store import Store
from treadle.core.errors import ConfigError, LoopError, StoreError
from treadle.core.events import TurnResult
from treadle.core.loop.config import DriverConfig
from treadle.core.loop.driver import Driver
from treadle.core.steps import DriverSnapshot
from treadle.core.transcript.items import Item, Metadata, check_items
from treadle.core.transcript.recover import recovered
from treadle.core.transcript.state import SessionState
from treadle.core.transcript.transcript import Transcript
from treadle.core.type_variables import DepsT, OutputT

if TYPE_CHECKING:
    from typing import Self

    from treadle.agents.agent_sessions import AgentSessions
    from treadle.agents.agent_settings import AgentSettings
    from treadle.agents.session import Session
    from treadle.agents.structured_output import StructuredOutput
    from treadle.agents.sync_session import SyncSession
    from treadle.sessions.open_store import StoreLocation

_T = TypeVar("_T")

UNSET: Any = object()  # for what may be None
SESSION_ARGUMENTS = ("session_id", "deps", "history", "store", "must_exist")


class AgentBase(ABC, Generic[DepsT, OutputT]):
    """What Agent inherits: it sets the attributes, and defines the method at the end."""

    config: DriverConfig
    store: StoreLocation | None
    _settings: AgentSettings
    _structured_output: StructuredOutput | None
    _is_closed: bool
    _forced_deps: object

    def _open_run(
        self,
        prompt: Prompt,
        output: object | None,
        settings: RunSettings,
        session: str | Store | None,
        deps: object,
        history: History | None,
    ) -> AbstractAsyncContextManager[Run]:
        """A run that has begun; what it uses is closed at the end."""
        self._check_open()
        opened = None if session is None else self._use_session(session, deps, history)
        return self._run_in(opened, prompt, output, settings, deps, history)

    @asynccontextmanager
    async def _run_in(
        self,
        session: Session[DepsT, Any] | None,
        prompt: Prompt,
        output: object | None,
        settings: RunSettings,
        deps: object,
        history: History | None,
    ) -> AsyncIterator[Run]:
        if session is not None:
            run: Run | None = None
            try:
                async with session, session._open_run(prompt, output, settings) as run:
                    yield run
            except StoreError as error:  # of closing
                if run is not None:
                    run.attach(error)
                raise
            return
        driver = self.start(deps=deps, history=history)
        own: Run | None = None
        try:
            own = self._make_run(driver, output, settings)
            own.begin(prompt)
            yield own
        finally:
            await driver.aclose()
            if own is not None and settings.model is not None:
                await own.aclose()

    @overload
    def session(
        self: AgentBase[None, OutputT],
        session_id: str | None = None,
        *,
        deps: None = None,
        history: History | None = None,
        store: StoreLocation | None = None,
        must_exist: bool = False,
    ) -> Session[None, OutputT]: ...
    @overload
    def session(
        self,
        session_id: str | None = None,
        *,
        deps: DepsT,
        history: History | None = None,
        store: StoreLocation | None = None,
        must_exist: bool = False,
    ) -> Session[DepsT, OutputT]: ...
    def session(
        self,
        session_id: str | None = None,
        *,
        deps: object = None,
        history: History | None = None,
        store: StoreLocation | None = None,
        must_exist: bool = False,
        **unknown: object,
    ) -> Session[Any, OutputT]:
        """`async with agent.session("order-42") as session`: a conversation that is stored as it
        goes on. The same id continues it, also after a crash; without an id it is a new one.

        `store` is where it is kept: a folder, a SQLite file (`sessions.db`), an own Store, or a
        function that makes the Store of an id; the agent's `store` if it is not given; without
        both, with the user's other sessions. `history` is what a new session begins with. With
        `must_exist`, an id that no session has is a SessionNotFound.
        """
        from treadle.agents.session import Session

        self._check_open()
        reject_unknown_argument("agent.session", SESSION_ARGUMENTS, unknown)
        location = store if store is not None else self.store
        return Session(self, session_id, location, deps, history, must_exist=must_exist)

    @overload
    def session_sync(
        self: AgentBase[None, OutputT],
        session_id: str | None = None,
        *,
        deps: None = None,
        history: History | None = None,
        store: StoreLocation | None = None,
        must_exist: bool = False,
    ) -> SyncSession[OutputT]: ...
    @overload
    def session_sync(
        self,
        session_id: str | None = None,
        *,
        deps: DepsT,
        history: History | None = None,
        store: StoreLocation | None = None,
        must_exist: bool = False,
    ) -> SyncSession[OutputT]: ...
    def session_sync(self, session_id: str | None = None, **options: Any) -> SyncSession[OutputT]:
        """`with agent.session_sync("order-42") as session`: `session` for a program without an
        event loop, such as a view of Flask or Django. Connections are closed afterwards."""
        from treadle.agents.sync_session import SyncSession

        return SyncSession(self.session(session_id, **options), self._disconnect)

    @property
    def sessions(self) -> AgentSessions:
        """The sessions of the agent's `store`: list, look, delete, export, without opening them."""
        from treadle.agents.agent_sessions import AgentSessions

        self._check_open()
        return AgentSessions(self, self.store)

    def start(
        self,
        prompt: Prompt = None,
        *,
        deps: object = None,
        history: History | None = None,
        state: SessionState | None = None,
        store: Store | None = None,
        session_id: str | None = None,
        metadata: Metadata | None = None,
        snapshot: DriverSnapshot | None = None,
        children: ChildAgents | None = None,
    ) -> Driver:
        """The loop itself: call `next()` on it.

        A `history` from elsewhere is repaired first, and logged as a new session if there is a
        `store`; `state`, loaded from a session's log, is used as it is. A `snapshot` of another
        driver is continued with its session id; with a `store`, in the new session of that store.
        `metadata` belongs to the prompt, see `Driver.submit`. `children` are the child agents of
        the session, which a host may look at.
        """
        self._check_open()
        deps = deps if self._forced_deps is UNSET else self._forced_deps
        self._check_deps(deps)
        if snapshot is not None:
            state = recovered(snapshot.state)
            session_id = session_id or (None if store is not None else snapshot.session_id)
        elif history is not None:
            state = recovered(SessionState(transcript=make_history(history)))
        given, children = self._settings, ChildAgents() if children is None else children
        children.inherited = ParentSettings(
            tuple(given.gates), tuple(given.hooks), given.parent_ids, given.depth
        )
        config = msgspec.structs.replace(
            self.config, deps=self.config.deps if deps is None else deps, children=children
        )
        driver = Driver(config, session_id=session_id, state=state, store=store)
        if history is not None or snapshot is not None:
            driver.log_transcript()
        if self._structured_output is not None:
            output = self._structured_output.copy(config.model)
            driver.configure_turns(output.make_settings(config.options))
        if self._settings.on_start is not None:
            self._settings.on_start(driver)
        if prompt is not None:
            driver.submit(prompt, metadata=metadata)
        return driver

    # --- the end -------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the model's connections and the tools' servers; the agent cannot run any more."""
        self._is_closed = True
        await self._disconnect()

    # --- for sessions and hosts ----------------------------------------------------------

    @property
    def _has_approver(self) -> bool:
        return self._settings.approve is not None

    def _make_run(self, driver: Driver, output: object | None, settings: RunSettings) -> Run:
        """A run on the driver that answers with `output`, or as the agent does."""
        wanted, model = self._structured_output, None
        if settings.model is not None:
            from treadle.agents.agent_settings import resolve_model

            model = resolve_model(settings.model)
        if output is not None:
            from treadle.agents.structured_output import StructuredOutput

            wanted = StructuredOutput(output, model or driver.model)
        elif wanted is not None:
            wanted = wanted.copy(model or driver.model)
        check = self._settings.check_output if output is None else None
        return Run(driver, self.finish_turn, wanted, settings, model, check)

    # --- details -------------------------------------------------------------------------

    def _use_session(
        self, session: str | Store, deps: object, history: History | None
    ) -> Session[DepsT, Any]:
        location = None if isinstance(session, str) else session
        name = session if isinstance(session, str) else getattr(session, "session_id", None)
        if name is None:
            raise ConfigError(f"session is {session!r}; give its id or its Store")
        return self.session(name, deps=cast(DepsT, deps), history=history, store=location)

    def _check_open(self) -> None:
        if self._is_closed:
            raise LoopError("this agent is closed: make another one")

    def _check_deps(self, deps: object) -> None:
        wanted = self._settings.deps_type
        if is_checkable(wanted) and not isinstance(deps, wanted):
            expected, given = (
                "nothing" if kind is NoneType else kind.__name__ for kind in (wanted, type(deps))
            )
            raise ConfigError(f"deps: expected {expected}, got {given} (see deps_type)")

    async def _disconnect(self) -> None:
        """Close what is open; the next run opens it again."""
        await self.config.source.aclose()
        await self.config.model.aclose()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            from treadle.agents.foreign_names import unknown_attribute

            raise unknown_attribute("Agent", name, self)

    @abstractmethod
    async def finish_turn(
        self, driver: Driver, decide: DecideApprovals | None = None
    ) -> TurnResult:
        """Drive a turn to its end; approvals go to the approver, or to `decide` without one."""


async def disconnect(agent: AgentBase[Any, Any]) -> None:
    """Close what the agent has open, before its event loop ends; the next run opens it again."""
    await agent._disconnect()


def make_history(history: object) -> Transcript:
    """ConfigError if these are not the items of a transcript."""
    if isinstance(history, Result):
        raise ConfigError("history is a Result; expected its transcript: history=result.transcript")
    if not is_list(history):
        given = f"{history!r:.80}"
        raise ConfigError(f"history is {given}; expected a Transcript, or a list of items")
    try:
        check_items(cast(Sequence[object], history))
    except TypeError as error:
        raise ConfigError(f"history{error}") from None
    return Transcript(cast(Sequence[Item], history))
