"""The sequence of items: immutable, and cheap to append to.

A transcript is a prefix of a shared, append-only list: an append costs the same at any length, and
older transcripts do not change. Encoders store derived data of the shared list in `cache`, so a
request does not walk the whole history again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, overload

import msgspec

from treadle.core.transcript.entry_json import decode_json, make_decoder, to_json
from treadle.core.transcript.items import AssistantItem, Item


class _SharedItems:
    """The list behind one or more transcripts, with data derived from it."""

    __slots__ = ("cache", "call_ids", "items")

    def __init__(self, items: list[Item]) -> None:
        self.items = items
        self.cache: dict[Any, Any] = {}
        self.call_ids: set[str] = set()
        for item in items:
            if type(item) is AssistantItem:
                self.index_calls(item)

    def index_calls(self, item: AssistantItem) -> None:
        self.call_ids.update([call.id for call in item.calls])


class Transcript(Sequence[Item]):
    """An immutable sequence of items. `append` and `extend` return the longer one."""

    __slots__ = ("_length", "_shared")

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._shared = _SharedItems(list(items))
        self._length = len(self._shared.items)

    @classmethod
    def from_json(cls, data: bytes | str) -> Transcript:
        """The transcript that `to_json` wrote; a ValueError if it is none."""
        encoded = data.encode() if isinstance(data, str) else data
        try:
            items = decode_json(encoded, make_decoder(list[Item]))
        except (msgspec.DecodeError, ValueError) as error:
            raise ValueError(f"this is not a transcript as JSON: {error}") from error
        return cls(items)

    def to_json(self) -> bytes:
        """A list of items, as the log has them, to keep it elsewhere."""
        return to_json(list(self))

    def append(self, item: Item) -> Transcript:
        longer = Transcript.__new__(Transcript)
        shared = self._shared
        if len(shared.items) != self._length:
            if shared.items[self._length] is item:
                return self._share(self._length + 1)
            # Another transcript has appended to this list already: copy the common part.
            shared = _SharedItems(shared.items[: self._length])
        shared.items.append(item)
        if type(item) is AssistantItem:
            shared.index_calls(item)
        longer._shared = shared
        longer._length = self._length + 1
        return longer

    @property
    def last(self) -> Item | None:
        return self._shared.items[self._length - 1] if self._length else None

    def extend(self, items: Iterable[Item]) -> Transcript:
        longer = self
        for item in items:
            longer = longer.append(item)
        return longer

    def prefix(self, length: int) -> Transcript:
        """The first `length` items, on the same shared list."""
        return self._share(min(length, self._length))

    def _share(self, length: int) -> Transcript:
        other = Transcript.__new__(Transcript)
        other._shared = self._shared
        other._length = length
        return other

    def replace_in_place(self, find: Callable[[Item], Item]) -> None:
        """Replace placeholders, in every transcript on the same list. Only while a log is loaded:
        nothing has been derived from the list then."""
        items = self._shared.items
        for position in range(self._length):
            items[position] = find(items[position])

    def is_extension_of(self, other: Transcript) -> bool:
        """Whether this transcript is the other one, or grew from it; takes constant time."""
        return self._shared is other._shared and self._length >= other._length

    @property
    def list_id(self) -> int:
        """The same for all transcripts on one shared list."""
        return id(self._shared)

    @property
    def cache(self) -> dict[Any, Any]:
        """Data that encoders derived from the shared list, by their own key. Positions are stable:
        item N of this transcript is item N of every transcript on the same list."""
        return self._shared.cache

    def has_call_id(self, call_id: str) -> bool:
        """Whether a call in this transcript, or in a longer one on the same list, has this id."""
        return call_id in self._shared.call_ids

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            if step > 0:
                return self._shared.items[start:stop:step]
            return [self._shared.items[i] for i in range(start, stop, step)]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(f"transcript has {self._length} items, not {index + 1}")
        return self._shared.items[index]

    def __reversed__(self) -> Iterator[Item]:
        items = self._shared.items
        return islice(reversed(items), len(items) - self._length, None)

    def __iter__(self) -> Iterator[Item]:
        return islice(self._shared.items, self._length)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Transcript):
            return NotImplemented
        return self._length == other._length and all(
            one == two for one, two in zip(self, other, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]  # compared by value, and long

    def __repr__(self) -> str:
        return f"Transcript({list(self)!r})"
