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

from treadle.apps.tui.blocks import Block, Call, Code, Said, Thought, Words
from treadle.apps.tui.markdown import CONSOLE, safe
from treadle.apps.tui.painting import is_foldable, is_tight, paint, plain_text
from treadle.apps.tui.palette import Palette
from treadle.apps.tui.scene import View

KEPT_LINES = 4_000  # painted lines that are remembered


class Transcript(Widget, can_focus=True):
    """Shows a View. With the focus on it, blocks can be chosen, opened, copied and searched."""

    DEFAULT_CSS = "Transcript { height: 1fr; }"
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

    class Left(Message):
        """The person goes back to the prompt."""

    class Copied(Message):
        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Search(Message):
        """The person wants to look for something."""

    def __init__(self, palette: Palette, id: str | None = None) -> None:
        super().__init__(id=id)
        self.palette = palette
        self.view = View()
        self.is_following = True
        self.chosen: int | None = None
        self.sought = ""
        self._top = (0, 0)
        self._flipped: set[int] = set()  # blocks that the person opened or folded
        self._painted: OrderedDict[int, list[Strip]] = OrderedDict()
        self._lines = 0
        self._rows: list[tuple[int, int]] | None = None
        self.painted_blocks = 0  # how often a block was painted: the tests count

    # --- what is shown -------------------------------------------------------------------

    def show(self, view: View) -> None:
        """Another view; only what differs is painted again."""
        old, self.view = self.view, view
        if view.blocks is old.blocks:
            return
        for place in view.blocks.changed(old.blocks):
            self._drop(place)
            self._drop(place + 1)  # whether it stands tight depends on what is before
        for place in range(len(view.blocks), len(old.blocks)):
            self._drop(place)
            self._flipped.discard(place)
        if self.chosen is not None and self.chosen >= len(view.blocks):
            self.chosen = None
        self.repaint()

    def begin(self, view: View) -> None:
        """Another session: nothing of the one before counts."""
        self._flipped.clear()
        self.chosen, self.is_following, self._top = None, True, (0, 0)
        self.restyle(self.palette)
        self.view = view
        self.repaint()

    def restyle(self, palette: Palette) -> None:
        self.palette = palette
        self._painted.clear()
        self._lines = 0
        self.repaint()

    def repaint(self) -> None:
        self._rows = None
        self.refresh()

    @property
    def is_at_end(self) -> bool:
        return self.is_following

    # --- lines ---------------------------------------------------------------------------

    def _drop(self, place: int) -> None:
        gone = self._painted.pop(place, None)
        if gone is not None:
            self._lines -= len(gone)

    def strips(self, place: int) -> list[Strip]:
        """The lines of a block, with the empty one that sets it off."""
        known = self._painted.get(place)
        if known is not None:
            self._painted.move_to_end(place)
            return known
        strips = self._paint(place)
        self._painted[place] = strips
        self._lines += len(strips)
        while self._lines > KEPT_LINES and len(self._painted) > 1:
            _, gone = self._painted.popitem(last=False)
            self._lines -= len(gone)
        return strips

    def _paint(self, place: int) -> list[Strip]:
        self.painted_blocks += 1
        block = self.view.blocks[place]
        before = self.view.blocks[place - 1] if place else None
        width = max(self.size.width, 1)
        lines = paint(block, width, self.palette, is_open=self.is_open(place))
        if self.sought:
            for line in lines:
                line.highlight_regex(_literal(self.sought), self.palette.found)
        strips = [_strip(safe(line), width) for line in lines]
        if lines and place and not is_tight(block, before):
            strips.insert(0, Strip.blank(0))
        return strips

    def is_open(self, place: int) -> bool:
        block = self.view.blocks[place]
        while isinstance(block, Thought) and block.tight and place:
            place -= 1
            block = self.view.blocks[place]
        return place in self._flipped

    def _layout(self) -> list[tuple[int, int]]:
        """Which line of which block stands in each row."""
        if self._rows is None:
            self._rows = self._from_end() if self.is_following else self._from_top()
            if self._rows:
                self._top = self._rows[0]
        return self._rows

    def _from_end(self) -> list[tuple[int, int]]:
        height, place = self.size.height, len(self.view.blocks) - 1
        rows: list[tuple[int, int]] = []
        while place >= 0 and len(rows) < height:
            count = len(self.strips(place))
            rows[:0] = [(place, line) for line in range(count)]
            place -= 1
        return rows[-height:] if height else []

    def _from_top(self) -> list[tuple[int, int]]:
        height = self.size.height
        place, line = self._top
        rows: list[tuple[int, int]] = []
        while place < len(self.view.blocks) and len(rows) < height:
            count = len(self.strips(place))
            rows += [(place, at) for at in range(min(line, count), count)]
            place, line = place + 1, 0
        if len(rows) < height:
            self.is_following = True  # nothing more below
            return self._from_end()
        return rows[:height]

    def render_line(self, y: int) -> Strip:
        rows = self._layout()
        width = self.size.width
        if y >= len(rows):
            return Strip.blank(width, self.rich_style)
        place, line = rows[y]
        strip = self.strips(place)[line]
        if place == self.chosen and self.has_focus and strip.cell_length:
            strip = Strip([Segment("▌", self.palette.accent), *strip.crop(1)])
        selection = self.text_selection
        if selection is not None:
            strip = _selected(
                strip, selection, y, self.screen.get_component_rich_style("screen--selection")
            )
        strip = strip.adjust_cell_length(width, Style.null()).apply_style(self.rich_style)
        return strip.apply_offsets(0, y)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        rows = self._layout()
        text = "\n".join(self.strips(place)[line].text.rstrip() for place, line in rows)
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
                line = len(self.strips(place))
            else:
                break
        while count > 0 and place < len(self.view.blocks):
            left = len(self.strips(place)) - line
            if left > count:
                line, count = line + count, 0
            else:
                place, line, count = place + 1, 0, count - left
        self._top = (place, line)
        self.repaint()

    def scroll_pages(self, count: int) -> None:
        self.scroll_lines(count * max(self.size.height - 2, 1))

    def reveal(self, place: int, line: int = 0) -> None:
        """Bring a block into sight."""
        shown = {(p, at) for p, at in self._layout()}
        if (place, line) in shown:
            return
        self.is_following = False
        self._top = (place, line)
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
        if self.chosen is None and len(self.view.blocks):
            rows = self._layout()
            self.chosen = rows[-1][0] if rows else len(self.view.blocks) - 1
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def action_choose(self, by: int) -> None:
        if not len(self.view.blocks):
            return
        place = len(self.view.blocks) if self.chosen is None else self.chosen
        place += by
        while 0 <= place < len(self.view.blocks) and not self.strips(place):
            place += by
        if 0 <= place < len(self.view.blocks):
            self.chosen = place
            lines = len(self.strips(place))
            self.reveal(place, 0 if by < 0 else lines - 1)
            self.refresh()
        elif place >= len(self.view.blocks):
            self.action_bottom()

    def action_unfold(self) -> None:
        if self.chosen is not None:
            self.toggle(self.chosen)

    def toggle(self, place: int) -> None:
        """Open a block, or fold it."""
        if not 0 <= place < len(self.view.blocks) or not is_foldable(self.view.blocks[place]):
            return
        block = self.view.blocks[place]
        while isinstance(block, Thought) and block.tight and place:
            place -= 1
            block = self.view.blocks[place]
        self._layout()
        self._flipped ^= {place}
        self._drop(place)
        while isinstance(block, Thought) and place + 1 < len(self.view.blocks):
            place += 1
            block = self.view.blocks[place]
            if not (isinstance(block, Thought) and block.tight):
                break
            self._drop(place)
        self.repaint()

    def toggle_last(self) -> None:
        """Open or fold the newest block that can be."""
        for place in range(len(self.view.blocks) - 1, -1, -1):
            if isinstance(self.view.blocks[place], Call | Thought):
                self.toggle(place)
                return

    def on_click(self, event: events.Click) -> None:
        rows = self._layout()
        if event.y < len(rows) and event.chain == 1:
            place, line = rows[event.y]
            first = len(self.strips(place)) - len(self._body(place))
            if line <= first + 1:
                self.toggle(place)

    def _body(self, place: int) -> list[Strip]:
        strips = self.strips(place)
        return strips[1:] if strips and not strips[0].text else strips

    def action_copy(self) -> None:
        if self.chosen is not None:
            self.post_message(self.Copied(plain_text(self.view.blocks[self.chosen])))

    def last_reply(self) -> str:
        """The words of the newest reply, for copying."""
        parts: list[Block] = []
        for place in range(len(self.view.blocks) - 1, -1, -1):
            block = self.view.blocks[place]
            if isinstance(block, Words | Code):
                parts.append(block)
            elif parts or isinstance(block, Said):
                break
        return "\n\n".join(_source(parts[::-1]))

    def action_leave(self) -> None:
        self.chosen = None
        self.is_following = True
        self.repaint()
        self.post_message(self.Left())

    # --- searching -----------------------------------------------------------------------

    def action_search(self) -> None:
        self.post_message(self.Search())

    def seek(self, text: str) -> bool:
        """Show the newest block with this text; whether there is one."""
        self.sought = text
        self._painted.clear()
        self._lines = 0
        self.repaint()
        start = len(self.view.blocks) if self.chosen is None else self.chosen + 1
        return bool(text) and (self._seek(start, -1) or self._seek(len(self.view.blocks), -1))

    def action_again(self, by: int) -> None:
        if self.sought and self.chosen is not None:
            self._seek(self.chosen, by)

    def _seek(self, start: int, by: int) -> bool:
        wanted = self.sought.casefold()
        place = start + by
        while 0 <= place < len(self.view.blocks):
            block = self.view.blocks[place]
            if wanted in plain_text(block).casefold():
                self._found(place, wanted)
                return True
            place += by
        return False

    def _found(self, place: int, wanted: str) -> None:
        """Choose a block, opened if what is sought is inside, and bring the line into sight."""
        self.chosen = place
        is_shown = any(wanted in s.text.casefold() for s in self.strips(place))
        if not is_shown and is_foldable(self.view.blocks[place]) and not self.is_open(place):
            self.toggle(place)
        lines = [at for at, s in enumerate(self.strips(place)) if wanted in s.text.casefold()]
        self.reveal(place, lines[0] if lines else 0)
        self.refresh()


def _strip(line: Text, width: int) -> Strip:
    line.end = ""
    segments = list(line.render(CONSOLE))
    return Strip(segments).crop(0, width)


def _selected(strip: Strip, selection: Selection, y: int, style: Style) -> Strip:
    span = selection.get_span(y)
    if span is None:
        return strip
    start, end = span
    end = strip.cell_length if end == -1 else end
    before, middle, after = strip.crop(0, start), strip.crop(start, end), strip.crop(end)
    return Strip.join([before, middle.apply_style(style), after])


def _literal(text: str) -> str:
    return f"(?i){re.escape(text)}"


def _source(parts: Sequence[Block]) -> Iterator[str]:
    """The Markdown that blocks came from."""
    for number, block in enumerate(parts):
        if not isinstance(block, Code):
            yield plain_text(block)
        elif not block.tight:
            text = block.text
            for more in parts[number + 1 :]:
                if not isinstance(more, Code) or not more.tight:
                    break
                text += more.text
            yield f"{block.fence}{block.language}\n{text}{block.fence}"
