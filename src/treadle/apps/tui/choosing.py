"""A question at the bottom of the screen: some lines, and choices under them.

Used for approvals, pickers and the first question of trust alike. Arrow keys or a letter choose;
where there are many, typing filters. What the answer means is up to whoever asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.text import Text
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget

from treadle.apps.tui.choice import Option
from treadle.apps.tui.completing import matches
from treadle.apps.tui.markdown import lead, safe, wrapped
from treadle.apps.tui.palette import Palette

Body = Callable[[int], list[Text]]
MOST_ROWS = 12


class Choices(Widget, can_focus=True):
    """Posts Chosen with a value, or with None when the person leaves."""

    DEFAULT_CSS = "Choices { height: auto; max-height: 80vh; }"

    class Chosen(Message):
        def __init__(self, value: str | None) -> None:
            super().__init__()
            self.value = value

    class Looked(Message):
        """Another choice is under the cursor."""

        def __init__(self, value: str) -> None:
            super().__init__()
            self.value = value

    def __init__(
        self,
        title: str,
        options: Sequence[Option],
        palette: Palette,
        *,
        body: Body | None = None,
        filters: bool = False,
        hint: str = "",
        now: str = "",
    ) -> None:
        super().__init__()
        self.title = title
        self.options = list(options)
        self.shown = list(options)
        self.at = next((at for at, one in enumerate(options) if now and one.value == now), 0)
        self.typed = ""
        self._palette = palette
        self._body = body
        self._filters = filters
        self._hint = hint
        self._offset = 0

    # --- painting ------------------------------------------------------------------------

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width, max(int(viewport.height * 0.8) - 1, 4)))

    def render(self) -> Text:
        lines = [safe(line) for line in self._lines(self.size.width, self.size.height)]
        text = Text("\n").join(lines)
        text.no_wrap = True
        return text

    def _lines(self, width: int, height: int) -> list[Text]:
        palette = self._palette
        head = wrapped(Text(self.title, palette.bold), width)
        if self._filters:
            head.append(
                lead("› ", palette.accent).append(
                    self.typed or "type to filter", (palette.plain if self.typed else palette.faint)
                )
            )
        foot = wrapped(Text(self._hint, palette.faint), width)[:1] if self._hint else []
        room = max(height - len(head) - len(foot), 1)
        rows = self._rows(width, min(room, MOST_ROWS))
        body = self._body(width) if self._body is not None else []
        return [*head, *self._window(body, max(room - len(rows), 0)), *rows, *foot][:height]

    def _window(self, body: list[Text], room: int) -> list[Text]:
        """As much of the body as there is room for, from where it was scrolled to."""
        if len(body) <= room:
            self._offset = 0
            return body
        if room < 2:
            return []
        self._offset = max(0, min(self._offset, len(body) - room + 1))
        part = body[self._offset : self._offset + room - 1]
        left = len(body) - self._offset - len(part)
        word = f"… {left} more lines (pgdn)" if left else "the end (pgup)"
        return [*part, Text(word, self._palette.faint)]

    def _rows(self, width: int, most: int) -> list[Text]:
        """The choices around the one under the cursor. Few are shown whole, many in a line each."""
        if not self.shown:
            return [Text("  nothing fits", self._palette.faint)]
        whole = [self._row(place, width) for place in range(len(self.shown))]
        if not self._filters and sum(map(len, whole)) <= most:
            return [line for row in whole for line in row]
        first = max(0, min(self.at - most // 2, len(self.shown) - most))
        rows = [row[0] for row in whole[first : first + most]]
        for row, line in zip(whole[first:], rows, strict=False):
            if len(row) > 1:
                line.append("…", self._palette.faint)
            line.truncate(max(width, 1), overflow="ellipsis")
        return rows

    def _row(self, place: int, width: int) -> list[Text]:
        option, is_at = self.shown[place], place == self.at
        text = Text(" ".join(option.label.split()), end="")
        text.stylize(self._palette.accent if is_at else self._palette.plain)
        if option.about:
            text.append("  " + " ".join(option.about.split()), self._palette.faint)
        sign = lead("▸ " if is_at else "  ", self._palette.accent)
        if option.key and not self._filters:
            sign.append(f"{option.key} ", self._palette.faint)
        lines = wrapped(text, max(width - sign.cell_len, 1))
        rest = Text(" " * sign.cell_len)
        return [(rest if number else sign) + line for number, line in enumerate(lines)]

    # --- keys ----------------------------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        if self._take(event):
            event.stop()
            event.prevent_default()

    def _take(self, event: events.Key) -> bool:
        match event.key:
            case "up" | "ctrl+p":
                self._move(-1)
            case "down" | "ctrl+n":
                self._move(1)
            case "enter":
                if self.shown:
                    self.post_message(self.Chosen(self.shown[self.at].value))
            case "escape":
                self.post_message(self.Chosen(None))
            case "backspace" if self._filters:
                self._filter(self.typed[:-1])
            case _:
                return self._letter(event)
        return True

    def _letter(self, event: events.Key) -> bool:
        if not event.is_printable or event.character is None:
            return False
        if self._filters:
            self._filter(self.typed + event.character)
            return True
        for option in self.shown:
            if option.key == event.character.lower():
                self.post_message(self.Chosen(option.value))
                return True
        return False

    def turn_page(self, by: int) -> None:
        """Scroll the lines above the choices."""
        self._offset += by * max(self.size.height // 2, 1)
        self.refresh()

    def _move(self, by: int) -> None:
        if self.shown:
            self.at = (self.at + by) % len(self.shown)
            self.post_message(self.Looked(self.shown[self.at].value))
            self.refresh(layout=True)

    def _filter(self, typed: str) -> None:
        self.typed, self.at = typed, 0
        by_label = {f"{one.label} {one.about}": one for one in self.options}
        found = matches(typed, by_label, most=len(by_label)) if typed else list(by_label)
        self.shown = [by_label[label] for label in found]
        if self.shown:
            self.post_message(self.Looked(self.shown[0].value))
        self.refresh(layout=True)

    def rebody(self, body: Body) -> None:
        """Other lines above the choices."""
        self._body = body
        self.refresh(layout=True)

    def on_click(self, event: events.Click) -> None:
        self.focus()
