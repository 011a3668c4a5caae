"""Text in thousands of sessions, found by ripgrep where it is there.

What is looked for is looked for as it stands in the files, that is, as JSON writes it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from treadle.sessions.family import CHILDREN

AROUND = 60  # characters shown on each side
MOST_A_FILE = 3
_QUOTE = re.compile(r'(?<!\\)"')
_SPECIAL = re.compile(r"([][\\.^$*+?{}()|&~#-])")


class Hit(msgspec.Struct, frozen=True):
    """A place where the text stands; in `child`, if a child agent of the session said it."""

    session: str
    project: str
    text: str
    child: str = ""


async def search(root: Path, text: str, *, limit: int = 100) -> list[Hit]:
    """Where this text stands, whatever its case; at most three places a session's file."""
    wanted = json.dumps(text, ensure_ascii=False)[1:-1]
    if not wanted.strip():
        return []
    program = ripgrep()
    lines = _by_hand(root, wanted) if program is None else await _by_ripgrep(program, root, wanted)
    hits: list[Hit] = []
    for path, found in sorted(lines, key=_age):
        parts = Path(path).relative_to(root).parts
        said = _said(found, wanted) if parts[-1].startswith("journal") else found
        if len(parts) > 2 and said:
            hits.append(Hit(parts[1], parts[0], _readable(said), _child(parts)))
        if len(hits) >= limit:
            break
    return hits


def _child(parts: tuple[str, ...]) -> str:
    """project/session/children/child/children/grandchild/journal.jsonl"""
    depth = 2
    while parts[depth] == CHILDREN and len(parts) > depth + 2:
        depth += 2
    return parts[depth - 1] if depth > 2 else ""


def _age(line: tuple[str, str]) -> float:
    """The newest first. Not by ripgrep, which sorts only if it works with one thread."""
    try:
        return -os.stat(line[0]).st_mtime  # noqa: PTH116 - hot
    except OSError:
        return 0.0


def ripgrep() -> str | None:
    """The program, from our own environment or from the system; none of the current folder."""
    beside = Path(sys.executable).parent / "rg"
    if beside.exists():
        return str(beside.absolute())
    found = shutil.which("rg")
    is_foreign = found is None or Path(found).resolve().is_relative_to(Path.cwd())
    return None if is_foreign else found


async def _by_ripgrep(program: str, root: Path, wanted: str) -> list[tuple[str, str]]:
    exactly = _SPECIAL.sub(r"\\\1", wanted)
    around = f".{{0,{AROUND}}}{exactly}.{{0,{AROUND}}}"
    process = await asyncio.create_subprocess_exec(
        program,
        *("--no-config", "--no-ignore", "--hidden", "--ignore-case", "--only-matching", "--null"),
        *("--no-line-number", "--with-filename", "--max-count", str(MOST_A_FILE), "--text"),
        *("--glob", "journal*.jsonl", "--glob", "**/blobs/**"),
        *("--regexp", around, "--", str(root)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd="/",
        env={"LANG": "C.UTF-8"},  # it needs none of our variables, and least of all the keys
    )
    out, _ = await process.communicate()
    pairs = [line.partition("\0") for line in out.decode(errors="replace").split("\n") if line]
    return [(path, found) for path, _, found in pairs]


def _by_hand(root: Path, wanted: str) -> Iterator[tuple[str, str]]:
    pattern = re.compile(f".{{0,{AROUND}}}{re.escape(wanted)}.{{0,{AROUND}}}", re.IGNORECASE)
    folded = wanted.casefold()
    for path in sorted(root.rglob("journal*.jsonl")):
        with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            found = 0
            for line in file:
                # Most lines do not hold it, and the pattern takes its time to find out.
                match = pattern.search(line) if folded in line.casefold() else None
                if match is not None:
                    yield str(path), match[0]
                    found += 1
                if found >= MOST_A_FILE:
                    break


def _said(found: str, wanted: str) -> str:
    """What is text of the piece of a JSON line around the find; nothing, if it is a key."""
    begin = max(0, found.lower().find(wanted.lower()))
    before = [quote.end() for quote in _QUOTE.finditer(found, 0, begin)]
    after = _QUOTE.search(found, begin + len(wanted))
    if after is not None and found.startswith(":", after.end()):
        return ""
    return found[before[-1] if before else 0 : after.start() if after else len(found)]


def _readable(found: str) -> str:
    """A piece of a JSON line, as a person would write it."""
    text = re.sub(r"\\[nrt]", " ", found).replace('\\"', '"').replace("\\\\", "\\")
    return " ".join(text.split())
