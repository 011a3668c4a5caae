"""`treadle sessions`: finds, shows, exports, forks, imports, removes and prunes sessions.

Works on the journals and the checkpoints; starts no agent and calls no model. Uses
treadle.sessions, and undo.py for rewind, undo and redo.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.cli.commands import undo
from treadle.apps.cli.commands.session_list import (
    format_table,
    make_child_rows,
    print_search_results,
    print_sessions,
)
from treadle.apps.console.console import UsageError, print_error, print_line, report_errors
from treadle.apps.console.exit_codes import ERROR, SUCCESS
from treadle.core.errors import StoreError
from treadle.lib.files.private_files import write_private_output
from treadle.lib.text.sanitize import escape_invisible, escape_json, strip_escapes
from treadle.lib.text.text import format_age, format_bytes, plural, shorten_home
from treadle.sessions.library import DEFAULT_PRUNE_BYTES, DEFAULT_PRUNE_DAYS, Library

if TYPE_CHECKING:
    from treadle.sessions.imports.foreign_session import ForeignSession, Source

GIB = 1 << 30
HELP_OPTIONS = ("-h", "--help")


def run(arguments: list[str]) -> int:
    is_list = not arguments or (arguments[0].startswith("-") and arguments[0] not in HELP_OPTIONS)
    options = _parser().parse_args(["list", *arguments] if is_list else arguments)
    return report_errors("treadle sessions", lambda: options.do(options, Library()))


def _parser() -> argparse.ArgumentParser:
    about = "Sessions on this machine. Without a command: list, with its options."
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
    search.add_argument("--limit", type=int, default=50, help="at most so many sessions")
    search.add_argument("--lines", action="store_true", help="also the lines that have the text")
    rename = command("rename", _rename, "give a session a name", "id")
    rename.add_argument("name", nargs="+")
    add_import_arguments(command("import", import_sessions, IMPORT))
    command("show", _show, "print a session as text", "id")
    command("turns", _turns, "list the turns, for fork and rewind", "id")
    summary = "list the stored versions of a file, or print one: the agent's and yours"
    versions = command("versions", _versions, summary, "id", "path")
    text = "print this version to standard output"
    versions.add_argument("number", nargs="?", type=int, help=text)
    export = command("export", _export, "export a session to a file or stdout", "id")
    export.add_argument("--format", choices=["markdown", "html", "json"], default="markdown")
    export.add_argument("--output", type=Path, help="the file (default: stdout)")
    verify = command("verify", _verify, "check that the log of a session was not changed", "id")
    about = "a file of `evidence`: the log has to begin with the one that it is about"
    verify.add_argument("--evidence", type=Path, metavar="FILE", help=about)
    evidence = command("evidence", _evidence, "who allowed what, what followed, the cost", "id")
    evidence.add_argument("--format", choices=["json", "html"], default="json")
    evidence.add_argument("--output", type=Path, metavar="FILE", help="the file (default: stdout)")
    about = "sign the file with this SSH key; the signature is FILE.sig"
    evidence.add_argument("--sign", type=Path, metavar="KEY", help=about)
    fork = command("fork", _fork, "create a session that shares the history of this one", "id")
    fork.add_argument("--before", metavar="TURN", help="without this turn and those after it")
    undo.add_rewind_arguments(command("rewind", undo.rewind, undo.REWIND))
    undo.add_undo_arguments(command("undo", undo.apply_last, undo.UNDO), "undo")
    undo.add_undo_arguments(command("redo", undo.apply_last, undo.REDO), "redo")
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
        text = text or "(without a message of yours)"  # the turn before was continued
        print_line(f"{turn.number:4}  {_format_time(turn.time):8}  {files:10}  {text}")
    return SUCCESS


_CAUSES = {
    "agent": "the agent, in",
    "undo": "undo of",
    "redo": "redo of",
    "rewind": "rewind to before",
}


def _rename(options: argparse.Namespace, library: Library) -> int:
    library.rename(library.find(options.id), " ".join(options.name))
    return SUCCESS


def _versions(options: argparse.Namespace, library: Library) -> int:
    """The stored versions of one file, also those that undo and redo do not go back to."""
    import asyncio

    from treadle.sessions.file_history import list_file_states
    from treadle.sessions.history import list_turns
    from treadle.workspace.checkpoints.checkpoints import Checkpoints

    session_dir = library.find(options.id)
    folder = Path(library.get_summary(session_dir).folder)
    checkpoints = Checkpoints(folder, library.checkpoint_dir(folder))
    path = os.path.relpath(folder / options.path, folder)
    shown = escape_invisible(strip_escapes(path))
    states = list_file_states(session_dir)
    nodes = asyncio.run(checkpoints.find_file([state.tree for state in states], path))
    if not any(nodes):
        raise StoreError(f"no version of {shown} is stored in this session")
    versions = [
        (state, node)
        for state, node, last in zip(states, nodes, [..., *nodes], strict=False)
        if node != last
    ]
    if options.number is None:
        numbers = {turn.seq: turn.number for turn in list_turns(session_dir)}
        for number, (state, node) in enumerate(versions, 1):
            turn = numbers.get(state.seq)
            name = f"turn {turn}" if turn else "a turn that is not in the conversation"
            cause = "before" if number == 1 else _CAUSES.get(state.cause)
            author = f"{cause} {name}" if cause else "you"
            missing = "" if node is not None else "  (no file)"
            print_line(f"{number:4}  {_format_time(state.time):8}  {author}{missing}")
        return SUCCESS
    chosen = [node for number, (_, node) in enumerate(versions, 1) if number == options.number]
    if not chosen or chosen[0] is None:
        raise StoreError(
            f"there is no version {options.number} of {shown}; see the list without it"
        )
    data = asyncio.run(checkpoints.read_content(chosen[0]))
    sys.stdout.flush()
    is_terminal = sys.stdout.isatty()  # a file or pipe gets the exact bytes
    text = strip_escapes(data.decode(errors="replace")).encode() if is_terminal else data
    sys.stdout.buffer.write(text)
    return SUCCESS


def _format_time(timestamp: float) -> str:
    return format_age(time.time() - timestamp)


def _export(options: argparse.Namespace, library: Library) -> int:
    from treadle.apps.pages.session_files import encode_session

    _write_output(encode_session(options.format, library.find(options.id)), options)
    return SUCCESS


def _write_output(
    data: bytes, options: argparse.Namespace, *, key_file: Path | None = None
) -> None:
    if options.output is None:
        if sys.stdout.isatty():  # a file or pipe gets the exact bytes
            text = data.decode()
            data = (escape_json(text) if options.format == "json" else strip_escapes(text)).encode()
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return
    if options.output.exists():
        raise StoreError(f"{options.output} exists; choose another name, or remove it first")
    write_private_output(options.output, data)
    if key_file is not None:
        _sign(options.output, key_file)
    print_line(f"{options.output}: {format_bytes(len(data))}")


def _sign(path: Path, key_file: Path) -> None:
    import subprocess

    words = ["-Y", "sign", "-f", str(key_file), "-n", "treadle", str(path)]
    if subprocess.run(["ssh-keygen", *words], check=False).returncode:
        path.unlink()  # the same command can be tried again
        raise StoreError(f"ssh-keygen did not sign {path}; it was not written")


# --- verify, evidence ------------------------------------------------------------------------


def _verify(options: argparse.Namespace, library: Library) -> int:
    from treadle.sessions.audit import describe_chain, read_evidence, verify_session
    from treadle.sessions.children import list_descendants
    from treadle.sessions.log.reader import list_lineage

    session_dir = library.find(options.id)
    parents = [parent for parent, _ in list_lineage(session_dir)[:-1]]
    session_dirs = (session_dir, *parents, *list_descendants(session_dir))
    reports = [(one.name, verify_session(one)) for one in session_dirs]
    for name, report in reports:
        print_line(escape_invisible(describe_chain(name, report)))
    if options.evidence is not None:
        evidence, (_, own) = read_evidence(options.evidence), reports[0]
        found = {head: seq for seq, head in own.heads.items()}
        if evidence.session != session_dir.name:
            print_line(f"{options.evidence}: about session {escape_invisible(evidence.session)}")
            return ERROR
        if evidence.head not in found:
            print_line(f"{options.evidence}: not about this log, which was changed or cut since")
            return ERROR
        print_line(f"{options.evidence}: about this log up to entry {found[evidence.head]}")
    return ERROR if any(report.problem for _, report in reports) else SUCCESS


def _evidence(options: argparse.Namespace, library: Library) -> int:
    from treadle.apps.pages.evidence import render_evidence
    from treadle.core.transcript.entry_json import to_json
    from treadle.sessions.audit import collect_evidence

    if options.sign is not None and options.output is None:
        raise UsageError("--sign needs --output: the signature is beside the file")
    evidence = collect_evidence(library.find(options.id))
    is_page = options.format == "html"
    if evidence.problem:  # the file has it, too
        print_error(f"treadle sessions: the log is {evidence.chain}: {evidence.problem}")
    data = render_evidence(evidence).encode() if is_page else to_json(evidence) + b"\n"
    _write_output(data, options, key_file=options.sign)
    return SUCCESS


# --- fork --------------------------------------------------------------------


def _fork(options: argparse.Namespace, library: Library) -> int:
    import asyncio

    from treadle.apps.conversation.undo import fork_session

    session_dir = library.find(options.id)
    session_id = asyncio.run(fork_session(library, session_dir, Path.cwd(), options.before))
    print(f"{session_id}: continue with treadle --resume {session_id}")
    return SUCCESS


# --- remove, prune -------------------------------------------------------------------------


def _remove(options: argparse.Namespace, library: Library) -> int:
    session_dirs = [library.find(name) for name in options.id]
    freed = sum(library.remove(path, with_forks=options.forks) for path in session_dirs)
    print(f"{plural(len(session_dirs), 'session')} removed, {format_bytes(freed)} freed")
    return SUCCESS


def _prune(options: argparse.Namespace, library: Library) -> int:
    max_bytes, dry_run = options.size * GIB, options.dry_run
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
    from treadle.sessions.history import list_checkpoint_trees
    from treadle.workspace.checkpoints.checkpoints import prune_store

    freed = 0
    base = library.checkpoint_dir(Path.cwd()).parent
    for store in [Path(entry.path) for entry in os.scandir(base)] if base.is_dir() else []:

        def list_trees(name: str = store.name) -> list[str]:
            sessions = [path for path in library.list_session_dirs() if path.parent.name == name]
            return [tree for session in sessions for tree in list_checkpoint_trees(session)]

        found = prune_store(store, list_trees)
        if found is None:
            print(f"a program uses the checkpoints in {store}: they stay as they are")
        freed += found or 0
    return freed


IMPORT = "import sessions of Claude Code and Codex: those of this folder, or FILES"


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="*", type=Path, help="a transcript (.jsonl)")
    parser.add_argument("--from", dest="source", choices=["claude", "codex"], help="only of these")
    parser.add_argument("--all", action="store_true", help="those of all folders")


def import_sessions(options: argparse.Namespace, library: Library) -> int:
    if options.file and (options.source or options.all):
        raise UsageError("name FILES, or use --from and --all; not both")
    found = list(_read_all(options))
    if not options.file and not found:
        where = "on this machine" if options.all else "of this folder (--all: of all folders)"
        print_error(f"no transcripts {where}")
        return ERROR
    count, code = 0, SUCCESS
    for one in found:
        try:
            count += _import_one(library, one)
        except StoreError as error:  # the others are imported
            print_error(f"treadle: {escape_invisible(str(error))}")
            code = ERROR
    print_line(f"{plural(count, 'session')} imported; `treadle --resume ID` continues one")
    return code


def _read_all(options: argparse.Namespace) -> Iterator[ForeignSession]:
    if options.file:
        for file in options.file:
            yield _read(file, _find_source(file))
        return
    from treadle.sessions.imports.claude_transcript import find_claude_transcripts
    from treadle.sessions.imports.codex_rollout import find_codex_rollouts

    places: dict[Source, Iterable[Path]] = {
        "claude": find_claude_transcripts(),
        "codex": find_codex_rollouts(),
    }
    here = Path.cwd()
    for source, files in places.items():
        for file in files if options.source in (None, source) else ():
            foreign = _read(file, source)
            is_here = bool(foreign.folder) and Path(foreign.folder).resolve() == here
            if foreign.steps and (options.all or is_here):
                yield foreign


def _find_source(file: Path) -> Source:
    """Which program wrote a file, as its first line says."""
    from collections import Counter

    from treadle.sessions.imports.foreign_session import read_lines

    first = next(read_lines(file, Counter()), {})
    if "payload" in first or ("id" in first and "type" not in first):
        return "codex"
    if "sessionId" in first or "type" in first:
        return "claude"
    raise StoreError(f"{file} is no transcript of Claude Code or Codex")


def _read(file: Path, source: Source) -> ForeignSession:
    from treadle.sessions.imports.claude_transcript import read_claude_transcript
    from treadle.sessions.imports.codex_rollout import read_codex_rollout

    if source == "codex":
        return read_codex_rollout(file)
    return read_claude_transcript(file, _name_tool)


def _name_tool(name: str) -> str:
    """Our name of a tool of Claude Code; another one stays as it is."""
    from treadle.agents.child_settings import TASK_TOOL
    from treadle.hooks.hook_config import HOOK_TOOL_ALIASES, to_hook_tool_name
    from treadle.tools.builtin import ALL_TOOLS

    for ours in (*ALL_TOOLS, TASK_TOOL):
        if to_hook_tool_name(ours) == name:
            return ours
    return "edit" if name in HOOK_TOOL_ALIASES["edit"] else name


def _import_one(library: Library, foreign: ForeignSession) -> int:
    """Import one, if it was not yet; how many were imported."""
    from treadle.apps.assembly.redaction import find_environment_secrets
    from treadle.sessions.imports.import_session import find_imported, import_session
    from treadle.sessions.log.entry_redaction import EntryRedactor

    session_dir = find_imported(library, foreign)
    is_new = session_dir is None
    if session_dir is None:
        folder = Path(foreign.folder) if foreign.folder else Path.cwd()
        redactor = EntryRedactor(find_environment_secrets())
        session_dir = asyncio.run(import_session(library, foreign, folder, redactor))
    summary = library.get_summary(session_dir)
    title = escape_invisible(strip_escapes(library.get_title(summary)))
    place = escape_invisible(shorten_home(summary.folder))
    note = "" if is_new else "  (was imported before)"
    turns = plural(summary.turns, "turn")
    print_line(f"{summary.id}  {turns:9}  {place}  {title}{note}")
    if is_new and foreign.unread:
        counted = [f"{count} × {name}" for name, count in sorted(foreign.unread.items())]
        print_line(f"    not read: {escape_invisible(', '.join(counted))}")
    return int(is_new)
