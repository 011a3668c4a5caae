"""Steering: what was said to the agent while it worked.

Anybody may put a message in at any time; the driver takes them out at the next legal point,
in order. Notices of finished background tasks come the same way. What has to wait is in the
log meanwhile, so that a crash does not lose it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from treadle.core.transcript.entries import Entry, InputQueued, InputDropped
from treadle.core.transcript.items import NoticeItem, UserItem


class Inbox:
    def __init__(
        self, queued: Iterable[UserItem | NoticeItem], write_entry: Callable[[Entry], None]
    ) -> None:
        self._queue = deque((item, True) for item in queued)  # and whether it is in the log
        self._write_entry = write_entry

    def put(self, item: UserItem | NoticeItem, *, is_busy: bool = True) -> None:
        """Let something wait. While the agent is idle it enters at once, and needs no log."""
        must_log = is_busy or any(is_logged for _, is_logged in self._queue)
        self._queue.append((item, must_log))
        if must_log:
            self._write_entry(InputQueued(item))

    def accept_first(self) -> None:
        """The first has entered the transcript."""
        self._queue.popleft()

    def drop_first(self) -> None:
        """The first will never enter it."""
        _, is_logged = self._queue.popleft()
        if is_logged:
            self._write_entry(InputDropped())

    @property
    def first(self) -> UserItem | NoticeItem | None:
        return self._queue[0][0] if self._queue else None

    @property
    def has_message(self) -> bool:
        """Whether a person's message waits; notices alone do not begin a turn."""
        return any(isinstance(item, UserItem) for item, _ in self._queue)

    @property
    def queued(self) -> tuple[UserItem | NoticeItem, ...]:
        return tuple([item for item, _ in self._queue])
