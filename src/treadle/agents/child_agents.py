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
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from treadle.core.contracts.observer import BaseObserver
from treadle.core.contracts.store import Store
from treadle.core.events import Event, InputAccepted
from treadle.core.loop.driver import Driver
from treadle.core.transcript.items import Metadata
from treadle.core.transcript.state import SessionState
from treadle.lib.shielded import complete

if TYPE_CHECKING:
    from treadle.sessions.open_store import StoreLocation

MAX_KEPT = 64


class RunningChild(BaseObserver):
    """A child that a call of the session runs. It takes messages while it is at work: from its
    start to the end of its last turn."""

    driver: Driver

    def __init__(self) -> None:
        self.has_begun, self.has_ended = asyncio.Event(), asyncio.Event()
        self.is_at_work = False
        self.children = ChildAgents()  # its own
        self._unread: set[str] = set()  # ids of messages

    def begin(self, driver: Driver) -> None:
        self.driver, self.is_at_work = driver, True
        driver.watch(self)
        self.has_begun.set()

    def send(self, message: str, metadata: Metadata) -> bool:
        """Queue a message for its turn; False if it is not at work."""
        if self.is_at_work:
            self._unread.add(self.driver.steer(message, metadata=metadata))
        return self.is_at_work

    def withdraw_unread(self) -> int:
        """Take back the messages that its turns did not accept; how many, with those that a hook
        refused or the host withdrew."""
        for message_id in self._unread:
            self.driver.withdraw(message_id)
        return len(self._unread)

    def end(self) -> None:
        self.has_begun.set()
        self.has_ended.set()

    def on_event(self, event: Event) -> None:
        if type(event) is InputAccepted:
            self._unread.discard(event.message_id)


class KeptChild(msgspec.Struct, frozen=True):
    """What a child without a store left when it ended."""

    state: SessionState
    children: ChildAgents


class ChildAgents:
    """Those of one session, by the id of the call that started them. `location` is where they are
    stored; None: they are not. Those of `origins`, the sessions that this one was forked from, each
    with the place of its children, can be continued here, too."""

    def __init__(
        self,
        location: StoreLocation | None = None,
        origins: Sequence[tuple[str, StoreLocation | None]] = (),
    ) -> None:
        self._location = location
        self._origins = origins
        self._kept: OrderedDict[str, KeptChild] = OrderedDict()
        self.running: dict[str, RunningChild] = {}

    async def open_store(self, session_id: str, call_id: str) -> Store | None:
        """The store of the child of a call of this session: a new one, or the one that was made
        before."""
        if self._location is None:
            return None
        from treadle.sessions.children import make_child_session_id
        from treadle.sessions.open_store import begin_fork, open_store, read_session

        child_id = make_child_session_id(session_id, call_id)
        store = (await open_store(self._location, child_id)).store
        try:
            for origin, location in self._origins if store.is_empty else ():
                origin_id = make_child_session_id(origin, call_id)
                entries = await read_session(location, origin_id)
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
            kept = self.get_kept(call_id)
            return ChildAgents() if kept is None else kept.children
        if self._location is None:
            return ChildAgents()
        return ChildAgents(find_child_location(store.session_id, self._location))

    def find_driver(self, session_id: str) -> Driver | None:
        """The driver of the child at work, or of one of its children, with this session."""
        for child in self.running.values():
            if child.is_at_work and child.driver.session_id == session_id:
                return child.driver
            if (found := child.children.find_driver(session_id)) is not None:
                return found
        return None

    def get_kept(self, call_id: str) -> KeptChild | None:
        return self._kept.get(call_id)

    def keep(self, call_id: str, child: RunningChild) -> None:
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
