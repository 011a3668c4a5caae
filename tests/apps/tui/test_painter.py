"""What the painters write makes a terminal show the frame, with few bytes."""

import random
import re

from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate
from textual.strip import Strip

from treadle.apps.tui.terminal.inline_painter import InlinePainter, count_rows_above
from treadle.apps.tui.terminal.painter import FramePainter

WIDTH, HEIGHT = 24, 10
STYLES = (None, Style(color="red"), Style(bold=True), Style(bgcolor="blue"), Style(meta={"a": 1}))
WORDS = ("one", "two", "漢字", "e\u0301", "longer words", " ", "x")
SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


class Emulator:
    """As much of a terminal as the painters use: text by cell, without styles."""

    def __init__(self) -> None:
        self.rows = [["?"] * WIDTH for _ in range(HEIGHT)]
        self.x = self.y = 0
        self.region = (0, HEIGHT - 1)
        self.scrollback: list[str] = []

    def write(self, data: str) -> None:
        while data:
            found = SEQUENCE.match(data)
            if found is None:
                self._put(data[0])
                data = data[1:]
                continue
            data = data[found.end() :]
            numbers = [int(one) for one in found[1].split(";") if one]
            self._control(found[2], numbers)

    def _control(self, name: str, numbers: list[int]) -> None:
        if name == "H":
            self.y, self.x = numbers[0] - 1, numbers[1] - 1
        elif name in "ABG":
            self.y += {"A": -1, "B": 1, "G": 0}[name] * numbers[0]
            self.y = max(0, min(self.y, HEIGHT - 1))
            self.x = numbers[0] - 1 if name == "G" else self.x
        elif name in "LM":
            for _ in range(numbers[0]):
                self.rows.pop(HEIGHT - 1 if name == "L" else self.y)
                self.rows.insert(self.y if name == "L" else HEIGHT - 1, [" "] * WIDTH)
        elif name == "K":
            self.rows[self.y][self.x :] = [" "] * (WIDTH - self.x)
        elif name == "J" and numbers:
            self.rows = [[" "] * WIDTH for _ in range(HEIGHT)]
        elif name == "J":
            self._control("K", [])
            self.rows[self.y + 1 :] = [[" "] * WIDTH for _ in self.rows[self.y + 1 :]]
        elif name == "r":
            self.region = (numbers[0] - 1, numbers[1] - 1) if numbers else (0, HEIGHT - 1)
        elif name in "ST":
            top, bottom = self.region
            for _ in range(numbers[0]):
                self.rows.pop(top if name == "S" else bottom)
                self.rows.insert(bottom if name == "S" else top, [" "] * WIDTH)

    def _put(self, character: str) -> None:
        if character == "\u0301":
            self.rows[self.y][self.x - 1] += character
            return
        if character == "\r":
            self.x = 0
            return
        if character == "\n":
            if self.y == HEIGHT - 1:
                self.scrollback.append("".join(self.rows.pop(0)).rstrip())
                self.rows.append([" "] * WIDTH)
            self.y = min(self.y + 1, HEIGHT - 1)
            return
        self.rows[self.y][self.x] = character
        self.x += 1
        if character in "漢字":
            self.rows[self.y][self.x] = ""
            self.x += 1

    def text(self) -> list[str]:
        return ["".join(row).rstrip() for row in self.rows]


def make_strip(chosen: random.Random) -> Strip:
    segments = [
        Segment(chosen.choice(WORDS), chosen.choice(STYLES)) for _ in range(chosen.randint(0, 3))
    ]
    return Strip(segments).adjust_cell_length(WIDTH)


def test_any_sequence_of_frames_is_what_the_terminal_shows():
    chosen, painter, terminal = random.Random(8), FramePainter(), Emulator()
    rows = [make_strip(chosen) for _ in range(HEIGHT)]
    for _ in range(500):
        match chosen.randrange(4):
            case 0:  # a line changes
                rows[chosen.randrange(HEIGHT)] = make_strip(chosen)
            case 1:  # the upper lines scroll
                rows = [*rows[1:7], make_strip(chosen), *rows[7:]]
            case 2:
                rows = [make_strip(chosen), *rows[:6], *rows[7:]]
            case _:
                rows = [make_strip(chosen) for _ in range(HEIGHT)]
        terminal.write(painter.paint(rows, ColorSystem.TRUECOLOR))
        assert terminal.text() == [row.text.rstrip() for row in rows]


