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

from treadle.apps.tui.input.completion import fuzzy_match
from treadle.apps.tui.render.markdown import make_printable, styled_prefix, wrap_text
from treadle.apps.tui.render.palette import Palette
from treadle.apps.tui.state.choice_option import ChoiceOption

BodyRenderer = Callable[[int], list[Text]]
MAX_ROWS = 12


class Choices(Widget, can_focus=True):
    """Posts Chosen with a value, or with None when the person leaves."""

    DEFAULT_CSS = "Choices { height: auto; max-height: 80vh; }"

    class Selected(Message):
        def __init__(self, value: str | None) -> None:
            super().__init__()
            self.value = value

    class Highlighted(Message):
        """Another choice is under the cursor."""

        def __init__(self, value: str) -> None:
            super().__init__()
            self.value = value

    def __init__(
        self,
        title: str,
        options: Sequence[ChoiceOption],
        palette: Palette,
        *,
        body: BodyRenderer | None = None,
        filterable: bool = False,
        hint: str = "",
        current: str = "",
    ) -> None:
        super().__init__()
        self.title = title
        self.options = list(options)
        self.matching_options = list(options)
        self.cursor = next(
            (at for at, one in enumerate(options) if current and one.value == current), 0
        )
        self.filter_text = ""
        self._palette = palette
        self._body = body
        self._is_filterable = filterable
        self._hint = hint
        self._offset = 0

    # --- painting ------------------------------------------------------------------------

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._build_lines(width, max(int(viewport.height * 0.8) - 1, 4)))

    def render(self) -> Text:
        lines = [
            make_printable(line) for line in self._build_lines(self.size.width, self.size.height)
        ]
        text = Text("\n").join(lines)
        text.no_wrap = True
        return text

    def _build_lines(self, width: int, height: int) -> list[Text]:
        palette = self._palette
        head = wrap_text(Text(self.title, palette.bold), width)
        if self._is_filterable:
            head.append(
                styled_prefix("› ", palette.accent).append(
                    self.filter_text or "type to filter",
                    (palette.plain if self.filter_text else palette.faint),
                )
            )
        foot = wrap_text(Text(self._hint, palette.faint), width)[:1] if self._hint else []
        room = max(height - len(head) - len(foot), 1)
        rows = self._option_rows(width, min(room, MAX_ROWS))
        body = self._body(width) if self._body is not None else []
        return [*head, *self._visible_body(body, max(room - len(rows), 0)), *rows, *foot][:height]

    def _visible_body(self, body: list[Text], room: int) -> list[Text]:
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

    def _option_rows(self, width: int, max_rows: int) -> list[Text]:
        """The choices around the one under the cursor. Few are shown whole, many in a line each."""
        if not self.matching_options:
            return [Text("  nothing fits", self._palette.faint)]
        whole = [self._option_row(place, width) for place in range(len(self.matching_options))]
        if not self._is_filterable and sum(map(len, whole)) <= max_rows:
            return [line for row in whole for line in row]
        first = max(0, min(self.cursor - max_rows // 2, len(self.matching_options) - max_rows))
        rows = [row[0] for row in whole[first : first + max_rows]]
        for row, line in zip(whole[first:], rows, strict=False):
            if len(row) > 1:
                line.append("…", self._palette.faint)
            line.truncate(max(width, 1), overflow="ellipsis")
        return rows

    def _option_row(self, index: int, width: int) -> list[Text]:
        option, is_at = self.matching_options[index], index == self.cursor
        text = Text(" ".join(option.label.split()), end="")
        text.stylize(self._palette.accent if is_at else self._palette.plain)
        if option.description:
            text.append("  " + " ".join(option.description.split()), self._palette.faint)
        sign = styled_prefix("▸ " if is_at else "  ", self._palette.accent)
        if option.key and not self._is_filterable:
            sign.append(f"{option.key} ", self._palette.faint)
        lines = wrap_text(text, max(width - sign.cell_len, 1))
        rest = Text(" " * sign.cell_len)
        return [(rest if number else sign) + line for number, line in enumerate(lines)]

    # --- keys ----------------------------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        if self._handle_key(event):
            event.stop()
            event.prevent_default()

    def _handle_key(self, event: events.Key) -> bool:
        match event.key:
            case "up" | "ctrl+p":
                self._move_cursor(-1)
            case "down" | "ctrl+n":
                self._move_cursor(1)
            case "enter":
                if self.matching_options:
                    self.post_message(self.Selected(self.matching_options[self.cursor].value))
            case "escape":
                self.post_message(self.Selected(None))
            case "backspace" if self._is_filterable:
                self._apply_filter(self.filter_text[:-1])
            case _:
                return self._handle_character(event)
        return True

    def _handle_character(self, event: events.Key) -> bool:
        if not event.is_printable or event.character is None:
            return False
        if self._is_filterable:
            self._apply_filter(self.filter_text + event.character)
            return True
        for option in self.matching_options:
            if option.key == event.character.lower():
                self.post_message(self.Selected(option.value))
                return True
        return False

    def scroll_body(self, pages: int) -> None:
        """Scroll the lines above the choices."""
        self._offset += pages * max(self.size.height // 2, 1)
        self.refresh()

    def _move_cursor(self, by: int) -> None:
        if self.matching_options:
            self.cursor = (self.cursor + by) % len(self.matching_options)
            self.post_message(self.Highlighted(self.matching_options[self.cursor].value))
            self.refresh(layout=True)

    def _apply_filter(self, text: str) -> None:
        self.filter_text, self.cursor = text, 0
        by_label = {f"{one.label} {one.description}": one for one in self.options}
        found = fuzzy_match(text, by_label, limit=len(by_label)) if text else list(by_label)
        self.matching_options = [by_label[label] for label in found]
        if self.matching_options:
            self.post_message(self.Highlighted(self.matching_options[0].value))
        self.refresh(layout=True)

    def set_body(self, body: BodyRenderer) -> None:
        """Other lines above the choices."""
        self._body = body
        self.refresh(layout=True)

    def on_click(self, event: events.Click) -> None:
        self.focus()
