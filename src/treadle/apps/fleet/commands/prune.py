"""`treadle fleet prune`: deletes runs that ended long ago, with their sessions and snapshots."""

from __future__ import annotations

import argparse
import re
import sys
import time

from treadle.apps.console.console import UsageError, print_line
from treadle.apps.console.exit_codes import ERROR, SUCCESS
from treadle.apps.fleet.commands.selection import select_runs, use_database
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.folders.workspaces import RunWorkspaces, get_default_folder
from treadle.apps.fleet.reports.report_text import STATE_WORDS
from treadle.apps.fleet.run_record import FleetRun
from treadle.lib.text.text import format_age, plural

_AGE = re.compile(r"(\d+(?:\.\d+)?)([hdw])")
_SECONDS = {"h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


def prune_runs(options: argparse.Namespace) -> int:
    before = time.time() - parse_age(options.older_than)
    return use_database(options, lambda database: _prune(database, options, before))


def parse_age(text: str) -> float:
    """Seconds of `12h`, `30d` or `8w`."""
    found = _AGE.fullmatch(text)
    if found is None:
        raise UsageError(f"--older-than {text!r} must be a time such as 12h, 30d or 8w")
    return float(found[1]) * _SECONDS[found[2]]


async def _prune(database: FleetDatabase, options: argparse.Namespace, before: float) -> int:
    runs = [
        run
        for run in await select_runs(database, options)
        if run.has_ended and run.ended is not None and run.ended <= before
    ]
    if not runs:
        print_line(f"no run ended more than {options.older_than} ago")
        return SUCCESS
    for run in runs:
        print_line(_describe(run))
    what = f"{plural(len(runs), 'run')} with session and snapshot"
    if not options.yes and not _ask(f"delete {what}?"):
        print_line("nothing was deleted")
        return ERROR
    folders = RunWorkspaces(get_default_folder(), database)
    here = [run.id for run in runs if await folders.has_latest(run.id)]
    deleted = await database.delete_runs([run.id for run in runs], before)
    for run_id in deleted:
        if run_id in here:  # the folder of a run that was cancelled, say
            await folders.remove(run_id)
    print_line(f"{plural(len(deleted), 'run')} deleted")
    return SUCCESS


def _describe(run: FleetRun) -> str:
    age = format_age(time.time() - (run.ended or 0.0))
    return f"  {run.id:24} {STATE_WORDS[run.state]}, ended {age}"


def _ask(question: str) -> bool:
    if not sys.stdin.isatty():
        raise UsageError(f"{question} Give --yes to do it")
    print(f"{question} [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
