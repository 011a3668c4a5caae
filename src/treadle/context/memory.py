"""Memory files: AGENTS.md and CLAUDE.md of the user and of the repository.

    ~/.treadle/AGENTS.md, ~/.claude/CLAUDE.md       the user's own
    AGENTS.md, CLAUDE.md                            in each folder from the root to the current file

A line `@path` imports another file of the workspace. Binary files, symlinks out of the workspace,
circular imports and text over the size limits are left out, each with a problem line. Files are
read when a session begins; later changes arrive as notices (reminders.py), so that the prompt
stays the same.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import open_file, read_prefix, read_text

FILE_NAMES = ("AGENTS.md", "CLAUDE.md", "CLAUDE.local.md")
MAX_FILE_CHARS = 40_000  # of one file
MAX_TOTAL_CHARS = 120_000
MAX_IMPORT_DEPTH = 5
MAX_FILE_BYTES = MAX_FILE_CHARS * 4 + 1  # bytes beyond are neither read nor watched

_IMPORT = re.compile(r"^@(?P<path>[^\s`@]+)\s*$", re.MULTILINE)


class MemoryFile(msgspec.Struct, frozen=True):
    """One file as it was read, imports included."""

    path: Path
    text: str
    digest: str = ""  # of the file itself, to detect a change
    within: Path | None = None  # symlinks must stay in this folder; None for the user's own files


class Memory(msgspec.Struct, frozen=True):
    """The files, and a line for each problem."""

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
    """All memory files that apply to work in `folder` (by default the root) of a repository."""
    return _MemoryReader(root).read_all(folder or root, home)


def read_nested_memory(root: Path, folder: Path, known_paths: Iterable[Path]) -> Memory:
    """The files that apply to this subfolder and are not known yet."""
    return _MemoryReader(root, known_paths).read_all(folder, None)


def reread_changed(memory: Memory) -> Memory:
    """The files that have changed, as they are now."""
    pairs = ((file, _reread(file)) for file in memory.files)
    return Memory(tuple(new for old, new in pairs if new.digest != old.digest))


def append_memory(file: Path, line: str) -> None:
    """Append one entry to a memory file; create the file if it does not exist."""
    folder = file.parent
    folder.mkdir(parents=True, exist_ok=True)
    try:
        before = read_text(file, within=folder)
    except FileNotFoundError:
        before = ""
    gap = "" if not before or before.endswith("\n") else "\n"
    fd = open_file(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, within=folder)
    with os.fdopen(fd, "w", encoding="utf-8") as out:
        out.write(f"{gap}- {' '.join(line.split())}\n")


def _reread(file: MemoryFile) -> MemoryFile:
    """The current file, with the same checks as the first time: a command may have changed it."""
    try:
        data = read_prefix(file.path, MAX_FILE_BYTES, within=file.within)
    except FileNotFoundError:
        return _mark_unavailable(file, "the file was deleted")
    except ConfigError as error:
        return _mark_unavailable(file, f"the file is no longer used: {error}")
    digest = _digest(data)
    if digest == file.digest:
        return file
    if b"\0" in data:
        return _mark_unavailable(file, "the file is no longer used: it is binary")
    text = data.decode("utf-8", errors="replace")[:MAX_FILE_CHARS].strip()
    return MemoryFile(file.path, text, digest, file.within)


def _mark_unavailable(file: MemoryFile, reason: str) -> MemoryFile:
    return MemoryFile(file.path, f"({reason})", "", file.within)


def _find_memory_files(
    root: Path, folder: Path, home: Path | None
) -> list[tuple[Path, Path | None]]:
    """The files that exist, each with the folder that its symlinks must not leave."""
    files: list[tuple[Path, Path | None]] = []
    if home is not None:
        own = (home / ".treadle" / "AGENTS.md", home / ".claude" / "CLAUDE.md")
        files += [(file, None) for file in own]
    folders = [root]
    if folder != root and folder.is_relative_to(root):
        down = folder.relative_to(root).parts
        folders += [root.joinpath(*down[: n + 1]) for n in range(len(down))]
    for parent in folders:
        files += [(parent / name, root) for name in FILE_NAMES]
    return [(file, within) for file, within in files if file.exists()]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class _MemoryReader:
    """Reads files with their imports, within the size limits."""

    def __init__(self, root: Path, known_paths: Iterable[Path] = ()) -> None:
        self._given_root = root
        self._root = Path(os.path.realpath(root))
        self._remaining_chars = MAX_TOTAL_CHARS
        self._seen = {Path(os.path.realpath(path)) for path in known_paths}
        self.files: list[MemoryFile] = []
        self.problems: list[str] = []

    def read_all(self, folder: Path, home: Path | None) -> Memory:
        for file, within in _find_memory_files(self._given_root, folder, home):
            self._read(file, within)
        return Memory(tuple(self.files), tuple(self.problems))

    def _read(self, file: Path, within: Path | None) -> None:
        real = Path(os.path.realpath(file))
        if real in self._seen:
            return  # CLAUDE.md is often a symlink to AGENTS.md
        self._seen.add(real)
        try:
            data = read_prefix(file, MAX_FILE_BYTES, within=within)
        except FileNotFoundError:
            return  # deleted in the meantime
        except ConfigError as error:
            self.problems.append(str(error))
            return
        text = self._expand(file, data, ())
        if text:
            self.files.append(MemoryFile(file, text, _digest(data), within))

    def _expand(self, file: Path, data: bytes, above: Sequence[Path]) -> str:
        if b"\0" in data:
            self.problems.append(f"{file}: is binary; it is left out")
            return ""
        text = self._truncate(file, data.decode("utf-8", errors="replace").strip())
        if not file.is_relative_to(self._root):
            return text  # the user's own file imports nothing of the workspace
        chain = (*above, Path(os.path.realpath(file)))
        return _IMPORT.sub(lambda match: self._read_import(file, match["path"], chain), text)

    def _truncate(self, file: Path, text: str) -> str:
        limit = min(MAX_FILE_CHARS, self._remaining_chars)
        if len(text) > limit:
            size = f"{file}: has {len(text):,} characters"
            self.problems.append(f"{size}; only the first {limit:,} are read")
            text = text[:limit]
        self._remaining_chars -= len(text)
        return text

    def _read_import(self, file: Path, path: str, above: Sequence[Path]) -> str:
        target = Path(os.path.realpath(file.parent / path))
        problem, data = "", b""
        if target in above:
            problem = f"@{path} is a circular import"
        elif len(above) > MAX_IMPORT_DEPTH:
            problem = f"@{path} is imported more than {MAX_IMPORT_DEPTH} levels deep"
        elif not target.is_relative_to(self._root):
            problem = f"@{path} is outside the workspace"
        else:
            try:
                data = read_prefix(target, MAX_FILE_BYTES, within=self._root)
            except FileNotFoundError:
                problem = f"@{path} does not exist"
            except ConfigError as error:
                problem = f"@{path} is not allowed ({error})"
        if problem:
            self.problems.append(f"{file}: {problem}; it is left out")
            return f"(@{path} was left out)"
        self._seen.add(target)
        return self._expand(target, data, above)
