"""docs/events.md names every event of `treadle.events`, with the types of its fields."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from treadle import events
from treadle.core.events import Event

PAGE = Path(__file__).parents[2] / "docs" / "events.md"
COMMON = ("session_id", "turn_id", "seq")


def make_row(kind: type[object]) -> str:
    fields = ", ".join(f"`{name}: {hint}`" for name, hint in inspect.get_annotations(kind).items())
    return f"| `{kind.__name__}` | {fields.replace('|', chr(92) + '|')} |"


def test_the_page_lists_the_python_classes_and_the_types_of_their_fields():
    kinds = [kind for kind in vars(events).values() if inspect.isclass(kind)]
    kinds = [kind for kind in kinds if issubclass(kind, Event) and kind is not Event]
    expected = {make_row(kind) for kind in kinds}
    section = PAGE.read_text().partition("## In Python")[2]
    rows = set(re.findall(r"^\| `[A-Z]\w+` \|.*$", section, re.MULTILINE))
    assert rows == expected
    assert set(COMMON) == set(inspect.get_annotations(Event))
