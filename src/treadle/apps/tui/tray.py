"""The lines around the prompt: what runs, what waits, what it costs. Pure painting.

tray      todos, background tasks, messages that wait, and what is happening right now
status    model, mode, folder and branch · context, cost, time
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.cells import cell_len
from rich.text import Text

from treadle.apps.tui.markdown import lead
from treadle.apps.tui.palette import Palette
from treadle.apps.tui.scene import View

MOST_TODOS = 6
_WHEEL = "◐◓◑◒"
_BOX = {"open": "☐", "active": "▸", "done": "☑"}


class Facts(msgspec.Struct, frozen=True):
    """What the view does not know."""

    model: str = ""
    window: int = 0
    mode: str = ""
    folder: Path = Path()
    branch: str = ""
    seconds: float = 0.0
    tick: int = 0
    hint: str = ""
    is_scrolled: bool = False


def tray(view: View, facts: Facts, width: int, palette: Palette) -> list[Text]:
    """The lines above the prompt, none if nothing goes on."""
    lines: list[Text] = []
    if any(todo.state != "done" for todo in view.todos):
        lines += _todos(view, palette)
    for task in view.tasks:
        name = task.summary.strip("[]")
        lines.append(Text(f"◌ {task.task_id} {name}", palette.accent))
    lines += [
        lead("↳ ", palette.accent).append(_flat(text), palette.faint) for text in view.queue[-4:]
    ]
    if view.is_busy:
        lines.append(_activity(view, facts, palette))
    elif facts.hint:
        lines.append(Text(facts.hint, palette.faint))
    for line in lines:
        line.truncate(max(width, 1), overflow="ellipsis")
    return lines


def _todos(view: View, palette: Palette) -> list[Text]:
    done = sum(todo.state == "done" for todo in view.todos)
    left = [todo for todo in view.todos if todo.state != "done"]
    lines = []
    for todo in left[:MOST_TODOS]:
        style = palette.accent if todo.state == "active" else palette.faint
        lines.append(lead(f"{_BOX[todo.state]} ", style).append(_flat(todo.text), style))
    rest = []
    if len(left) > MOST_TODOS:
        rest.append(f"{len(left) - MOST_TODOS} more")
    if done:
        rest.append(f"{done} of {len(view.todos)} done")
    if rest:
        lines.append(Text("  " + " · ".join(rest), palette.faint))
    return lines


def _activity(view: View, facts: Facts, palette: Palette) -> Text:
    if view.activity == "asking":
        return Text("? waits for your answer", palette.warning)
    line = lead(f"{_WHEEL[facts.tick % 4]} ", palette.accent)
    line.append(view.activity or "working")
    parts = [duration(facts.seconds)] if facts.seconds >= 1 else []
    if view.turn.output:
        parts.append(f"↓ {count(view.turn.output)}")
    parts.append(facts.hint or "esc stops")
    return line.append(" · " + " · ".join(parts), palette.faint)


def status(view: View, facts: Facts, width: int, palette: Palette) -> Text:
    """One line. What does not fit is left out, the least important first."""
    where = _short(facts.folder) + (f" ({facts.branch})" if facts.branch else "")
    mode = Text(facts.mode, palette.warning if facts.mode in ("auto", "bypass") else palette.faint)
    left = [(1, mode), (2, Text(facts.model, palette.faint)), (5, Text(where, palette.faint))]
    right: list[tuple[int, Text]] = []
    if facts.is_scrolled:
        right.append((0, Text("↓ end", palette.accent)))
    if view.context and facts.window:
        share = view.context / facts.window
        style = palette.faint if share < 0.7 else palette.warning
        right.append((3, Text(f"{share:.0%} of {count(facts.window)}", style)))
    if view.usage.cost:
        right.append((4, Text(money(view.usage.cost), palette.faint)))
    elif view.usage.total:
        right.append((4, Text(f"{count(view.usage.total)} tokens", palette.faint)))
    if facts.seconds >= 1:
        right.append((6, Text(duration(facts.seconds), palette.faint)))
    while left or right:
        line = _justified([t for _, t in left], [t for _, t in right], width)
        if line is not None:
            return line
        least = max([*left, *right], key=lambda part: part[0])
        (left if least in left else right).remove(least)
    return Text()


def _justified(left: Sequence[Text], right: Sequence[Text], width: int) -> Text | None:
    first, last = Text(" · ").join(left), Text(" · ").join(right)
    gap = width - first.cell_len - last.cell_len
    if gap < (2 if last else 0):
        return None
    return Text().append_text(first).append(" " * gap).append_text(last)


def count(number: int) -> str:
    """1234 -> 1.2k"""
    if number < 1_000:
        return str(number)
    if number < 1_000_000:
        return f"{number / 1_000:.1f}k" if number < 100_000 else f"{number // 1_000}k"
    return f"{number / 1_000_000:.1f}M".replace(".0M", "M")


def money(dollars: float) -> str:
    return f"${dollars:.2f}" if dollars >= 0.1 else f"${dollars:.3f}"


def duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3_600:
        return f"{whole // 60}m {whole % 60:02}s"
    return f"{whole // 3_600}h {whole % 3_600 // 60:02}m"


def ago(seconds: float) -> str:
    for size, name in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{name} ago"
    return "now"


def _short(folder: Path) -> str:
    text = str(folder)
    home = str(Path.home())
    text = "~" + text[len(home) :] if text == home or text.startswith(home + "/") else text
    return text if cell_len(text) <= 40 else "…" + text[-39:]


def _flat(text: str) -> str:
    return " ".join(text.split())
