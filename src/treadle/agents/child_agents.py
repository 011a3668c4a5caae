"""The child agents of one session: those at work, what the others left, and where they are stored.

    a folder        SESSION/children/CHILD, as the command line stores them
    a database      in the same one            a function   makes their stores, too

The children of a session in an own Store, and of a run without a session, are not stored; a program
can store them with `open_store`. `Agent.start` hands one ChildAgents to each driver, and the driver
hands it to its tools. Used by session.py and subagents.py; it starts no child.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from treadle.agents.run import DecideApprovals
from treadle.core.contracts.gate import Gate
from treadle.core.contracts.hook import Hook
from treadle.core.contracts.model import Model, ModelOptions
from treadle.core.contracts.observer import BaseObserver
from treadle.core.contracts.store import Store
from treadle.core.contracts.wrapped import WrappedStore
from treadle.core.events import Event, InputAccepted, TurnResult
from treadle.core.loop.driver import Driver
from treadle.core.steps import Doubt, UserInput
from treadle.core.transcript.entries import Entry, InputQueued, ItemAdded
from treadle.core.transcript.items import CALL_KEY, Item, Metadata, UserItem
from treadle.core.transcript.state import SessionState
from treadle.lib.shielded import complete

if TYPE_CHECKING:
    from treadle.sessions.open_store import StoreLocation

MAX_KEPT = 64


class ChildAgent(Protocol):
    """What the runner needs of a child. `_is_tool`: the model of the caller reads its answer."""

    _is_tool: bool

    def start(
        self,
        prompt: UserInput | None = None,
        *,
        deps: object = None,
        history: Sequence[Item] | None = None,
        state: SessionState | None = None,
        store: Store | None = None,
        metadata: Metadata | None = None,
        children: ChildAgents | None = None,
    ) -> Driver: ...

    async def _answer_parent(
        self, driver: Driver, decide: DecideApprovals, ended: TurnResult | None = None
    ) -> tuple[TurnResult, str]: ...

    async def _aclose_owned_model(self) -> None: ...


class PreparedChild(Protocol):
    """What a program provides for one child; made by the `prepare_child` of an agent.

    `changes` are settings of the child that differ from its parent's; "source" among them replaces
    the tools. `finish` is called when the child has ended, and returns a text for the parent about
    its files, or ""; `abandon` instead of it when the child was interrupted. Both release what the
    child used.
    """

    @property
    def changes(self) -> Mapping[str, Any]: ...

    async def finish(self, *, succeeded: bool) -> str: ...

    async def abandon(self) -> None: ...


class NothingPrepared:
    """A child that works with what its parent has."""

    changes: Mapping[str, Any] = {}

    async def finish(self, *, succeeded: bool) -> str:
        return ""

    async def abandon(self) -> None:
        return None


class RunningChild(BaseObserver):
    """A child whose session is open: a call runs it, or will when the parent continues. It takes
    messages while it is at work: from its start to the end of its last turn."""

    def __init__(self) -> None:
        self.has_begun, self.has_ended = asyncio.Event(), asyncio.Event()
        self.is_at_work = False
        self.store: Store | None = None
        self.prepared: PreparedChild | None = None
        self.agent: ChildAgent | None = None
        self.driver: Driver | None = None
        self.children = ChildAgents()  # its own
        self._unread: set[str] = set()  # ids of messages

    def begin(self, driver: Driver) -> None:
        self.is_at_work = True
        driver.watch(self)
        self.has_begun.set()

    def send(self, message: str, metadata: Metadata) -> bool:
        """Queue a message for its turn; False if it is not at work."""
        if self.driver is None or not self.is_at_work:
            return False
        self._unread.add(self.driver.steer(message, metadata=metadata))
        return True

    def withdraw_unread(self) -> int:
        """Take back the messages that its turns did not accept; how many, with those that a hook
        refused or the host withdrew."""
        if self.driver is not None:
            for message_id in self._unread:
                self.driver.withdraw(message_id)
        return len(self._unread)

    def end(self) -> None:
        self.has_begun.set()
        self.has_ended.set()

    async def aclose(self) -> None:
        """Release what it uses; its session is written."""
        prepared, self.prepared = self.prepared, None
        try:
            if prepared is not None:
                await prepared.abandon()
            await self.children.aclose()
            if self.agent is not None:
                await self.agent._aclose_owned_model()
        finally:
            if self.driver is not None:
                await self.driver.aclose()
            elif self.store is not None:
                await self.store.aclose()

    def on_event(self, event: Event) -> None:
        if type(event) is InputAccepted:
            self._unread.discard(event.message_id)


class KeptChild(msgspec.Struct, frozen=True):
    """What a child without a store left when it ended."""

    state: SessionState
    children: ChildAgents


class ChildStore(WrappedStore):
    """The store of a child, which writes after that of its parent: what the child has spent is in
    the parent's log before the child has an effect."""

    def __init__(self, store: Store, parent: Store) -> None:
        super().__init__(store)
        self._parent = parent

    async def flush(self) -> None:
        await self._parent.flush()
        await super().flush()


