"""Draws the diagrams of docs/loop.md into docs/images/loop-*.svg.

    python scripts/diagrams.py

A diagram is a grid of boxes, and arrows between them; the tables are at the end. The files are part
of the repository, so that they are seen on a code host, too; a test compares them with the tables.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Literal, NamedTuple

FOLDER = Path(__file__).resolve().parent.parent / "docs/images"
COLUMN, ROW, MARGIN = 220, 84, 34
WIDTH, LINE = 176, 16
COLORS = {  # fill, border
    "step": ("#e8f0fe", "#3b6fd4"),
    "choice": ("#fff4d6", "#b98500"),
    "host": ("#e3f5e6", "#2f8f46"),
    "store": ("#eeeeee", "#777777"),
    "end": ("#f3e8fd", "#8444c4"),
}
# A reader's dark scheme turns the lightness of every colour round, and keeps its hue.
DARK = "@media (prefers-color-scheme: dark) { svg { filter: invert(0.88) hue-rotate(180deg) } }"
Kind = Literal["step", "choice", "host", "store", "end"]
Point = tuple[float, float]


class Box(NamedTuple):
    """A box at a place of the grid; lines of its text are separated by `|`."""

    name: str
    column: float
    row: float
    kind: Kind
    text: str

    @property
    def center(self) -> Point:
        return find_place(self.column, self.row)

    @property
    def height(self) -> int:
        return 22 + LINE * (self.text.count("|") + 1)

    def side(self, towards: Point) -> Point:
        """Where an arrow from or to another point meets the border."""
        x, y = self.center
        if abs(towards[0] - x) < 1:
            return x, y + (self.height / 2 if towards[1] > y else -self.height / 2)
        return x + (WIDTH / 2 if towards[0] > x else -WIDTH / 2), y


class Arrow(NamedTuple):
    """An arrow: straight, along a row or a column of the grid, or over corners of it."""

    start: str
    end: str
    label: str = ""
    row: float | None = None
    column: float | None = None
    corners: tuple[Point, ...] = ()

    def list_corners(self, start: Box, end: Box) -> list[Point]:
        if self.row is not None:
            return [find_place(box.column, self.row) for box in (start, end)]
        if self.column is not None:
            return [find_place(self.column, box.row) for box in (start, end)]
        return [find_place(*corner) for corner in self.corners]


def chain(*names: str) -> Iterator[Arrow]:
    """An arrow from each box to the next."""
    return itertools.starmap(Arrow, itertools.pairwise(names))


def branch(start: str, *ends: str, row: float) -> Iterator[Arrow]:
    """Arrows from one box, which leave a common row."""
    return (Arrow(start, end, row=row) for end in ends)


class Diagram(NamedTuple):
    title: str
    boxes: list[Box]
    arrows: list[Arrow]


def draw(diagram: Diagram) -> str:
    """The diagram as SVG."""
    boxes = {box.name: box for box in diagram.boxes}
    ways = [find_way(arrow, boxes) for arrow in diagram.arrows]
    corners = [corner for way in ways for corner in way]
    left = min(0.0, *(x - MARGIN / 2 for x, _ in corners))
    width = max(*(box.center[0] + WIDTH / 2 for box in boxes.values()), *(x for x, _ in corners))
    width += MARGIN - left
    height = max(box.center[1] + box.height / 2 for box in boxes.values()) + MARGIN
    inside = [
        *(
            line
            for arrow, way in zip(diagram.arrows, ways, strict=True)
            for line in draw_arrow(arrow, way)
        ),
        *(line for box in diagram.boxes for line in draw_box(box)),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:g} 0 {width:g} {height:g}"'
            f' width="{width:g}" height="{height:g}" role="img"'
            ' font-family="system-ui, sans-serif" font-size="13">',
            f"<title>{escape(diagram.title)}</title>",
            f"<style>{DARK}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
            ' markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="#555"/></marker></defs>',
            f'<rect x="{left:g}" width="{width:g}" height="{height:g}" rx="8" fill="#fff"/>',
            *inside,
            "</svg>\n",
        ]
    )


def find_place(column: float, row: float) -> Point:
    return MARGIN + WIDTH / 2 + column * COLUMN, MARGIN + 30 + row * ROW


def find_way(arrow: Arrow, boxes: dict[str, Box]) -> list[Point]:
    start, end = boxes[arrow.start], boxes[arrow.end]
    corners = arrow.list_corners(start, end)
    first, last = (corners[0], corners[-1]) if corners else (end.center, start.center)
    return [start.side(first), *corners, end.side(last)]


def draw_arrow(arrow: Arrow, way: list[Point]) -> Iterator[str]:
    path = "M" + " L".join(f"{x:g} {y:g}" for x, y in way)
    yield f'<path d="{path}" fill="none" stroke="#555" stroke-width="1.4" marker-end="url(#tip)"/>'
    if arrow.label:
        (x1, y1), (x2, y2) = way[:2]
        if x1 == x2:  # beside a vertical line
            x, y, anchor = x1 + 6, (y1 + y2) / 2 + 4, "start"
        elif len(way) > 2:  # above the first part of a line with corners
            x, y, anchor = x1 + (8 if x2 > x1 else -8), y1 - 6, "start" if x2 > x1 else "end"
        else:
            x, y, anchor = (x1 + x2) / 2, y1 - 6, "middle"
        yield (
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="11" fill="#444">'
            f"{escape(arrow.label)}</text>"
        )


def draw_box(box: Box) -> Iterator[str]:
    x, y = box.center
    fill, border = COLORS[box.kind]
    yield (
        f'<rect x="{x - WIDTH / 2:g}" y="{y - box.height / 2:g}" width="{WIDTH}"'
        f' height="{box.height}" rx="6" fill="{fill}" stroke="{border}" stroke-width="1.4"/>'
    )
    lines = box.text.split("|")
    for at, line in enumerate(lines):
        line_y = y + (at - (len(lines) - 1) / 2) * LINE + 4.5
        weight = ' font-weight="600"' if at == 0 else ' font-size="11.5"'
        yield (
            f'<text x="{x:g}" y="{line_y:g}" text-anchor="middle" fill="#222"{weight}>'
            f"{escape(line)}</text>"
        )


TURN = Diagram(
    "The order of a turn",
    [
        Box("input", 0, 0, "host", "message of the user|user_prompt_submit hooks"),
        Box("durable", 1, 0, "store", "durable in the log"),
        Box("before", 1, 1, "step", "before the call|tools, mutators, gates"),
        Box("stop", 2.1, 1, "end", "Finished|max_turns|budget_exceeded"),
        Box("call", 1, 2, "step", "model call|retries, fallback"),
        Box("reply", 1, 3, "store", "reply in the log|with its calls"),
        Box("calls", 1, 4, "choice", "calls in it?"),
        Box("hooks", 2.1, 4, "step", "stop hooks|may continue the turn"),
        Box("done", 2.1, 5, "end", "Finished|end_turn"),
        Box("prepare", 1, 5, "step", "prepare every call|look up, check, policy"),
        Box("ask", 0, 5, "host", "ApprovalRequest|the host decides"),
        Box("run", 1, 6, "step", "run the calls|intent before effect"),
        Box("results", 1, 7, "store", "results in the log|in the model's order"),
        Box("after", 0, 7, "host", "AfterToolResult|the host may add"),
    ],
    [
        *chain("input", "durable", "before"),
        Arrow("before", "stop", "stop"),
        *chain("before", "call", "reply", "calls"),
        Arrow("calls", "hooks", "no"),
        Arrow("hooks", "done"),
        Arrow("hooks", "before", corners=((2.65, 4), (2.65, 0.42), (1, 0.42))),
        Arrow("calls", "prepare", "yes"),
        Arrow("prepare", "ask", "ask"),
        Arrow("ask", "run", "decided", corners=((0, 6),)),
        Arrow("prepare", "run", "allowed"),
        *chain("run", "results", "after"),
        Arrow("after", "before", column=-0.55),
    ],
)
TRANSCRIPT = Diagram(
    "The log, the transcript and the next move",
    [
        Box("log", 0, 0, "store", "log|entries, append-only"),
        Box("view", 1.3, 0, "step", "transcript|items: what the model sees"),
        Box("move", 2.6, 0, "choice", "next move|a value"),
        Box("await", 2.6, 1.1, "host", "AwaitInput|no message yet"),
        Box("ask", 1.74, 1.1, "step", "AskModel|one model call"),
        Box("tools", 0.88, 1.1, "step", "RunTools|the open calls"),
        Box("rest", 0, 1.1, "end", "Rest|the turn can end"),
    ],
    [
        Arrow("log", "view", "fold_entries"),
        Arrow("view", "move", "pending"),
        Arrow("move", "await"),
        *branch("move", "ask", "tools", "rest", row=0.55),
    ],
)
INTERRUPTS = Diagram(
    "What Driver.next() returns, and what the host may do",
    [
        Box("next", 1, 0, "step", "Driver.next()|advances the loop"),
        Box("await", 0, 1.2, "host", "AwaitingInput|cooperative"),
        Box("after", 1, 1.2, "host", "AfterToolResult|cooperative"),
        Box("approval", 2, 1.2, "choice", "ApprovalRequest|blocking"),
        Box("submit", 0, 2.4, "step", "submit a message|then next()"),
        Box("add", 1, 2.4, "step", "add a message or not|then next()"),
        Box("decide", 2, 2.4, "step", "approve, edit or deny|every call, then next()"),
        Box("finished", 3, 1.2, "end", "Finished|result and reason"),
    ],
    [
        Arrow("next", "after"),
        *branch("next", "await", "approval", "finished", row=0.6),
        Arrow("await", "submit"),
        Arrow("after", "add"),
        Arrow("approval", "decide"),
    ],
)
_REMEDIES = ("retry", "fallback", "compact", "quarantine")
RECOVERY = Diagram(
    "What happens after a failed model call",
    [
        Box("call", 0, 0, "step", "model call"),
        Box("error", 0, 2.5, "choice", "which error?|a pure table"),
        Box("retry", 1.25, 1, "step", "wait and retry|429, 5xx, network, stream"),
        Box("fallback", 1.25, 2, "step", "fallback model|retries used up, no quota"),
        Box("compact", 1.25, 3, "step", "compact the view|too long; once a round"),
        Box("quarantine", 1.25, 4, "step", "leave a part out|refused picture, signature"),
        Box("raise", 1.25, 5, "end", "RunFailed|any other error"),
    ],
    [
        Arrow("call", "error", "failed"),
        *(Arrow("error", name, column=0.63) for name in (*_REMEDIES, "raise")),
        *(Arrow(name, "call", column=1.9) for name in _REMEDIES),
    ],
)
BUDGETS = Diagram(
    "Money is reserved before it is spent",
    [
        Box("estimate", 0, 0, "step", "worst case|of the next request"),
        Box("fits", 1.2, 0, "choice", "does it fit?|with all child agents"),
        Box("reserve", 2.4, 0, "store", "reserve it"),
        Box("call", 2.4, 1.1, "step", "model call"),
        Box("settle", 2.4, 2.2, "store", "settle|what was really used"),
        Box("shorter", 1.2, 1.1, "step", "ask for a shorter reply|down to 1,000 tokens"),
        Box("stop", 0, 1.1, "end", "budget_exceeded|one closing reply, if paid"),
    ],
    [
        Arrow("estimate", "fits"),
        Arrow("fits", "reserve", "yes"),
        *chain("reserve", "call", "settle"),
        Arrow("fits", "shorter", "not quite"),
        Arrow("shorter", "call"),
        Arrow("shorter", "stop", "still no"),
    ],
)
COMPACTION = Diagram(
    "How full the window is decides what happens",
    [
        Box("safe", 0, 0, "step", "below 70 %|nothing"),
        Box("warning", 1, 0, "choice", "70 to 85 %|one warning"),
        Box("critical", 2, 0, "choice", "above 85 %|compaction"),
        Box("long", 3, 0, "end", "refused as too long|compaction at once"),
        Box("trim", 2, 1, "step", "1. trim|old large results"),
        Box("summary", 2, 2, "step", "2. summary|of the older part"),
        Box("cut", 2, 3, "step", "3. harder cuts"),
        Box("check", 1, 3, "choice", "a tenth saved,|all laws kept?"),
        Box("view", 0, 3, "store", "new view|the log keeps everything"),
        Box("refuse", 1, 2, "end", "refused|the view stays"),
    ],
    [
        Arrow("critical", "trim"),
        Arrow("long", "trim", corners=((3, 1),)),
        Arrow("trim", "summary", "not enough"),
        Arrow("summary", "cut", "not enough"),
        Arrow("cut", "check"),
        Arrow("check", "view", "yes"),
        Arrow("check", "refuse", "no"),
    ],
)
CRASH = Diagram(
    "After a crash: what is done with a call that had begun",
    [
        Box("killed", 0, 0, "end", "kill -9|power is lost"),
        Box("read", 1, 0, "store", "read the log|a torn line is cut off"),
        Box("pending", 2, 0, "step", "pending()|the same next move"),
        Box("open", 2, 1, "choice", "open calls|with an intent?"),
        Box("pure", 0, 2.1, "step", "pure|run again"),
        Box("verifiable", 1, 2.1, "step", "verifiable|compare, then conclude"),
        Box("irreversible", 2, 2.1, "step", "irreversible|not run again"),
        Box("told", 2, 3.2, "store", "result for the model|outcome unknown"),
        Box("next", 3, 1, "step", "continue|with this move"),
    ],
    [
        *chain("killed", "read", "pending", "open"),
        Arrow("open", "next", "no"),
        *branch("open", "pure", "verifiable", row=1.55),
        *chain("open", "irreversible", "told"),
    ],
)
DIAGRAMS = {
    "turn": TURN,
    "transcript": TRANSCRIPT,
    "interrupts": INTERRUPTS,
    "recovery": RECOVERY,
    "budgets": BUDGETS,
    "compaction": COMPACTION,
    "crash": CRASH,
}


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    for name, diagram in DIAGRAMS.items():
        (FOLDER / f"loop-{name}.svg").write_text(draw(diagram))
    return 0


if __name__ == "__main__":
    sys.exit(main())
