"""The part of a transcript that is visible: which lines of which blocks, rendered when needed.

The scroll position is a block and a line in it, not a number of lines from the top: invisible
blocks need no measuring, and may grow or fold without moving the visible text. It follows the end
until the user scrolls. Used by transcript.py, which has the keys.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable

from textual.geometry import Size
from textual.strip import Strip

from treadle.apps.conversation.state.blocks import ThinkingBlock, ToolCallBlock
from treadle.apps.conversation.state.view_state import ViewState
from treadle.apps.tui.render.markdown import CONSOLE, make_printable
from treadle.apps.tui.render.palette import Palette
from treadle.apps.tui.render.render import is_foldable, is_tight, render_block

MAX_CACHED_LINES = 4_000


class Viewport:
    """Shows a ViewState in an area of `find_size()`; `refresh` is called after every change."""

    def __init__(
        self, palette: Palette, find_size: Callable[[], Size], refresh: Callable[[], object]
    ) -> None:
        self.palette = palette
        self._find_size = find_size
        self._refresh = refresh
        self.view = ViewState()
        self.is_following = True
        self.search_text = ""
        self._top = (0, 0)
        self._expanded: set[int] = set()  # indexes of blocks
        self._strip_cache: OrderedDict[int, list[Strip]] = OrderedDict()
        self.cached_lines = 0
        self._visible_rows: list[tuple[int, int]] | None = None
        self._rows_size = Size(0, 0)  # that the rows and the strips are for
        self.render_count = 0  # rendered blocks, for the tests

    def update_view(self, view: ViewState) -> None:
        """Show another view; only blocks that differ are rendered again."""
        old, self.view = self.view, view
        if view.blocks is old.blocks:
            return
        for index in view.blocks.changed_indexes(old.blocks):
            self._invalidate_block(index)
            self._invalidate_block(index + 1)  # its blank line depends on the block before it
        for index in range(len(view.blocks), len(old.blocks)):
            self._invalidate_block(index)
            self._expanded.discard(index)
        self._repaint()

    def reset(self, view: ViewState) -> None:
        """Show another session."""
        self._expanded.clear()
        self.is_following, self._top, self.view = True, (0, 0), view
        self.restyle()

    def restyle(self, palette: Palette | None = None) -> None:
        """Render all again: the palette or the text of the search has changed."""
        self.palette = palette or self.palette
        self._forget_strips()
        self._repaint()

    def _forget_strips(self) -> None:
        self._strip_cache.clear()
        self.cached_lines = 0

    def _follow_size(self) -> None:
        """At another width all is rendered again, at another height other rows are visible."""
        size = self._find_size()
        if size != self._rows_size:
            if size.width != self._rows_size.width:
                self._forget_strips()
            self._rows_size, self._visible_rows = size, None

    def _repaint(self) -> None:
        self._visible_rows = None
        self._refresh()

    # --- lines ---------------------------------------------------------------------------

    def _invalidate_block(self, index: int) -> None:
        self.cached_lines -= len(self._strip_cache.pop(index, ()))

    def render_strips(self, index: int) -> list[Strip]:
        """The lines of a block, with the blank line before it."""
        self._follow_size()
        cached = self._strip_cache.get(index)
        if cached is not None:
            self._strip_cache.move_to_end(index)
            return cached
        strips = self._render_block(index)
        self._strip_cache[index] = strips
        self.cached_lines += len(strips)
        while self.cached_lines > MAX_CACHED_LINES and len(self._strip_cache) > 1:
            _, evicted = self._strip_cache.popitem(last=False)
            self.cached_lines -= len(evicted)
        return strips

    def _render_block(self, index: int) -> list[Strip]:
        self.render_count += 1
        block = self.view.blocks[index]
        before = self.view.blocks[index - 1] if index else None
        width = max(self._find_size().width, 1)
        lines = render_block(block, width, self.palette, is_expanded=self.is_expanded(index))
        if self.search_text:
            for line in lines:
                pattern = f"(?i){re.escape(self.search_text)}"
                line.highlight_regex(pattern, self.palette.search_match)
        strips = [
            Strip(list(make_printable(line).render(CONSOLE))).crop(0, width) for line in lines
        ]
        if lines and index and not is_tight(block, before):
            strips.insert(0, Strip.blank(0))
        return strips

    def is_expanded(self, index: int) -> bool:
        return self._first_part(index) in self._expanded

    def _first_part(self, index: int) -> int:
        """The first of the blocks that a long thinking is split into."""
        while index and self._is_thinking_continuation(index):
            index -= 1
        return index

    def _is_thinking_continuation(self, index: int) -> bool:
        block = self.view.blocks[index] if index < len(self.view.blocks) else None
        return isinstance(block, ThinkingBlock) and block.is_continuation

    def list_rows(self) -> list[tuple[int, int]]:
        """The block and the line in it, for each row."""
        self._follow_size()
        if self._visible_rows is None:
            find_rows = self._rows_from_end if self.is_following else self._rows_from_top
            self._visible_rows = find_rows()
            if self._visible_rows:
                self._top = self._visible_rows[0]
        return self._visible_rows

    @property
    def is_scrolled(self) -> bool:
        """Whether the end is below the visible rows."""
        self.list_rows()  # finds the end
        return not self.is_following

    def _rows_from_end(self) -> list[tuple[int, int]]:
        height, index = self._find_size().height, len(self.view.blocks) - 1
        rows: list[tuple[int, int]] = []
        while index >= 0 and len(rows) < height:
            count = len(self.render_strips(index))
            rows[:0] = [(index, line) for line in range(count)]
            index -= 1
        return rows[-height:] if height else []

    def _rows_from_top(self) -> list[tuple[int, int]]:
        height = self._find_size().height
        index, line = self._top
        rows: list[tuple[int, int]] = []
        while index < len(self.view.blocks) and len(rows) < height:
            count = len(self.render_strips(index))
            rows += [(index, row) for row in range(min(line, count), count)]
            index, line = index + 1, 0
        if len(rows) < height:
            self.is_following = True  # this is the end
            return self._rows_from_end()
        return rows[:height]

    # --- scrolling and folding -----------------------------------------------------------

    def scroll_lines(self, count: int) -> None:
        """Up is negative."""
        rows = self.list_rows()
        if not rows:
            return
        index, line = rows[0]
        if self.is_following and count >= 0:
            return
        self.is_following = False
        while count < 0:
            if line > 0:
                moved = min(line, -count)
                line, count = line - moved, count + moved
            elif index > 0:
                index -= 1
                line = len(self.render_strips(index))
            else:
                break
        while count > 0 and index < len(self.view.blocks):
            below = len(self.render_strips(index)) - line
            if below > count:
                line, count = line + count, 0
            else:
                index, line, count = index + 1, 0, count - below
        self._top = (index, line)
        self._repaint()

    def scroll_pages(self, count: int) -> None:
        self.scroll_lines(count * max(self._find_size().height - 2, 1))

    def show_top(self) -> None:
        self.is_following = False
        self._top = (0, 0)
        self._repaint()

    def show_block(self, index: int) -> None:
        """Scroll so that a block begins in the first row, unless all after it fits."""
        blocks = self.view.blocks
        has_gap = index > 0 and not is_tight(blocks[index], blocks[index - 1])
        self._top, self.is_following = (index, 1 if has_gap else 0), False
        self._repaint()

    def follow_end(self) -> None:
        self.is_following = True
        self._repaint()

    def reveal(self, index: int, line: int = 0) -> None:
        """Scroll until a line of a block is visible, with some lines above it."""
        if (index, line) in self.list_rows():
            return
        self.is_following = False
        self._top = (index, line)
        self._repaint()
        self.scroll_lines(-(self._find_size().height // 3))

    def toggle(self, index: int) -> None:
        """Expand or fold a block."""
        if not 0 <= index < len(self.view.blocks) or not is_foldable(self.view.blocks[index]):
            return
        index = self._first_part(index)
        self.list_rows()
        self._expanded ^= {index}
        self._invalidate_block(index)
        while self._is_thinking_continuation(index + 1):
            index += 1
            self._invalidate_block(index)
        self._repaint()

    def toggle_last(self) -> None:
        """Expand or fold the newest call or thinking."""
        for index in range(len(self.view.blocks) - 1, -1, -1):
            if isinstance(self.view.blocks[index], ToolCallBlock | ThinkingBlock):
                self.toggle(index)
                return
