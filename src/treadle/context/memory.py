"""Memory files: instructions of the user and of the repository, with what they import.

memory_files.py lists the files, memory_imports.py the imports. Binary files, symlinks out of the
repository, circular imports, text over the size limits and what the rules forbid to read are left
out, each with a problem line.
Files are read when a session begins; later changes, and rules about certain files, arrive as
notices (reminders.py), so that the prompt stays the same.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from treadle.context.memory_files import (
    FilePatterns,
    FoundFile,
    describe_optional_rule,
    find_folder_files,
    find_user_files,
    read_patterns,
)
from treadle.context.memory_imports import (
    list_mentions,
    may_import,
    replace_imports,
    resolve_import,
)
from treadle.core.contracts.hook import LoadReason
from treadle.core.errors import ConfigError
from treadle.core.untrusted_files import open_file, read_prefix, read_text
from treadle.lib.text.frontmatter import Frontmatter, FrontmatterError, parse_frontmatter

HEADING = """\
# Instructions
From the user and the project, for all of the work. If they differ, a later file comes before an
earlier one, and what the user says in the conversation before all of them."""
MAX_FILE_CHARS = 40_000  # of one file
MAX_TOTAL_CHARS = 120_000
MAX_IMPORT_DEPTH = 5
LEFT_OUT = "(@{} was left out)"
MAX_FILE_BYTES = MAX_FILE_CHARS * 4 + 1  # bytes beyond are neither read nor watched

# Why a file that a file of the project names may not be read, by the rules; "" if it may.
CheckRead = Callable[[Path], str]


def allow_read(path: Path) -> str:
    """The check where there are no rules."""
    return ""


class MemoryFile(msgspec.Struct, frozen=True):
    """One file as it was read, imports included."""

    path: Path
    text: str
    digest: str = ""  # of the file itself, to detect a change
    within: Path | None = None  # symlinks must stay in this folder; None for the user's own files
    is_rule: bool = False  # it may have front matter, which is not part of `text`
    reason: LoadReason = "session_start"  # why it is loaded

    def describe_load(self) -> dict[str, str]:
        """The data of the hooks at `instructions_loaded`."""
        is_local = self.path.name.endswith(".local.md")
        kind = "User" if self.within is None else "Local" if is_local else "Project"
        return {"file_path": str(self.path), "memory_type": kind, "load_reason": self.reason}


class MemoryRule(msgspec.Struct, frozen=True):
    """A rule that applies when the work touches certain files."""

    file: MemoryFile
    patterns: FilePatterns


class Memory(msgspec.Struct, frozen=True):
    """The files, a line for each problem, and the rules that apply to certain files only."""

    files: tuple[MemoryFile, ...] = ()
    problems: tuple[str, ...] = ()
    path_rules: tuple[MemoryRule, ...] = ()
    lines: str = ""  # that the user accepted: memory_lines.py

    @property
    def text(self) -> str:
        """For the prompt."""
        if not self.files and not self.lines:
            return ""
        parts = [HEADING]
        parts += [f'<memory file="{file.path}">\n{file.text}\n</memory>' for file in self.files]
        parts += [f"<memory accepted-by-user>\n{self.lines}\n</memory>"] if self.lines else []
        return "\n\n".join(parts)


def read_memory(
    root: Path,
    folder: Path | None = None,
    home: Path | None = None,
    *,
    more: bool = False,
    check_read: CheckRead = allow_read,
) -> Memory:
    """All memory files that apply to work in `folder` (by default the root) of a repository.

    `more`: also the files that users of Cursor and Gemini have. `check_read` is asked about each
    file that a file of the repository imports or, as a symlink, stands for.
    """
    return _MemoryReader(root, more=more, check_read=check_read).read_all(folder or root, home)


def read_user_memory(root: Path, home: Path, *, more: bool = False) -> Memory:
    """The user's own files alone, for work in this repository."""
    return _MemoryReader(root, more=more).read_all(None, home)


def read_nested_memory(
    root: Path,
    folder: Path,
    known_paths: Iterable[Path],
    *,
    more: bool = False,
    check_read: CheckRead = allow_read,
) -> Memory:
    """The files that apply to this subfolder and are not known yet."""
    reader = _MemoryReader(root, known_paths, more=more, check_read=check_read)
    memory = reader.read_all(folder, None)
    files = [_replace_reason(file, "nested_traversal") for file in memory.files]
    return msgspec.structs.replace(memory, files=tuple(files))


