"""The inline mode: the conversation is in the terminal's own scrollback, the rest below it.

The app of the full screen, drawn inline: blocks that do not change any more are written once, above
the app; the growing ones, dialogs, the prompt and the status line are the app. The terminal
scrolls, searches and selects. Without mouse and without an alternate screen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import cast

from rich.console import Console, RenderableType
from rich.text import Text
from textual._compositor import CompositorUpdate, InlineUpdate
from textual.app import ComposeResult
from textual.driver import Driver
from textual.geometry import Offset
from textual.screen import Screen
from textual.strip import Strip

from treadle.apps.conversation.conversation import Conversation
from treadle.apps.conversation.state.blocks import (
    NoteBlock,
    ShellBlock,
    ThinkingBlock,
    ToolCallBlock,
    ViewBlock,
)
from treadle.apps.conversation.state.view_state import ViewState
from treadle.apps.tui.app import TerminalApp
from treadle.apps.tui.input.inline_driver import InlineDriver
from treadle.apps.tui.render.markdown import CONSOLE, make_printable
from treadle.apps.tui.render.render import is_tight, render_block
from treadle.apps.tui.widgets.lines import LinesWidget
from treadle.lib.text.text import plural

CLEAR_LINE, CLEAR_BELOW = "\x1b[K", "\x1b[J"


class ScrollbackUpdate(CompositorUpdate):
    """Written with the cursor at the first row of the app, and leaves it there."""

    def __init__(self, finished: Sequence[Strip], rows: Sequence[Strip]) -> None:
        self._finished = finished
        self._rows = rows

    def render_segments(self, console: Console) -> str:
        lines = [strip.render(console) + CLEAR_LINE for strip in (*self._finished, *self._rows)]
        back = f"\x1b[{len(self._rows) - 1}A" if len(self._rows) > 1 else ""
        return "\r\n".join(lines) + CLEAR_BELOW + back + "\r"


def trim_strip(strip: Strip) -> Strip:
    """Without the blanks at the end that cannot be seen."""
    end = 0
    position = 0
    for segment in strip:
        style = segment.style
        has_look = style is not None and bool(style.reverse or style.underline)
        text = segment.text if has_look else segment.text.rstrip(" ")
        position += segment.cell_length
        if text:
            end = position - (len(segment.text) - len(text))
    return strip.crop(0, end)


def count_rows_above(widths: Sequence[int], cursor: tuple[int, int], new_width: int) -> int:
    """How far the cursor is below the first row of the app after a resize: rows that do not fit any
    more are wrapped by the terminal. `widths` are those of the rows."""
    width = max(new_width, 1)
    x, y = cursor
    above = sum(max(1, -(-one // width)) for one in widths[:y])
    return above + x // width


MAX_RESUMED_BLOCKS = 200  # of a resumed session that are printed
KEPT_BLOCKS = 64  # of those that are printed, to notice that a reply was discarded
MAX_ROWS_ABOVE_DIALOG = 3
CUT_OFF = "the reply above was cut off; it is written again"


class InlineApp(TerminalApp):
    """The transcript widget is hidden; `#live` shows the blocks that still change."""

    CSS = (
        TerminalApp.CSS
        + """
    Screen:inline { border: none; height: auto; }
    #transcript { display: none; }
    """
    )
    INLINE_PADDING = 0
    busy_frame_seconds = 1 / 5  # each frame is written whole

    _printed_count = 0

    def compose(self) -> ComposeResult:
        yield LinesWidget(id="live")
        yield from super().compose()

    def _build_driver(
        self, headless: bool, inline: bool, mouse: bool, size: tuple[int, int] | None
    ) -> Driver:
        if headless or not inline:
            return super()._build_driver(headless, inline, mouse, size)
        self._driver = InlineDriver(self, mouse=False, size=size)
        return self._driver

    # --- the scrollback ------------------------------------------------------------------

    def on_load(self) -> None:
        self._scrollback: deque[Strip] = deque()  # to be printed
        self._last_printed: deque[ViewBlock] = deque(maxlen=KEPT_BLOCKS)
        self._row_widths: list[int] = []  # of the app, as it was drawn
        self._drawn_width = 0  # of the terminal

    def on_ready(self) -> None:
        self.app_suspend_signal.subscribe(self, lambda _: self._erase(), immediate=True)

    def attach_conversation(self, conversation: Conversation, *, is_shown: bool) -> None:
        if not is_shown:
            self._last_printed.clear()
            count = len(conversation.view.blocks)
            self._printed_count = max(count - MAX_RESUMED_BLOCKS, 0)
            if self._printed_count:
                earlier = plural(self._printed_count, "earlier block")
                self._print_block(NoteBlock(f"{earlier} not shown; /export writes all of them"))
        super().attach_conversation(conversation, is_shown=is_shown)

    def _draw_frame(self) -> None:
        super()._draw_frame()
        if self._conversation is None or not self.screen_stack:
            return
        view = self._conversation.view
        self._print_finished(view)
        if self._find_watched is not None:
            view = self._find_watched()
            live = self._render_blocks(view, max(len(view.blocks) - self.size.height, 0))
        else:
            live = self._render_blocks(view, self._printed_count)
        is_dialog = self.dialogs.is_open and self._find_watched is None
        rows = self._count_free_rows() if is_dialog else max(self.size.height // 2, 1)
        self.query_one("#live", LinesWidget).set_lines(live[max(len(live) - rows, 0) :])

    def _count_free_rows(self) -> int:
        """The rows above an open dialog, below which are the separator and the status line."""
        activity = len(self.query_one("#activity", LinesWidget).lines)
        free = self.size.height - self.footer.count_dialog_rows() - activity - 2
        return max(0, min(free, MAX_ROWS_ABOVE_DIALOG))

    def _print_finished(self, view: ViewState) -> None:
        self._forget_discarded(view)
        while self._printed_count < len(view.blocks) and _is_final(view, self._printed_count):
            block = view.blocks[self._printed_count]
            previous = view.blocks[self._printed_count - 1] if self._printed_count else None
            self._print_block(block, previous)
            self._last_printed.append(block)
            self._printed_count += 1

    def _forget_discarded(self, view: ViewState) -> None:
        """Blocks of a discarded reply are no longer in the view; their text stays printed."""
        is_cut_off = False
        while self._last_printed and not self._is_last_printed_there(view):
            self._last_printed.pop()
            self._printed_count -= 1
            is_cut_off = True
        if is_cut_off:
            self._print_block(NoteBlock(CUT_OFF))

    def _is_last_printed_there(self, view: ViewState) -> bool:
        if self._printed_count > len(view.blocks):
            return False
        there, printed = view.blocks[self._printed_count - 1], self._last_printed[-1]
        if isinstance(there, ToolCallBlock) and isinstance(printed, ToolCallBlock):
            return there.call_id == printed.call_id  # a background call changes later
        return there == printed

    def _print_block(
        self, block: ViewBlock, previous: ViewBlock | None = None, *, is_expanded: bool = False
    ) -> None:
        lines = render_block(block, self._width, self.palette, is_expanded=is_expanded)
        if lines and not is_tight(block, previous):
            lines.insert(0, Text())
        for line in lines:
            line.end = ""
            self._scrollback.append(Strip(make_printable(line).render(CONSOLE)))
        self.query_one("#live").refresh()

    def _render_blocks(self, view: ViewState, start: int) -> list[Text]:
        lines: list[Text] = []
        for index in range(start, len(view.blocks)):
            block, previous = view.blocks[index], view.blocks[index - 1] if index else None
            rendered = render_block(block, self._width, self.palette)
            if rendered and not is_tight(block, previous):
                lines.append(Text())
            lines += rendered
        return lines

    @property
    def _width(self) -> int:
        return max(self.size.width, 1)

    # --- drawing -------------------------------------------------------------------------

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        if isinstance(renderable, InlineUpdate) and not self._batch_count:
            finished = [*self._scrollback]
            self._scrollback.clear()
            width = self._follow_resize()
            rows = [trim_strip(strip).crop(0, width) for strip in renderable.strips]
            update = ScrollbackUpdate(finished, rows)
            self._row_widths = [row.cell_length for row in rows]
            super()._display(screen, cast(RenderableType, update))
        else:
            super()._display(screen, renderable)

    def _follow_resize(self) -> int:
        """The width of the terminal now, which the app may learn later: while a window is resized,
        rows of an old width would be wrapped. If it has changed, move to the first row of the
        app, wherever the terminal has wrapped its rows to."""
        if not isinstance(self._driver, InlineDriver):
            return self._width
        width = self._driver.read_width()
        if width != self._drawn_width:
            self._erase()
        self._drawn_width = width
        return width

    def _erase(self) -> None:
        """Take the app off the terminal; the cursor is where its first row was."""
        if self._row_widths and isinstance(self._driver, InlineDriver):
            width = self._driver.read_width()
            above = count_rows_above(self._row_widths, self._previous_cursor_position, width)
            up = f"\x1b[{above}A" if above else ""
            self._driver.write(f"{up}\r\x1b[J")
            self._previous_cursor_position = Offset(0, 0)
            self._row_widths = []

    # --- keys of the transcript, which the terminal has here ------------------------------

    def action_unfold(self) -> None:
        """Print the newest call or thinking again, whole."""
        blocks = self.conversation.view.blocks if self._conversation is not None else ()
        for index in range(len(blocks) - 1, -1, -1):
            block = blocks[index]
            if isinstance(block, ToolCallBlock | ThinkingBlock):
                self._print_block(block, is_expanded=True)
                return

    def action_search(self) -> None:
        self.show_hint("search with your terminal; the conversation is in its scrollback")


def _is_final(view: ViewState, index: int) -> bool:
    """Whether a block will not change any more, so that it can be printed."""
    block = view.blocks[index]
    if index == view.stream_index:
        return False
    if isinstance(block, ShellBlock):
        return block.is_finished
    if isinstance(block, ToolCallBlock):
        return block.state == "background" or block.call_id not in view.open_calls
    return True
