"""The inline mode: the conversation is in the terminal's own scrollback, the rest below it.

The app of the full screen, drawn inline: blocks that do not change any more are written once, above
the app; the growing ones, dialogs, the prompt and the status line are the app. The terminal
scrolls, searches and selects. Without mouse and without an alternate screen.
"""

from __future__ import annotations

import asyncio
import os
import signal
import termios
import tty
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

from rich.console import RenderableType
from rich.text import Text
from textual import events
from textual._compositor import InlineUpdate
from textual.app import ComposeResult
from textual.driver import Driver
from textual.drivers.linux_inline_driver import LinuxInlineDriver
from textual.geometry import Offset, Size
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
from treadle.apps.tui.input.keyboard import KeyboardReader
from treadle.apps.tui.render.markdown import CONSOLE, make_printable
from treadle.apps.tui.render.render import is_tight, render_block
from treadle.apps.tui.terminal.inline_painter import InlinePainter
from treadle.apps.tui.widgets.lines import LinesWidget
from treadle.lib.text.text import plural

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
        self._inline_painter = InlinePainter()
        self._drawn_size = (0, 0)  # of the terminal

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
        self._print_blocks(view)
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

    def _print_blocks(self, view: ViewState, *, is_end: bool = False) -> None:
        """Those that do not change any more; at the end all."""
        self._forget_discarded(view)
        count = len(view.blocks)
        while self._printed_count < count and (is_end or _is_final(view, self._printed_count)):
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
        if not isinstance(renderable, InlineUpdate):
            super()._display(screen, renderable)
        elif self._running and not self._closed and not self._batch_count:
            width, height = self._follow_resize()
            rows = [strip.crop(0, width) for strip in renderable.strips]
            self._write_frame(rows, height)
            self.post_display_hook()

    def _write_frame(self, rows: Sequence[Strip], height: int) -> None:
        """Print what is finished, with these rows of the app below it."""
        driver = self._driver
        if driver is None:
            return
        colors = self.console._color_system
        frame = self._inline_painter.paint(
            self._scrollback, rows, self.cursor_position, height, colors
        )
        self._scrollback.clear()
        self._begin_update()
        driver.write(frame)
        self._end_update()
        driver.flush()
        self._previous_cursor_position = Offset(*self._inline_painter.cursor)  # Textual ends there

    def _follow_resize(self) -> tuple[int, int]:
        """The size of the terminal now, which the app may learn later: while a window is resized,
        rows of an old width would be wrapped. If it has changed, move to the first row of the
        app, wherever the terminal has wrapped its rows to."""
        if not isinstance(self._driver, InlineDriver):
            return self.size
        size = self._driver.read_size()
        if size != self._drawn_size:
            self._erase()
        self._drawn_size = size
        return size

    def _erase(self) -> None:
        """Take the app off the terminal; the cursor is where its first row was."""
        if isinstance(self._driver, InlineDriver):
            self._driver.write(self._inline_painter.erase(self._driver.read_size()[0]))
            self._previous_cursor_position = Offset(0, 0)

    def action_redraw(self) -> None:
        self._erase()
        super().action_redraw()

    async def _close(self, code: int, message: str = "") -> None:
        """With all of the conversation in the scrollback, also what was not complete."""
        if self._conversation is not None:
            self._print_blocks(self._conversation.view, is_end=True)
        await super()._close(code, message)

    def _exit_with(self, code: int, message: str = "") -> None:
        if isinstance(self._driver, InlineDriver):
            self._write_frame((), self._follow_resize()[1])
        super()._exit_with(code, message)

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


FOCUS_REPORTS_OFF = "\x1b[?1004l"


class InlineDriver(KeyboardReader, LinuxInlineDriver):
    _is_stopped = False  # by ctrl+z

    @property
    def can_suspend(self) -> bool:
        return True

    def start_application_mode(self) -> None:
        attributes = self._turn_echo_off()
        super().start_application_mode()
        self.attrs_before = attributes
        loop = asyncio.get_running_loop()

        def on_signal(number: int, frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(self._report_size)

        signal.signal(signal.SIGWINCH, on_signal)
        signal.signal(signal.SIGTSTP, self._on_stop)
        signal.signal(signal.SIGCONT, self._on_continue)

    def stop_application_mode(self) -> None:
        self.write(FOCUS_REPORTS_OFF)  # before the terminal echoes again
        super().stop_application_mode()

    def write(self, data: str) -> None:
        with suppress(OSError):  # the terminal is gone: hang_up.py ends the program
            super().write(data)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()  # type: ignore[no-untyped-call]

    def _turn_echo_off(self) -> list[Any] | None:
        """The terminal answers what it is asked at the start: that must not be seen. Returns its
        attributes as they were."""
        try:
            before = termios.tcgetattr(self.fileno)
            silent = termios.tcgetattr(self.fileno)
            silent[tty.LFLAG] &= ~termios.ECHO
            termios.tcsetattr(self.fileno, termios.TCSANOW, silent)
        except termios.error:  # no terminal
            return None
        return before

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        if self._auto_restart and not self._is_stopped:
            self._is_stopped = True
            self.suspend_application_mode()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _on_continue(self, number: int, frame: FrameType | None) -> None:
        if not self._is_stopped:
            return
        if os.tcgetpgrp(self.fileno) != os.getpgrp():  # `bg`: the terminal is another's
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        self._is_stopped = False
        self.resume_application_mode()
        self._app.post_message(self.SignalResume())

    def _report_size(self) -> None:
        size = Size(*self._get_terminal_size())
        self._app.post_message(events.Resize(size, size))

    def _get_terminal_size(self) -> tuple[int, int]:
        try:
            size = os.get_terminal_size(self.fileno)
        except OSError:  # the terminal is gone
            return 80, 24
        return size.columns or 80, size.lines or 24  # 0: the terminal does not tell

    def read_size(self) -> tuple[int, int]:
        """Columns and rows of the terminal at this moment."""
        return self._get_terminal_size()
