"""The transcript widget: any number of blocks, of which only the visible ones are rendered.

The scroll position is a block and a line in it, not a number of lines from the top: invisible
blocks need no measuring, and may grow or fold without moving the visible text. It follows the end
until the user scrolls.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from treadle.apps.conversation.block_text import plain_text
from treadle.apps.conversation.state.blocks import (
    CodeBlock,
    MarkdownBlock,
    ThinkingBlock,
    ToolCallBlock,
    UserMessageBlock,
    ViewBlock,
)
from treadle.apps.conversation.state.code_parts import find_code, markdown_source
from treadle.apps.conversation.state.view_state import ViewState
from treadle.apps.tui.render.links import find_links
from treadle.apps.tui.render.markdown import CONSOLE, make_printable
from treadle.apps.tui.render.palette import Palette
from treadle.apps.tui.render.render import is_foldable, is_tight, render_block

MAX_CACHED_LINES = 4_000


class TranscriptWidget(Widget, can_focus=True):
    """Shows a ViewState. With focus, blocks can be selected, expanded, copied and searched."""

    DEFAULT_CSS = "TranscriptWidget { height: 1fr; }"
    BINDINGS = [  # noqa: RUF012 - textual's form
        Binding("up,k", "choose(-1)", "block above", show=False),
        Binding("down,j", "choose(1)", "block below", show=False),
        Binding("enter,space", "unfold", "expand or fold", show=False),
        Binding("c", "copy_code", "copy the code", show=False),
        Binding("y", "copy", "copy", show=False),
        Binding("o", "open_link", "open a link", show=False),
        Binding("home,g", "top", "top", show=False),
        Binding("end,G", "bottom", "bottom", show=False),
        Binding("slash", "search", "search", show=False),
        Binding("n", "again(-1)", "match above", show=False),
        Binding("N", "again(1)", "match below", show=False),
        Binding("escape,i,q", "leave", "back", show=False),
    ]

    class Exited(Message):
        """The user returns to the prompt."""

    class CopyRequested(Message):
        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class PartsFound(Message):
        """Several parts to copy or to open: the user chooses one."""

        def __init__(self, action: Literal["copy", "open"], parts: Sequence[str]) -> None:
            super().__init__()
            self.action = action
            self.parts = parts

    class SearchRequested(Message):
        """The user wants to search."""

    def __init__(self, palette: Palette, id: str | None = None) -> None:
        super().__init__(id=id)
        self.palette = palette
        self.view = ViewState()
        self.is_following = True
        self.selected_index: int | None = None
        self.search_text = ""
        self._top = (0, 0)
        self._expanded: set[int] = set()  # indexes of blocks
        self._strip_cache: OrderedDict[int, list[Strip]] = OrderedDict()
        self._cached_lines = 0
        self._visible_rows: list[tuple[int, int]] | None = None
        self.render_count = 0  # rendered blocks, for the tests

    # --- the view ------------------------------------------------------------------------

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
        if self.selected_index is not None and self.selected_index >= len(view.blocks):
            self.selected_index = None
        self.repaint()

    def reset(self, view: ViewState) -> None:
        """Show another session."""
        self._expanded.clear()
        self.selected_index, self.is_following, self._top = None, True, (0, 0)
        self.restyle(self.palette)
        self.view = view
        self.repaint()

    def restyle(self, palette: Palette) -> None:
        self.palette = palette
        self._strip_cache.clear()
        self._cached_lines = 0
        self.repaint()

    def repaint(self) -> None:
        self._visible_rows = None
        self.refresh()

    # --- lines ---------------------------------------------------------------------------

    def _invalidate_block(self, index: int) -> None:
        self._cached_lines -= len(self._strip_cache.pop(index, ()))

    def block_strips(self, index: int) -> list[Strip]:
        """The lines of a block, with the blank line before it."""
        cached = self._strip_cache.get(index)
        if cached is not None:
            self._strip_cache.move_to_end(index)
            return cached
        strips = self._render_strips(index)
        self._strip_cache[index] = strips
        self._cached_lines += len(strips)
        while self._cached_lines > MAX_CACHED_LINES and len(self._strip_cache) > 1:
            _, evicted = self._strip_cache.popitem(last=False)
            self._cached_lines -= len(evicted)
        return strips

    def _render_strips(self, index: int) -> list[Strip]:
        self.render_count += 1
        block = self.view.blocks[index]
        before = self.view.blocks[index - 1] if index else None
        width = max(self.size.width, 1)
        lines = render_block(block, width, self.palette, is_expanded=self.is_expanded(index))
        if self.search_text:
            for line in lines:
                pattern = f"(?i){re.escape(self.search_text)}"
                line.highlight_regex(pattern, self.palette.search_match)
        strips = [_to_strip(make_printable(line), width) for line in lines]
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

    def _layout(self) -> list[tuple[int, int]]:
        """The block and the line in it, for each row."""
        if self._visible_rows is None:
            find_rows = self._rows_from_end if self.is_following else self._rows_from_top
            self._visible_rows = find_rows()
            if self._visible_rows:
                self._top = self._visible_rows[0]
        return self._visible_rows

    def _rows_from_end(self) -> list[tuple[int, int]]:
        height, index = self.size.height, len(self.view.blocks) - 1
        rows: list[tuple[int, int]] = []
        while index >= 0 and len(rows) < height:
            count = len(self.block_strips(index))
            rows[:0] = [(index, line) for line in range(count)]
            index -= 1
        return rows[-height:] if height else []

    def _rows_from_top(self) -> list[tuple[int, int]]:
        height = self.size.height
        index, line = self._top
        rows: list[tuple[int, int]] = []
        while index < len(self.view.blocks) and len(rows) < height:
            count = len(self.block_strips(index))
            rows += [(index, row) for row in range(min(line, count), count)]
            index, line = index + 1, 0
        if len(rows) < height:
            self.is_following = True  # this is the end
            return self._rows_from_end()
        return rows[:height]

    def render_line(self, y: int) -> Strip:
        rows = self._layout()
        width = self.size.width
        if y >= len(rows):
            return Strip.blank(width, self.rich_style)
        index, line = rows[y]
        strip = self.block_strips(index)[line]
        if index == self.selected_index and self.has_focus and strip.cell_length:
            strip = Strip([Segment("▌", self.palette.accent), *strip.crop(1)])
        selection = self.text_selection
        if selection is not None:
            style = self.screen.get_component_rich_style("screen--selection")
            strip = _highlight_selection(strip, selection, y, style)
        strip = strip.adjust_cell_length(width, Style.null()).apply_style(self.rich_style)
        return strip.apply_offsets(0, y)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        rows = self._layout()
        text = "\n".join(self.block_strips(index)[line].text.rstrip() for index, line in rows)
        return selection.extract(text), "\n"

    # --- scrolling -----------------------------------------------------------------------

    def scroll_lines(self, count: int) -> None:
        """Up is negative."""
        rows = self._layout()
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
                line = len(self.block_strips(index))
            else:
                break
        while count > 0 and index < len(self.view.blocks):
            below = len(self.block_strips(index)) - line
            if below > count:
                line, count = line + count, 0
            else:
                index, line, count = index + 1, 0, count - below
        self._top = (index, line)
        self.repaint()

    def scroll_pages(self, count: int) -> None:
        self.scroll_lines(count * max(self.size.height - 2, 1))

    def reveal(self, index: int, line: int = 0) -> None:
        """Scroll until a line of a block is visible, with some lines above it."""
        if (index, line) in self._layout():
            return
        self.is_following = False
        self._top = (index, line)
        self.repaint()
        self.scroll_lines(-(self.size.height // 3))

    def action_top(self) -> None:
        self.is_following = False
        self._top = (0, 0)
        self.repaint()

    def action_bottom(self) -> None:
        self.is_following = True
        self.repaint()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_lines(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_lines(3)

    def on_resize(self) -> None:
        self.restyle(self.palette)

    # --- selecting, expanding, copying ---------------------------------------------------

    def on_focus(self) -> None:
        if self.selected_index is None and len(self.view.blocks):
            rows = self._layout()
            self.selected_index = rows[-1][0] if rows else len(self.view.blocks) - 1
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def action_choose(self, by: int) -> None:
        if not len(self.view.blocks):
            return
        index = len(self.view.blocks) if self.selected_index is None else self.selected_index
        index += by
        while 0 <= index < len(self.view.blocks) and not self.block_strips(index):
            index += by
        if 0 <= index < len(self.view.blocks):
            self.selected_index = index
            lines = len(self.block_strips(index))
            self.reveal(index, 0 if by < 0 else lines - 1)
            self.refresh()
        elif index >= len(self.view.blocks):
            self.action_bottom()

    def action_unfold(self) -> None:
        if self.selected_index is not None:
            self.toggle(self.selected_index)

    def toggle(self, index: int) -> None:
        """Expand or fold a block."""
        if not 0 <= index < len(self.view.blocks) or not is_foldable(self.view.blocks[index]):
            return
        index = self._first_part(index)
        self._layout()
        self._expanded ^= {index}
        self._invalidate_block(index)
        while self._is_thinking_continuation(index + 1):
            index += 1
            self._invalidate_block(index)
        self.repaint()

    def toggle_last(self) -> None:
        """Expand or fold the newest call or thinking."""
        for index in range(len(self.view.blocks) - 1, -1, -1):
            if isinstance(self.view.blocks[index], ToolCallBlock | ThinkingBlock):
                self.toggle(index)
                return

    def on_click(self, event: events.Click) -> None:
        rows = self._layout()
        if event.ctrl and event.style.link:
            self.app.open_url(event.style.link)
        elif event.y < len(rows) and event.chain == 1:
            index, line = rows[event.y]
            has_blank_line = not self.block_strips(index)[0].text
            if line <= has_blank_line + 1:
                self.toggle(index)

    def action_copy(self) -> None:
        if self.selected_index is not None:
            self.post_message(self.CopyRequested(plain_text(self.view.blocks[self.selected_index])))

    def action_copy_code(self) -> None:
        """Copy the code of the selected block, or of the reply around it; else the block's text."""
        if self.selected_index is None:
            return
        parts = find_code(self.view, self.selected_index)
        if parts:
            self.post_message(self.PartsFound("copy", parts))
        else:
            self.action_copy()

    def action_open_link(self) -> None:
        if self.selected_index is not None:
            links = find_links(plain_text(self.view.blocks[self.selected_index]))
            self.post_message(self.PartsFound("open", links))

    def last_reply(self) -> str:
        """The Markdown of the newest reply, for copying."""
        parts: list[ViewBlock] = []
        for index in range(len(self.view.blocks) - 1, -1, -1):
            block = self.view.blocks[index]
            if isinstance(block, MarkdownBlock | CodeBlock):
                parts.append(block)
            elif parts or isinstance(block, UserMessageBlock):
                break
        return "\n\n".join(markdown_source(parts[::-1]))

    def action_leave(self) -> None:
        self.selected_index = None
        self.is_following = True
        self.repaint()
        self.post_message(self.Exited())

    # --- searching -----------------------------------------------------------------------

    def action_search(self) -> None:
        self.post_message(self.SearchRequested())

    def search(self, text: str) -> bool:
        """Select the newest block with this text; False if there is none."""
        self.search_text = text
        self.restyle(self.palette)
        end = len(self.view.blocks)
        start = end if self.selected_index is None else self.selected_index + 1
        return bool(text) and (self._search_from(start, -1) or self._search_from(end, -1))

    def action_again(self, by: int) -> None:
        if self.search_text and self.selected_index is not None:
            self._search_from(self.selected_index, by)

    def _search_from(self, start: int, direction: int) -> bool:
        query = self.search_text.casefold()
        index = start + direction
        while 0 <= index < len(self.view.blocks):
            if query in plain_text(self.view.blocks[index]).casefold():
                self._show_match(index, query)
                return True
            index += direction
        return False

    def _show_match(self, index: int, query: str) -> None:
        """Select a block, expand it if the match is hidden, and scroll to the match."""
        self.selected_index = index
        is_shown = any(query in s.text.casefold() for s in self.block_strips(index))
        if not is_shown and is_foldable(self.view.blocks[index]) and not self.is_expanded(index):
            self.toggle(index)
        strips = enumerate(self.block_strips(index))
        lines = [line for line, strip in strips if query in strip.text.casefold()]
        self.reveal(index, lines[0] if lines else 0)
        self.refresh()


def _to_strip(line: Text, width: int) -> Strip:
    line.end = ""
    return Strip(list(line.render(CONSOLE))).crop(0, width)


def _highlight_selection(strip: Strip, selection: Selection, y: int, style: Style) -> Strip:
    span = selection.get_span(y)
    if span is None:
        return strip
    start, end = span
    end = strip.cell_length if end == -1 else end
    before, middle, after = strip.crop(0, start), strip.crop(start, end), strip.crop(end)
    return Strip.join([before, middle.apply_style(style), after])
