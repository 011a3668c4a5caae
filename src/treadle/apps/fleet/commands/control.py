"""`treadle fleet cancel`, `retry` and `approve`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from treadle.apps.console.console import UsageError, print_error, print_line
from treadle.apps.console.exit_codes import ERROR, SUCCESS
from treadle.apps.fleet.commands.selection import name_command, select_runs, use_database
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.reports.report_text import STATE_WORDS
from treadle.apps.fleet.run_record import FleetApproval, FleetRun
from treadle.lib.text.sanitize import escape_invisible, strip_escapes
from treadle.lib.text.text import format_age, format_duration, plural


def cancel_runs(options: argparse.Namespace) -> int:
    _require_selection(options, "--all", is_all=options.all)

    async def work(database: FleetDatabase) -> int:
        runs = await _select_runs(database, options)
        if options.all:
            runs = [run for run in runs if not run.has_ended]
        changed = await database.cancel([run.id for run in runs])
        print_line(f"{plural(len(changed), 'run')} cancelled")
        return _explain_others(runs, changed, "a run that has ended cannot be cancelled")

    return use_database(options, work)


def retry_runs(options: argparse.Namespace) -> int:
    _require_selection(options, "--failed", is_all=options.failed)

    async def work(database: FleetDatabase) -> int:
        runs = await _select_runs(database, options)
        if options.failed:
            runs = [run for run in runs if run.state in ("failed", "set_aside")]
        changed = await database.retry([run.id for run in runs])
        print_line(f"{plural(len(changed), 'run')} queued again")
        rule = "only a run that failed, was cancelled or set aside can be retried"
        return _explain_others(runs, changed, rule)

    return use_database(options, work)


async def _select_runs(database: FleetDatabase, options: argparse.Namespace) -> list[FleetRun]:
    try:
        return await select_runs(database, options)
    except UsageError as error:
        raise UsageError(f"nothing was changed: {error}") from error


def _explain_others(runs: Sequence[FleetRun], changed: Sequence[str], rule: str) -> int:
    """Say why runs that were chosen stay as they are; an error if that is all that came of it."""
    others = [run for run in runs if run.id not in {*changed}]
    for run in others:
        print_error(f"{run.id} is {STATE_WORDS[run.state]}: {rule}")
    return ERROR if others and not changed else SUCCESS


def _require_selection(options: argparse.Namespace, flag: str, *, is_all: bool) -> None:
    """Nothing is changed because an argument was forgotten."""
    if not (options.runs or options.state or options.label or is_all):
        raise UsageError(f"name runs, or give --state, --label or {flag}")


def answer_approvals(options: argparse.Namespace) -> int:
    return use_database(options, lambda database: _answer(database, options))


async def _answer(database: FleetDatabase, options: argparse.Namespace) -> int:
    waiting = await database.approvals()
    if not options.ids and not options.all:
        if options.deny is not None:
            raise UsageError("--deny needs the ids of approvals or runs, or --all")
        _print_waiting(waiting)
        return SUCCESS
    chosen = [one for one in waiting if options.all or {one.id, one.run} & {*options.ids}]
    known = {name for one in chosen for name in (one.id, one.run)}
    missing = [name for name in options.ids if name not in known]
    if missing:
        raise UsageError(
            f"nothing of {missing[0]!r} waits, and nothing was answered; "
            f"`{name_command(database, 'approve')}` lists what waits"
        )
    allow = options.deny is None
    for one in chosen:
        reason = options.deny or ""
        done = await database.answer_approval(one.id, allow=allow, reason=reason)
        word = "approved" if allow else "denied"
        print_line(f"{one.id}: {word if done else 'was answered meanwhile'}")
    return SUCCESS


def _print_waiting(waiting: Sequence[FleetApproval]) -> None:
    now = time.time()
    for one in waiting:
        limit = f", denied in {format_duration(one.expires - now)}" if one.expires else ""
        print_line(
            escape_invisible(f"{one.id}  run {one.run}, {format_age(now - one.created)}{limit}")
        )
        text = " ".join(strip_escapes(one.arguments).split())
        print_line(escape_invisible(f"    {one.tool}: {text}"))
    if not waiting:
        print_line("nothing waits for approval")
