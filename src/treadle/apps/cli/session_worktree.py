"""`--worktree [NAME]`: the session works in a git worktree of the folder, on a branch of its own.

The current folder of the process is the worktree until the session ends; then it is removed if
there is nothing in it, and named if it stays. It is trusted as the folder is: what the user
approved there is approved here, as long as its content is the same. Used by start.py; the worktrees
are those of workspace/worktrees.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.cli.options import CommandLine
from treadle.apps.console import exit_codes
from treadle.apps.console.console import UsageError, get_current_folder, print_error
from treadle.apps.settings.folder_rules import is_trusted, open_trust_store
from treadle.core.errors import SessionNotFound
from treadle.lib.files.private_files import find_state_dir

if TYPE_CHECKING:
    from treadle.workspace.worktrees.session_worktrees import SessionWorktrees
    from treadle.workspace.worktrees.worktrees import Worktree

WORKTREES_DIR = "session-worktrees"
PATH_OPTIONS = ("file", "add_dir", "output_schema")  # meant as seen from where the user typed them


def run_in_worktree(line: CommandLine, work: Callable[[], int]) -> int:
    """Do the work, whose exit code is returned, in the worktree that the command line names, or
    that its session belongs to. A suspended turn and a session in the background need their folder:
    it stays."""
    folder = get_current_folder()
    if not line.has("worktree"):
        name = _find_worktree(folder, line.text("resume"))
        if not name:
            return work()
        line.options["worktree"] = name
    if not is_trusted(folder):
        raise UsageError(
            "--worktree lets git run here, and a repository can name programs that git starts; "
            "trust the folder first (`treadle trust`)"
        )
    from treadle.workspace.worktrees.session_worktrees import SessionWorktrees

    worktrees = SessionWorktrees(folder, find_state_dir() / WORKTREES_DIR)
    name = line.text("worktree") or _make_name(line, worktrees)
    line.options["worktree"] = name
    worktree = asyncio.run(_enter(worktrees, name, is_quiet=line.has("quiet")))
    open_trust_store().copy_decision(folder, worktree.root)
    _resolve_paths(line, folder)
    os.chdir(worktree.root)
    code = exit_codes.ERROR
    try:
        code = work()
    finally:
        os.chdir(folder)
        if code == exit_codes.SUSPENDED or _is_in_background(worktree.root):
            worktree.release()
        else:
            _leave(worktrees, worktree, is_quiet=line.has("quiet"))
    return code


def _is_in_background(folder: Path) -> bool:
    """Whether the session of this folder has been detached (/detach)."""
    from treadle.sessions.detached.background import read_choices
    from treadle.sessions.library import Library

    session_dir = Library().find_latest(folder)
    return session_dir is not None and read_choices(session_dir) is not None


def _find_worktree(folder: Path, session: str) -> str:
    """The worktree of this folder that a session belongs to; "" if it is another session."""
    from treadle.sessions.library import Library
    from treadle.workspace.worktrees.session_worktrees import SessionWorktrees

    try:
        library = Library()
        place = Path(library.get_summary(library.find(session, by_words=True)).folder)
        top = SessionWorktrees(folder, find_state_dir() / WORKTREES_DIR).get_path("")
        return place.relative_to(top.resolve()).parts[0]
    except (SessionNotFound, ValueError, IndexError):
        return ""


def _leave(worktrees: SessionWorktrees, worktree: Worktree, *, is_quiet: bool) -> None:
    from treadle.workspace.worktrees.session_worktrees import describe_session_end

    end = asyncio.run(worktrees.leave(worktree))
    if end.status == "unchanged":
        open_trust_store().distrust(worktree.root)
    if end.status == "left" or not is_quiet:
        lines = f"treadle: {describe_session_end(worktree.name, end)}".splitlines()
        print_error("\n".join(lines))


async def _enter(worktrees: SessionWorktrees, name: str, *, is_quiet: bool) -> Worktree:
    is_new = not worktrees.get_path(name).exists()
    worktree = await worktrees.enter(name)
    if is_new and not is_quiet:
        tip, has_changes = worktree.record.tip, await worktrees.has_changes()
        begin = f"continues its branch, at {tip[:8]}" if tip else "begins with the last commit"
        missing = "; the uncommitted changes of the folder are not in it" if has_changes else ""
        if tip or missing:
            print_error(f"treadle: the worktree {name} {begin}{missing}")
    return worktree


def _make_name(line: CommandLine, worktrees: SessionWorktrees) -> str:
    if line.has("continue") or line.has("resume"):
        names = ", ".join(worktrees.list_names()) or "none"
        raise UsageError(f"--worktree needs the NAME of the one to continue in; there are: {names}")
    return f"{time.strftime('%y%m%d')}-{secrets.token_hex(2)}"


def _resolve_paths(line: CommandLine, folder: Path) -> None:
    for key in PATH_OPTIONS:
        value = line.options.get(key)
        if isinstance(value, list):
            line.options[key] = [_resolve(folder, path) for path in value]
        elif isinstance(value, str):
            line.options[key] = _resolve(folder, value)


def _resolve(folder: Path, path: str) -> str:
    return path if path in ("", "-") else str(Path(folder, path).expanduser())
