"""A value for each session, for objects that serve many sessions: gates, mutators.

No end of a session is reported to them, so only the most recently used sessions are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")

MAX_SESSIONS = 10_000


class SessionCache(Generic[V]):
    """`make` gives the first value of a session."""

    def __init__(self, make: Callable[[], V], max_sessions: int = MAX_SESSIONS) -> None:
        self._make = make
        self._max_sessions = max_sessions
        self._values: OrderedDict[str, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, session_id: str) -> V:
        value = self._values.get(session_id)
        if value is None:
            value = self._make()
        self[session_id] = value
        return value

    def __setitem__(self, session_id: str, value: V) -> None:
        self._values[session_id] = value
        self._values.move_to_end(session_id)
        if len(self._values) > self._max_sessions:
            self._values.popitem(last=False)
