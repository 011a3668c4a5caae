"""The conversation on the screen: as many blocks as one likes, of which only the seen are painted.

The place is held by a block and a line in it, not by a number of lines from the top: nothing has to
be measured that is not shown, and what is above may grow or fold without moving what one reads.
While nobody scrolls, the end is followed.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from treadle.apps.tui.render.markdown import CONSOLE, make_printable
from treadle.apps.tui.render.palette import Palette
from treadle.apps.tui.render.render import is_foldable, is_tight, plain_text, render_block
from treadle.apps.tui.state.blocks import (
    CodeBlock,
    MarkdownBlock,
    ThinkingBlock,
    ToolCallBlock,
    UserMessageBlock,
    ViewBlock,
)
from treadle.apps.tui.state.view_state import ViewState

MAX_CACHED_LINES = 4_000  # painted lines that are remembered


class TranscriptWidget(Widget, can_focus=True):
    """Shows a View. With the focus on it, blocks can be chosen, opened, copied and searched."""

    DEFAULT_CSS = "TranscriptWidget { height: 1fr; }"
    BINDINGS = [  # noqa: RUF012 - textual's form
        Binding("up,k", "choose(-1)", "block above", show=False),
        Binding("down,j", "choose(1)", "block below", show=False),
        Binding("enter,space", "unfold", "open or fold", show=False),
        Binding("c,y", "copy", "copy", show=False),
        Binding("home,g", "top", "top", show=False),
        Binding("end,G", "bottom", "bottom", show=False),
        Binding("slash", "search", "search", show=False),
        Binding("n", "again(-1)", "next found", show=False),
        Binding("N", "again(1)", "found before", show=False),
        Binding("escape,i,q", "leave", "back", show=False),
    ]

    class Exited(Message):
        """The person goes back to the prompt."""

    class CopyRequested(Message):
        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class SearchRequested(Message):
        """The person wants to look for something."""

    def __init__(self, palette: Palette, id: str | None = None) -> None:
        super().__init__(id=id)
        self.palette = palette
        self.view = ViewState()
        self.is_following = True
        self.selected_index: int | None = None
        self.search_text = ""
        self._top = (0, 0)
        self._expanded: set[int] = set()  # blocks that the person opened or folded
        self._strip_cache: OrderedDict[int, list[Strip]] = OrderedDict()
        self._cached_lines = 0
        self._visible_rows: list[tuple[int, int]] | None = None
        self.render_count = 0  # how often a block was painted: the tests count

    # --- what is shown -------------------------------------------------------------------

    def update_view(self, view: ViewState) -> None:
        """Another view; only what differs is painted again."""
        old, self.view = self.view, view
        if view.blocks is old.blocks:
            return
        for place in view.blocks.changed_indexes(old.blocks):
            self._invalidate_block(place)
            self._invalidate_block(place + 1)  # whether it stands tight depends on what is before
        for place in range(len(view.blocks), len(old.blocks)):
            self._invalidate_block(place)
            self._expanded.discard(place)
        if self.selected_index is not None and self.selected_index >= len(view.blocks):
            self.selected_index = None
        self.repaint()

    def reset(self, view: ViewState) -> None:
        """Another session: nothing of the one before counts."""
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

    @property
    def is_at_end(self) -> bool:
        return self.is_following

    # --- lines ---------------------------------------------------------------------------

    def _invalidate_block(self, index: int) -> None:
        gone = self._strip_cache.pop(index, None)
        if gone is not None:
            self._cached_lines -= len(gone)

    def block_strips(self, index: int) -> list[Strip]:
        """The lines of a block, with the empty one that sets it off."""
        known = self._strip_cache.get(index)
        if known is not None:
            self._strip_cache.move_to_end(index)
            return known
        strips = self._render_strips(index)
        self._strip_cache[index] = strips
        self._cached_lines += len(strips)
        while self._cached_lines > MAX_CACHED_LINES and len(self._strip_cache) > 1:
            _, gone = self._strip_cache.popitem(last=False)
            self._cached_lines -= len(gone)
        return strips

    def _render_strips(self, index: int) -> list[Strip]:
        self.render_count += 1
        block = self.view.blocks[index]
        before = self.view.blocks[index - 1] if index else None
        width = max(self.size.width, 1)
        lines = render_block(block, width, self.palette, is_expanded=self.is_expanded(index))
        if self.search_text:
            for line in lines:
                line.highlight_regex(_literal_pattern(self.search_text), self.palette.search_match)
        strips = [_to_strip(make_printable(line), width) for line in lines]
        if lines and index and not is_tight(block, before):
            strips.insert(0, Strip.blank(0))
        return strips

    def is_expanded(self, index: int) -> bool:
        block = self.view.blocks[index]
        while isinstance(block, ThinkingBlock) and block.is_continuation and index:
            index -= 1
            block = self.view.blocks[index]
        return index in self._expanded

    def _layout(self) -> list[tuple[int, int]]:
        """Which line of which block stands in each row."""
        if self._visible_rows is None:
            self._visible_rows = (
                self._rows_from_end() if self.is_following else self._rows_from_top()
            )
            if self._visible_rows:
                self._top = self._visible_rows[0]
        return self._visible_rows

    def _rows_from_end(self) -> list[tuple[int, int]]:
        height, place = self.size.height, len(self.view.blocks) - 1
        rows: list[tuple[int, int]] = []
        while place >= 0 and len(rows) < height:
            count = len(self.block_strips(place))
            rows[:0] = [(place, line) for line in range(count)]
            place -= 1
        return rows[-height:] if height else []

    def _rows_from_top(self) -> list[tuple[int, int]]:
        height = self.size.height
        place, line = self._top
        rows: list[tuple[int, int]] = []
        while place < len(self.view.blocks) and len(rows) < height:
            count = len(self.block_strips(place))
            rows += [(place, at) for at in range(min(line, count), count)]
            place, line = place + 1, 0
        if len(rows) < height:
            self.is_following = True  # nothing more below
            return self._rows_from_end()
        return rows[:height]

    def render_line(self, y: int) -> Strip:
        rows = self._layout()
        width = self.size.width
        if y >= len(rows):
            return Strip.blank(width, self.rich_style)
        place, line = rows[y]
        strip = self.block_strips(place)[line]
        if place == self.selected_index and self.has_focus and strip.cell_length:
            strip = Strip([Segment("▌", self.palette.accent), *strip.crop(1)])
        selection = self.text_selection
        if selection is not None:
            strip = _highlight_selection(
                strip, selection, y, self.screen.get_component_rich_style("screen--selection")
            )
        strip = strip.adjust_cell_length(width, Style.null()).apply_style(self.rich_style)
        return strip.apply_offsets(0, y)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        rows = self._layout()
        text = "\n".join(self.block_strips(place)[line].text.rstrip() for place, line in rows)
        return selection.extract(text), "\n"

    # --- moving --------------------------------------------------------------------------

    def scroll_lines(self, count: int) -> None:
        """Up is negative."""
        rows = self._layout()
        if not rows:
            return
        place, line = rows[0]
        if self.is_following and count >= 0:
            return
        self.is_following = False
        while count < 0:
            if line > 0:
                moved = min(line, -count)
                line, count = line - moved, count + moved
            elif place > 0:
                place -= 1
                line = len(self.block_strips(place))
            else:
                break
        while count > 0 and place < len(self.view.blocks):
            left = len(self.block_strips(place)) - line
            if left > count:
                line, count = line + count, 0
            else:
                place, line, count = place + 1, 0, count - left
        self._top = (place, line)
        self.repaint()

    def scroll_pages(self, count: int) -> None:
        self.scroll_lines(count * max(self.size.height - 2, 1))

    def reveal(self, index: int, line: int = 0) -> None:
        """Bring a block into sight."""
        shown = {(p, at) for p, at in self._layout()}
        if (index, line) in shown:
            return
        self.is_following = False
        self._top = (index, line)
        above = self._layout_top_margin()
        self.repaint()
        if above:
            self.scroll_lines(-above)

    def _layout_top_margin(self) -> int:
        return self.size.height // 3

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

    # --- choosing, opening, copying ------------------------------------------------------

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
        place = len(self.view.blocks) if self.selected_index is None else self.selected_index
        place += by
        while 0 <= place < len(self.view.blocks) and not self.block_strips(place):
            place += by
        if 0 <= place < len(self.view.blocks):
            self.selected_index = place
            lines = len(self.block_strips(place))
            self.reveal(place, 0 if by < 0 else lines - 1)
            self.refresh()
        elif place >= len(self.view.blocks):
            self.action_bottom()

    def action_unfold(self) -> None:
        if self.selected_index is not None:
            self.toggle(self.selected_index)

    def toggle(self, index: int) -> None:
        """Open a block, or fold it."""
        if not 0 <= index < len(self.view.blocks) or not is_foldable(self.view.blocks[index]):
            return
        block = self.view.blocks[index]
        while isinstance(block, ThinkingBlock) and block.is_continuation and index:
            index -= 1
            block = self.view.blocks[index]
        self._layout()
        self._expanded ^= {index}
        self._invalidate_block(index)
        while isinstance(block, ThinkingBlock) and index + 1 < len(self.view.blocks):
            index += 1
            block = self.view.blocks[index]
            if not (isinstance(block, ThinkingBlock) and block.is_continuation):
                break
            self._invalidate_block(index)
        self.repaint()

    def toggle_last(self) -> None:
        """Open or fold the newest block that can be."""
        for place in range(len(self.view.blocks) - 1, -1, -1):
            if isinstance(self.view.blocks[place], ToolCallBlock | ThinkingBlock):
                self.toggle(place)
                return

    def on_click(self, event: events.Click) -> None:
        rows = self._layout()
        if event.y < len(rows) and event.chain == 1:
            place, line = rows[event.y]
            first = len(self.block_strips(place)) - len(self._strips_without_gap(place))
            if line <= first + 1:
                self.toggle(place)

    def _strips_without_gap(self, index: int) -> list[Strip]:
        strips = self.block_strips(index)
        return strips[1:] if strips and not strips[0].text else strips

    def action_copy(self) -> None:
        if self.selected_index is not None:
            self.post_message(self.CopyRequested(plain_text(self.view.blocks[self.selected_index])))

    def last_reply(self) -> str:
        """The words of the newest reply, for copying."""
        parts: list[ViewBlock] = []
        for place in range(len(self.view.blocks) - 1, -1, -1):
            block = self.view.blocks[place]
            if isinstance(block, MarkdownBlock | CodeBlock):
                parts.append(block)
            elif parts or isinstance(block, UserMessageBlock):
                break
        return "\n\n".join(_markdown_source(parts[::-1]))

    def action_leave(self) -> None:
        self.selected_index = None
        self.is_following = True
        self.repaint()
        self.post_message(self.Exited())

    # --- searching -----------------------------------------------------------------------

    def action_search(self) -> None:
        self.post_message(self.SearchRequested())

    def search(self, text: str) -> bool:
        """Show the newest block with this text; whether there is one."""
        self.search_text = text
        self._strip_cache.clear()
        self._cached_lines = 0
        self.repaint()
        start = len(self.view.blocks) if self.selected_index is None else self.selected_index + 1
        return bool(text) and (
            self._search_from(start, -1) or self._search_from(len(self.view.blocks), -1)
        )

    def action_again(self, by: int) -> None:
        if self.search_text and self.selected_index is not None:
            self._search_from(self.selected_index, by)

    def _search_from(self, start: int, direction: int) -> bool:
        wanted = self.search_text.casefold()
        place = start + direction
        while 0 <= place < len(self.view.blocks):
            block = self.view.blocks[place]
            if wanted in plain_text(block).casefold():
                self._show_match(place, wanted)
                return True
            place += direction
        return False

    def _show_match(self, index: int, query: str) -> None:
        """Choose a block, opened if what is sought is inside, and bring the line into sight."""
        self.selected_index = index
        is_shown = any(query in s.text.casefold() for s in self.block_strips(index))
        if not is_shown and is_foldable(self.view.blocks[index]) and not self.is_expanded(index):
            self.toggle(index)
        lines = [at for at, s in enumerate(self.block_strips(index)) if query in s.text.casefold()]
        self.reveal(index, lines[0] if lines else 0)
        self.refresh()


def _to_strip(line: Text, width: int) -> Strip:
    line.end = ""
    segments = list(line.render(CONSOLE))
    return Strip(segments).crop(0, width)


def _highlight_selection(strip: Strip, selection: Selection, y: int, style: Style) -> Strip:
    span = selection.get_span(y)
    if span is None:
        return strip
    start, end = span
    end = strip.cell_length if end == -1 else end
    before, middle, after = strip.crop(0, start), strip.crop(start, end), strip.crop(end)
    return Strip.join([before, middle.apply_style(style), after])


def _literal_pattern(text: str) -> str:
    return f"(?i){re.escape(text)}"


def _markdown_source(parts: Sequence[ViewBlock]) -> Iterator[str]:
    """The Markdown that blocks came from."""
    for number, block in enumerate(parts):
        if not isinstance(block, CodeBlock):
            yield plain_text(block)
        elif not block.is_continuation:
            text = block.text
            for more in parts[number + 1 :]:
                if not isinstance(more, CodeBlock) or not more.is_continuation:
                    break
                text += more.text
            yield f"{block.fence}{block.language}\n{text}{block.fence}"
