"""Widgets of the app without scroll bars, and one for a changing number of lines: activity,
completions, status."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.containers import Vertical
from textual.geometry import Size
from textual.widget import Widget

from treadle.apps.tui.render.markdown import make_printable


class UnscrolledWidget(Widget):
    """Without scroll bars: a new size needs no second layout, as it does in Textual."""

    def _size_updated(
        self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True
    ) -> bool:
        return super()._size_updated(size, virtual_size, container_size, layout=False)


class UnscrolledColumn(UnscrolledWidget, Vertical):
    """Its widgets are one below the other."""


class LinesWidget(UnscrolledWidget):
    """One Text a row. A new layout is made only when the number of rows changes."""

    DEFAULT_CSS = "LinesWidget { height: 0; }"

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.lines: list[Text] = []

    def set_lines(self, lines: Sequence[Text]) -> None:
        if len(lines) != len(self.lines):
            self.styles.height = len(lines)
        self.lines = [make_printable(line) for line in lines]
        self.refresh()

    def render(self) -> Text:
        text = Text("\n", no_wrap=True, overflow="crop").join(self.lines)
        text.no_wrap = True
        return text
