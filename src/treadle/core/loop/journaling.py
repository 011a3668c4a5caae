"""Writing down: the one place where the log grows.

Entries are appended in order and are durable when the store says so. The loop waits for that
only where a law demands it: before a model is asked about a new message, and before an effect.
"""

from __future__ import annotations

from treadle.core.contracts.store import Store
from treadle.core.transcript.entries import Entry, Intent, ItemAdded
from treadle.core.transcript.items import Item, UserItem


class DurableLog:
    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._needs_flush = False

    def write(self, entry: Entry) -> None:
        if self._store is not None:
            self._store.append(entry)

    def write_item(self, item: Item) -> None:
        if self._store is not None:
            self._store.append(ItemAdded(item))
            self._needs_flush = self._needs_flush or isinstance(item, UserItem)

    async def write_intent(self, intent: Intent) -> None:
        """The effect may begin only after this."""
        if self._store is not None:
            self._store.append(intent)
            await self._store.flush()

    async def flush_before_model_call(self) -> None:
        """What a person said is safe before a model hears it; and a disk that is full stops the
        run here, before it costs another request."""
        if self._needs_flush or (self._store is not None and self._store.write_error is not None):
            await self.flush()

    async def flush(self) -> None:
        if self._store is not None:
            await self._store.flush()
            self._needs_flush = False

    async def aclose(self) -> None:
        if self._store is not None:
            await self._store.aclose()
