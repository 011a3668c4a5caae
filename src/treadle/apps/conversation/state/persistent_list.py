"""An immutable list whose versions share their common parts.

Appending, replacing and truncating return a new list, at a cost that does not grow with the length.
The differences between two versions are found without comparing the shared parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")

_BITS = 5
_WIDTH = 1 << _BITS
_MASK = _WIDTH - 1

_Node = tuple[Any, ...]


class PersistentList(Generic[T]):
    """A tree of tuples with 32 branches. Values beyond `_length` are ignored."""

    __slots__ = ("_length", "_root", "_shift")

    def __init__(self) -> None:
        self._root: _Node = ()
        self._shift = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> T:
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(index)
        node = self._root
        for shift in range(self._shift, 0, -_BITS):
            node = node[(index >> shift) & _MASK]
        return cast(T, node[index & _MASK])

    def __iter__(self) -> Iterator[T]:
        for index in range(self._length):
            yield self[index]

    def append(self, value: T) -> PersistentList[T]:
        """A list with one more value."""
        root, shift = self._root, self._shift
        if self._length >> (shift + _BITS):
            root, shift = (root,), shift + _BITS
        return _make_list(_append(root, shift, self._length, value), shift, self._length + 1)

    def set(self, index: int, value: T) -> PersistentList[T]:
        """A list with another value at an existing index."""
        if not 0 <= index < self._length:
            raise IndexError(index)
        return _make_list(_set(self._root, self._shift, index, value), self._shift, self._length)

    def truncate(self, length: int) -> PersistentList[T]:
        """The first `length` values."""
        return self if length >= self._length else _make_list(self._root, self._shift, length)

    def changed_indexes(self, old: PersistentList[T]) -> Iterator[int]:
        """The indexes, in order, whose values are not identical to those of `old`."""
        ours, theirs = self._root, old._root
        shift = max(self._shift, old._shift)
        for _ in range(self._shift, shift, _BITS):
            ours = (ours,)
        for _ in range(old._shift, shift, _BITS):
            theirs = (theirs,)
        both = min(self._length, old._length)
        yield from _find_differences(ours, theirs, shift, 0, both)
        yield from range(both, self._length)


def _make_list(root: _Node, shift: int, length: int) -> PersistentList[Any]:
    result: PersistentList[Any] = PersistentList()
    result._root, result._shift, result._length = root, shift, length
    return result


def _append(node: _Node, shift: int, index: int, value: object) -> _Node:
    """Set the value at the end; truncated values behind it are dropped."""
    slot = (index >> shift) & _MASK
    if not shift:
        return (*node[:slot], value)
    child = node[slot] if slot < len(node) else ()
    return (*node[:slot], _append(child, shift - _BITS, index, value))


def _set(node: _Node, shift: int, index: int, value: object) -> _Node:
    slot = (index >> shift) & _MASK
    new = value if not shift else _set(node[slot], shift - _BITS, index, value)
    return (*node[:slot], new, *node[slot + 1 :])


def _find_differences(
    ours: _Node, theirs: _Node, shift: int, base: int, length: int
) -> Iterator[int]:
    for slot in range(min(len(ours), len(theirs))):
        start = base + (slot << shift)
        if start >= length:
            return
        if ours[slot] is theirs[slot]:
            continue
        if shift:
            yield from _find_differences(ours[slot], theirs[slot], shift - _BITS, start, length)
        else:
            yield start
