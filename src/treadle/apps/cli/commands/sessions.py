"""`treadle sessions`: finds, shows, exports, forks, rewinds, undoes, removes and prunes sessions.

Works on the journals and the checkpoints; starts no agent and calls no model. Uses treadle.sessions
and services/undo.py.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.cli.commands.session_list import (
    format_table,
    make_child_rows,
    print_search_results,
    print_sessions,
)
from treadle.apps.cli.console import print_error, print_line, report_errors
from treadle.apps.cli.exit_codes import ERROR, SUCCESS
from treadle.core.errors import SessionNotFound
from treadle.core.sanitize import escape_invisible, escape_json, strip_escapes
from treadle.core.text import format_age, format_bytes, plural
from treadle.sessions.library import DEFAULT_PRUNE_BYTES, DEFAULT_PRUNE_DAYS, Library

if TYPE_CHECKING:
    from treadle.sessions.log.journal import ResumedSession
    from treadle.workspace.checkpoints import RestoreResult

GIB = 1 << 30
MAX_LISTED_PATHS = 20


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments or ["list"])
    return report_errors("treadle sessions", lambda: options.do(options, Library()))


def run_undo(arguments: list[str]) -> int:
    return run(["undo", *arguments])


def run_redo(arguments: list[str]) -> int:
    return run(["redo", *arguments])


def _parser() -> argparse.ArgumentParser:
    about = "Sessions on this machine."
    parser = argparse.ArgumentParser(prog="treadle sessions", description=about)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        name: str, do: Callable[[argparse.Namespace, Library], int], summary: str, *words: str
    ) -> argparse.ArgumentParser:
        subparser = commands.add_parser(name, help=summary, description=summary)
        subparser.set_defaults(do=do)
        for word in words:
            subparser.add_argument(word)
        return subparser

    listing = command("list", print_sessions, "list the newest sessions")
    listing.add_argument("--here", action="store_true", help="only sessions of this folder")
    listing.add_argument("--all", action="store_true", help="all sessions, with their subagents")
    listing.add_argument("--json", action="store_true", help="one JSON object per line")
    search = command("search", print_search_results, "search sessions", "text")
    search.add_argument("--limit", type=int, default=50)
    command("show", _show, "print a session as text", "id")
    command("turns", _turns, "list the turns, for fork and rewind", "id")
    export = command("export", _export, "export a session to a file or stdout", "id")
    export.add_argument("--format", choices=["markdown", "html", "json"], default="markdown")
    export.add_argument("--output", type=Path, help="the file (default: stdout)")
    fork = command("fork", _fork, "create a session that shares the history of this one", "id")
    fork.add_argument("--before", metavar="TURN", help="without this turn and those after it")
    rewind = command("rewind", _rewind, "go back to before a turn", "id", "turn")
    scope = rewind.add_mutually_exclusive_group()
    scope.add_argument("--only", choices=["conversation", "files"], help="default: both")
    for name in ("files", "conversation", "both"):
        flag = f"--{name}"
        scope.add_argument(flag, dest="only", action="store_const", const=name, help="the same")
    undo = command("undo", _apply_last_turn, "undo the file changes of the last turn")
    redo = command("redo", _apply_last_turn, "redo what undo reverted")
    for subparser in (undo, redo):
        subparser.set_defaults(is_undo=subparser is undo)
        subparser.add_argument("id", nargs="?", help="default: last session of this folder")
    remove = command("remove", _remove, "delete sessions")
    remove.add_argument("id", nargs="+")
    remove.add_argument("--forks", action="store_true", help="also delete their forks")
    prune = command("prune", _prune, "delete old sessions, and the oldest above a total size")
    age = "maximum age (default: %(default)s)"
    prune.add_argument("--days", type=float, default=DEFAULT_PRUNE_DAYS, help=age)
    size = "maximum size of all sessions in GiB (default: %(default)s)"
    prune.add_argument("--size", type=float, default=DEFAULT_PRUNE_BYTES // GIB, help=size)
    prune.add_argument("--dry-run", action="store_true", help="only show what would be deleted")
    return parser


# --- show, export --------------------------------------------------------------------------


def _show(options: argparse.Namespace, library: Library) -> int:
    from treadle.sessions.export import read_blocks, render_markdown
    from treadle.sessions.log.reader import find_damage

    session_dir = library.find(options.id)
    summary = library.get_summary(session_dir)
    print_line(render_markdown(summary, read_blocks(session_dir)), end="")
    for damage in find_damage(session_dir):
        print_error(f"the session log is damaged: {damage}")
    [children] = library.list_child_sessions([session_dir])
    if children:
        print("\n## Subagents\n")
        for line in format_table(make_child_rows(children, library)):
            print_line(escape_invisible(strip_escapes(line)))
    return SUCCESS


def _turns(options: argparse.Namespace, library: Library) -> int:
    from treadle.sessions.history import list_turns

    for turn in list_turns(library.find(options.id)):
        files = "with files" if turn.checkpoint_before else ""
        text = escape_invisible(" ".join(strip_escapes(turn.text).split())[:70])
        print_line(f"{turn.number:4}  {_format_time(turn.time):8}  {files:10}  {text}")
    return SUCCESS


def _format_time(timestamp: float) -> str:
    return format_age(time.time() - timestamp)


def _export(options: argparse.Namespace, library: Library) -> int:
    from treadle.sessions.export import read_blocks, render_json, render_markdown

    session_dir = library.find(options.id)
    summary = library.get_summary(session_dir)
    match options.format:
        case "json":
            data = render_json(summary, session_dir)
        case "html":
            from treadle.sessions.html_export import render_html

            text = render_html(summary, read_blocks(session_dir))
            data = text.encode(errors="backslashreplace")
        case _:
            text = render_markdown(summary, read_blocks(session_dir))
            data = text.encode(errors="backslashreplace")
    if options.output is None:
        if sys.stdout.isatty():  # a file or pipe gets the exact bytes
            text = data.decode()
            data = (escape_json(text) if options.format == "json" else strip_escapes(text)).encode()
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return SUCCESS
    options.output.write_bytes(data)
    print_line(f"{options.output}: {format_bytes(len(data))}")
    return SUCCESS


# --- fork, rewind, undo --------------------------------------------------------------------


def _fork(options: argparse.Namespace, library: Library) -> int:
    import asyncio

    from treadle.apps.services.undo import fork_session

    session_dir = library.find(options.id)
    session_id = asyncio.run(fork_session(library, session_dir, Path.cwd(), options.before))
    print(f"{session_id}: continue with treadle --resume {session_id}")
    return SUCCESS


def _rewind(options: argparse.Namespace, library: Library) -> int:
    import asyncio

    from treadle.apps.services.undo import find_tree_before, open_checkpoints
    from treadle.sessions.history import find_turn, rewind

    async def work() -> int:
        session_dir = library.find(options.id)
        turn = find_turn(session_dir, options.turn)
        tree = "" if options.only == "conversation" else find_tree_before(session_dir, turn.turn_id)
        if options.only != "conversation" and not tree:
            print(f"no files to restore: none changed since turn {turn.number}", file=sys.stderr)
            if options.only == "files":
                return ERROR
        resumed = library.resume(session_dir.name)
        code = SUCCESS
        try:
            # The files first: if that fails, the conversation still has the changes.
            if tree:
                folder = Path(library.get_summary(session_dir).folder)
                code = _print_restored(await open_checkpoints(library, folder).restore(tree))
            if options.only == "files":
                _append_notice(resumed, f"restored the files to before turn {turn.number}")
            else:
                await rewind(resumed.journal, turn.turn_id)
                print(f"conversation rewound to before turn {turn.number}")
        finally:
            await resumed.journal.aclose()
        return code

    return asyncio.run(work())


def _apply_last_turn(options: argparse.Namespace, library: Library) -> int:
    """Undo or redo what the last turn changed."""
    import asyncio

    from treadle.apps.services.undo import apply_turn, list_changing_turns, open_checkpoints

    session_dir = library.find(options.id) if options.id else library.find_latest(Path.cwd())
    if session_dir is None:
        raise SessionNotFound(f"no session in {Path.cwd()}")
    turns = list_changing_turns(session_dir)
    if not turns:
        print(f"no turn of session {session_dir.name} changed files", file=sys.stderr)
        return ERROR
    turn = turns[-1]

    async def work() -> int:
        resumed = library.resume(session_dir.name)  # locks the session
        try:
            folder = Path(library.get_summary(session_dir).folder)
            checkpoints = open_checkpoints(library, folder)
            restored = await apply_turn(checkpoints, turn, is_undo=options.is_undo)
            if restored.written or restored.removed:
                paths = ", ".join([*restored.written, *restored.removed][:MAX_LISTED_PATHS])
                verb = "undid" if options.is_undo else "redid"
                _append_notice(resumed, f"{verb} the file changes of turn {turn.number}: {paths}")
            return _print_restored(restored)
        finally:
            await resumed.journal.aclose()

    return asyncio.run(work())


def _append_notice(resumed: ResumedSession, action: str) -> None:
    """Tell the model, which remembers its own changes, when the session continues."""
    from treadle.core.transcript import NoticeItem, RunTools, pending
    from treadle.core.transcript.entries import ItemAdded

    if not isinstance(pending(resumed.view.transcript), RunTools):  # open calls need results first
        resumed.journal.append(ItemAdded(NoticeItem(f"The user {action}.", kind="files")))


def _print_restored(restored: RestoreResult) -> int:
    from treadle.apps.services.undo import format_restored, list_skipped

    print(format_restored(restored))
    for line in list_skipped(restored):
        print_error(escape_invisible(line))
    return ERROR if restored.skipped else SUCCESS


# --- remove, prune -------------------------------------------------------------------------


def _remove(options: argparse.Namespace, library: Library) -> int:
    session_dirs = [library.find(name) for name in options.id]
    freed = sum(library.remove(path, with_forks=options.forks) for path in session_dirs)
    print(f"{plural(len(session_dirs), 'session')} removed, {format_bytes(freed)} freed")
    return SUCCESS


def _prune(options: argparse.Namespace, library: Library) -> int:
    max_bytes, dry_run = int(options.size * GIB), options.dry_run
    pruned = library.prune(days=options.days, max_bytes=max_bytes, dry_run=dry_run)
    for summary in pruned.removed:
        title = escape_invisible(strip_escapes(summary.title))
        print_line(f"{summary.id}  {_format_time(summary.updated)}  {title}")
    freed = pruned.freed_bytes + (0 if dry_run else _sweep_checkpoints(library))
    count = plural(len(pruned.removed), "session")
    verb = "would be removed" if dry_run else "removed"
    kept = format_bytes(pruned.kept_bytes)
    print(f"{count} {verb}, {format_bytes(freed)} freed, {kept} kept")
    return SUCCESS


def _sweep_checkpoints(library: Library) -> int:
    """Delete the checkpoints that only removed sessions used; returns the freed bytes."""
    import asyncio

    from treadle.sessions.history import list_checkpoint_trees
    from treadle.workspace.checkpoints import Checkpoints

    freed = 0
    base = library.checkpoint_dir(Path.cwd()).parent
    for store in [Path(entry.path) for entry in os.scandir(base)] if base.is_dir() else []:
        sessions = [path for path in library.list_session_dirs() if path.parent.name == store.name]
        used = [tree for session in sessions for tree in list_checkpoint_trees(session)]
        freed += asyncio.run(Checkpoints(store, store).prune(used))
    return freed
