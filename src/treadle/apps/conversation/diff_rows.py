"""The rows of a unified diff, as hosts show them: what each is, and its line numbers.

Used by the terminal (tui/render/diffs.py) and the page (pages/code.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)")
_KINDS: dict[str, Literal["add", "del", "same"]] = {"+": "add", "-": "del", " ": "same", "": "same"}


class DiffRow(msgspec.Struct, frozen=True):
    """`hunk`: its heading, and its number in the file as `new`. `file`: its name, in a diff of
    several. `cut`: the tool left out the rest of a long diff. `place` is the line in the diff.
    `has_end`: a line end follows the line in its file."""

    kind: Literal["hunk", "file", "cut", "add", "del", "same"]
    text: str
    old: int = 0
    new: int = 0
    place: int = 0
    has_end: bool = True


class DiffHunk(msgspec.Struct, frozen=True):
    """The lines of a hunk; the names of the file are as in the diff: `a/…`, `b/…`, `/dev/null`."""

    old_name: str
    new_name: str
    heading: str
    rows: list[DiffRow]

    @property
    def path(self) -> str:
        """Its path, the old one of a removed file."""
        name = self.old_name if self.new_name == "/dev/null" else self.new_name
        return name[2:] if name.startswith(("a/", "b/")) else name


def list_hunks(diff: str) -> list[DiffHunk | DiffRow]:
    """The hunks of a diff; a row where the rest was cut. A hunk ends by the numbers in its heading:
    a line of it may look like the head of a file."""
    found: list[DiffHunk | DiffRow] = []
    rows: list[DiffRow] = []
    old_name = new_name = ""
    old = new = old_end = new_end = 0
    for place, line in enumerate(diff.split("\n")):
        kind = _KINDS.get(line[:1])
        if kind is not None and (old < old_end or new < new_end):
            numbers = 0 if kind == "add" else old, 0 if kind == "del" else new
            rows.append(DiffRow(kind, line[1:], *numbers, place))
            old, new = old + (kind != "add"), new + (kind != "del")
        elif line.startswith("\\ No newline") and rows:
            rows[-1] = msgspec.structs.replace(rows[-1], has_end=False)
        elif (hunk := _HUNK.match(line)) is not None:
            old, new = int(hunk[1]), int(hunk[3])
            old_end, new_end = old + int(hunk[2] or 1), new + int(hunk[4] or 1)
            rows = []
            found.append(DiffHunk(old_name, new_name, hunk[5], rows))
        elif line.startswith("--- "):
            old_name = line[4:]
        elif line.startswith("+++ "):
            new_name = line[4:]
        elif line.startswith("..."):
            found.append(DiffRow("cut", line))
    return found


def parse_diff(diff: str) -> Iterator[DiffRow]:
    """The rows of all hunks, each with its heading; those of several files with their names."""
    found, number, file = list_hunks(diff), 0, ""
    has_files = len({one.path for one in found if isinstance(one, DiffHunk)}) > 1
    for one in found:
        if isinstance(one, DiffRow):
            yield one
            continue
        if one.path != file:
            number, file = 0, one.path
            if has_files:
                yield DiffRow("file", file)
        number += 1
        yield DiffRow("hunk", one.heading, new=number)
        yield from one.rows


def count_changes(diff: str) -> tuple[int, int]:
    """How many lines a diff adds and removes."""
    kinds = [row.kind for row in parse_diff(diff)]
    return kinds.count("add"), kinds.count("del")
