"""What the painter writes makes a terminal show the frame, with few bytes."""

import random
import re

from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from treadle.apps.tui.terminal.painter import FramePainter

WIDTH, HEIGHT = 24, 10
STYLES = (None, Style(color="red"), Style(bold=True), Style(bgcolor="blue"), Style(meta={"a": 1}))
WORDS = ("one", "two", "漢字", "e\u0301", "longer words", " ", "x")
SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")


class Emulator:
    """As much of a terminal as the painter uses: text by cell, without styles."""

    def __init__(self) -> None:
        self.rows = [["?"] * WIDTH for _ in range(HEIGHT)]
        self.x = self.y = 0
        self.region = (0, HEIGHT - 1)

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
        elif name == "K":
            self.rows[self.y][self.x :] = [" "] * (WIDTH - self.x)
        elif name == "J":
            self.rows = [[" "] * WIDTH for _ in range(HEIGHT)]
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


def test_a_line_that_moves_is_not_written_again():
    painter, lines = FramePainter(), [f"a line of text {place}" for place in range(12)]
    frames = [[Strip([Segment(one)]) for one in lines[at : at + HEIGHT]] for at in range(3)]
    first = painter.paint(frames[0], ColorSystem.TRUECOLOR)
    assert all(line in first for line in lines[:HEIGHT])
    later = painter.paint(frames[1], ColorSystem.TRUECOLOR)
    assert lines[HEIGHT] in later
    assert lines[5] not in later
    assert painter.paint(frames[1], ColorSystem.TRUECOLOR) == ""
