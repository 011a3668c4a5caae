"""`treadle undo`, `treadle redo` and `treadle sessions rewind`.

They change only files of the current folder, list them, and leave alone what the user changed.
Uses apps/conversation/undo.py, like the terminal UI.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.cli.options import add_sandbox_options, read_sandbox_options
from treadle.apps.console.console import UsageError, ask_yes, print_error, print_line, report_errors
from treadle.apps.console.exit_codes import ERROR, SUCCESS
from treadle.core.errors import SessionNotFound, StoreError
from treadle.lib.text.sanitize import escape_invisible, strip_escapes
from treadle.sessions.library import Library

if TYPE_CHECKING:
    from treadle.apps.conversation.undo import PlannedRestore
    from treadle.sessions.log.journal import ResumedSession
    from treadle.workspace.checkpoints.restore import RestoreResult

UNDO = "undo the file changes of the last turn; again: of the turn before it"
REDO = "bring back what the last undo or rewind changed; again: the one before it"
REWIND = "go back to before a turn: the conversation, and the files that the agent changed"
_NOTE = "The files as they are now are saved first; `treadle redo` brings them back."


def run_undo(arguments: list[str]) -> int:
    return _run("undo", UNDO, arguments)


def run_redo(arguments: list[str]) -> int:
    return _run("redo", REDO, arguments)


def _run(name: str, summary: str, arguments: list[str]) -> int:
    prog = f"treadle {name}"
    parser = argparse.ArgumentParser(prog=prog, description=summary)
    add_undo_arguments(parser, name)
    options = parser.parse_args(arguments)
    return report_errors(prog, lambda: apply_last(options, Library()))


def add_undo_arguments(parser: argparse.ArgumentParser, name: str) -> None:
    parser.set_defaults(
        action=name, do=apply_last, effects=False, only=None, sandbox=None, network=None
    )
    parser.epilog = _NOTE if name == "undo" else None
    parser.add_argument("id", nargs="?", help="the session (default: the last one of this folder)")
    if name == "undo":
        about = "not files: what else the last turn did, by the inverses of its tools"
        parser.add_argument("--effects", action="store_true", help=about)
        about = "with --effects: take back these; or `all`. Without it you are asked, or it lists"
        parser.add_argument("--only", metavar="1,3", help=about)
        add_sandbox_options(parser)
    _add_common_arguments(parser)


def add_rewind_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(do=rewind)
    parser.epilog = _NOTE
    parser.add_argument("id", help="the session, as in `treadle sessions`")
    parser.add_argument("turn", help="a number as in `treadle sessions turns ID`; -1 is the last")
    scope = parser.add_mutually_exclusive_group()
    for name, text in (
        ("both", "the conversation and the files (default)"),
        ("files", "only the files; the conversation stays"),
        ("conversation", "only the conversation; the files stay"),
    ):
        scope.add_argument(f"--{name}", dest="only", action="store_const", const=name, help=text)
    scope.add_argument("--only", choices=["conversation", "files"], help=argparse.SUPPRESS)
    _add_common_arguments(parser)


def _add_common_arguments(parser: argparse.ArgumentParser) -> None:
    text = "also restore this file, which you changed or may have changed (repeatable)"
    parser.add_argument("--include", metavar="PATH", action="append", default=[], help=text)
    parser.add_argument("--yes", action="store_true", help="do not ask (for scripts)")


# --- undo, redo ----------------------------------------------------------------------------


def apply_last(options: argparse.Namespace, library: Library) -> int:
    from treadle.apps.conversation import undo

    folder = Path.cwd()
    options.include = _normalize(options.include)
    if options.only is not None and not options.effects:
        raise UsageError("--only works with --effects; --include names a file")
    flags = read_sandbox_options(options)
    if flags and not options.effects:
        raise UsageError(f"--{next(iter(flags))} works with --effects: files need no command")
    if options.id:
        session_dir = library.find(options.id, folder=folder)
    elif (latest := library.find_latest(folder)) is not None:
        session_dir = latest
    else:
        raise SessionNotFound(f"no session in {folder}")
    if options.effects:
        from treadle.apps.cli.trials.undo_effects import undo_effects

        return asyncio.run(undo_effects(session_dir, folder, options.only, flags))

    async def work(resumed: ResumedSession) -> int:
        checkpoints = undo.open_checkpoints(library, folder)
        plan = undo.plan_undo if options.action == "undo" else undo.plan_redo
        try:
            planned = await plan(checkpoints, session_dir, options.include)
        except undo.NothingButUsersFiles as error:
            again = f"`treadle {options.action} --include PATH` restores one"
            raise StoreError(f"{error}; {again}") from error
        undo.check_named(planned, options.include, "--include ")
        include = _agree_on_doubtful(options, planned)
        restored = await undo.run_restore(checkpoints, resumed.journal, planned, include)
        summary = undo.describe_result(planned, restored)
        if restored.written or restored.removed:
            _append_notice(resumed, summary)
        print_line(escape_invisible(summary))
        code = _report_skipped(restored)
        again = f"treadle {options.action} --include PATH"
        if notes := undo.describe_notes(planned, include, session_dir.name, again):
            print_error(escape_invisible(notes))
        return code

    return _with_session(library, session_dir, work)


# --- rewind --------------------------------------------------------------------------------


def rewind(options: argparse.Namespace, library: Library) -> int:
    from treadle.apps.conversation import undo
    from treadle.sessions import history

    with_files = options.only != "conversation"
    folder = Path.cwd()
    options.include = _normalize(options.include)
    session_dir = library.find(options.id, folder=folder if with_files else None)
    turn = history.find_turn(session_dir, options.turn)

    async def work(resumed: ResumedSession) -> int:
        # The files first: if that fails, the conversation still has the changes.
        code = await rewind_files(resumed) if with_files else SUCCESS
        if options.only != "files":
            await history.rewind(resumed.journal, turn.turn_id)
            print_line(f"conversation rewound to before turn {turn.number}")
        return code

    async def rewind_files(resumed: ResumedSession) -> int:
        checkpoints = undo.open_checkpoints(library, folder)
        planned = await undo.plan_rewind(checkpoints, session_dir, turn)
        if planned is None:
            print_error(f"no files to restore: the agent changed none since turn {turn.number}")
            return ERROR if options.only == "files" else SUCCESS
        undo.check_named(planned, options.include, "--include ")
        lines, include = undo.describe_plan(planned), list(options.include)
        if planned.plan.by("agent", "both", "unknown"):
            _confirm(options, lines, f"Restore {undo.count_changes(planned.plan)}?")
            include += planned.list_doubtful()
            if not options.yes:
                left_alone = [one.path for one in undo.list_left_alone(planned.plan, include)]
                include += filter(_ask_to_include, left_alone)
        else:
            _print_lines(lines)
        restored = await undo.run_restore(checkpoints, resumed.journal, planned, include)
        if restored.written or restored.removed:
            _append_notice(resumed, undo.describe_action(planned))
        print_line(escape_invisible(undo.list_restored(restored)))
        return _report_skipped(restored)

    return _with_session(library, session_dir, work)


# --- questions and reports -----------------------------------------------------------------


def _normalize(paths: list[str]) -> list[str]:
    """`./a` is `a`."""
    return [os.path.normpath(path) for path in paths]


def _agree_on_doubtful(options: argparse.Namespace, planned: PlannedRestore) -> list[str]:
    """The files to restore although the user changed them, too, or may have."""
    from treadle.apps.conversation import undo

    doubtful = [path for path in planned.list_doubtful() if path not in options.include]
    if options.yes or not doubtful:
        return [*options.include, *doubtful]
    if options.include and not _is_terminal():
        return list(options.include)
    _confirm(options, undo.describe_plan(planned), f"Undo {undo.count_changes(planned.plan)}?")
    return [*options.include, *doubtful]


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _confirm(options: argparse.Namespace, lines: list[str], question: str) -> None:
    _print_lines(lines)
    if options.yes:
        return
    if not _is_terminal():
        raise UsageError("nothing was changed; add --yes to do it without a question")
    if not ask_yes(question):
        raise UsageError("nothing was changed")


def _ask_to_include(path: str) -> bool:
    return ask_yes(f"You changed {escape_invisible(strip_escapes(path))}, too. Restore it as well?")


def _print_lines(lines: list[str]) -> None:
    for line in lines:
        print_line(escape_invisible(line))


def _append_notice(resumed: ResumedSession, action: str) -> None:
    """Tell the model, which remembers its own changes, when the session continues."""
    from treadle.core.transcript import NoticeItem, RunTools, pending
    from treadle.core.transcript.entries import ItemAdded

    if not isinstance(pending(resumed.state.transcript), RunTools):  # open calls need results first
        resumed.journal.append(ItemAdded(NoticeItem(f"The user {action}.", kind="files")))


def _report_skipped(restored: RestoreResult) -> int:
    from treadle.apps.conversation import undo

    for line in undo.list_skipped(restored):
        print_error(escape_invisible(line))
    return ERROR if restored.skipped else SUCCESS


def _with_session(
    library: Library, session_dir: Path, work: Callable[[ResumedSession], Awaitable[int]]
) -> int:
    import asyncio

    async def run() -> int:
        resumed = library.resume(session_dir.name)  # locks the session
        try:
            return await work(resumed)
        finally:
            await resumed.journal.aclose()

    return asyncio.run(run())
