"""What the prompt offers while one types: files after `@`, commands after `/`.

Matching is by the letters in their order, best first; the files come from ripgrep, else from a walk
that stops in time, and never from git: a folder can have it run programs. Nothing here touches the
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

from treadle.apps.wiring import programs
from treadle.core.errors import ConfigError
from treadle.core.textfile import read_text

MOST_FILES = 50_000
MOST_SHOWN = 8
WALK_SECONDS = 5.0
SKIPPED = frozenset({".git", "node_modules", "__pycache__", ".venv", "venv", ".tox", "target"})
_KEPT_OUT = (".git", ".jj", ".hg", "node_modules", "__pycache__", ".venv", ".tox")
_LISTING = (
    *("--files", "--null", "--hidden", "--no-config", "--no-messages", "--no-require-git"),
    *(f"--glob=!{name}" for name in _KEPT_OUT),
)

_AT = re.compile(r"(?:^|\s)@([^\s@]*)$")


class Offer(msgspec.Struct, frozen=True):
    """One thing that could stand there: the text to put from `start` on, and a word on it."""

    text: str
    start: int
    about: str = ""


def offers(line: str, files: Sequence[str], commands: Sequence[tuple[str, str]]) -> list[Offer]:
    """What fits the text before the cursor."""
    if line.startswith("/") and " " not in line:
        names, about = [name for name, _ in commands], dict(commands)
        found = matches(line[1:], names, len(names)) if len(line) > 1 else names
        return [Offer(f"/{name} ", 0, about[name]) for name in found]
    at = _AT.search(line)
    if at is None:
        return []
    start = at.start(1) - 1
    return [Offer(f"@{_quoted(name)} ", start) for name in matches(at[1], files)]


def matches(wanted: str, names: Iterable[str], most: int = MOST_SHOWN) -> list[str]:
    """The names that hold the letters in their order; short and early ones first."""
    wanted = wanted.casefold()
    scored = []
    for name in names:
        score = _score(wanted, name.casefold())
        if score is not None:
            scored.append((score, len(name), name))
    scored.sort()
    return [name for _, _, name in scored[:most]]


def _score(wanted: str, name: str) -> int | None:
    """Smaller is better; None does not match."""
    if not wanted:
        return name.count("/")
    last = name.rpartition("/")[2]
    if last.startswith(wanted):
        return 0
    if name.startswith(wanted):
        return 1
    at = last.find(wanted)
    if at >= 0:
        return 2 + at
    if wanted in name:
        return 40
    position, gaps = -1, 0
    for letter in wanted:
        found = name.find(letter, position + 1)
        if found < 0:
            return None
        gaps += found - position - 1
        position = found
    return 100 + gaps


def _quoted(name: str) -> str:
    return f'"{name}"' if " " in name else name


async def project_files(folder: Path) -> list[str]:
    """The files of a project that it does not want ignored, by paths from its folder."""
    program = _ripgrep(folder)
    if program is not None:
        code, out, _ = await programs.run(program, *_LISTING, cwd=folder)
        if out and code in (0, 2):  # 2: some folder could not be read
            names = out[: out.rfind(b"\0")].decode(errors="replace").split("\0")
            return names[:MOST_FILES]
    return await asyncio.to_thread(_walked, folder)


def _ripgrep(folder: Path) -> str | None:
    beside = Path(sys.executable).parent / "rg"
    if beside.is_file() and not programs.is_foreign(beside, folder):
        return str(beside)
    return programs.found("rg", folder)


def _walked(folder: Path) -> list[str]:
    found: list[str] = []
    until = time.monotonic() + WALK_SECONDS
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in SKIPPED and not f.startswith("."))
        inside = os.path.relpath(base, folder)
        found += [name if inside == "." else f"{inside}/{name}" for name in sorted(names)]
        if len(found) > MOST_FILES or time.monotonic() > until:
            break
    return found[:MOST_FILES]


async def branch(folder: Path) -> str:
    """The branch that is checked out, read off the files of git; "" outside of a repository."""
    for place in (folder, *folder.parents):
        head = place / ".git" / "HEAD"
        try:
            text = read_text(head, within=None).strip()
        except (ConfigError, FileNotFoundError):
            continue
        return text.rpartition("refs/heads/")[2] if "refs/heads/" in text else text[:8]
    return ""
