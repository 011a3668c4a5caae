"""`treadle sessions import`: transcripts of Claude Code and Codex become sessions.

Without a file: those of this folder that are on this machine. Used by sessions.py, which parses the
command line; sessions/imports/ reads and writes.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.console.console import UsageError, print_error, print_line
from treadle.apps.console.exit_codes import ERROR, SUCCESS
from treadle.core.errors import StoreError
from treadle.lib.text.sanitize import escape_invisible, strip_escapes
from treadle.lib.text.text import plural, shorten_home
from treadle.sessions.library import Library

if TYPE_CHECKING:
    from treadle.sessions.imports.foreign_session import ForeignSession, Source

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
