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

from treadle.apps.cli.exits import (
    BUSY,
    DISK,
    DONE,
    ELSEWHERE,
    ERROR,
    TOO_NEW,
    UNKNOWN,
    code_for,
)
from treadle.apps.cli.listing import ago, child_rows, show_hits, show_list, table
from treadle.apps.cli.printing import say, warn
from treadle.core.errors import SessionUnknown, TreadleError
from treadle.core.terminal import escaped_json, harmless, visible
from treadle.sessions.library import PRUNE_BYTES, PRUNE_DAYS, Library

if TYPE_CHECKING:
    from treadle.sessions.journal import Resumed
    from treadle.sessions.travel import TurnMark
    from treadle.workspace.checkpoints import Checkpoints, Restored

__all__ = ["BUSY", "DISK", "DONE", "ELSEWHERE", "ERROR", "TOO_NEW", "UNKNOWN", "answered", "run"]

GIB = 1 << 30
MOST_NAMED = 20


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments or ["list"])
    return answered("sessions", lambda: options.do(options, Library()))


def answered(command: str, work: Callable[[], int]) -> int:
    """Do it; an error of ours is one sentence and a code of its own."""
    try:
        return work()
    except TreadleError as error:
        warn(f"treadle {command}: {error}")
        return code_for(error)


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

    one = command("list", show_list, "the newest sessions; all of them with --all")
    one.add_argument("--here", action="store_true", help="only those of this folder")
    one.add_argument(
        "--all", action="store_true", help="not only the first screen; with their child agents"
    )
    one.add_argument("--json", action="store_true", help="one JSON object a line")
    one = command("search", show_hits, "the sessions in which a text stands", "text")
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
    one.add_argument("--days", type=float, default=PRUNE_DAYS, help=f"older ({PRUNE_DAYS})")
    size = PRUNE_BYTES // GIB
    one.add_argument("--size", type=float, default=size, help=f"GiB in all ({size})")
    one.add_argument("--dry-run", action="store_true", help="only say what would go")
    return parser


# --- reading -------------------------------------------------------------------------------


def _show(options: argparse.Namespace, library: Library) -> int:
    from treadle.sessions.export import blocks, markdown

    place = library.find(options.id)
    say(markdown(library.summary(place), blocks(place)), end="")
    [family] = library.families([place])
    if family:
        print("\n## Child agents\n")
        for line in table(child_rows(family, library)):
            say(visible(harmless(line)))
    return DONE


def _turns(options: argparse.Namespace, library: Library) -> int:
    from treadle.sessions.travel import turns

    for mark in turns(library.find(options.id)):
        files = "with files" if mark.before else ""
        text = " ".join(harmless(mark.text).split())[:70]
        say(f"{mark.number:4}  {ago(mark.time):12}  {files:10}  {visible(text)}")
    return DONE


def _export(options: argparse.Namespace, library: Library) -> int:
    from treadle.sessions.export import as_json, blocks, markdown

    place = library.find(options.id)
    summary = library.summary(place)
    match options.format:
        case "json":
            data = as_json(summary, place)
        case "html":
            from treadle.sessions.page import page

            data = page(summary, blocks(place)).encode(errors="backslashreplace")
        case _:
            data = markdown(summary, blocks(place)).encode(errors="backslashreplace")
    if options.output is None:
        if sys.stdout.isatty():  # somewhere else it stays as it is, byte for byte
            text = data.decode()
            data = (escaped_json(text) if options.format == "json" else harmless(text)).encode()
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return DONE
    try:
        options.output.write_bytes(data)
    except OSError as error:
        warn(f"treadle sessions: {options.output}: {error.strerror}")
        return DISK
    say(f"{options.output}: {len(data)} bytes")
    return DONE


# --- going back ----------------------------------------------------------------------------


def _fork(options: argparse.Namespace, library: Library) -> int:
    import asyncio

    from treadle.core.transcript.entries import Told
    from treadle.sessions.travel import fork

    async def work() -> str:
        place = library.find(options.id)
        journal, _ = fork(library, place, folder=Path.cwd(), before=options.before)
        journal.append(Told(f"a fork of {place.name}"))
        await journal.aclose()
        return journal.session_id

    session_id = asyncio.run(work())
    print(f"{session_id}: treadle --resume {session_id} goes on with it")
    return DONE


def _rewind(options: argparse.Namespace, library: Library) -> int:
    import asyncio

    from treadle.sessions.travel import rewind, turn

    async def work() -> int:
        place = library.find(options.id)
        mark = turn(place, options.turn)
        tree = "" if options.only == "conversation" else _before(place, mark)
        if options.only != "conversation" and not tree:
            print(f"no turn from {mark.number} on changed files: they stay", file=sys.stderr)
            if options.only == "files":
                return ERROR
        resumed = library.resume(place.name)
        code = DONE
        try:
            # The files first: if that fails, the conversation still tells how they came about.
            if tree:
                code = _tell(await _checkpoints(library, place).restore(tree))
            if options.only == "files":
                _note(resumed, f"put the files back to what they were before turn {mark.number}")
            else:
                await rewind(resumed.journal, mark.turn_id)
                print(f"the conversation is back to before turn {mark.number}")
        finally:
            await resumed.journal.aclose()
        return code

    return asyncio.run(work())