class ParentSettings(msgspec.Struct, frozen=True):
    """What children have of the agent that starts them, whatever they are: its limits and hooks,
    and whose child it is itself."""

    gates: tuple[Gate, ...] = ()
    hooks: tuple[Hook, ...] = ()
    parent_ids: tuple[str, ...] = ()
    depth: int = 0


class ChildAgents:
    """Those of one session, by the id of the call that started them. `location` is where they are
    stored; None: they are not. Those of `origins`, the sessions that this one was forked from, each
    with the place of its children, can be continued here, too. `parent` is the store of the
    session: its folder and its secrets are those of the children."""

    def __init__(
        self,
        location: StoreLocation | None = None,
        origins: Sequence[tuple[str, StoreLocation | None]] = (),
        parent: Store | None = None,
        *,
        reads_only: bool = False,
    ) -> None:
        self._location = location
        self.reads_only = reads_only  # their sessions may be open elsewhere, and stay as they are
        self._origins = origins
        self._parent = parent
        self._kept: OrderedDict[str, KeptChild] = OrderedDict()
        self.inherited = ParentSettings()
        # Around the model of a child that is an agent of its own: how a host limits all calls.
        self.wrap_model: Callable[[Model], Model] = lambda model: model
        self._run_gates: tuple[Gate, ...] = ()
        self.run_options: ModelOptions | None = None
        self.run_model: Model | None = None
        self.running: dict[str, RunningChild] = {}
        # Of an earlier process: they wait for approvals until their calls continue.
        self.restored: dict[str, RunningChild] = {}

    def begin_run(
        self, gates: Sequence[Gate], options: ModelOptions | None, model: Model | None
    ) -> None:
        """The limits, the options and the model of a run hold for the children that it starts, too;
        the model for those that have none of their own."""
        self._run_gates, self.run_options, self.run_model = tuple(gates), options, model

    @property
    def gates(self) -> tuple[Gate, ...]:
        return (*self.inherited.gates, *self._run_gates)

    @property
    def is_stored(self) -> bool:
        return self._location is not None

    async def open_store(
        self, session_id: str, call_id: str, is_known: Callable[[UserItem], bool] | None = None
    ) -> Store | None:
        """The store of the child of a call of this session: a new one, or the one that was made
        before. With `is_known`, which says whether a call of the history sent a message, a child
        that an origin has is continued: as it was when the fork was made."""
        if self._location is None:
            return None
        from treadle.sessions.children import make_child_session_id
        from treadle.sessions.open_store import (
            ReadOnlyStore,
            begin_fork,
            open_store,
            read_session,
        )

        child_id = make_child_session_id(session_id, call_id)
        if self.reads_only:
            return ReadOnlyStore(child_id, await read_session(self._location, child_id))
        store = (await open_store(self._location, child_id, self._parent)).store
        if self._parent is not None:
            store = ChildStore(store, self._parent)
        try:
            for origin, location in self._origins if is_known and store.is_empty else ():
                assert is_known is not None, "there is no other way in"
                origin_id = make_child_session_id(origin, call_id)
                entries = _cut_unknown(await read_session(location, origin_id), is_known)
                if entries:
                    begin_fork(store, entries, origin_id)
                    await store.flush()
                    break
        except BaseException:
            await complete(store.aclose())
            raise
        return store

    def find_children(self, call_id: str, store: Store | None) -> ChildAgents:
        """The children of the child of a call, which has this store."""
        if store is None:
            kept = self._kept.get(call_id)
            return ChildAgents() if kept is None else kept.children
        if self._location is None:
            return ChildAgents()
        from treadle.sessions.children import make_child_session_id

        ids = [(make_child_session_id(one, call_id), place) for one, place in self._origins]
        origins = [(one, find_child_location(one, place)) for one, place in ids]
        own = find_child_location(store.session_id, self._location)
        return ChildAgents(own, origins, store, reads_only=self.reads_only)

    async def aclose(self) -> None:
        """Close the sessions of those that were not continued."""
        while self.restored:
            await self.restored.popitem()[1].aclose()

    async def freeze(self) -> None:
        """Leave the sessions of those at work as they are; see SessionLog.freeze."""
        for child in self.running.values():
            if child.driver is not None:
                await child.driver.log.freeze()
            await child.children.freeze()

    def find_driver(self, session_id: str) -> Driver | None:
        """The driver of the child at work, or of one of its children, with this session."""
        for child in self.running.values():
            driver = child.driver
            if child.is_at_work and driver is not None and driver.session_id == session_id:
                return driver
            if (found := child.children.find_driver(session_id)) is not None:
                return found
        return None

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Those of children that an earlier process ran, and of their children."""
        drivers = [child.driver for child in self.restored.values()]
        return tuple(doubt for driver in drivers if driver is not None for doubt in driver.doubts)

    def settle(self, session_id: str, call_id: str, result: str, is_error: bool) -> None:
        for child in self.restored.values():
            driver = child.driver
            if driver is not None and any(one.session_id == session_id for one in driver.doubts):
                driver.settle(call_id, result, is_error=is_error, session_id=session_id)
                return

    def get_kept(self, call_id: str) -> KeptChild | None:
        return self._kept.get(call_id)

    def keep(self, call_id: str, child: RunningChild) -> None:
        """Keep what a child without a store has left, to continue it."""
        if child.driver is None or child.store is not None:
            return
        self._kept[call_id] = KeptChild(child.driver.state, child.children)
        self._kept.move_to_end(call_id)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)


def find_child_location(session_id: str, location: StoreLocation | None) -> StoreLocation | None:
    """Where the children of a session are stored that is itself in this location."""
    if location is None or isinstance(location, (str, os.PathLike)):
        from treadle.sessions.children import CHILDREN_DIR
        from treadle.sessions.open_store import DATABASE_SCHEMES, DATABASE_SUFFIXES, find_place

        if isinstance(location, str) and location.startswith(DATABASE_SCHEMES):
            return location
        place = find_place(location)
        is_database = place.suffix in DATABASE_SUFFIXES
        return place if is_database else place / session_id / CHILDREN_DIR
    return location if callable(location) else None


def _cut_unknown(entries: Sequence[Entry], is_known: Callable[[UserItem], bool]) -> Sequence[Entry]:
    """The entries of a child before the first message that is not known."""
    for place, entry in enumerate(entries):
        item = entry.item if isinstance(entry, ItemAdded | InputQueued) else None
        if isinstance(item, UserItem) and CALL_KEY in (item.metadata or {}) and not is_known(item):
            return entries[:place]
    return entries
