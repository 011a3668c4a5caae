"""Completions of the prompt: files after `@`, commands after `/`.

Fuzzy matching, best first. The files come from ripgrep, or from a walk with a time limit; never
from git, since the folder's git configuration can make it run programs. Nothing is drawn here.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from treadle.apps.conversation import helper_programs
from treadle.lib.files.ripgrep import find_ripgrep

MAX_FILES = 200_000
CHUNK_NAMES = 500  # are matched before other threads have their turn: about half a millisecond
MAX_SHOWN = 8
WALK_SECONDS = 5.0
SKIPPED_FOLDERS = ("node_modules", "__pycache__", "venv", "target")  # and hidden ones
_EXCLUDED_NAMES = (".git", ".jj", ".hg", "node_modules", "__pycache__", ".venv", ".tox")
_RIPGREP_OPTIONS = (
    *("--files", "--null", "--hidden", "--no-config", "--no-messages", "--no-require-git"),
    *(f"--glob=!{name}" for name in _EXCLUDED_NAMES),
)

_MENTION = re.compile(r"(?:^|\s)@([^\s@]*)$")


class Completion(msgspec.Struct, frozen=True):
    """A text to insert from column `start` on."""

    text: str
    start: int
    description: str = ""


def is_mention(line: str) -> bool:
    """Whether a file is being named at the end of the text before the cursor."""
    return _MENTION.search(line) is not None


def find_completions(
    line: str,
    files: Sequence[str],
    commands: Sequence[tuple[str, str]],
    is_stale: Callable[[], bool] = lambda: False,
) -> list[Completion]:
    """The completions for the text before the cursor; none once `is_stale`. Many files take a
    while: for a thread."""
    if line.startswith("/") and " " not in line:
        summaries = dict(commands)
        names = fuzzy_match(line[1:], summaries, len(summaries)) if len(line) > 1 else summaries
        return [Completion(f"/{name} ", 0, summaries[name]) for name in names]
    mention = _MENTION.search(line)
    if mention is None:
        return []
    start = mention.start(1) - 1
    names = fuzzy_match(mention[1], files, is_stale=is_stale)
    return [Completion(f"@{_quote(name)} ", start) for name in names]


def fuzzy_match(
    query: str,
    names: Iterable[str],
    limit: int = MAX_SHOWN,
    is_stale: Callable[[], bool] = lambda: False,
) -> list[str]:
    """The names that contain the letters of `query` in order, the best match first."""
    query, rest = query.casefold(), iter(names)
    best: list[tuple[int, int, str]] = []
    while chunk := list(islice(rest, CHUNK_NAMES)):
        if is_stale():
            return []
        scored = [(_score_match(query, name.casefold()), len(name), name) for name in chunk]
        best += [(score, length, name) for score, length, name in scored if score is not None]
        best = sorted(best)[:limit]
        time.sleep(0)
    return [name for _, _, name in best]


def _score_match(query: str, name: str) -> int | None:
    """Smaller is better; None is no match."""
    if not query:
        return name.count("/")
    last = name.rpartition("/")[2]
    if last.startswith(query):
        return 0
    if name.startswith(query):
        return 1
    at = last.find(query)
    if at >= 0:
        return 2 + at
    if query in name:
        return 40
    position, gaps = -1, 0
    for letter in query:
        next_position = name.find(letter, position + 1)
        if next_position < 0:
            return None
        gaps += next_position - position - 1
        position = next_position
    return 100 + gaps


def _quote(name: str) -> str:
    return f'"{name}"' if " " in name else name


async def list_project_files(folder: Path) -> list[str]:
    """The files of a project without the ignored ones, as paths relative to `folder` (resolved)."""
    program = find_ripgrep(folder)
    if program is not None:
        code, out, _ = await helper_programs.run_program(program, *_RIPGREP_OPTIONS, cwd=folder)
        if out and code in (0, 2):  # 2: some folders could not be read
            names = out[: out.rfind(b"\0")].decode(errors="replace").split("\0")
            return names[:MAX_FILES]
    return await asyncio.to_thread(_walk_files, folder)


def _walk_files(folder: Path) -> list[str]:
    files: list[str] = []
    deadline = time.monotonic() + WALK_SECONDS
    for base, folders, names in os.walk(folder):
        wanted = [name for name in folders if name not in SKIPPED_FOLDERS]
        folders[:] = sorted(name for name in wanted if not name.startswith("."))
        relative = os.path.relpath(base, folder)
        files += [name if relative == "." else f"{relative}/{name}" for name in sorted(names)]
        if len(files) > MAX_FILES or time.monotonic() > deadline:
            break
    return files[:MAX_FILES]
