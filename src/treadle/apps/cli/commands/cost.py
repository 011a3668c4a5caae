"""`treadle cost`: costs by day, model, project, session or purpose.

Reads the journals of the sessions. Uses apps/conversation/costs.py.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import cast

from msgspec.structs import asdict

from treadle.apps.cli.options import parse_flags
from treadle.apps.console.console import UsageError, command, get_current_folder, print_line
from treadle.apps.console.exit_codes import SUCCESS
from treadle.apps.conversation import costs
from treadle.lib.files.private_files import write_private_output
from treadle.lib.text.sanitize import escape_invisible
from treadle.lib.text.text import format_dollars, plural

HELP = """\
usage: treadle cost [--by WHAT] [--keys ABC,DEF] [--since 30d] [--here] [--json | --html FILE]

Shows the cost, the tokens and the cache use of the sessions on this machine.
  --by WHAT      one table only: day, model, project, session, purpose; or, of the sessions of this
                 folder, file, commit, issue (default: day, model, project, purpose)
  --keys ABC,DEF with --by issue: in commits ABC-12 is an issue, too; else only #12
  --since WHEN   30d, 12h, 2w, a date such as 2026-10-31, or all (default: 30d)
  --here         only sessions of this folder
  --json         print JSON; a cost without a known price is null
  --html FILE    write a page with charts, also by session; it loads nothing from the network"""

SECONDS_PER_UNIT = {"h": 3_600, "d": 86_400, "w": 7 * 86_400}
OWNERS = ("file", "commit", "issue")  # of apps/console/cost_owners.py
DEFAULT_GROUPINGS = ("day", "model", "project", "purpose")


@command("treadle cost", HELP)
def run(arguments: list[str]) -> int:
    valued = ("by", "keys", "since", "html")
    flags = parse_flags("cost", arguments, switches=("json", "here"), valued=valued)
    is_json, file = "json" in flags, flags.get("html")
    if is_json and file is not None:
        raise UsageError("--json and --html cannot be combined")
    wanted: Sequence[str] = costs.ALL_GROUPINGS if is_json or file else DEFAULT_GROUPINGS
    if "by" in flags:
        wanted = (flags["by"],)
    if "keys" in flags and flags.get("by") != "issue":
        raise UsageError("--keys is for --by issue")
    since = parse_since(flags.get("since", "30d"), time.time())
    if flags.get("by") in OWNERS:
        if file is not None:
            raise UsageError(f"--html has no table by {flags['by']}; --json has")
        keys = [key.strip() for key in flags.get("keys", "").split(",") if key.strip()]
        return _print_owners(flags["by"], since, keys, is_json=is_json)
    groupings = [grouping for grouping in costs.ALL_GROUPINGS if grouping in wanted]
    if not groupings:
        choices = ", ".join((*costs.ALL_GROUPINGS, *OWNERS))
        raise UsageError(f"--by cannot be {flags['by']!r}; it must be one of {choices}")
    folder = get_current_folder() if "here" in flags else None
    report = costs.load_cost_report(groupings, since=since, folder=folder)
    if is_json:
        print(json.dumps(costs.report_to_dict(report), indent=2))
        return SUCCESS
    if file is not None:
        return _write_html(Path(file), report)
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    width = max(20, shutil.get_terminal_size().columns)
    for line in costs.format_report(report, width, plain=plain):
        print_line(escape_invisible(line.rstrip()))
    return SUCCESS


def _print_owners(by: str, since: float | None, keys: Sequence[str], *, is_json: bool) -> int:
    from treadle.apps.console.cost_owners import Owner, load_owned_costs

    sums = load_owned_costs(get_current_folder(), cast("Owner", by), since, keys)
    if is_json:
        print(json.dumps({"version": 1, "since": since, f"by_{by}": [asdict(one) for one in sums]}))
        return SUCCESS
    for one in sums:
        unknown = f" + {plural(one.unpriced_calls, 'call')} unknown" if one.unpriced_calls else ""
        cost = f"{format_dollars(one.cost)}{unknown}"
        print_line(escape_invisible(f"{cost:>9}  {plural(one.turns, 'turn'):9}  {one.key}"))
    if not sums:
        print_line("no turns of sessions of this folder")
    return SUCCESS


def _write_html(file: Path, report: costs.CostReport) -> int:
    from treadle.apps.pages.cost import render_cost_file

    write_private_output(file, render_cost_file(report).encode(errors="backslashreplace"))
    print_line(f"{file}: {costs.format_total(report.total, report.thinking_cost)}")
    return SUCCESS


def parse_since(text: str, now: float) -> float | None:
    """Seconds since 1970, or None for `all`. Days start at local midnight, as the bars do."""
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
            f"--since cannot be {text!r}; it must be a time such as 30d, 12h or 2w, a date such as "
            "2026-10-31, or all"
        ) from error


def _start_of_day(moment: float) -> float:
    day = datetime.fromtimestamp(max(moment, 0.0)).astimezone()
    return day.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