def _before(place: Path, mark: TurnMark) -> str:
    """The files before a turn; one that changed none has those of the next that did."""
    from treadle.sessions.travel import turns

    return next((m.before for m in turns(place) if m.number >= mark.number and m.before), "")


def _undo(options: argparse.Namespace, library: Library) -> int:
    return _carry(options, library, back=True)


def _redo(options: argparse.Namespace, library: Library) -> int:
    return _carry(options, library, back=False)


def _carry(options: argparse.Namespace, library: Library, *, back: bool) -> int:
    import asyncio

    from treadle.sessions.travel import turns

    place = library.find(options.id) if options.id else library.latest(Path.cwd())
    if place is None:
        raise SessionUnknown(f"there is no session in {Path.cwd()} whose changes could be undone")
    marks = [mark for mark in turns(place) if mark.after and mark.before != mark.after]
    if not marks:
        print(f"no turn of session {place.name} changed files", file=sys.stderr)
        return ERROR
    last = marks[-1]
    old, new = (last.after, last.before) if back else (last.before, last.after)

    async def work() -> int:
        resumed = library.resume(place.name)  # nobody works in it meanwhile
        try:
            restored = await _checkpoints(library, place).apply(old, new)
            if restored.written or restored.removed:
                paths = ", ".join([*restored.written, *restored.removed][:MOST_NAMED])
                word = "took back" if back else "brought back"
                _note(resumed, f"{word} what turn {last.number} changed in the files: {paths}")
            return _tell(restored)
        finally:
            await resumed.journal.aclose()

    return asyncio.run(work())


def _note(resumed: Resumed, did: str) -> None:
    """Let the model know when the session goes on: it remembers its own changes."""
    from treadle.core.transcript.entries import ItemAdded
    from treadle.core.transcript.items import NoticeItem
    from treadle.core.transcript.pending import RunTools, pending

    if not isinstance(pending(resumed.view.transcript), RunTools):  # calls wait for their answers
        resumed.journal.append(ItemAdded(NoticeItem(f"The user {did}.", kind="files")))


def _checkpoints(library: Library, place: Path) -> Checkpoints:
    from treadle.core.errors import WorkspaceError
    from treadle.workspace.checkpoints import Checkpoints

    folder = Path(library.summary(place).folder)
    if folder.resolve() != folder:
        raise WorkspaceError(
            f"{folder} leads to {folder.resolve()} now; its files are put back where they were, "
            "or not at all: take the link away first"
        )
    return Checkpoints(folder, library.checkpoints(folder))


def _tell(restored: Restored) -> int:
    print(f"{len(restored.written)} files written, {len(restored.removed)} removed")
    for skipped in restored.skipped:
        warn(f"left alone: {visible(skipped.path)} ({skipped.reason})")
    return ERROR if restored.skipped else DONE


# --- making room ---------------------------------------------------------------------------


def _remove(options: argparse.Namespace, library: Library) -> int:
    places = [library.find(name) for name in options.id]
    freed = sum(library.remove(place, with_forks=options.forks) for place in places)
    print(f"{len(places)} removed, {_size(freed)} freed")
    return DONE


def _prune(options: argparse.Namespace, library: Library) -> int:
    pruned = library.prune(
        days=options.days, most_bytes=int(options.size * GIB), dry=options.dry_run
    )
    for summary in pruned.removed:
        say(f"{summary.id}  {ago(summary.updated)}  {visible(harmless(summary.title))}")
    freed = pruned.freed + (0 if options.dry_run else _sweep(library))
    word = "would be removed" if options.dry_run else "removed"
    print(f"{len(pruned.removed)} {word}, {_size(freed)} freed, {_size(pruned.kept)} kept")
    return DONE


def _sweep(library: Library) -> int:
    """Forget the files that only removed sessions knew."""
    import asyncio

    from treadle.sessions.travel import trees
    from treadle.workspace.checkpoints import Checkpoints

    freed = 0
    base = library.checkpoints(Path.cwd()).parent
    for store in [Path(entry.path) for entry in os.scandir(base)] if base.is_dir() else []:
        kept = [
            tree
            for place in library.places()
            if place.parent.name == store.name
            for tree in trees(place)
        ]
        freed += asyncio.run(Checkpoints(store, store).sweep(kept))
    return freed


def _size(count: int) -> str:
    for unit, word in ((GIB, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {word}"
    return f"{count} bytes"
