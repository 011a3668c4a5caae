"""`treadle sessions list` and `search`: sessions in lines, those of child agents below theirs.

Above stands sessions.py, which reads the command line.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.cli.console import print_line
from treadle.apps.cli.exit_codes import ERROR, SUCCESS
from treadle.core.sanitize import escape_invisible, strip_escapes
from treadle.sessions.library import Library

if TYPE_CHECKING:
    from treadle.sessions.children import ChildSession
    from treadle.sessions.index import SessionSummary


def print_sessions(options: argparse.Namespace, library: Library) -> int:
    screen = None if options.all else max(5, shutil.get_terminal_size().lines - 3)
    found = library.list_summaries(folder=Path.cwd() if options.here else None, limit=screen)
    rows = []
    families = library.list_child_sessions(library.root / summary.key for summary in found)
    for summary, family in zip(found, families, strict=True):
        rows.append(_make_row(summary, library, family))
        rows += make_child_rows(family, library) if options.all else []
    if options.json:
        for row in rows:
            print(json.dumps({key: value for key, value in row.items() if key != "depth"}))
        return SUCCESS
    if not found:
        print("there are no sessions yet")
        return SUCCESS
    for line in format_table(rows):
        print_line(escape_invisible(strip_escapes(line)))
    return SUCCESS


def _make_row(
    summary: SessionSummary, library: Library, children: Sequence[ChildSession] = ()
) -> dict[str, object]:
    """What a list says of a session. Its cost is that of all who worked for it."""
    usage = sum((kin.summary.usage for kin in children), summary.usage)
    return {
        "id": summary.id,
        "updated": summary.updated,
        "turns": summary.turns,
        "cost": usage.cost,
        "state": library.describe_state(summary),
        "folder": summary.folder,
        "title": summary.title or (f"fork of {summary.parent.session}" if summary.parent else ""),
        "children": len(children),
        "depth": 0,
    }


def make_child_rows(children: Sequence[ChildSession], library: Library) -> list[dict[str, object]]:
    """Each with what it cost itself."""
    return [
        {**_make_row(kin.summary, library), "depth": kin.depth, "parent": kin.parent, "folder": ""}
        for kin in children
    ]


def format_table(rows: list[dict[str, object]]) -> list[str]:
    """What fits the screen; the title takes what is left."""
    home = str(Path.home())
    cells = [
        [
            "  " * int(str(row["depth"])) + str(row["id"]),
            format_age(float(str(row["updated"]))),
            "1 turn" if row["turns"] == 1 else f"{row['turns']} turns",
            "?" if row["cost"] is None else f"${float(str(row['cost'])):.2f}",
            str(row["state"]),
            str(row["folder"]).replace(home, "~", 1),
            str(row["title"]),
        ]
        for row in rows
    ]
    widths = [min(30, max(len(line[column]) for line in cells)) for column in range(6)]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    return [
        "  ".join([*(f"{cell:{w}}" for cell, w in zip(line, widths, strict=False)), line[6]])[
            :width
        ]
        for line in cells
    ]


def format_age(moment: float) -> str:
    seconds = max(0.0, time.time() - moment)
    for size, word in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {word} ago"
    return "just now"


def print_search_results(options: argparse.Namespace, library: Library) -> int:
    import asyncio

    from treadle.sessions.search import search

    hits = asyncio.run(search(library.root, options.text, limit=options.limit))
    for hit in hits:
        child = f"  in its child {hit.child}:" if hit.child else ""
        print_line(f"{hit.session}{child}  {hit.text}")
    if not hits:
        print(f"no session holds {options.text!r}", file=sys.stderr)
    return SUCCESS if hits else ERROR
