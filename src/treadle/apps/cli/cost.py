"""`treadle cost`: what was spent, by day, model, project or session.

Reads the journals and asks nobody. Above: `main.py`. Below: treadle.apps.wiring.costs, which the
other hosts use too.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from datetime import datetime
from pathlib import Path

from treadle.apps.cli.exits import DISK, DONE, USAGE, code_for
from treadle.apps.cli.options import UsageError
from treadle.apps.cli.printing import say, warn
from treadle.apps.wiring.costs import ALL, CostReport, as_values, lines, report, sentence
from treadle.core.errors import TreadleError
from treadle.core.terminal import visible

HELP = """\
usage: treadle cost [--by day|model|project|session] [--since 30d] [--here]
                    [--json | --html FILE]

What the sessions of this machine spent: money, tokens, and how much came from the cache.
  --by WHAT      one table instead of those by day, model and project
  --since WHEN   30d, 12h, 2w, a day such as 2026-10-31, or all (30d)
  --here         only the sessions of this folder
  --json         numbers for a program; the cost of calls whose price is not known is null
  --html FILE    a page with plots, by session too; nothing in it comes from elsewhere"""

UNITS = {"h": 3_600, "d": 86_400, "w": 7 * 86_400}
USUAL = ("day", "model", "project")


def run(arguments: list[str]) -> int:
    if any(word in ("--help", "-h") for word in arguments):
        print(HELP)
        return DONE
    try:
        return _cost(arguments)
    except UsageError as error:
        warn(f"treadle cost: {error}")
        return USAGE
    except TreadleError as error:
        warn(f"treadle cost: {error}")
        return code_for(error)


def _cost(arguments: list[str]) -> int:
    given = _read(arguments)
    is_json, file = "json" in given, given.get("html")
    if is_json and file is not None:
        raise UsageError("--json and --html are two; choose one")
    by = [one for one in ALL if one == given["by"]] if "by" in given else []
    if "by" in given and not by:
        raise UsageError(f"--by is {given['by']!r}; it has to be one of {', '.join(ALL)}")
    found = report(
        by or (ALL if is_json or file else [one for one in ALL if one in USUAL]),
        since=since(given.get("since", "30d"), time.time()),
        folder=Path.cwd() if "here" in given else None,
    )
    if is_json:
        print(json.dumps(as_values(found), indent=2))
        return DONE
    if file is not None:
        return _write(Path(file), found)
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    for line in lines(found, max(20, shutil.get_terminal_size().columns), plain=plain):
        say(visible(line.rstrip()))
    return DONE


def _write(file: Path, found: CostReport) -> int:
    from treadle.apps.wiring.costpage import page

    try:
        file.write_text(page(found), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        warn(f"treadle cost: {file}: {error.strerror}")
        return DISK
    say(f"{file}: {sentence(found.whole)}")
    return DONE


def _read(arguments: list[str]) -> dict[str, str]:
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


def since(text: str, now: float) -> float | None:
    """Seconds since 1970. Days begin at midnight here, so that a bar is a whole day."""
    if text == "all":
        return None
    number, unit = text[:-1], text[-1:]
    if number.isascii() and number.isdigit() and unit in UNITS and len(number) < 6:
        moment = now - int(number) * UNITS[unit]
        return moment if unit == "h" else _midnight(moment)
    try:
        return datetime.strptime(text, "%Y-%m-%d").astimezone().timestamp()
    except ValueError as error:
        raise UsageError(
            f"--since is {text!r}; it has to be a time such as 30d, 12h or 2w, a day such as "
            "2026-10-31, or all"
        ) from error


def _midnight(moment: float) -> float:
    day = datetime.fromtimestamp(max(moment, 0.0)).astimezone()
    return day.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
