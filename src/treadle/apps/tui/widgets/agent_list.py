"""Widgets of the agents at work: a list that changes by itself, and the line below a watched one.

The answer of both is an action and a key, as `watch call_1`. Used by agents_view.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.text import Text
from textual import events
from textual.widget import Widget

from treadle.apps.conversation.choices import ChoiceOption
from treadle.apps.tui.render.palette import Palette
from treadle.apps.tui.widgets.choices import Choices

REFRESH_SECONDS = 0.5
ACTIONS = {"enter": "watch", "s": "steer", "x": "stop"}  # by key
ListOptions = Callable[[], Sequence[ChoiceOption]]
HINT = "enter watches it, s sends a message, x stops it, esc closes"
SHORT_HINT = "enter watch · s message · x stop · esc"
WATCH_HINT = "esc returns, s sends a message, x stops it, pgup and pgdn scroll"
SHORT_WATCH_HINT = "esc back · s message · x stop · pgup"


class AgentList(Choices):
    """Choices that are listed again twice a second; `footer` are lines below them."""

    def __init__(
        self,
        format_title: Callable[[], str],
        list_options: ListOptions,
        palette: Palette,
        footer: Sequence[Text],
        current: str = "",
    ) -> None:
        super().__init__(format_title(), list_options(), palette, hint=HINT, current=current)
        self._format_title = format_title
        self._list_options = list_options
        self._footer = footer

    def on_mount(self) -> None:
        self.set_interval(REFRESH_SECONDS, self._update_options)

    def _update_options(self) -> None:
        marked = self.matching_options[self.cursor].value if self.matching_options else ""
        self.title = self._format_title()
        self.options = self.matching_options = list(self._list_options())
        values = [option.value for option in self.options]
        nearest = max(min(self.cursor, len(values) - 1), 0)
        self.cursor = values.index(marked) if marked in values else nearest
        self.refresh(layout=True)

    def _build_lines(self, width: int, height: int) -> list[Text]:
        self._hint = HINT if len(HINT) <= width else SHORT_HINT
        lines = super()._build_lines(width, height)
        room = max(height - len(lines) - 1, 0)
        below = [line.copy() for line in self._footer[:room]]
        for line in below:
            line.truncate(max(width, 1), overflow="ellipsis")
        return [*lines, Text(), *below] if below else lines

    def _handle_key(self, event: events.Key) -> bool:
        action = ACTIONS.get(event.key)
        if action is None or not self.matching_options:
            return super()._handle_key(event)
        key = self.matching_options[self.cursor].value
        self.post_message(self.Selected(f"{action} {key}"))
        return True

    def has_answer(self, character: str) -> bool:
        return character in ACTIONS or super().has_answer(character)

    def mark(self, character: str) -> bool:
        return character not in ACTIONS and super().mark(character)


class WatchLine(Widget, can_focus=True):
    """A line about the watched agent, in place of the prompt; the transcript above is the agent's.
    Posts the answers of AgentList."""

    DEFAULT_CSS = "WatchLine { height: 2; }"

    def __init__(self, key: str, describe: Callable[[], str], palette: Palette) -> None:
        super().__init__()
        self._key = key
        self._describe = describe
        self._palette = palette

    def on_mount(self) -> None:
        self.set_interval(REFRESH_SECONDS, self.refresh)

    def render(self) -> Text:
        lines = [Text(self._describe(), self._palette.accent)]
        is_narrow = self.size.width < len(WATCH_HINT)
        lines.append(Text(SHORT_WATCH_HINT if is_narrow else WATCH_HINT, self._palette.faint))
        for line in lines:
            line.truncate(max(self.size.width, 1), overflow="ellipsis")
        text = Text("\n").join(lines)
        text.no_wrap = True
        return text

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            self.post_message(Choices.Selected(None))
        elif event.key in ("s", "x"):
            self.post_message(Choices.Selected(f"{ACTIONS[event.key]} {self._key}"))
        else:
            return
        event.stop()
        event.prevent_default()
