"""`treadle fleet`: many runs on one or more machines. See docs/fleet.md.

    run_tasks    run TASKS: submit tasks, start workers, show progress
    worker       worker: a process that works for a fleet
    status       status, logs
    control      cancel, retry, approve
    results      report, open
    serve        serve: the report as a page
    prune        prune
    schedules    schedule
    session_transfer   not of this parser: `treadle send` to a fleet and back

This module has the parser. apps/cli/main.py names it, and imports it when it is called.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from treadle.apps.console.console import report_errors

_HERE = "treadle.apps.fleet.commands"
PROGRAM = "treadle fleet"
RUN_STATES = ("queued", "running", "waiting", "parked", "done", "failed", "cancelled", "set_aside")


def run(arguments: list[str]) -> int:
    options = _make_parser().parse_args(arguments or ["--help"])
    options.arguments = arguments
    module, _, function = options.do.partition(":")
    return report_errors(
        PROGRAM, lambda: int(getattr(import_module(f"{_HERE}.{module}"), function)(options))
    )


def _make_parser() -> argparse.ArgumentParser:
    about = "Runs many tasks with the coding agent, on this machine or on many; none is lost."
    parser = argparse.ArgumentParser(prog=PROGRAM, description=about)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, do: str, summary: str) -> argparse.ArgumentParser:
        subparser = commands.add_parser(name, help=summary, description=summary)
        subparser.set_defaults(do=do)
        _add_store(subparser, default="")
        return subparser

    _add_run(command("run", "run_tasks:run_tasks", "run the tasks of a file or folder"))
    _add_worker(command("worker", "worker:run_worker", "work for a fleet, on any machine"))
    status = command("status", "status:print_status", "show runs, workers and what waits")
    _add_selection(status)
    status.add_argument("--json", action="store_true", help="one JSON object")
    status.add_argument("--watch", action="store_true", help="until all runs have ended")
    logs = command("logs", "status:print_logs", "print what happened in a run")
    logs.add_argument("run")
    logs.add_argument("--follow", "-f", action="store_true", help="until the run has ended")
    cancel = command("cancel", "control:cancel_runs", "cancel runs that have not ended")
    _add_selection(cancel)
    cancel.add_argument("--all", action="store_true", help="all that have not ended")
    retry = command(
        "retry", "control:retry_runs", "run again what failed, was cancelled, set aside"
    )
    _add_selection(retry)
    retry.add_argument("--failed", action="store_true", help="all that failed or were set aside")
    _add_approve(command("approve", "control:answer_approvals", "list and answer approvals"))
    _add_report(command("report", "results:print_report", "pass rates, costs, times, failures"))
    serve = command("serve", "serve:serve_page", "the report as a page here, to approve calls on")
    serve.add_argument("--port", type=int, default=0, help="of 127.0.0.1 (default: a free one)")
    opened = command("open", "results:open_run", "copy a run's session here: resume, replay, fork")
    opened.add_argument("run")
    files = "also its files, into this new folder; the session then belongs to it"
    opened.add_argument("--into", type=Path, metavar="FOLDER", help=files)
    prune = command("prune", "prune:prune_runs", "delete old runs with their sessions")
    _add_selection(prune)
    age = "only runs that ended so long ago: 12h, 30d, 8w"
    prune.add_argument("--older-than", required=True, metavar="AGE", help=age)
    prune.add_argument("--yes", action="store_true", help="do not ask")
    _add_schedule(command("schedule", "schedules:run_schedule", "run tasks at times"))
    return parser


def _add_store(parser: argparse.ArgumentParser, default: str) -> None:
    store = "the database: sqlite:PATH or postgresql://… (default: sqlite:~/.treadle/fleet.db)"
    parser.add_argument("--store", metavar="ADDRESS", default=default, help=store)


def _add_run(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("tasks", type=Path, metavar="TASKS", help="a .jsonl, .json or .csv file, or a folder")
    add("--workers", type=int, default=1, metavar="N", help="processes of this machine; 0: none")
    at_once = "of each worker (default: 4, with --batch 100; with the engine ray, all for which"
    at_once += " it has room)"
    add("--runs-at-once", type=int, metavar="N", help=at_once)
    agent = "MODULE:FUNCTION that makes the agent of a run (default: the coding agent)"
    add("--agent", default="", metavar="NAME", help=agent)
    engine = "what delivers the runs of a new fleet (default: local for a file, else dbos)"
    add("--engine", default="", choices=("local", "dbos", "ray"), help=engine)
    _add_address(parser)
    add("--detach", action="store_true", help="only submit; workers elsewhere run the tasks")
    add("--json", action="store_true", help="print the report as JSON at the end")
    add("--label", action="append", default=[], metavar="NAME=TEXT", help="of all these tasks")
    defaults = parser.add_argument_group("for tasks that do not say it themselves")
    defaults.add_argument("--model", metavar="NAME")
    defaults.add_argument("--check", metavar="COMMAND", help="decides whether a run passed")
    defaults.add_argument("--max-cost", type=float, metavar="USD", help="of one run")
    defaults.add_argument("--max-turns", type=int, metavar="N", help="rounds of one run")
    defaults.add_argument("--timeout", type=float, metavar="SECONDS", help="of one run")
    defaults.add_argument("--permission-mode", metavar="MODE", help="as of treadle -p")
    image = "an image: commands and checks run in containers of podman or docker"
    defaults.add_argument("--container", metavar="IMAGE", help=image)
    batch = "replies by the provider's batch interface: half the price, within hours"
    defaults.add_argument("--batch", action="store_true", default=None, help=batch)
    where = "where owner/name of SWE-bench lines is: a folder of copies, or a URL"
    defaults.add_argument("--repositories", default="", metavar="PLACE", help=where)
    limits = parser.add_argument_group("limits for all runs of the fleet together")
    limits.add_argument("--concurrent-calls", type=int, metavar="N", help="to each provider")
    limits.add_argument("--requests-per-minute", type=int, metavar="N", help="to each provider")
    limits.add_argument("--tokens-per-minute", type=int, metavar="N", help="to each provider")
    limits.add_argument("--total-cost", type=float, metavar="USD", help="of all runs")


def _add_address(parser: argparse.ArgumentParser) -> None:
    address = "the cluster of the engine ray: HOST:PORT (default: that of this machine)"
    parser.add_argument("--address", default="", metavar="ADDRESS", help=address)


def _add_worker(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    at_once = "default: 4; with the engine ray, all for which it has room"
    add("--runs-at-once", type=int, metavar="N", help=at_once)
    _add_address(parser)
    add("--workspaces", type=Path, metavar="FOLDER", help="where the folders of runs are made")
    lease = "seconds without a heartbeat after which others take its runs (default: 30)"
    add("--lease", type=float, default=30.0, metavar="SECONDS", help=lease)
    attempts = "a run that completes no step in so many is set aside (default: 5)"
    add("--max-attempts", type=int, default=5, metavar="N", help=attempts)
    approval = "a call that waits longer for approval is denied (default: a day)"
    add("--approval-time", type=float, default=86_400.0, metavar="SECONDS", help=approval)
    agent = "MODULE:FUNCTION that makes the agent of a run (default: the coding agent)"
    add("--agent", default="", metavar="NAME", help=agent)
    add("--until-idle", action="store_true", help="end when no run is left")
    # For the processes that start workers: worker_processes.py.
    add("--poll", type=float, default=1.0, help=argparse.SUPPRESS)
    add("--parent", type=int, help=argparse.SUPPRESS)
    add("--name", default="", help=argparse.SUPPRESS)
    add("--agent-folder", type=Path, help=argparse.SUPPRESS)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="*", metavar="RUN", help="ids of runs")
    parser.add_argument("--state", choices=RUN_STATES)
    text = "only runs with this label"
    parser.add_argument("--label", action="append", default=[], metavar="NAME=TEXT", help=text)


def _add_approve(parser: argparse.ArgumentParser) -> None:
    text = "ids of approvals or runs; without any: list what waits"
    parser.add_argument("ids", nargs="*", metavar="ID", help=text)
    parser.add_argument("--all", action="store_true", help="everything that waits")
    parser.add_argument("--deny", metavar="REASON", help="deny it; the model reads the reason")


def _add_report(parser: argparse.ArgumentParser) -> None:
    _add_selection(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with plots")
    text = "with --html: a page for each session, too, in a folder beside it"
    parser.add_argument("--sessions", action="store_true", help=text)


def _add_schedule(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="list | add | remove")
    parser.set_defaults(action="list")
    listing = actions.add_parser("list", help="list the schedules and their next times")
    listing.set_defaults(action="list")
    adding = actions.add_parser("add", help="add or replace a schedule")
    adding.set_defaults(action="add")
    adding.add_argument("name")
    adding.add_argument("cron", metavar="TIMES", help="cron form: '30 4 * * mon-fri', or @daily")
    adding.add_argument("tasks", type=Path, metavar="TASKS", help="a file or folder of tasks")
    zone = "of the times, such as Europe/Berlin (default: that of this machine)"
    adding.add_argument("--time-zone", default="", metavar="NAME", help=zone)
    removing = actions.add_parser("remove", help="remove a schedule; its runs stay")
    removing.set_defaults(action="remove")
    removing.add_argument("name")
    for action in (listing, adding, removing):
        _add_store(action, default=argparse.SUPPRESS)  # it may stand before the action, too