def _replace_reason(file: MemoryFile, reason: LoadReason) -> MemoryFile:
    is_import = file.reason == "include"
    return file if is_import else msgspec.structs.replace(file, reason=reason)


def reread_changed(memory: Memory, check_read: CheckRead = allow_read) -> Memory:
    """The files that have changed, as they are now."""
    pairs = ((file, _reread(file, check_read)) for file in memory.files)
    return Memory(tuple(new for old, new in pairs if new.digest != old.digest))


def choose_memory_file(folder: Path) -> Path:
    """Where a new entry of a project belongs: CLAUDE.md if there is that alone, else AGENTS.md."""
    agents = folder / "AGENTS.md"
    files = (agents, folder / "CLAUDE.md", folder / ".claude" / "CLAUDE.md")
    return next((file for file in files if file.exists()), agents)


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


def _reread(file: MemoryFile, check_read: CheckRead) -> MemoryFile:
    """The current file, with the same checks as the first time: a command may have changed it."""
    try:
        _check_symlink(file.path, file.within, check_read)
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
    text = data.decode("utf-8", errors="replace")[:MAX_FILE_CHARS]
    if file.is_rule:
        text = _split_front_matter(text)[1]
    return msgspec.structs.replace(file, text=text.strip(), digest=digest)


def _check_symlink(file: Path, within: Path | None, check_read: CheckRead) -> None:
    """ConfigError if a file of a project is a symlink to one that may not be read."""
    real = Path(os.path.realpath(file))
    if within is None or real == Path(os.path.realpath(file.parent), file.name):
        return
    if problem := check_read(real):
        raise ConfigError(f"{file}: is a symlink to {real}; {problem}")


def _mark_unavailable(file: MemoryFile, reason: str) -> MemoryFile:
    return msgspec.structs.replace(file, text=f"({reason})", digest="")


def _find_memory_files(
    root: Path, folder: Path | None, home: Path | None, more: bool
) -> Iterator[FoundFile]:
    """The files that exist, from the user's own down to those of the folder."""
    found: list[FoundFile] = []
    if home is not None:
        found += find_user_files(home, root, more=more)
    if folder is not None:
        down = folder.relative_to(root).parts if folder.is_relative_to(root) else ()
        for count in range(len(down) + 1):
            found += find_folder_files(root.joinpath(*down[:count]), root, more=more)
    yield from (one for one in found if one.path.exists())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _split_front_matter(text: str) -> tuple[Frontmatter, str]:
    """The front matter and the rest; invalid front matter is text."""
    try:
        return parse_frontmatter(text)
    except FrontmatterError:
        return {}, text


