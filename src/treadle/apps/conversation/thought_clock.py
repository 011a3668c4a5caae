"""Measures how long the model thinks, for the folded line of its thinking.

Events have no time, and the reducer is pure: the conversation measures and adds it to the view.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from treadle.apps.conversation.state.blocks import ThinkingBlock
from treadle.apps.conversation.state.view_state import ViewState, iterate_blocks, replace_block
from treadle.core.events import Event, ThinkingDelta


class ThoughtClock:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = 0.0
        self._index: int | None = None  # of the first block of the thinking that goes on

    def update(self, view: ViewState, event: Event) -> ViewState:
        """The view after an event; complete thinking gets its number of words and its time."""
        if isinstance(event, ThinkingDelta):
            if self._index is None:
                self._index, self._started = view.stream_index, self._clock()
            return view
        growing = None if view.stream_index is None else view.blocks[view.stream_index]
        if self._index is None or isinstance(growing, ThinkingBlock):
            return view
        index, self._index = self._index, None
        first = view.blocks[index] if index < len(view.blocks) else None
        if not isinstance(first, ThinkingBlock):
            return view  # the reply was discarded
        words = len(first.text.split())
        for block in iterate_blocks(view, index + 1):
            if not isinstance(block, ThinkingBlock) or not block.is_continuation:
                break
            words += len(block.text.split())
        seconds = self._clock() - self._started
        return replace_block(
            view, index, msgspec.structs.replace(first, words=words, seconds=seconds)
        )
