"""`treadle fleet report` and `treadle fleet open`."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

import msgspec

from treadle.apps.console.console import UsageError, get_current_folder, print_error, print_line
from treadle.apps.console.exit_codes import SUCCESS
from treadle.apps.fleet.commands.selection import (
    find_run,
    select_runs,
    use_database,
)
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.folders.workspaces import RunWorkspaces, get_default_folder
from treadle.apps.fleet.reports.local_session import copy_session, render_session
from treadle.apps.fleet.reports.report import FleetReport, make_report
from treadle.apps.fleet.reports.report_page import render_page
from treadle.apps.fleet.reports.report_text import format_report, format_summary
from treadle.apps.fleet.run_record import FleetRun
from treadle.apps.fleet.store_address import hide_password
from treadle.core.errors import SessionNotFound
from treadle.lib.files.private_files import write_private_file
from treadle.lib.text.text import plural
from treadle.sessions.library import Library


def print_report(options: argparse.Namespace) -> int:
    if options.json and options.html is not None:
        raise UsageError("--json and --html cannot be combined")
    if options.sessions and options.html is None:
        raise UsageError("--sessions needs --html FILE")
    return use_database(options, lambda database: _print_report(database, options))


async def _print_report(database: FleetDatabase, options: argparse.Namespace) -> int:
    runs = await select_runs(database, options)
    report = make_report(runs, time.time())
    if options.json:
        print_report_json(report)
    elif options.html is not None:
        links = await _write_sessions(database, runs, options.html) if options.sessions else {}
        page = render_page(report, store=hide_password(options.store), links=links)
        write_private_file(options.html, page.encode("utf-8", "backslashreplace"))
        print_line(f"{options.html}: {format_summary(report)[0]}")
    else:
        print_report_text(report)
    return SUCCESS


def print_report_json(report: FleetReport) -> None:
    print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())


def print_report_text(report: FleetReport) -> None:
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    width = max(40, shutil.get_terminal_size().columns)
    for line in format_report(report, width, plain=plain):
        print_line(line)


async def _write_sessions(
    database: FleetDatabase, runs: list[FleetRun], page: Path
) -> dict[str, str]:
    """A page for each session; the links from the report to them."""
    folder = page.with_name(f"{page.stem}_sessions")
    links: dict[str, str] = {}
    for run in runs:
        try:
            text = await render_session(database, run)
        except SessionNotFound:
            continue
        name = f"{run.id}.html"
        write_private_file(folder / name, text.encode("utf-8", "backslashreplace"))
        links[run.id] = f"{folder.name}/{name}"
    print_line(f"{folder}: {plural(len(links), 'session')}")
    return links


def open_run(options: argparse.Namespace) -> int:
    return use_database(options, lambda database: _open_run(database, options))


async def _open_run(database: FleetDatabase, options: argparse.Namespace) -> int:
    run = await find_run(database, options.run)
    folder: Path = options.into or get_current_folder()
    if options.into is not None:
        workspaces = RunWorkspaces(get_default_folder(), database)
        for note in await workspaces.export(run.task, run.id, folder):
            print_error(note)
        print_line(f"{folder}: the files of {run.id}")
    session_id = await copy_session(database, run, folder, Library())
    if not run.has_ended:
        print_error(f"{run.id} has not ended: this is a copy of its session up to now")
    where = f"cd {folder} && " if options.into is not None else ""
    print_line(f"{session_id}: continue with {where}treadle --resume {session_id}")
    print_line(f"    treadle replay {session_id}, treadle sessions fork {session_id}")
    return SUCCESS
