"""`treadle cost`: what was spent, by day, model, project or session.

Reads the journals and asks nobody. Above: `main.py`. Below: treadle.apps.services.costs, which the
other hosts use too.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from datetime import datetime
from pathlib import Path

from treadle.apps.cli.console import print_error, print_line
from treadle.apps.cli.exit_codes import IO_ERROR, SUCCESS, USAGE_ERROR, exit_code_for
from treadle.apps.cli.options import UsageError
from treadle.apps.services.costs import (
    ALL_GROUPINGS,
    CostReport,
    format_report,
    format_total,
    load_cost_report,
    report_to_dict,
)
from treadle.core.errors import TreadleError
from treadle.core.sanitize import escape_invisible

HELP = """\
usage: treadle cost [--by day|model|project|session] [--since 30d] [--here]
                    [--json | --html FILE]

What the sessions of this machine spent: money, tokens, and how much came from the cache.
  --by WHAT      one table instead of those by day, model and project
  --since WHEN   30d, 12h, 2w, a day such as 2026-10-31, or all (30d)
  --here         only the sessions of this folder
  --json         numbers for a program; the cost of calls whose price is not known is null
  --html FILE    a page with plots, by session too; nothing in it comes from elsewhere"""

SECONDS_PER_UNIT = {"h": 3_600, "d": 86_400, "w": 7 * 86_400}
DEFAULT_GROUPINGS = ("day", "model", "project")


def run(arguments: list[str]) -> int:
    if any(word in ("--help", "-h") for word in arguments):
        print(HELP)
        return SUCCESS
    try:
        return _print_cost(arguments)
    except UsageError as error:
        print_error(f"treadle cost: {error}")
        return USAGE_ERROR
    except TreadleError as error:
        print_error(f"treadle cost: {error}")
        return exit_code_for(error)


def _print_cost(arguments: list[str]) -> int:
    given = _parse_arguments(arguments)
    is_json, file = "json" in given, given.get("html")
    if is_json and file is not None:
        raise UsageError("--json and --html are two; choose one")
    by = [one for one in ALL_GROUPINGS if one == given["by"]] if "by" in given else []
    if "by" in given and not by:
        raise UsageError(f"--by is {given['by']!r}; it has to be one of {', '.join(ALL_GROUPINGS)}")
    found = load_cost_report(
        by
        or (
            ALL_GROUPINGS
            if is_json or file
            else [one for one in ALL_GROUPINGS if one in DEFAULT_GROUPINGS]
        ),
        since=parse_since(given.get("since", "30d"), time.time()),
        folder=Path.cwd() if "here" in given else None,
    )
    if is_json:
        print(json.dumps(report_to_dict(found), indent=2))
        return SUCCESS
    if file is not None:
        return _write_html(Path(file), found)
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    for line in format_report(found, max(20, shutil.get_terminal_size().columns), plain=plain):
        print_line(escape_invisible(line.rstrip()))
    return SUCCESS


def _write_html(file: Path, report: CostReport) -> int:
    from treadle.apps.services.cost_html import render_cost_html

    try:
        file.write_text(render_cost_html(report), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        print_error(f"treadle cost: {file}: {error.strerror}")
        return IO_ERROR
    print_line(f"{file}: {format_total(report.total)}")
    return SUCCESS


def _parse_arguments(arguments: list[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    words = list(arguments)
    while words:
        name, equals, value = words.pop(0).partition("=")
        match name:
            case "--json" | "--here" if not equals:
                given[name[2:]] = ""
            case "--by" | "--since" | "--html":
                if not equals and not words:
                    raise UsageError(f"{name} needs a value")
                given[name[2:]] = value if equals else words.pop(0)
            case _:
                raise UsageError(f"{name!r} is not understood; treadle cost --help says what is")
    return given


def parse_since(text: str, now: float) -> float | None:
    """Seconds since 1970. Days begin at midnight here, so that a bar is a whole day."""
    if text == "all":
        return None
    number, unit = text[:-1], text[-1:]
    if number.isascii() and number.isdigit() and unit in SECONDS_PER_UNIT and len(number) < 6:
        moment = now - int(number) * SECONDS_PER_UNIT[unit]
        return moment if unit == "h" else _start_of_day(moment)
    try:
        return datetime.strptime(text, "%Y-%m-%d").astimezone().timestamp()
    except ValueError as error:
        raise UsageError(
            f"--since is {text!r}; it has to be a time such as 30d, 12h or 2w, a day such as "
            "2026-10-31, or all"
        ) from error


def _start_of_day(moment: float) -> float:
    day = datetime.fromtimestamp(max(moment, 0.0)).astimezone()
    return day.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
