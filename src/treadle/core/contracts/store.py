"""The contract of a store: the append-only log of one session.

The loop appends entries in one place and flushes where an entry must be durable. Batches, locks,
checksums and files belong to the store. Used by core/loop/session_log.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from treadle.core.errors import SessionBusy, StoreError, StoreFull
from treadle.core.transcript.entries import Entry
from treadle.lib.text.text import plural


class Store(Protocol):
    """Keeps the log of one session.

    Promises: entries become durable in the order of their appends, none twice and none in part.
    `flush` returns only when everything appended before it is durable; otherwise it raises a
    StoreError, and the same entries can be flushed again. `load` returns the durable entries in
    order, whatever happened to the process that wrote them.
    `append` raises a StoreError for an entry that it cannot encode, and keeps nothing of it.
    A store must not rewrite or drop an entry, and `append` must not block.
    """

    @property
    def session_id(self) -> str: ...

    @property
    def is_empty(self) -> bool:
        """Whether nothing was appended yet, also by no earlier process."""

    @property
    def write_error(self) -> StoreError | None:
        """Why the last write failed, or None. `flush` tries again."""

    def append(self, entry: Entry) -> None: ...

    async def flush(self) -> None: ...

    async def load(self) -> Sequence[Entry]: ...

    async def aclose(self) -> None:
        """Flush, and release the session so that another process can open it. If the flush fails,
        the session is released, too, and the StoreError says how much of it is not written."""


def make_unwritten_error(session_id: str, count: int, error: StoreError) -> StoreError:
    """The error of a session that is closed although its last entries could not be written."""
    kind = type(error) if isinstance(error, (StoreFull, SessionBusy)) else StoreError
    lost = plural(count, "entry", "entries")
    return kind(f"session {session_id} is closed; not written: {lost}. {error}")
