"""Steering: what was said to the agent while it worked.

Anybody may put a message in at any time; the driver takes them out at the next legal point,
in order. Notices of finished background tasks come the same way.
"""

from __future__ import annotations

from collections import deque

from treadle.core.transcript.items import NoticeItem, UserItem


class Inbox:
    def __init__(self) -> None:
        self._waiting: deque[UserItem | NoticeItem] = deque()

    def put(self, item: UserItem | NoticeItem) -> None:
        self._waiting.append(item)

    def take(self) -> UserItem | NoticeItem | None:
        return self._waiting.popleft() if self._waiting else None

    @property
    def first(self) -> UserItem | NoticeItem | None:
        return self._waiting[0] if self._waiting else None

    @property
    def has_message(self) -> bool:
        """Whether a person's message waits; notices alone do not begin a turn."""
        return any(isinstance(item, UserItem) for item in self._waiting)

    @property
    def waiting(self) -> tuple[UserItem | NoticeItem, ...]:
        return tuple(self._waiting)