class _MemoryReader:
    """Reads files with their imports, within the size limits."""

    def __init__(
        self,
        root: Path,
        known_paths: Iterable[Path] = (),
        *,
        more: bool = False,
        check_read: CheckRead = allow_read,
    ) -> None:
        self._check_read = check_read
        self._given_root = root
        self._root = Path(os.path.realpath(root))
        self._more = more
        self._home = Path.home()
        self._remaining_chars = MAX_TOTAL_CHARS
        self._seen = {Path(os.path.realpath(path)) for path in known_paths}
        self._imported: list[MemoryFile] = []  # by a mention in the file that is read now
        self.files: list[MemoryFile] = []
        self.path_rules: list[MemoryRule] = []
        self.problems: list[str] = []

    def read_all(self, folder: Path | None, home: Path | None) -> Memory:
        self._home = home or self._home
        for found in _find_memory_files(self._given_root, folder, home, self._more):
            self._read(found)
        return Memory(tuple(self.files), tuple(self.problems), tuple(self.path_rules))

    def _read(self, found: FoundFile) -> None:
        file, within = found.path, found.within
        real = Path(os.path.realpath(file))
        if real in self._seen:
            return  # CLAUDE.md is often a symlink to AGENTS.md
        try:
            _check_symlink(file, within, self._check_read)
            self._seen.add(real)
            data = read_prefix(file, MAX_FILE_BYTES, within=within)
        except FileNotFoundError:
            return  # deleted in the meantime
        except ConfigError as error:
            self.problems.append(str(error))
            return
        text = self._decode(file, data)
        head, body = _split_front_matter(text) if found.is_rule else ({}, text)
        patterns = read_patterns(found, head) if head else None
        body = describe_optional_rule(found, head) or body
        text = self._expand(file, body, (), is_user=within is None)
        new = MemoryFile(file, text, _digest(data), within, found.is_rule)
        if patterns is not None:
            rule = msgspec.structs.replace(new, reason="path_glob_match")
            self.path_rules.append(MemoryRule(rule, patterns))
        elif text:
            self.files.append(new)
        imported, self._imported = self._imported, []
        self.files += imported

    def _decode(self, file: Path, data: bytes) -> str:
        if b"\0" not in data:
            return data.decode("utf-8", errors="replace").strip()
        self.problems.append(f"{file}: is binary; it is left out")
        return ""

    def _expand(self, file: Path, text: str, above: Sequence[Path], *, is_user: bool) -> str:
        """The text with its imports."""
        text = self._truncate(file, text.strip())
        chain = (*above, Path(os.path.realpath(file)))
        mentions = list_mentions(text)
        left_out = [p for p in mentions if not self._add_mentioned(file, p, chain, is_user)]
        text = replace_imports(text, lambda path: self._read_import(file, path, chain, is_user))
        return "\n".join([text, *(LEFT_OUT.format(path) for path in left_out)])

    def _truncate(self, file: Path, text: str) -> str:
        limit = min(MAX_FILE_CHARS, self._remaining_chars)
        if len(text) > limit:
            size = f"{file}: has {len(text):,} characters"
            self.problems.append(f"{size}; only the first {limit:,} are read")
            text = text[:limit]
        self._remaining_chars -= len(text)
        return text

    def _read_import(self, file: Path, path: str, above: Sequence[Path], is_user: bool) -> str:
        """The text of a file whose import is a line of its own."""
        target = resolve_import(path, file, self._home)
        if target in self._seen and target not in above:
            return f"@{path}"  # it is in the prompt already
        try:
            data = self._load_import(path, target, above, is_user)
        except ConfigError as error:
            self.problems.append(f"{file}: {error}; it is left out")
            return LEFT_OUT.format(path)
        self._seen.add(target)
        return self._expand(target, self._decode(target, data), above, is_user=is_user)

    def _add_mentioned(self, file: Path, path: str, above: Sequence[Path], is_user: bool) -> bool:
        """Read a file that a line mentions; False if it is left out. Most such words are no files,
        which is no problem."""
        target = resolve_import(path, file, self._home)
        if target in self._seen or not os.path.isfile(target):  # noqa: PTH113 - may be no path
            return True
        try:
            data = self._load_import(path, target, above, is_user)
        except ConfigError as error:
            self.problems.append(f"{file}: {error}; it is left out")
            return False
        self._seen.add(target)
        place = len(self._imported)
        text = self._expand(target, self._decode(target, data), above, is_user=is_user)
        within = self._root if target.is_relative_to(self._root) else None
        if text:
            self._imported.insert(
                place, MemoryFile(target, text, _digest(data), within, reason="include")
            )
        return True

    def _load_import(self, path: str, target: Path, above: Sequence[Path], is_user: bool) -> bytes:
        """The first bytes of an imported file; ConfigError says why it is not read."""
        if target in above:
            raise ConfigError(f"@{path} is a circular import")
        if len(above) > MAX_IMPORT_DEPTH:
            raise ConfigError(f"@{path} is imported more than {MAX_IMPORT_DEPTH} levels deep")
        if not is_user and not may_import(target, self._root, self._home):
            raise ConfigError(f"@{path} is outside the workspace")
        if not is_user and (problem := self._check_read(target)):
            raise ConfigError(f"@{path}: {problem}")
        try:
            within = self._root if target.is_relative_to(self._root) else None
            return read_prefix(target, MAX_FILE_BYTES, within=within)
        except FileNotFoundError:
            raise ConfigError(f"@{path} does not exist") from None
        except ConfigError as error:
            raise ConfigError(f"@{path} is not allowed ({error})") from error
