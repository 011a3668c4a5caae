"""`treadle sessions`: find, show, export, fork, rewind, undo, remove and prune sessions.

Reads the journals and the checkpoints; starts no agent and asks no model. Above: `main.py`.
Below: `treadle.sessions` and `treadle.workspace.checkpoints`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.cli.commands.session_list import (
    format_age,
    format_table,
    make_child_rows,
    print_search_results,
    print_sessions,
)
from treadle.apps.cli.console import print_error, print_line
from treadle.apps.cli.exit_codes import (
    ERROR,
    IO_ERROR,
    SESSION_BUSY,
    SESSION_NOT_FOUND,
    SESSION_TOO_NEW,
    SUCCESS,
    WRONG_FOLDER,
    exit_code_for,
)
from treadle.core.errors import SessionNotFound, TreadleError
from treadle.core.sanitize import escape_invisible, escape_json, strip_escapes
from treadle.sessions.library import DEFAULT_PRUNE_BYTES, DEFAULT_PRUNE_DAYS, Library

if TYPE_CHECKING:
    from treadle.sessions.history import TurnInfo
    from treadle.sessions.log.journal import ResumedSession
    from treadle.workspace.checkpoints import Checkpoints, RestoreResult

__all__ = [
    "SESSION_BUSY",
    "IO_ERROR",
    "SUCCESS",
    "WRONG_FOLDER",
    "ERROR",
    "SESSION_TOO_NEW",
    "SESSION_NOT_FOUND",
    "report_errors",
    "run",
]

GIB = 1 << 30
MAX_LISTED_PATHS = 20


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments or ["list"])
    return report_errors("sessions", lambda: options.do(options, Library()))


def report_errors(command: str, work: Callable[[], int]) -> int:
    """Do it; an error of ours is one sentence and a code of its own."""
    try:
        return work()
    except TreadleError as error:
        print_error(f"treadle {command}: {error}")
        return exit_code_for(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="treadle sessions", description="Sessions kept on this machine."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        name: str, do: Callable[[argparse.Namespace, Library], int], summary: str, *words: str
    ) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=summary, description=summary)
        one.set_defaults(do=do)
        for word in words:
            one.add_argument(word)
        return one

    one = command("list", print_sessions, "the newest sessions; all of them with --all")
    one.add_argument("--here", action="store_true", help="only those of this folder")
    one.add_argument(
        "--all", action="store_true", help="not only the first screen; with their child agents"
    )
    one.add_argument("--json", action="store_true", help="one JSON object a line")
    one = command("search", print_search_results, "the sessions in which a text stands", "text")
    one.add_argument("--limit", type=int, default=50)
    command("show", _show, "what was said and done, as text", "id")
    command("turns", _turns, "the turns that fork, rewind and undo know", "id")
    one = command("export", _export, "write a session to a file or the standard output", "id")
    one.add_argument("--format", choices=["markdown", "html", "json"], default="markdown")
    one.add_argument("--output", type=Path, help="the file (standard output)")
    one = command("fork", _fork, "a new session with this one's history, kept by reference", "id")
    one.add_argument("--before", metavar="TURN", help="without this turn and what came after it")
    one = command("rewind", _rewind, "go back to before a turn", "id", "turn")
    what = one.add_mutually_exclusive_group()
    what.add_argument("--only", choices=["conversation", "files"], help="both, unless said")
    for name in ("files", "conversation", "both"):
        what.add_argument(
            f"--{name}", dest="only", action="store_const", const=name, help="the same"
        )
    one = command("undo", _undo, "take back what the last turn changed in the files")
    one.add_argument("id", nargs="?", help="the session (the last one of this folder)")
    one = command("redo", _redo, "bring back what undo took")
    one.add_argument("id", nargs="?", help="the session (the last one of this folder)")
    one = command("remove", _remove, "delete sessions")
    one.add_argument("id", nargs="+")
    one.add_argument("--forks", action="store_true", help="and the forks that read them")
    one = command("prune", _prune, "delete old sessions, and the oldest if all take too much")
    one.add_argument(
        "--days", type=float, default=DEFAULT_PRUNE_DAYS, help=f"older ({DEFAULT_PRUNE_DAYS})"
    )
    size = DEFAULT_PRUNE_BYTES // GIB
    one.add_argument("--size", type=float, default=size, help=f"GiB in all ({size})")
    one.add_argument("--dry-run", action="store_true", help="only say what would go")
    return parser


# --- reading -------------------------------------------------------------------------------


def _show(options: argparse.Namespace, library: Library) -> int:
    from treadle.sessions.export import read_blocks, render_markdown

    place = library.find(options.id)
    print_line(render_markdown(library.get_summary(place), read_blocks(place)), end="")
    [family] = library.list_child_sessions([place])
    if family:
        print("\n## Child agents\n")
        for line in format_table(make_child_rows(family, library)):
            print_line(escape_invisible(strip_escapes(line)))
    return SUCCESS


def _turns(options: argparse.Namespace, library: Library) -> int:
    from treadle.sessions.history import list_turns

    for mark in list_turns(library.find(options.id)):
        files = "with files" if mark.checkpoint_before else ""
        text = " ".join(strip_escapes(mark.text).split())[:70]
        print_line(
            f"{mark.number:4}  {format_age(mark.time):12}  {files:10}  {escape_invisible(text)}"
        )
    return SUCCESS


def _export(options: argparse.Namespace, library: Library) -> int:
    from treadle.sessions.export import read_blocks, render_json, render_markdown

    place = library.find(options.id)
    summary = library.get_summary(place)
    match options.format:
        case "json":
            data = render_json(summary, place)
        case "html":
            from treadle.sessions.html_export import render_html

            data = render_html(summary, read_blocks(place)).encode(errors="backslashreplace")
        case _:
            data = render_markdown(summary, read_blocks(place)).encode(errors="backslashreplace")
    if options.output is None:
        if sys.stdout.isatty():  # somewhere else it stays as it is, byte for byte
            text = data.decode()
            data = (escape_json(text) if options.format == "json" else strip_escapes(text)).encode()
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return SUCCESS
    try:
        options.output.write_bytes(data)
    except OSError as error:
        print_error(f"treadle sessions: {options.output}: {error.strerror}")
        return IO_ERROR
    print_line(f"{options.output}: {len(data)} bytes")
    return SUCCESS


# --- going back ----------------------------------------------------------------------------


def _fork(options: argparse.Namespace, library: Library) -> int:
    import asyncio

    from treadle.core.transcript.entries import NoticeShown
    from treadle.sessions.history import fork

    async def work() -> str:
        place = library.find(options.id)
        journal, _ = fork(library, place, folder=Path.cwd(), before_turn=options.before)
        journal.append(NoticeShown(f"a fork of {place.name}"))
        await journal.aclose()
        return journal.session_id

    session_id = asyncio.run(work())
    print(f"{session_id}: treadle --resume {session_id} goes on with it")
    return SUCCESS


def _rewind(options: argparse.Namespace, library: Library) -> int:
    import asyncio

    from treadle.sessions.history import find_turn, rewind

    async def work() -> int:
        place = library.find(options.id)
        mark = find_turn(place, options.turn)
        tree = "" if options.only == "conversation" else _find_tree_before(place, mark)
        if options.only != "conversation" and not tree:
            print(f"no turn from {mark.number} on changed files: they stay", file=sys.stderr)
            if options.only == "files":
                return ERROR
        resumed = library.resume(place.name)
        code = SUCCESS
        try:
            # The files first: if that fails, the conversation still tells how they came about.
            if tree:
                code = _print_restored(await _open_checkpoints(library, place).restore(tree))
            if options.only == "files":
                _append_notice(
                    resumed, f"put the files back to what they were before turn {mark.number}"
                )
            else:
                await rewind(resumed.journal, mark.turn_id)
                print(f"the conversation is back to before turn {mark.number}")
        finally:
            await resumed.journal.aclose()
        return code

    return asyncio.run(work())


def _find_tree_before(session_dir: Path, mark: TurnInfo) -> str:
    """The files before a turn; one that changed none has those of the next that did."""
    from treadle.sessions.history import list_turns

    return next(
        (
            m.checkpoint_before
            for m in list_turns(session_dir)
            if m.number >= mark.number and m.checkpoint_before
        ),
        "",
    )


def _undo(options: argparse.Namespace, library: Library) -> int:
    return _apply_last_turn(options, library, is_undo=True)


def _redo(options: argparse.Namespace, library: Library) -> int:
    return _apply_last_turn(options, library, is_undo=False)


def _apply_last_turn(options: argparse.Namespace, library: Library, *, is_undo: bool) -> int:
    import asyncio

    from treadle.sessions.history import list_turns

    place = library.find(options.id) if options.id else library.find_latest(Path.cwd())
    if place is None:
        raise SessionNotFound(f"there is no session in {Path.cwd()} whose changes could be undone")
    marks = [
        mark
        for mark in list_turns(place)
        if mark.checkpoint_after and mark.checkpoint_before != mark.checkpoint_after
    ]
    if not marks:
        print(f"no turn of session {place.name} changed files", file=sys.stderr)
        return ERROR
    last = marks[-1]
    old, new = (
        (last.checkpoint_after, last.checkpoint_before)
        if is_undo
        else (last.checkpoint_before, last.checkpoint_after)
    )

    async def work() -> int:
        resumed = library.resume(place.name)  # nobody works in it meanwhile
        try:
            restored = await _open_checkpoints(library, place).apply(old, new)
            if restored.written or restored.removed:
                paths = ", ".join([*restored.written, *restored.removed][:MAX_LISTED_PATHS])
                word = "took back" if is_undo else "brought back"
                _append_notice(
                    resumed, f"{word} what turn {last.number} changed in the files: {paths}"
                )
            return _print_restored(restored)
        finally:
            await resumed.journal.aclose()

    return asyncio.run(work())


def _append_notice(resumed: ResumedSession, action: str) -> None:
    """Let the model know when the session goes on: it remembers its own changes."""
    from treadle.core.transcript.entries import ItemAdded
    from treadle.core.transcript.items import NoticeItem
    from treadle.core.transcript.pending import RunTools, pending

    if not isinstance(pending(resumed.view.transcript), RunTools):  # calls wait for their answers
        resumed.journal.append(ItemAdded(NoticeItem(f"The user {action}.", kind="files")))


def _open_checkpoints(library: Library, session_dir: Path) -> Checkpoints:
    from treadle.core.errors import WorkspaceError
    from treadle.workspace.checkpoints import Checkpoints

    folder = Path(library.get_summary(session_dir).folder)
    if folder.resolve() != folder:
        raise WorkspaceError(
            f"{folder} leads to {folder.resolve()} now; its files are put back where they were, "
            "or not at all: take the link away first"
        )
    return Checkpoints(folder, library.checkpoint_dir(folder))


def _print_restored(restored: RestoreResult) -> int:
    print(f"{len(restored.written)} files written, {len(restored.removed)} removed")
    for skipped in restored.skipped:
        print_error(f"left alone: {escape_invisible(skipped.path)} ({skipped.reason})")
    return ERROR if restored.skipped else SUCCESS


# --- making room ---------------------------------------------------------------------------


def _remove(options: argparse.Namespace, library: Library) -> int:
    places = [library.find(name) for name in options.id]
    freed = sum(library.remove(place, with_forks=options.forks) for place in places)
    print(f"{len(places)} removed, {_format_size(freed)} freed")
    return SUCCESS


def _prune(options: argparse.Namespace, library: Library) -> int:
    pruned = library.prune(
        days=options.days, max_bytes=int(options.size * GIB), dry_run=options.dry_run
    )
    for summary in pruned.removed:
        print_line(
            f"{summary.id}  {format_age(summary.updated)}  {escape_invisible(strip_escapes(summary.title))}"
        )
    freed = pruned.freed_bytes + (0 if options.dry_run else _sweep_checkpoints(library))
    word = "would be removed" if options.dry_run else "removed"
    print(
        f"{len(pruned.removed)} {word}, {_format_size(freed)} freed, {_format_size(pruned.kept_bytes)} kept"
    )
    return SUCCESS


def _sweep_checkpoints(library: Library) -> int:
    """Forget the files that only removed sessions knew."""
    import asyncio

    from treadle.sessions.history import list_checkpoint_trees
    from treadle.workspace.checkpoints import Checkpoints

    freed = 0
    base = library.checkpoint_dir(Path.cwd()).parent
    for store in [Path(entry.path) for entry in os.scandir(base)] if base.is_dir() else []:
        kept = [
            tree
            for place in library.list_session_dirs()
            if place.parent.name == store.name
            for tree in list_checkpoint_trees(place)
        ]
        freed += asyncio.run(Checkpoints(store, store).prune(kept))
    return freed


def _format_size(count: int) -> str:
    for unit, word in ((GIB, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {word}"
    return f"{count} bytes"