def test_parts_of_lines_that_changed_are_painted_like_the_whole_lines():
    chosen, painter, terminal = random.Random(3), FramePainter(), Emulator()
    rows = [make_strip(chosen) for _ in range(HEIGHT)]
    terminal.write(painter.paint(rows, ColorSystem.TRUECOLOR))
    for _ in range(300):
        changed = sorted(chosen.sample(range(HEIGHT), chosen.randint(1, 4)))
        start, end = sorted(chosen.sample(range(1, WIDTH), 2))
        chops: list[dict[int, Strip | None]] = [{0: None, start: None, end: None}] * HEIGHT
        for place in changed:
            drawn = make_strip(chosen).crop(0, end - start).adjust_cell_length(end - start)
            chops[place] = {0: None, start: drawn, end: None}
            before, after = rows[place].crop(0, start), rows[place].crop(end)
            rows[place] = Strip.join([before, drawn, after])
        changes = ChopsUpdate(
            chops, [(one, start, end) for one in changed], [[start, end, WIDTH]] * HEIGHT
        )
        assert painter.can_paint(changes, HEIGHT)
        assert not painter.can_paint(changes, HEIGHT + 1)
        terminal.write(painter.paint_parts(changes, ColorSystem.TRUECOLOR))
        assert terminal.text() == [row.text.rstrip() for row in rows]


def test_a_line_that_moves_is_not_written_again():
    painter, lines = FramePainter(), [f"a line of text {place}" for place in range(12)]
    frames = [[Strip([Segment(one)]) for one in lines[at : at + HEIGHT]] for at in range(3)]
    first = painter.paint(frames[0], ColorSystem.TRUECOLOR)
    assert all(line in first for line in lines[:HEIGHT])
    later = painter.paint(frames[1], ColorSystem.TRUECOLOR)
    assert lines[HEIGHT] in later
    assert lines[5] not in later
    assert painter.paint(frames[1], ColorSystem.TRUECOLOR) == ""


def test_the_inline_app_is_below_all_that_was_printed_after_any_sequence_of_frames():
    chosen, painter, terminal = random.Random(5), InlinePainter(), Emulator()
    terminal.write("\x1b[2J")
    printed: list[str] = []
    app = [make_strip(chosen) for _ in range(4)]
    for number in range(1_000):
        finished: list[Strip] = []
        match chosen.randrange(5):
            case 0 if app:  # a row changes
                app[chosen.randrange(max(len(app), 1))] = make_strip(chosen)
            case 1:  # the first rows are finished, as they were or not
                count = chosen.randrange(max(len(app), 1))
                finished = [*app[:count], *([make_strip(chosen)] if chosen.random() < 0.5 else [])]
                app = app[count:]
            case 2 if len(app) < HEIGHT:  # a row is inserted
                app.insert(chosen.randrange(len(app) + 1), make_strip(chosen))
            case 3 if len(app) > 1:  # one is removed
                app.pop(chosen.randrange(max(len(app), 1)))
            case _:  # much at once
                finished = [make_strip(chosen) for _ in range(chosen.randrange(HEIGHT * 2))]
                app = [make_strip(chosen) for _ in range(chosen.randint(0, HEIGHT))]
        cursor = (chosen.randrange(WIDTH), chosen.randrange(HEIGHT * 2))  # also below the app
        if number % 100 == 99:
            terminal.write(painter.erase(WIDTH))
        terminal.write(painter.paint(finished, app, cursor, HEIGHT, ColorSystem.TRUECOLOR))
        printed += [row.text.rstrip() for row in finished]
        shown = [*terminal.scrollback, *terminal.text()]
        rows = [*printed, *(row.text.rstrip() for row in app)]
        assert shown[: len(rows)] == rows
        assert not any(shown[len(rows) :])
        assert terminal.x == cursor[0]


def test_a_row_of_the_inline_app_that_moves_is_not_written_again():
    painter, footer = InlinePainter(), [Strip([Segment("-" * WIDTH)]), Strip([Segment("> ")])]
    painter.paint([], footer, (2, 1), HEIGHT, ColorSystem.TRUECOLOR)
    line = Strip([Segment("a line")])
    later = painter.paint([line], footer, (2, 1), HEIGHT, ColorSystem.TRUECOLOR)
    assert "a line" in later
    assert "-" not in later


def test_rows_that_the_terminal_wraps_after_a_resize_are_counted():
    assert count_rows_above([80, 3, 80], (2, 1), 50) == 2
    assert count_rows_above([80, 3, 80], (2, 1), 100) == 1
    assert count_rows_above([80, 30, 80], (25, 1), 20) == 5
    assert count_rows_above([], (0, 0), 20) == 0
