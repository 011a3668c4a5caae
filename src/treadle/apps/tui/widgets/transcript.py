"""The transcript widget: the keys and the mouse, the selected block, copying and the search.

What is visible and how it is drawn is the viewport's (viewport.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip

from treadle.apps.conversation.block_text import plain_text
from treadle.apps.conversation.state.blocks import (
    CodeBlock,
    MarkdownBlock,
    UserMessageBlock,
    ViewBlock,
)
from treadle.apps.conversation.state.view_state import ViewState
from treadle.apps.tui.render.links import find_links
from treadle.apps.tui.render.palette import Palette
from treadle.apps.tui.widgets.lines import UnscrolledWidget
from treadle.apps.tui.widgets.viewport import Viewport


class TranscriptWidget(UnscrolledWidget, can_focus=True):
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
        self.viewport = Viewport(palette, lambda: self.size, self.refresh)
        self.selected_index: int | None = None

    @property
    def view(self) -> ViewState:
        return self.viewport.view

    def update_view(self, view: ViewState) -> None:
        self.viewport.update_view(view)
        if self.selected_index is not None and self.selected_index >= len(view.blocks):
            self.selected_index = None

    def reset(self, view: ViewState) -> None:
        """Show another session."""
        self.selected_index = None
        self.viewport.reset(view)

    def render_line(self, y: int) -> Strip:
        rows = self.viewport.list_rows()
        width = self.size.width
        if y >= len(rows):
            return Strip.blank(width, self.rich_style)
        index, line = rows[y]
        strip = self.viewport.render_strips(index)[line]
        if index == self.selected_index and self.has_focus and strip.cell_length:
            strip = Strip([Segment("▌", self.viewport.palette.accent), *strip.crop(1)])
        selection = self.text_selection
        if selection is not None:
            style = self.screen.get_component_rich_style("screen--selection")
            strip = _highlight_selection(strip, selection, y, style)
        strip = strip.adjust_cell_length(width, Style.null()).apply_style(self.rich_style)
        return strip.apply_offsets(0, y)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        rows, strips = self.viewport.list_rows(), self.viewport.render_strips
        text = "\n".join(strips(index)[line].text.rstrip() for index, line in rows)
        return selection.extract(text), "\n"

    # --- scrolling -----------------------------------------------------------------------

    def action_top(self) -> None:
        self.viewport.show_top()

    def action_bottom(self) -> None:
        self.viewport.follow_end()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.viewport.scroll_lines(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.viewport.scroll_lines(3)

    # --- selecting, expanding, copying ---------------------------------------------------

    def on_focus(self) -> None:
        if self.selected_index is None and len(self.view.blocks):
            rows = self.viewport.list_rows()
            self.selected_index = rows[-1][0] if rows else len(self.view.blocks) - 1
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def action_choose(self, by: int) -> None:
        if not len(self.view.blocks):
            return
        index = len(self.view.blocks) if self.selected_index is None else self.selected_index
        index += by
        while 0 <= index < len(self.view.blocks) and not self.viewport.render_strips(index):
            index += by
        if 0 <= index < len(self.view.blocks):
            self.selected_index = index
            lines = len(self.viewport.render_strips(index))
            self.viewport.reveal(index, 0 if by < 0 else lines - 1)
            self.refresh()
        elif index >= len(self.view.blocks):
            self.action_bottom()

    def action_unfold(self) -> None:
        if self.selected_index is not None:
            self.viewport.toggle(self.selected_index)

    def on_click(self, event: events.Click) -> None:
        rows = self.viewport.list_rows()
        if event.ctrl and event.style.link:
            self.app.open_url(event.style.link)
        elif event.y < len(rows) and event.chain == 1:
            index, line = rows[event.y]
            has_blank_line = not self.viewport.render_strips(index)[0].text
            if line <= has_blank_line + 1:
                self.viewport.toggle(index)

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
        self.viewport.follow_end()
        self.post_message(self.Exited())

    # --- searching -----------------------------------------------------------------------

    def action_search(self) -> None:
        self.post_message(self.SearchRequested())

    def search(self, text: str) -> bool:
        """Select the newest block with this text; False if there is none."""
        self.viewport.search_text = text
        self.viewport.restyle()
        end = len(self.view.blocks)
        start = end if self.selected_index is None else self.selected_index + 1
        return bool(text) and (self._search_from(start, -1) or self._search_from(end, -1))

    def action_again(self, by: int) -> None:
        if self.viewport.search_text and self.selected_index is not None:
            self._search_from(self.selected_index, by)

    def _search_from(self, start: int, direction: int) -> bool:
        query = self.viewport.search_text.casefold()
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
        is_shown = any(query in s.text.casefold() for s in self.viewport.render_strips(index))
        if not is_shown and not self.viewport.is_expanded(index):
            self.viewport.toggle(index)
        strips = enumerate(self.viewport.render_strips(index))
        lines = [line for line, strip in strips if query in strip.text.casefold()]
        self.viewport.reveal(index, lines[0] if lines else 0)
        self.refresh()


def _highlight_selection(strip: Strip, selection: Selection, y: int, style: Style) -> Strip:
    span = selection.get_span(y)
    if span is None:
        return strip
    start, end = span
    end = strip.cell_length if end == -1 else end
    before, middle, after = strip.crop(0, start), strip.crop(start, end), strip.crop(end)
    return Strip.join([before, middle.apply_style(style), after])


def find_code(view: ViewState, index: int) -> list[str]:
    """The code of the block at this index, or if it is text of a reply, each code of the reply."""
    blocks = view.blocks
    if not isinstance(blocks[index], CodeBlock | MarkdownBlock):
        return []
    is_code = isinstance(blocks[index], CodeBlock)
    first = last = index
    while first and _belongs_to(blocks[first], blocks[first - 1], is_code):
        first -= 1
    while last + 1 < len(blocks) and _belongs_to(blocks[last + 1], blocks[last], is_code):
        last += 1
    parts = [blocks[one] for one in range(first, last + 1)]
    return [text for block, text in _join_code(parts) if isinstance(block, CodeBlock)]


def _belongs_to(block: ViewBlock, previous: ViewBlock, is_code: bool) -> bool:
    """Whether the block continues the previous one: its code, or the same reply."""
    if is_code:
        return isinstance(block, CodeBlock) and block.is_continuation
    kinds = MarkdownBlock | CodeBlock
    return isinstance(block, kinds) and isinstance(previous, kinds)


def markdown_source(parts: Sequence[ViewBlock]) -> Iterator[str]:
    """The Markdown source of the blocks."""
    for block, text in _join_code(parts):
        if isinstance(block, CodeBlock):
            yield f"{block.fence}{block.language}\n{text}{block.fence}"
        else:
            yield text


def _join_code(parts: Sequence[ViewBlock]) -> Iterator[tuple[ViewBlock, str]]:
    """Each block with its text; a code that is several blocks comes once, whole."""
    for number, block in enumerate(parts):
        if not isinstance(block, CodeBlock):
            yield block, plain_text(block)
        elif not block.is_continuation:
            text = block.text
            for more in parts[number + 1 :]:
                if not isinstance(more, CodeBlock) or not more.is_continuation:
                    break
                text += more.text
            yield block, text
