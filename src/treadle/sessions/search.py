"""Searches the text of all sessions, with ripgrep if it is installed.

The search text is encoded as JSON first, because the files hold JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from treadle.lib.child_process import start_child
from treadle.lib.files.ripgrep import find_ripgrep
from treadle.sessions.children import CHILDREN_DIR

CONTEXT_CHARS = 60  # characters shown on each side
MAX_HITS_PER_FILE = 1000
_QUOTE = re.compile(r'(?<!\\)"')
_REGEX_SPECIAL = re.compile(r"([][\\.^$*+?{}()|&~#-])")


class SearchHit(msgspec.Struct, frozen=True):
    """One match. `child` is the child agent's session, if the match is in one."""

    session: str
    project: str
    text: str
    child: str = ""


async def search(root: Path, text: str, *, limit: int = 100) -> list[SearchHit]:
    """The matches in at most so many sessions, ignoring case, newest files first."""
    escaped_text = json.dumps(text, ensure_ascii=False)[1:-1]
    if not escaped_text.strip():
        return []
    program = find_ripgrep(not_in=Path.cwd())
    lines: Iterable[tuple[str, str]] = _search_in_python(root, escaped_text)
    if program is not None:
        lines = await _search_with_ripgrep(program, root, escaped_text)
    hits: list[SearchHit] = []
    sessions = set[str]()
    for path, match in sorted(lines, key=_newest_first_key):
        parts = Path(path).relative_to(root).parts
        if parts[-1].startswith("journal"):
            match = _extract_string(match, escaped_text)
        if len(parts) > 2 and match and (parts[1] in sessions or len(sessions) < limit):
            sessions.add(parts[1])
            hits.append(SearchHit(parts[1], parts[0], _unescape_json(match), _child_name(parts)))
    return hits


def _child_name(parts: tuple[str, ...]) -> str:
    """project/session/children/child/children/grandchild/journal.jsonl"""
    depth = 2
    while parts[depth] == CHILDREN_DIR and len(parts) > depth + 2:
        depth += 2
    return parts[depth - 1] if depth > 2 else ""


def _newest_first_key(line: tuple[str, str]) -> float:
    """ripgrep could sort, but then uses one thread only."""
    try:
        return -os.stat(line[0]).st_mtime  # noqa: PTH116 - hot
    except OSError:
        return 0.0


async def _search_with_ripgrep(program: str, root: Path, text: str) -> list[tuple[str, str]]:
    exactly = _REGEX_SPECIAL.sub(r"\\\1", text)
    around = f".{{0,{CONTEXT_CHARS}}}{exactly}.{{0,{CONTEXT_CHARS}}}"
    starting = start_child(
        program,
        *("--no-config", "--no-ignore", "--hidden", "--ignore-case", "--only-matching", "--null"),
        *("--no-line-number", "--with-filename", "--max-count", str(MAX_HITS_PER_FILE), "--text"),
        *("--glob", "journal*.jsonl", "--glob", "**/blobs/**"),
        *("--regexp", around, "--", str(root)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd="/",
        env={"LANG": "C.UTF-8"},  # not our variables: they hold API keys
    )
    async with starting as process:
        out, _ = await process.communicate()
    pairs = [line.partition("\0") for line in out.decode(errors="replace").split("\n") if line]
    return [(path, match) for path, _, match in pairs]


def _search_in_python(root: Path, text: str) -> Iterator[tuple[str, str]]:
    around = f".{{0,{CONTEXT_CHARS}}}"
    pattern = re.compile(f"{around}{re.escape(text)}{around}", re.IGNORECASE)
    folded = text.casefold()
    for path in sorted(root.rglob("journal*.jsonl")):
        if not path.is_file():
            continue
        with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            count = 0
            for line in file:
                # Most lines do not match, and the pattern is slow to find that out.
                match = pattern.search(line) if folded in line.casefold() else None
                if match is not None:
                    yield str(path), match[0]
                    count += 1
                if count >= MAX_HITS_PER_FILE:
                    break


def _extract_string(match: str, escaped_text: str) -> str:
    """The JSON string around the match; empty if it is a key."""
    begin = max(0, match.lower().find(escaped_text.lower()))
    before = [quote.end() for quote in _QUOTE.finditer(match, 0, begin)]
    after = _QUOTE.search(match, begin + len(escaped_text))
    if after is not None and match.startswith(":", after.end()):
        return ""
    return match[before[-1] if before else 0 : after.start() if after else len(match)]


def _unescape_json(match: str) -> str:
    """A piece of a JSON string as one readable line."""
    text = re.sub(r"\\[nrt]", " ", match).replace('\\"', '"').replace("\\\\", "\\")
    return " ".join(text.split())
