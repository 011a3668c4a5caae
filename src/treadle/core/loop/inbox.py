"""Steering: what was said to the agent while it worked.

Anybody may put a message in at any time; the driver takes them out at the next legal point,
in order. Notices of finished background tasks come the same way. What has to wait is in the
log meanwhile, so that a crash does not lose it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from treadle.core.transcript.entries import Entry, Queued, Unqueued
from treadle.core.transcript.items import NoticeItem, UserItem


class Inbox:
    def __init__(
        self, waiting: Iterable[UserItem | NoticeItem], on_wait: Callable[[Entry], None]
    ) -> None:
        self._waiting = deque((item, True) for item in waiting)  # and whether it is in the log
        self._on_wait = on_wait

    def put(self, item: UserItem | NoticeItem, *, is_busy: bool = True) -> None:
        """Let something wait. While the agent is idle it enters at once, and needs no log."""
        must_log = is_busy or any(is_logged for _, is_logged in self._waiting)
        self._waiting.append((item, must_log))
        if must_log:
            self._on_wait(Queued(item))

    def take(self) -> None:
        """The first has entered the transcript."""
        self._waiting.popleft()

    def refuse(self) -> None:
        """The first will never enter it."""
        _, is_logged = self._waiting.popleft()
        if is_logged:
            self._on_wait(Unqueued())

    @property
    def first(self) -> UserItem | NoticeItem | None:
        return self._waiting[0][0] if self._waiting else None

    @property
    def has_message(self) -> bool:
        """Whether a person's message waits; notices alone do not begin a turn."""
        return any(isinstance(item, UserItem) for item, _ in self._waiting)

    @property
    def waiting(self) -> tuple[UserItem | NoticeItem, ...]:
        return tuple([item for item, _ in self._waiting])
