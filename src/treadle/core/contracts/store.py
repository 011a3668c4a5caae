"""The contract of a store: an append-only log a session.

The loop appends in one place and says where it must be sure; how entries are written
together, locked, checked and found again is the store's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from treadle.core.errors import StoreError
from treadle.core.transcript.entries import Entry


class Store(Protocol):
    """Where one session is kept.

    Promises: entries become durable in the order in which they were appended; none twice, none
    half; `flush` returns only when everything appended before it is durable, and raises a
    StoreError otherwise, after which the same entries may be flushed again. `load` gives the
    entries that are durable, in order, whatever happened to the process that wrote them.
    It must not rewrite or drop an entry, or make `append` wait.
    """

    @property
    def session_id(self) -> str: ...

    @property
    def write_error(self) -> StoreError | None:
        """Why what was appended could not be written, if it could not; `flush` tries again."""

    def append(self, entry: Entry) -> None: ...

    async def flush(self) -> None: ...

    async def load(self) -> Sequence[Entry]: ...

    async def aclose(self) -> None:
        """Flush, and let another process open the session."""
