"""`treadle sessions list` and `search`: one session per line, subagents below their parent.

Used by sessions.py, which parses the command line.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.console.console import print_line
from treadle.apps.console.exit_codes import ERROR, SUCCESS
from treadle.lib.text.sanitize import escape_invisible, strip_escapes
from treadle.lib.text.text import format_age, format_dollars, plural, shorten_home
from treadle.sessions.library import Library
from treadle.sessions.summaries import STATE_LABELS

if TYPE_CHECKING:
    from treadle.sessions.children import ChildSession
    from treadle.sessions.search import SearchHit
    from treadle.sessions.summaries import SessionSummary


def print_sessions(options: argparse.Namespace, library: Library) -> int:
    screen = None if options.all else max(5, shutil.get_terminal_size().lines - 3)
    summaries = library.list_summaries(folder=Path.cwd() if options.here else None, limit=screen)
    rows = []
    families = library.list_child_sessions(library.root / summary.key for summary in summaries)
    for summary, children in zip(summaries, families, strict=True):
        rows.append(_make_row(summary, library, children))
        below = make_child_rows(children, library) if options.all else []
        rows += [row | {"origin": summary.origin} for row in below]
    if options.json:
        for row in rows:
            print(json.dumps({key: value for key, value in row.items() if key != "depth"}))
        return SUCCESS
    if not summaries:
        print("no sessions")
        return SUCCESS
    lines = [escape_invisible(strip_escapes(line)) for line in format_table(rows)]
    runs = [line for line, row in zip(lines, rows, strict=True) if row["origin"]]
    for line in lines:
        if line not in runs:
            print_line(line)
    if runs:
        print_line("\n" * (len(runs) < len(lines)) + RUNS)
    for line in runs:
        print_line(line)
    return SUCCESS


def _make_row(
    summary: SessionSummary, library: Library, children: Sequence[ChildSession] = ()
) -> dict[str, object]:
    """The row of a session. Its cost includes its subagents."""
    usage = sum((child.summary.usage for child in children), summary.usage)
    return {
        "id": summary.id,
        "updated": summary.updated,
        "turns": summary.turns,
        "cost": usage.cost,
        "state": library.describe_state(summary),
        "damaged": summary.is_damaged,
        "folder": summary.folder,
        "title": library.get_title(summary),
        "children": len(children),
        "origin": summary.origin,
        "depth": 0,
    }


def make_child_rows(children: Sequence[ChildSession], library: Library) -> list[dict[str, object]]:
    """The rows of subagents, each with its own cost."""
    return [
        _make_row(one.summary, library) | {"depth": one.depth, "parent": one.parent, "folder": ""}
        for one in children
    ]


def format_table(rows: list[dict[str, object]], width: int | None = None) -> list[str]:
    """The rows as lines that fit the screen. The title has room; other columns give way to it."""
    if width is None:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    columns = {name: [cell(row) for row in rows] for name, cell in _COLUMNS.items()}
    widths = {name: min(30, max(map(len, cells))) for name, cells in columns.items()}
    for name in _OPTIONAL_COLUMNS:
        if sum(widths.values()) + 2 * len(widths) + MIN_TITLE_CHARS > width:
            del widths[name]
    lines = zip(*(columns[name] for name in widths), strict=True)
    starts = ["  ".join(map(str.ljust, line, widths.values())) for line in lines]
    return [
        f"{start}  {row['title']}"[:width].rstrip() for start, row in zip(starts, rows, strict=True)
    ]


def _label_state(row: dict[str, object]) -> str:
    return STATE_LABELS.get(str(row["state"]), str(row["state"]))


RUNS = "runs of treadle -p:"
MIN_TITLE_CHARS = 30
_COLUMNS: dict[str, Callable[[dict[str, object]], str]] = {
    "id": lambda row: "  " * int(str(row["depth"])) + str(row["id"]),
    "age": lambda row: format_age(time.time() - float(str(row["updated"]))),
    "turns": lambda row: plural(int(str(row["turns"])), "turn"),
    "cost": lambda row: "?" if row["cost"] is None else format_dollars(float(str(row["cost"]))),
    "state": lambda row: _label_state(row) + (", damaged" if row["damaged"] else ""),
    "folder": lambda row: shorten_home(str(row["folder"])),
}
_OPTIONAL_COLUMNS = ("folder", "turns", "cost")  # the first gives way first


def print_search_results(options: argparse.Namespace, library: Library) -> int:
    import asyncio

    from treadle.sessions.search import search

    hits: list[SearchHit] = []
    if library.list_projects():
        hits = asyncio.run(search(library.root, options.text, limit=options.limit))
    by_session: dict[str, list[SearchHit]] = {}
    for hit in hits:
        by_session.setdefault(hit.session, []).append(hit)
    width = max((len(str(len(matches))) for matches in by_session.values()), default=0) + 5
    for session, matches in by_session.items():
        summary = library.get_summary(library.find(session))
        title = escape_invisible(strip_escapes(library.get_title(summary)))
        age, count = format_age(time.time() - summary.updated), plural(len(matches), "hit")
        print_line(f"{session}  {age:>8}  {count:{width}}  {title}".rstrip())
        for hit in matches if options.lines else ():
            child = f"in subagent {hit.child}: " if hit.child else ""
            print_line(f"    {child}{escape_invisible(strip_escapes(hit.text))}")
    if not hits:
        print(f"no matches for {options.text!r}", file=sys.stderr)
    return SUCCESS if hits else ERROR
