"""What the prompt offers while one types: files after `@`, commands after `/`.

Matching is by the letters in their order, best first; the files come from ripgrep, else from a walk
that stops in time, and never from git: a folder can have it run helper_programs. Nothing here touches the
screen.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from treadle.apps.services import helper_programs
from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import read_text

MAX_FILES = 50_000
MAX_SHOWN = 8
WALK_SECONDS = 5.0
SKIPPED_FOLDERS = frozenset(
    {".git", "node_modules", "__pycache__", ".venv", "venv", ".tox", "target"}
)
_EXCLUDED_NAMES = (".git", ".jj", ".hg", "node_modules", "__pycache__", ".venv", ".tox")
_RIPGREP_OPTIONS = (
    *("--files", "--null", "--hidden", "--no-config", "--no-messages", "--no-require-git"),
    *(f"--glob=!{name}" for name in _EXCLUDED_NAMES),
)

_MENTION = re.compile(r"(?:^|\s)@([^\s@]*)$")


class Completion(msgspec.Struct, frozen=True):
    """One thing that could stand there: the text to put from `start` on, and a word on it."""

    text: str
    start: int
    description: str = ""


def find_completions(
    line: str, files: Sequence[str], commands: Sequence[tuple[str, str]]
) -> list[Completion]:
    """What fits the text before the cursor."""
    if line.startswith("/") and " " not in line:
        names, about = [name for name, _ in commands], dict(commands)
        found = fuzzy_match(line[1:], names, len(names)) if len(line) > 1 else names
        return [Completion(f"/{name} ", 0, about[name]) for name in found]
    at = _MENTION.search(line)
    if at is None:
        return []
    start = at.start(1) - 1
    return [Completion(f"@{_quote(name)} ", start) for name in fuzzy_match(at[1], files)]


def fuzzy_match(query: str, names: Iterable[str], limit: int = MAX_SHOWN) -> list[str]:
    """The names that hold the letters in their order; short and early ones first."""
    query = query.casefold()
    scored = []
    for name in names:
        score = _score_match(query, name.casefold())
        if score is not None:
            scored.append((score, len(name), name))
    scored.sort()
    return [name for _, _, name in scored[:limit]]


def _score_match(query: str, name: str) -> int | None:
    """Smaller is better; None does not match."""
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
        found = name.find(letter, position + 1)
        if found < 0:
            return None
        gaps += found - position - 1
        position = found
    return 100 + gaps


def _quote(name: str) -> str:
    return f'"{name}"' if " " in name else name


async def list_project_files(folder: Path) -> list[str]:
    """The files of a project that it does not want ignored, by paths from its folder."""
    program = _find_ripgrep(folder)
    if program is not None:
        code, out, _ = await helper_programs.run_program(program, *_RIPGREP_OPTIONS, cwd=folder)
        if out and code in (0, 2):  # 2: some folder could not be read
            names = out[: out.rfind(b"\0")].decode(errors="replace").split("\0")
            return names[:MAX_FILES]
    return await asyncio.to_thread(_walk_files, folder)


def _find_ripgrep(folder: Path) -> str | None:
    beside = Path(sys.executable).parent / "rg"
    if beside.is_file() and not helper_programs.is_inside_folder(beside, folder):
        return str(beside)
    return helper_programs.find_program("rg", folder)


def _walk_files(folder: Path) -> list[str]:
    found: list[str] = []
    until = time.monotonic() + WALK_SECONDS
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(
            f for f in folders if f not in SKIPPED_FOLDERS and not f.startswith(".")
        )
        inside = os.path.relpath(base, folder)
        found += [name if inside == "." else f"{inside}/{name}" for name in sorted(names)]
        if len(found) > MAX_FILES or time.monotonic() > until:
            break
    return found[:MAX_FILES]


async def read_git_branch(folder: Path) -> str:
    """The branch that is checked out, read off the files of git; "" outside of a repository."""
    for place in (folder, *folder.parents):
        head = place / ".git" / "HEAD"
        try:
            text = read_text(head, within=None).strip()
        except (ConfigError, FileNotFoundError):
            continue
        return text.rpartition("refs/heads/")[2] if "refs/heads/" in text else text[:8]
    return ""
