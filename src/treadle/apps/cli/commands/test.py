"""`treadle test`: do recorded sessions still pass, with another model or prompt?

The user's messages are answered again; tools answer as recorded, so nothing happens twice. Each
session is a case of apps/evals, which compares the calls and the answer. With `--recorded` the
replies are the recorded ones, too (replay.py): the loop and the tools that read are tested, for
nothing.
"""

from __future__ import annotations

import argparse
import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.console.console import (
    UsageError,
    describe_os_error,
    print_error,
    print_line,
    report_errors,
)
from treadle.apps.console.exit_codes import ERROR, SUCCESS
from treadle.lib.files.private_files import check_output, write_private_output
from treadle.lib.text.sanitize import escape_invisible
from treadle.sessions.library import Library
from treadle.sessions.log.reader import FIRST_SEGMENT

if TYPE_CHECKING:
    from treadle.apps.evals.report import EvalReport


def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="treadle test",
        description="Run recorded sessions of this folder again, with the model and the prompt as "
        "they are now, and compare the calls and the answers. Tools answer as recorded.",
    )
    about = "a session, or its folder with journal.jsonl, such as one in a repository"
    parser.add_argument("ids", nargs="+", metavar="ID", help=about)
    about = "no model: the recorded replies, this version, and the tools that read as they are now"
    parser.add_argument("--recorded", action="store_true", help=about)
    parser.add_argument("--model", help="the model to test; that of the settings by default")
    parser.add_argument("--instructions", metavar="FILE", help="text added to the system prompt")
    parser.add_argument("--judge", metavar="MODEL", help="compares the answers; else the model")
    exact_help = "the same answer word for word, and the same calls; without a judge"
    parser.add_argument("--exact", action="store_true", help=exact_help)
    parser.add_argument("--repeats", type=int, default=1, metavar="N", help="runs of each; 1")
    parser.add_argument("--max-cost", type=float, metavar="USD", help="for all runs and judges")
    parser.add_argument("--html", metavar="FILE", help="write the report as a page")
    options = parser.parse_args(arguments)
    if options.exact and options.judge:
        parser.error("--exact and --judge cannot be used together")
    for name in ("model", "instructions", "judge", "exact", "repeats", "max_cost", "html"):
        if options.recorded and getattr(options, name) != parser.get_default(name):
            parser.error(f"--recorded asks no model: leave out --{name.replace('_', '-')}")
    return report_errors("treadle test", lambda: _test(options))


def _test(options: argparse.Namespace) -> int:
    from treadle.apps.evals.report_page import render_report_page

    if options.recorded:
        from treadle.apps.cli.commands.replay import replay_session

        folders = [_find_session(one, Path.cwd()) for one in options.ids]
        codes = [asyncio.run(replay_session(one, Path.cwd())) for one in folders]
        return max(codes)
    if options.html:
        check_output(Path(options.html))
    report = asyncio.run(_evaluate(options, Path.cwd()))
    print_line(str(report))
    for case in report.cases:
        if case.reason:
            print_line(f"{case.name}: {escape_invisible(case.reason)}")
    if options.html:
        page = render_report_page(report).encode(errors="backslashreplace")
        write_private_output(Path(options.html), page)
    return SUCCESS if report.passed else ERROR


async def _evaluate(options: argparse.Namespace, folder: Path) -> EvalReport:
    from treadle.apps.assembly.coding_agent import coding_agent
    from treadle.apps.evals.case import Case, EvalCheck, equals, same_calls
    from treadle.apps.evals.evaluate import evaluate
    from treadle.apps.evals.judge import judge

    session_dirs = [_find_session(one, folder) for one in options.ids]
    instructions = _read_text(options.instructions)
    open_agent = partial(coding_agent, folder, model=options.model, instructions=instructions)
    async with open_agent(store=session_dirs[0].parent) as agent:
        for note in agent.notes:
            print_error(note)
        checks: list[EvalCheck] = [same_calls, equals]
        if not options.exact:
            checks = [judge(model=options.judge or agent.config.model)]
        cases = []
        for one in session_dirs:  # those of other folders and of child agents are elsewhere
            async with open_agent(store=one.parent) as reader:
                cases.append(await Case.from_session(reader, one.name))
        return await evaluate(
            agent, cases, checks=checks, repeats=options.repeats, budget=options.max_cost
        )


def _find_session(name: str, folder: Path) -> Path:
    path = Path(name)
    if (path / FIRST_SEGMENT).is_file():
        return path.resolve()
    if "/" in name and path.is_dir():
        raise UsageError(f"{name} is no session: it has no {FIRST_SEGMENT}")
    return Library().find(name, folder=folder, by_words=True)


def _read_text(path: str | None) -> str:
    try:
        return Path(path).read_text("utf-8") if path else ""
    except OSError as error:
        raise UsageError(f"--instructions {describe_os_error(error)}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"--instructions {path}: {error}") from None
