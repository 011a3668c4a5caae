"""The log of a session and its state: an entry is appended to the store and applied to the state.

It is a store itself: hosts that add entries of their own (a checkpoint, a suspension) do so
in the same place as the loop. What the entries do to the state is core/transcript/state.py. Used by
loop_session.py and by the hosts that open sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakValueDictionary

from treadle.core.contracts.store import Store
from treadle.core.contracts.wrapped import WrappedStore, find_innermost
from treadle.core.errors import LoopError, SessionBusy, StoreError
from treadle.core.transcript.entries import Entry, ItemAdded
from treadle.core.transcript.items import UserItem
from treadle.core.transcript.state import SessionState, apply

# By the id of a store: the log that wrote to it last. Each of these holds its store.
_writers: WeakValueDictionary[int, SessionLog] = WeakValueDictionary()


def check_one_writer(store: Store) -> None:
    """Raise SessionBusy if a driver of this process runs on the store."""
    writer = _writers.get(id(find_innermost(store)))
    if writer is not None and writer.is_claimed:
        raise SessionBusy(
            f"another run of this process writes to session {store.session_id}, and a session has "
            "one writer: await that run first, or use a store of its own"
        )


class SessionLog(WrappedStore):
    """`state` is that of the log. Without a store, only the state is kept.

    Of two on one store, the one that writes last continues the session; the other one has another
    state then, and cannot write any more.
    """

    def __init__(self, store: Store | None, state: SessionState | None = None) -> None:
        if store is not None:
            check_one_writer(store)
            super().__init__(store)
        self.state = state or SessionState()
        self.is_claimed = False
        self.has_store = store is not None
        self._key = 0 if store is None else id(find_innermost(store))
        self._needs_flush = False
        self._is_closed = self._is_replaced = self._is_handed_over = self._is_frozen = False

    def hand_over(self) -> None:
        """Another log continues the session: `aclose` flushes, and leaves the store open."""
        self._is_handed_over = True

    def claim(self) -> None:
        """Be the one writer of the store, until `release`."""
        if self.has_store:
            self._become_writer()
        self.is_claimed = True

    def release(self) -> None:
        self.is_claimed = False

    @property
    def is_writable(self) -> bool:
        return not self._is_replaced and _writers.get(self._key, self) is self

    def _become_writer(self) -> None:
        other = _writers.get(self._key)
        if other is self:
            return
        check_one_writer(self)
        if self._is_replaced:
            raise SessionBusy(f"another driver has continued session {self.session_id}")
        if other is not None:
            other._is_replaced = True
        _writers[self._key] = self

    def begin_with(self, entries: Sequence[Entry]) -> None:
        """Log what a new session begins with. LoopError if the store has entries already: they
        would be there twice."""
        # A store that was written for an earlier version does not say it.
        if self.has_store and not getattr(self.wrapped, "is_empty", True):
            raise LoopError(
                f"session {self.session_id} has entries already: give an empty store for a "
                "transcript or a snapshot, or continue the session with the view of its log"
            )
        self.state = SessionState()
        for entry in entries:
            self.append(entry)

    def append(self, entry: Entry) -> None:
        """Log the entry and apply it."""
        if self._is_closed:
            raise StoreError("the session is closed; nothing more is written")
        if self._is_frozen:
            return
        if self.has_store:
            if _writers.get(self._key) is not self:
                self._become_writer()
            self.wrapped.append(entry)
            if type(entry) is ItemAdded and type(entry.item) is UserItem:
                self._needs_flush = True
        self.state = apply(self.state, entry)

    async def flush(self) -> None:
        if self.has_store:
            await self.wrapped.flush()
            self._needs_flush = False

    async def freeze(self) -> None:
        """Write what is logged, and nothing after it: a suspended turn stays in the store as it is,
        while what runs of it is stopped."""
        await self.flush()
        self._is_frozen = True

    async def flush_intent(self) -> None:
        """Make an intent durable: the effect may begin once this returns."""
        await self.flush()
        self._needs_flush = self.has_store  # what became of the effect

    @property
    def must_flush(self) -> bool:
        """Whether a model call has to wait: the user's message and the results of effects are to be
        durable before it. A full disk stops the run here, before another request is paid for."""
        return self._needs_flush or (self.has_store and self.wrapped.write_error is not None)

    async def aclose(self) -> None:
        """Flush and close the store. Nothing is logged after it."""
        self._is_closed = True
        if self.has_store:
            if _writers.get(self._key) is self:
                del _writers[self._key]
            await (self.wrapped.flush() if self._is_handed_over else self.wrapped.aclose())
