"""The rows of a unified diff, as hosts show them: what each is, and its line numbers.

Used by the terminal (tui/render/diffs.py) and the page (pages/code.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

_HUNK = re.compile(r"^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@ ?(.*)")


class DiffRow(msgspec.Struct, frozen=True):
    """`hunk`: its heading, and its number in the file as `new`. `file`: its name, in a diff of
    several. `cut`: the tool left out the rest of a long diff. `place` is the line in the diff."""

    kind: Literal["hunk", "file", "cut", "add", "del", "same"]
    text: str
    old: int = 0
    new: int = 0
    place: int = 0


def parse_diff(diff: str) -> Iterator[DiffRow]:
    old = new = hunks = 0
    has_files = diff.count("\n+++ ") > 1
    for place, line in enumerate(diff.split("\n")):
        hunk = _HUNK.match(line)
        if hunk is not None:
            old, new, hunks = int(hunk[1]), int(hunk[2]), hunks + 1
            yield DiffRow("hunk", hunk[3], new=hunks)
        elif line.startswith("+++ "):
            hunks = 0
            if has_files:
                yield DiffRow("file", line[4:].removeprefix("b/"))
        elif line.startswith(("--- ", "diff --git ", "index ", "\\ No newline")):
            continue
        elif line.startswith("+"):
            yield DiffRow("add", line[1:], new=new, place=place)
            new += 1
        elif line.startswith("-"):
            yield DiffRow("del", line[1:], old=old, place=place)
            old += 1
        elif line.startswith("..."):
            yield DiffRow("cut", line)
        elif hunks:
            yield DiffRow("same", line[1:], old, new, place)
            old, new = old + 1, new + 1


def count_changes(diff: str) -> tuple[int, int]:
    """How many lines a diff adds and removes."""
    kinds = [row.kind for row in parse_diff(diff)]
    return kinds.count("add"), kinds.count("del")
