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

from treadle.sessions.children import CHILDREN_DIR

CONTEXT_CHARS = 60  # characters shown on each side
MAX_HITS_PER_FILE = 3
_QUOTE = re.compile(r'(?<!\\)"')
_REGEX_SPECIAL = re.compile(r"([][\\.^$*+?{}()|&~#-])")


class SearchHit(msgspec.Struct, frozen=True):
    """A place where the text stands; in `child`, if a child agent of the session said it."""

    session: str
    project: str
    text: str
    child: str = ""


async def search(root: Path, text: str, *, limit: int = 100) -> list[SearchHit]:
    """Where this text stands, whatever its case; at most three places a session's file."""
    wanted = json.dumps(text, ensure_ascii=False)[1:-1]
    if not wanted.strip():
        return []
    program = find_ripgrep()
    lines = (
        _search_in_python(root, wanted)
        if program is None
        else await _search_with_ripgrep(program, root, wanted)
    )
    hits: list[SearchHit] = []
    for path, found in sorted(lines, key=_newest_first_key):
        parts = Path(path).relative_to(root).parts
        said = _extract_string(found, wanted) if parts[-1].startswith("journal") else found
        if len(parts) > 2 and said:
            hits.append(SearchHit(parts[1], parts[0], _unescape_json(said), _child_name(parts)))
        if len(hits) >= limit:
            break
    return hits


def _child_name(parts: tuple[str, ...]) -> str:
    """project/session/children/child/children/grandchild/journal.jsonl"""
    depth = 2
    while parts[depth] == CHILDREN_DIR and len(parts) > depth + 2:
        depth += 2
    return parts[depth - 1] if depth > 2 else ""


def _newest_first_key(line: tuple[str, str]) -> float:
    """The newest first. Not by ripgrep, which sorts only if it works with one thread."""
    try:
        return -os.stat(line[0]).st_mtime  # noqa: PTH116 - hot
    except OSError:
        return 0.0


def find_ripgrep() -> str | None:
    """The program, from our own environment or from the system; none of the current folder."""
    beside = Path(sys.executable).parent / "rg"
    if beside.exists():
        return str(beside.absolute())
    found = shutil.which("rg")
    is_foreign = found is None or Path(found).resolve().is_relative_to(Path.cwd())
    return None if is_foreign else found


async def _search_with_ripgrep(
    program: str, root: Path, escaped_text: str
) -> list[tuple[str, str]]:
    exactly = _REGEX_SPECIAL.sub(r"\\\1", escaped_text)
    around = f".{{0,{CONTEXT_CHARS}}}{exactly}.{{0,{CONTEXT_CHARS}}}"
    process = await asyncio.create_subprocess_exec(
        program,
        *("--no-config", "--no-ignore", "--hidden", "--ignore-case", "--only-matching", "--null"),
        *("--no-line-number", "--with-filename", "--max-count", str(MAX_HITS_PER_FILE), "--text"),
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


def _search_in_python(root: Path, escaped_text: str) -> Iterator[tuple[str, str]]:
    pattern = re.compile(
        f".{{0,{CONTEXT_CHARS}}}{re.escape(escaped_text)}.{{0,{CONTEXT_CHARS}}}", re.IGNORECASE
    )
    folded = escaped_text.casefold()
    for path in sorted(root.rglob("journal*.jsonl")):
        with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            found = 0
            for line in file:
                # Most lines do not hold it, and the pattern takes its time to find out.
                match = pattern.search(line) if folded in line.casefold() else None
                if match is not None:
                    yield str(path), match[0]
                    found += 1
                if found >= MAX_HITS_PER_FILE:
                    break


def _extract_string(match: str, escaped_text: str) -> str:
    """What is text of the piece of a JSON line around the find; nothing, if it is a key."""
    begin = max(0, match.lower().find(escaped_text.lower()))
    before = [quote.end() for quote in _QUOTE.finditer(match, 0, begin)]
    after = _QUOTE.search(match, begin + len(escaped_text))
    if after is not None and match.startswith(":", after.end()):
        return ""
    return match[before[-1] if before else 0 : after.start() if after else len(match)]


def _unescape_json(match: str) -> str:
    """A piece of a JSON line, as a person would write it."""
    text = re.sub(r"\\[nrt]", " ", match).replace('\\"', '"').replace("\\\\", "\\")
    return " ".join(text.split())
