"""Child agents and changed files of a conversation, kept up to date without walking through it."""

from __future__ import annotations

import time
from pathlib import Path

from treadle.apps.conversation.block_text import format_call_title, is_diff
from treadle.apps.conversation.diff_rows import count_changes
from treadle.apps.conversation.state.blocks import ToolCallBlock, ViewBlock
from treadle.apps.conversation.state.persistent_list import PersistentList
from treadle.apps.conversation.tool_kinds import get_tool_kind
from treadle.apps.pages.timeline import read_call_seconds
from treadle.core import events
from treadle.core.contracts.observer import BaseObserver
from treadle.core.events import Event


class CallIndex:
    """`children` are the calls of child agents, by the index of their block, also of those that
    another process ran."""

    def __init__(self) -> None:
        self.children: dict[int, ToolCallBlock] = {}
        self._changes: dict[int, tuple[str, int, int]] = {}
        self._has_new_calls = False
        self._blocks: PersistentList[ViewBlock] = PersistentList()

    def update(self, blocks: PersistentList[ViewBlock]) -> None:
        """Take over the blocks that differ from those of the last update."""
        for index in range(len(blocks), len(self._blocks)):
            self._forget(index)
        for index in blocks.changed_indexes(self._blocks):
            self._forget(index)
            block = blocks[index]
            if not isinstance(block, ToolCallBlock):
                continue
            self._has_new_calls = True
            if block.child is not None or get_tool_kind(block.name) == "agent":
                self.children[index] = block
            if block.state == "done" and is_diff(block.display):
                path = format_call_title(block).partition(": ")[2] or block.name
                self._changes[index] = (path, *count_changes(block.display))
        self._blocks = blocks

    def has_new_calls(self) -> bool:
        """Whether there were calls since this was asked last."""
        has_new, self._has_new_calls = self._has_new_calls, False
        return has_new

    def sum_changes(self) -> dict[str, tuple[int, int]]:
        """Added and removed lines by path."""
        total: dict[str, tuple[int, int]] = {}
        for path, added, removed in self._changes.values():
            before = total.get(path, (0, 0))
            total[path] = (before[0] + added, before[1] + removed)
        return total

    def _forget(self, index: int) -> None:
        self.children.pop(index, None)
        self._changes.pop(index, None)


class CallTimes(BaseObserver):
    """Observes the driver; observe/timings.py keeps the same on disk."""

    kinds = frozenset({events.ToolStarted, events.ToolFinished, events.RetryScheduled})

    def __init__(self) -> None:
        self._started: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self.retry_at = 0.0  # when the model is called again after an error, as a Unix time

    def load(self, session_dir: Path) -> None:
        """Take over what earlier processes wrote."""
        self._seconds = {**read_call_seconds(session_dir), **self._seconds}

    def find(self, call_id: str) -> float | None:
        return self._seconds.get(call_id)

    def find_start(self, call_id: str) -> float | None:
        """When a call began that runs, as a Unix time."""
        started = self._started.get(call_id)
        return time.time() - (time.monotonic() - started) if started is not None else None

    def on_event(self, event: Event) -> None:
        if type(event) is events.ToolStarted:
            self._started[event.call_id] = time.monotonic()
        elif type(event) is events.RetryScheduled:
            self.retry_at = time.time() + event.delay
        elif type(event) is events.ToolFinished:
            started = self._started.pop(event.call_id, None)
            if started is not None:
                self._seconds[event.call_id] = time.monotonic() - started
