"""A list of options at the bottom of the screen, with a title and lines above it.

Used by every dialog that offers options. Arrow keys, numbers and letters only mark an option, enter
takes it; in a filterable list typing filters. The caller handles the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from rich.text import Text
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget

from treadle.apps.conversation.choices import ChoiceOption
from treadle.apps.conversation.completion import fuzzy_match
from treadle.apps.tui.render.markdown import make_printable, styled_prefix, wrap_text
from treadle.apps.tui.render.palette import Palette
from treadle.apps.tui.render.status_area import first_visible_row
from treadle.lib.text.text import plural

BodyRenderer = Callable[[int], list[Text]]
MAX_ROWS = 12
MAX_FILTER_CHARS = 200  # of a paste
MAX_NUMBER = 9  # of an option that a single digit selects
OTHER_BODY_KEY = "w"
MARK_ALL_KEY = "*"
MIN_BODY_ROWS = 4  # that the options leave to the body: three lines, and how many follow


class Choices(Widget, can_focus=True):
    """Posts Selected with the value of an option, or with None on escape. With `multiple` the value
    is the positions of the marked options, separated by commas; without a mark enter does nothing.
    With `actions`, names by their keys, the value is `NAME POSITIONS`: enter after such a key is
    for the marked options, or the one at the cursor if none is marked, enter alone (`open`) for the
    one at the cursor, and `*` marks all or none. `other_body` is shown in place of the body, and
    back, by the key OTHER_BODY_KEY; then `other_hint` is the hint. `typed` are the characters that
    marked something: if the next one cannot, they are text, and the caller takes them
    (`take_typed`).
    """

    DEFAULT_CSS = "Choices { height: auto; max-height: 80vh; }"

    class Selected(Message):
        def __init__(self, value: str | None) -> None:
            super().__init__()
            self.value = value

    class Clicked(Message):
        """The user selects the dialog with the mouse."""

    class Highlighted(Message):
        """The cursor is on another option."""

        def __init__(self, value: str) -> None:
            super().__init__()
            self.value = value

    def __init__(
        self,
        title: str,
        options: Sequence[ChoiceOption],
        palette: Palette,
        body: BodyRenderer | None = None,
        filterable: bool = False,
        hint: str = "",
        current: str = "",
        multiple: bool = False,
        actions: Mapping[str, str] | None = None,
        other_body: BodyRenderer | None = None,
        other_hint: str = "",
        marked: Iterable[int] = (),
    ) -> None:
        super().__init__()
        self.title = title
        self.options = list(options)
        self.matching_options = list(options)
        values = [option.value for option in options]
        self.cursor = values.index(current) if current and current in values else 0
        self.filter_text = ""
        self.mode_answer = ""  # the value of the option that the key of the mode selects, too
        self.find_start: Callable[[Sequence[Text]], int] | None = None  # of a body that is cut
        self.is_waiting = False  # it takes no keys yet
        self.shows_enter = False  # the hint begins with what enter would do
        self.typed = ""
        self._is_answered = False
        self._before_typed: tuple[int, frozenset[int], bool] = (0, frozenset(), False)
        self._is_hint_shown = True
        self._reserved_rows = 0
        self._palette = palette
        self._body = body
        self._is_filterable = filterable
        self._is_multiple = multiple
        self._actions = actions or {}
        self._other_body = other_body
        self._is_other_shown = False
        self.marked = set(marked)
        self._hint = hint
        self._other_hint = other_hint
        self._offset = 0
        self._shown_lines = 0  # of the body

    # --- rendering -----------------------------------------------------------------------

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        room = int(viewport.height * 0.8) - 1 - self._reserved_rows
        return len(self._build_lines(width, max(room, 4)))

    def render(self) -> Text:
        lines = self._build_lines(self.size.width, self.size.height)
        text = Text("\n").join([make_printable(line) for line in lines])
        text.no_wrap = True
        return text

    def _build_lines(self, width: int, height: int) -> list[Text]:
        palette = self._palette
        head = wrap_text(Text(self.title, palette.bold), width)
        if self._is_filterable:
            style = palette.plain if self.filter_text else palette.faint
            sign = styled_prefix("› ", palette.accent)
            head.append(sign.append(self.filter_text or "type to filter", style))
        foot: list[Text] = []
        if self._hint and self._is_hint_shown:
            foot = wrap_text(Text(self._hint + self._describe_enter(), palette.faint), width)[:1]
        room = max(height - len(head) - len(foot), 1)
        body = self._body(width) if self._body is not None else []
        reserved = min(len(body), MIN_BODY_ROWS)
        option_room = max(room - reserved, min(len(self.options), room - 3), 1) if body else room
        rows = self._option_rows(width, min(option_room, MAX_ROWS))
        if body and not self._is_filterable and not self._is_multiple:
            body = [*body, *self._list_truncated(rows, width)]
        visible = self._visible_body(body, max(room - len(rows), 0), width)
        return [*head, *visible, *rows, *foot][:height]

    def _describe_enter(self) -> str:
        """What enter would do, after a key that marked something else than it does by itself."""
        if self._action_key in self._actions:
            count = len(self.marked) or 1
            verb = "allows" if self._actions[self._action_key] == "once" else "denies"
            return f" · enter {verb} {plural(count, 'call')}"
        if self._is_multiple or self._is_filterable or not self.shows_enter:
            return ""
        return f" · enter: {self.matching_options[self.cursor].label.partition(':')[0]}"

    def _visible_body(self, body: list[Text], room: int, width: int) -> list[Text]:
        """The part of the body that fits, from the scroll offset on."""
        if len(body) <= room:
            self._offset, self._shown_lines = 0, room
            return body
        self._shown_lines = max(room - 1, 1)
        if self.find_start is not None:
            self._offset = self.find_start(body)
        self._offset = max(0, min(self._offset, len(body) - self._shown_lines))
        part = body[self._offset : self._offset + self._shown_lines]
        if room < 2:  # one line, without a line that counts the others
            return [Text.assemble(line, (" …", self._palette.faint)) for line in part[:room]]
        rest = len(body) - self._offset - len(part)
        note = f"… {plural(rest, 'more line')} (pgdn)" if rest else "end (pgup)"
        if len(note) > width:
            note = f"… {rest} (pgdn)"
        return [*part, Text(note, self._palette.faint)]

    def _option_rows(self, width: int, max_rows: int) -> list[Text]:
        """The options around the cursor: complete if all fit, else one line each."""
        if not self.matching_options:
            return [Text("  no matches", self._palette.faint)]
        count = len(self.matching_options)
        if not self._is_filterable and count <= max_rows:
            rows = [self._option_row(index, width) for index in range(count)]
            if sum(map(len, rows)) <= max_rows:
                return [line for row in rows for line in row]
        first = first_visible_row(self.cursor, count, max_rows)
        shown = range(first, min(first + max_rows, count))
        visible = [self._option_row(index, width) for index in shown]
        for line, *more in visible:
            if more:
                line.append("…", self._palette.faint)
            line.truncate(max(width, 1), overflow="ellipsis")
        return [row[0] for row in visible]

    def _list_truncated(self, rows: list[Text], width: int) -> list[Text]:
        """The options of which the rows show only a part; they can be read below the body."""
        complete = [self._option_row(index, width) for index in range(len(self.options))]
        if sum(map(len, complete)) <= len(rows):
            return []
        return [line for lines in complete if len(lines) > 1 for line in lines]

    def _option_row(self, index: int, width: int) -> list[Text]:
        option = self.matching_options[index]
        is_current = index == self.cursor and not self.is_waiting
        text = Text(" ".join(option.label.split()), end="")
        unselected = self._palette.faint if self.is_waiting else self._palette.plain
        text.stylize(self._palette.accent if is_current else unselected)
        if option.description:
            text.append("  " + " ".join(option.description.split()), self._palette.faint)
        sign = styled_prefix("▸ " if is_current else "  ", self._palette.accent)
        if not self._is_filterable:
            key = option.key or (str(index + 1) if index < MAX_NUMBER else " ")
            sign.append(f"{key} ", self._palette.faint)
        if self._is_multiple:
            sign.append("[x] " if index in self.marked else "[ ] ", self._palette.accent)
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
            case "home" | "end":
                last = len(self.matching_options) - 1
                self._move_cursor((0 if event.key == "home" else last) - self.cursor)
            case "enter" if self._actions:
                name = self._actions.get(self._action_key)
                places = (self._selected_value() if name else "") or str(self.cursor)
                self._select(f"{name or 'open'} {places}")
            case "enter":
                if self.matching_options and (self.marked or not self._is_multiple):
                    self._select(self._selected_value())
            case "escape":
                self._select(None)
            case "backspace" if self._is_filterable:
                self._apply_filter(self.filter_text[:-1])
            case "ctrl+u" if self._is_filterable:
                self._apply_filter("")
            case "backspace" if self.typed:
                self.take_typed()
            case _ if self._is_filterable and event.is_printable and event.character is not None:
                self._apply_filter(self.filter_text + event.character)
            case _:
                return False
        return True

    def _select(self, value: str | None) -> None:
        self.typed, self._is_answered = "", True  # what is typed from now on is for the prompt
        self.post_message(self.Selected(value))

    def _selected_value(self) -> str:
        if self._is_multiple:
            return ",".join(map(str, sorted(self.marked)))
        return self.matching_options[self.cursor].value

    def mark(self, character: str) -> bool:
        """The user typed a character that the list has a use for (`has_answer`); False if it does
        more than to mark something."""
        if not self.typed:
            self._before_typed = self.cursor, frozenset(self.marked), self._is_other_shown
        key, typed = character.lower(), self.typed + character
        keys = [option.key for option in self.matching_options]
        if key == " ":
            self.marked ^= {self.cursor}
        elif key == MARK_ALL_KEY and self._is_multiple:
            is_complete = len(self.marked) == len(self.options)
            self.marked = set() if is_complete else set(range(len(self.options)))
        elif key == OTHER_BODY_KEY and self._other_body is not None:
            self._show_other_body()
        elif key not in self._actions:
            self._set_cursor(keys.index(key) if key in keys else int(key) - 1)
        self.typed = typed
        self.refresh()
        return True

    def take_typed(self) -> str:
        """What marked something is text: the list is as it was before."""
        typed, self.typed = self.typed, ""
        self.cursor, marked, is_other_shown = self._before_typed
        self.marked = set(marked)
        if is_other_shown != self._is_other_shown:
            self._show_other_body()
        self._set_cursor(self.cursor)
        return typed

    def _show_other_body(self) -> None:
        assert self._other_body is not None, "the caller has checked it"
        self._body, self._other_body = self._other_body, self._body
        self._hint, self._other_hint = self._other_hint, self._hint
        self._offset, self.find_start = 0, None
        self._is_other_shown = not self._is_other_shown
        self.refresh(layout=True)

    @property
    def _action_key(self) -> str:
        return self.typed[-1:].lower()

    def has_answer(self, character: str) -> bool:
        """Whether the list has a use for this character: the key or the number of an option. After
        one that marked an option there is none: the two are a word."""
        moves = OTHER_BODY_KEY if not self._is_multiple else " 123456789" + MARK_ALL_KEY
        if self._is_answered or self.typed.lower().strip(moves):
            return False
        if self._is_multiple and (character in (" ", MARK_ALL_KEY)):
            return True
        if character.lower() in self._actions:
            return True
        if character.lower() == OTHER_BODY_KEY and self._other_body is not None:
            return True
        if self._is_filterable or character.lower() in {one.key for one in self.options}:
            return True
        return character.isdigit() and 1 <= int(character) <= min(len(self.options), MAX_NUMBER)

    def on_paste(self, event: events.Paste) -> None:
        """A paste into a filter: its first line."""
        if self.is_filterable:
            event.stop()
            self._apply_filter(self.filter_text + event.text.partition("\n")[0][:MAX_FILTER_CHARS])

    @property
    def is_filterable(self) -> bool:
        return self._is_filterable

    def scroll_body(self, pages: int) -> None:
        """Scroll the lines above the options; the last visible line stays visible."""
        self._offset += pages * max(self._shown_lines - 1, 1)
        self.find_start = None
        self.refresh()

    def _move_cursor(self, by: int) -> None:
        self.typed = ""
        if self.matching_options:
            self._set_cursor((self.cursor + by) % len(self.matching_options))

    def _set_cursor(self, place: int) -> None:
        if self.matching_options:
            self.cursor = place
            self.post_message(self.Highlighted(self.matching_options[self.cursor].value))
            self.refresh(layout=True)

    def _apply_filter(self, text: str) -> None:
        self.filter_text, self.cursor = text, 0
        by_label = {f"{option.label} {option.description}": option for option in self.options}
        query = text.casefold()
        # The options that contain the text in their order (sessions: last used first), then others.
        found = [label for label in by_label if query in label.casefold()]
        found.sort(key=lambda label: query not in by_label[label].label.casefold())
        similar = fuzzy_match(text, by_label, limit=len(by_label)) if text else ()
        labels = dict.fromkeys((*found, *similar))
        self.matching_options = [by_label[label] for label in labels]
        if self.matching_options:
            self.post_message(self.Highlighted(self.matching_options[0].value))
        self.refresh(layout=True)

    def set_body(self, body: BodyRenderer) -> None:
        """Replace the lines above the options."""
        self._body = body
        self.refresh(layout=True)

    def set_waiting(
        self, is_waiting: bool, reserved_rows: int = 0, *, shows_hint: bool = True
    ) -> None:
        """Show whether the list takes keys; leave rows below it for what the user types. The hint
        is hidden while its keys do something else."""
        new = (is_waiting, reserved_rows, shows_hint)
        old = (self.is_waiting, self._reserved_rows, self._is_hint_shown)
        if new != old:
            self.is_waiting, self._reserved_rows, self._is_hint_shown = new
            self.refresh(layout=new[1:] != old[1:])

    def count_rows(self, size: Size) -> int:
        """How many rows it takes on a screen, with those that are left free below it."""
        return self.get_content_height(size, size, size.width) + self._reserved_rows

    def on_click(self, event: events.Click) -> None:
        self.focus()
        self.post_message(self.Clicked())


class PlanChoices(Choices):
    """The options below a plan. Also posts Selected with `editor`, by the key of the prompt for
    it."""

    def on_key(self, event: events.Key) -> None:
        if event.key == "ctrl+g":
            event.stop()
            event.prevent_default()
            self.post_message(self.Selected("editor"))
