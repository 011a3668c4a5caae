"""The project's memory: AGENTS.md and CLAUDE.md, from home and from the repository down.

    ~/.treadle/AGENTS.md, ~/.claude/CLAUDE.md       the user's own
    AGENTS.md, CLAUDE.md                            in each folder from the root to the file at hand

A line `@path` imports another file of the workspace. What is huge, binary, a link out of the
workspace or imports itself is left out with a sentence about it. Files are read when a session
begins; a change later is told by a notice, so that the prompt stays as it was.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

NAMES = ("AGENTS.md", "CLAUDE.md", "CLAUDE.local.md")
MOST_CHARS = 40_000  # of one file
MOST_IN_ALL = 120_000
MOST_DEPTH = 5

_IMPORT = re.compile(r"^@(?P<path>[^\s`@]+)\s*$", re.MULTILINE)


class MemoryFile(msgspec.Struct, frozen=True):
    """One file as it was read, imports included."""

    path: Path
    text: str
    digest: str = ""  # of the file itself, to notice a change


class Memory(msgspec.Struct, frozen=True):
    """What was found, and a line for each thing that was left out."""

    files: tuple[MemoryFile, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """For the prompt."""
        if not self.files:
            return ""
        parts = ["# What the project and the user want you to know"]
        parts += [f'<memory file="{file.path}">\n{file.text}\n</memory>' for file in self.files]
        return "\n\n".join(parts)


def read_memory(root: Path, folder: Path | None = None, home: Path | None = None) -> Memory:
    """All memory files that hold for work in `folder` (by default the root) of a repository."""
    reader = _Reader(root)
    for file in _places(root, folder or root, home):
        reader.read(file)
    return Memory(tuple(reader.files), tuple(reader.problems))


def memory_between(root: Path, folder: Path, known: Iterable[Path]) -> Memory:
    """The files that hold below the root for this folder and are not known yet."""
    seen = {path.resolve() for path in known}
    reader = _Reader(root)
    for file in _places(root, folder, None):
        if file.resolve() not in seen:
            reader.read(file)
    return Memory(tuple(reader.files), tuple(reader.problems))


def changed(memory: Memory) -> Memory:
    """The files whose text is another one now: for a notice."""
    fresh: list[MemoryFile] = []
    for file in memory.files:
        digest = _digest(file.path)
        if digest != file.digest:
            text = _beginning(file.path) if digest else "(the file is gone)"
            fresh.append(MemoryFile(file.path, text, digest))
    return Memory(tuple(fresh))


def remember(file: Path, line: str) -> None:
    """Append one thing to a memory file, making it if need be."""
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    gap = "" if not before or before.endswith("\n") else "\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{before}{gap}- {' '.join(line.split())}\n", encoding="utf-8")


def _places(root: Path, folder: Path, home: Path | None) -> list[Path]:
    places: list[Path] = []
    if home is not None:
        places += [home / ".treadle" / "AGENTS.md", home / ".claude" / "CLAUDE.md"]
    folders = [root]
    if folder != root and folder.is_relative_to(root):
        down = folder.relative_to(root).parts
        folders += [root.joinpath(*down[: n + 1]) for n in range(len(down))]
    for place in folders:
        places += [place / name for name in NAMES]
    return [file for file in places if file.is_file()]


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def _beginning(file: Path) -> str:
    with file.open(encoding="utf-8", errors="replace") as text:
        return text.read(MOST_CHARS).strip()


class _Reader:
    """Reads files with their imports, within bounds."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._left = MOST_IN_ALL
        self._seen: set[Path] = set()
        self.files: list[MemoryFile] = []
        self.problems: list[str] = []

    def read(self, file: Path) -> None:
        real = file.resolve()
        if real in self._seen:
            return  # CLAUDE.md is often a link to AGENTS.md
        inside = file.is_relative_to(self._root)
        if inside and not real.is_relative_to(self._root):
            self.problems.append(f"{file}: a link out of the workspace; it is not read")
            return
        text = self._text(file, real, inside, ())
        if text:
            self.files.append(MemoryFile(file, text, _digest(real)))

    def _text(self, file: Path, real: Path, may_import: bool, above: Sequence[Path]) -> str:
        self._seen.add(real)
        try:
            data = real.read_bytes()[: MOST_CHARS * 4 + 1]
        except OSError as error:
            self.problems.append(f"{file}: cannot be read ({error.strerror})")
            return ""
        if b"\0" in data:
            self.problems.append(f"{file}: is binary; it is not read")
            return ""
        text = data.decode("utf-8", errors="replace").strip()
        text = self._cut(file, text)
        if not may_import:
            return text
        chain = (*above, real)
        return _IMPORT.sub(lambda found: self._imported(file, found["path"], chain), text)

    def _cut(self, file: Path, text: str) -> str:
        limit = min(MOST_CHARS, self._left)
        if len(text) > limit:
            self.problems.append(
                f"{file}: has {len(text):,} characters; only the first {limit:,} are read"
            )
            text = text[:limit]
        self._left -= len(text)
        return text

    def _imported(self, file: Path, path: str, above: Sequence[Path]) -> str:
        target = (file.parent / path).resolve()
        problem = ""
        if target in above:
            problem = "imports itself"
        elif len(above) > MOST_DEPTH:
            problem = f"imports go deeper than {MOST_DEPTH}"
        elif not target.is_relative_to(self._root):
            problem = f"@{path} is outside the workspace"
        elif not target.is_file():
            problem = f"@{path} is not there"
        if problem:
            self.problems.append(f"{file}: {problem}; it is left out")
            return f"(@{path} was left out)"
        return self._text(target, target, True, above)
