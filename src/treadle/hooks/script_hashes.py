"""Finds and hashes the files of a folder that a hook or a server of it runs.

Rather too many files than too few: every word that is a file of the folder counts, relative to
every folder that is named, except data that the line does not run, such as a database. What is
known only at run time makes the result incomplete. Files that these files load are not searched.
Used by approval.py. Uses lib/shell to parse the command line.
"""

# ruff: noqa: PTH111, PTH112, PTH113, PTH115, PTH118, PTH120 - most words are not paths

from __future__ import annotations

import hashlib
import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from treadle.lib.files.file_view import is_inside
from treadle.lib.shell.analysis.programs import describe_command
from treadle.lib.shell.ast import SimpleCommand, Word, strip_version
from treadle.lib.shell.syntax.parser import parse_command
from treadle.lib.text.word_set import word_set

_MAX_CHARS = 20_000
_MAX_WORDS = 1_000
_MAX_FILES = 64
_MAX_FOLDERS = 16
_MAX_PATH_STEPS = 4_000  # of one path, since symlinks may form a loop
_MAX_HASHED_BYTES = 64 << 20

_WORD = re.compile(r"""[^\s"'`$=:,;|&<>(){}\[\]]+""")
_VARIABLE_WITH_DEFAULT = re.compile(r"\$\{(\w+):?-([^${}]*)\}")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_PROJECT_DIR_VARIABLE = re.compile(
    r"\$(?:PWD|(?:TREADLE|CLAUDE)_PROJECT_DIR)\b"
    r"|\$\{(?:PWD|(?:TREADLE|CLAUDE)_PROJECT_DIR)\}"
    r"|(?<![^\s=:;&|])~\+(?=[/\s;&|]|$)"
)
_HOME_VARIABLE = re.compile(r"\$HOME\b|\$\{HOME\}|(?<![^\s=:;&|])~(?=/)")
_REASSIGNMENT = re.compile(r"\b(?:PWD|HOME|(?:TREADLE|CLAUDE)_PROJECT_DIR)=")
_MODULE_OPTION = re.compile(r"-[A-Za-z]*m(.*)")
_DOTTED_NAME = re.compile(r"\w+(?:\.\w+)*")

_NODE_RUNNERS = frozenset({"npm", "npx", "pnpm", "pnpx", "yarn", "bun", "bunx"})
_IMPLICIT_FILES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("make", "gmake"), ("GNUmakefile", "makefile", "Makefile")),
    **dict.fromkeys(_NODE_RUNNERS, ("package.json",)),
    **dict.fromkeys(("uv", "poetry", "pdm", "hatch"), ("pyproject.toml",)),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "rake": ("Rakefile",),
    "deno": ("deno.json", "deno.jsonc", "package.json"),
    "nox": ("noxfile.py",),
    "pre-commit": (".pre-commit-config.yaml",),
}
"""Files that a program reads without being named on the command line."""

_BUILD_PROGRAMS = word_set(
    "pytest tox cargo go gradle gradlew mvn mvnw bazel cmake ninja meson dotnet swift mix"
)
"""Programs that build or run the whole folder."""

_DATA_SUFFIXES = word_set(
    ".csv .db .db3 .duckdb .jsonl .log .ndjson .parquet .sqlite .sqlite3 .tsv"
)
"""Files of data: they count only if the line runs them."""

_NODE_PROGRAMS = frozenset({"node", "nodejs", "bun", "deno", "tsx", "ts-node"})
_NODE_SUFFIXES = (".js", ".mjs", ".cjs", ".ts")
_NODE_FILES = ("package.json", *(f"index{ending}" for ending in _NODE_SUFFIXES))


class ScriptHashes(msgspec.Struct, frozen=True):
    """The files of the folder that a definition runs."""

    files: dict[str, str] = {}  # relative path -> hash, or the target of a symlink
    is_complete: bool = True  # False if it may run more than was found


def hash_scripts(definition: Mapping[str, Any], folder: Path) -> ScriptHashes:
    """The present files of the folder that this hook or server runs."""
    commands, is_complete = _parse_definition(definition)
    words = _list_words(definition, commands)
    names = {_get_program_name(word) for word in words}
    if len(words) > _MAX_WORDS or not names.isdisjoint(_BUILD_PROGRAMS):
        is_complete = False
    collector = _FileCollector(
        os.path.realpath(folder), _list_logs(commands), _list_programs(commands)
    )
    collector.add_named_folders(words[:_MAX_WORDS])
    for base in collector.folders:
        for path in _list_candidate_paths(base, words[:_MAX_WORDS], names):
            collector.add_file(path)
        if any(_runs_package(command, base) for command in commands):
            is_complete = False
    return ScriptHashes(collector.files, is_complete and not collector.is_truncated)


def _parse_definition(definition: Mapping[str, Any]) -> tuple[list[SimpleCommand], bool]:
    """The commands of the line, and whether the line shows everything that they run."""
    runs = definition.get("run")  # the lines of a slash command
    command = "\n".join(runs) if runs else definition.get("command")
    if not isinstance(command, str):
        return [], True
    line = command
    if not runs and "event" not in definition:  # a server: no shell reads its words
        words = (command, *(definition.get("args") or ()))
        line = shlex.join(_expand_environment(str(word)) for word in words)
    if len(line) > _MAX_CHARS:
        return [], False
    parsed = parse_command(_expand_known_variables(line))
    commands = list(_walk_commands((*parsed.commands, *parsed.guessed_commands)))
    return commands, not parsed.doubts and all(map(_is_resolvable, commands))


def _list_logs(commands: Sequence[SimpleCommand]) -> frozenset[str]:
    """The files that the line only writes: their content is not run."""
    written, used = set[str](), set[str]()
    for command in commands:
        words = [word.text or "" for word in command.argv]
        if words and _get_program_name(words[0]) == "tee":
            written.update(word for word in words[1:] if not word.startswith("-"))
        else:
            used.update(words)
        for redirect in command.redirects:
            if redirect.target is not None and redirect.target.text:
                (used if redirect.effect == "read" else written).add(redirect.target.text)
    names = {os.path.basename(word) for word in used}  # noqa: PTH119 - most are not paths
    return frozenset(word for word in written if os.path.basename(word) not in names)  # noqa: PTH119


def _list_programs(commands: Sequence[SimpleCommand]) -> frozenset[str]:
    """The names of the files that the line may run: of each command the first word, and the first
    after it that is no option."""
    names = set[str]()
    for command in commands:
        words = [word.text or "" for word in command.argv]
        script = next((word for word in words[1:] if not word.startswith("-")), "")
        names.update(word.rpartition("/")[2] for word in (*words[:1], script))
    return frozenset(names)


def _is_resolvable(command: SimpleCommand) -> bool:
    """Whether the words of a command show what it runs."""
    if command.doubts:
        return False
    effects = describe_command(_drop_module_option(command)).effects
    if effects.is_read_only or not command.argv:  # it only reads, or only sets a variable
        return True
    inputs = [r.target for r in command.redirects if r.effect == "read" and r.target is not None]
    if effects.has_inline_code or command.cd_paths is None:
        return False
    return all(word.text is not None and not word.is_glob for word in (*command.argv, *inputs))


def _drop_module_option(command: SimpleCommand) -> SimpleCommand:
    """`python -m x` is not inline code: the files of the module are found."""
    texts = [word.text or "" for word in command.argv]
    if not texts or _get_program_name(texts[0]) != "python":
        return command
    named = zip(command.argv, texts, strict=True)
    kept = (Word("--", "--") if text.startswith("-m") else word for word, text in named)
    return msgspec.structs.replace(command, argv=tuple(kept))


def _runs_package(command: SimpleCommand, base: str) -> bool:
    """`node FOLDER`: the package.json there names the file to run."""
    texts = [word.text or "" for word in command.argv]
    named = next((text for text in texts[1:] if not text.startswith("-")), None)
    if named is None or _get_program_name(texts[0]) not in _NODE_PROGRAMS:
        return False
    return os.path.isfile(os.path.join(base, named, "package.json"))


def _walk_commands(commands: Iterable[SimpleCommand]) -> Iterator[SimpleCommand]:
    for command in commands:
        yield command
        yield from _walk_commands(command.inner)


# ------------------------------------------------------------------ words


def _list_words(definition: Mapping[str, Any], commands: Iterable[SimpleCommand]) -> list[str]:
    """Everything that may name a file, in order: words as the shell reads them, then pieces."""
    texts: list[str | None] = []
    for command in commands:
        texts += [word.text for word in command.argv]
        texts += [assignment.value.text for assignment in command.assignments]
        texts += [r.target.text for r in command.redirects if r.target is not None]
    for text in _list_texts(definition):
        for variant in (text, _expand_known_variables(text), _expand_environment(text)):
            texts.append(variant)
            for piece in _WORD.findall(variant):
                texts.append(piece)
                if piece[0] == "/":
                    texts.append(piece.lstrip("/"))  # "$(command)"/x.sh
                elif piece[0] == "-":
                    texts.append(piece[2:])  # -fbuild.mk
    home = os.path.expanduser("~")
    words = [home + t[1:] if t.startswith("~/") else t for t in dict.fromkeys(texts) if t]
    return [word for word in words if "\0" not in word and len(word) < 4096]


def _list_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value[:_MAX_CHARS]
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _list_texts(inner)


def _expand_known_variables(text: str) -> str:
    """Expand common variables as a shell in the folder would."""
    if _REASSIGNMENT.search(text):
        return text
    text = _PROJECT_DIR_VARIABLE.sub(".", text)  # the folder, or where the line has changed to
    home = os.environ.get("HOME", "")
    if re.fullmatch(r"[\w./-]+", home):
        text = _HOME_VARIABLE.sub(lambda _: home, text)
    return _VARIABLE_WITH_DEFAULT.sub(lambda match: match[2], text)


def _expand_environment(text: str) -> str:
    """Expand variables of the environment, as in the definition of a server."""
    environ = os.environ
    text = _VARIABLE_WITH_DEFAULT.sub(lambda match: environ.get(match[1]) or match[2], text)
    return _VARIABLE.sub(lambda match: environ.get(match[1] or match[2], match[0]), text)


def _get_program_name(word: str) -> str:
    """The program that a word may name: `python` for /usr/bin/python3.11."""
    name = word.rpartition("/")[2]
    return strip_version(name) or name


# ------------------------------------------------------------------ files


def _list_candidate_paths(base: str, words: list[str], names: set[str]) -> Iterator[str]:
    """The paths that these words may mean, relative to one folder."""
    is_node, has_own_programs = bool(names & _NODE_PROGRAMS), bool(names & _NODE_RUNNERS)
    for name in names & _IMPLICIT_FILES.keys():
        yield from (f"{base}/{file}" for file in _IMPLICIT_FILES[name])
    for position, word in enumerate(words):
        path = os.path.join(base, word)
        yield path
        if is_node:
            yield from (path + suffix for suffix in _NODE_SUFFIXES)
        if has_own_programs:
            yield f"{base}/node_modules/.bin/{word}"
        if module := _MODULE_OPTION.fullmatch(word):
            following = "".join(words[position + 1 : position + 2])
            yield from _list_module_files(base, module[1] or following)
        if os.path.isdir(path):
            yield from (f"{path}/{file}" for file in _NODE_FILES if is_node)
            if "python" in names:
                yield f"{path}/__main__.py"


def _list_module_files(base: str, name: str) -> Iterator[str]:
    """The files of a Python module, or of the whole package around it."""
    if not _DOTTED_NAME.fullmatch(name):
        return
    top = f"{base}/{name.partition('.')[0]}"
    yield f"{top}.py"
    yield f"{base}/{name.replace('.', '/')}.py"
    for folder, below, files in islice(os.walk(top), _MAX_WORDS):
        below.sort()
        yield from (f"{folder}/{file}" for file in sorted(files) if file.endswith(".py"))


class _FileCollector:
    """Collects files with their hashes, symlinks, and the folders that words are relative to."""

    def __init__(self, root: str, logs: frozenset[str], programs: frozenset[str]) -> None:
        self._root = root
        self._programs = programs
        self._logs = {os.path.realpath(os.path.join(root, log)) for log in logs}
        self.files: dict[str, str] = {}
        self.folders = [root]  # that words may be relative to
        self.is_truncated = False
        for folder in os.environ.get("PATH", "").split(os.pathsep):
            self._add_folder(os.path.realpath(folder) if folder else root)

    def add_named_folders(self, words: Sequence[str]) -> None:
        """Add every folder that a word names, since others may be relative: `cd x && ./y`."""
        for base in self.folders:  # grows during the loop
            for word in words:
                if os.path.isdir(path := os.path.join(base, word)):
                    self._add_folder(os.path.realpath(path))

    def _add_folder(self, folder: str) -> None:
        if not self._is_inside(folder) or folder in self.folders or not os.path.isdir(folder):
            return
        if len(self.folders) < _MAX_FOLDERS:
            self.folders.append(folder)
        else:
            self.is_truncated = True

    def add_file(self, path: str) -> None:
        """Record a file and the symlinks on the way to it, also if they leave the folder."""
        if not os.path.lexists(path):
            return
        real = self._resolve_symlinks(path)
        if not self._is_inside(real) or not os.path.isfile(real) or real in self._logs:
            return
        if not self._is_data(path, real):
            self._record(real)

    def _is_data(self, path: str, real: str) -> bool:
        names = {path.rpartition("/")[2], real.rpartition("/")[2]}
        return Path(real).suffix in _DATA_SUFFIXES and names.isdisjoint(self._programs)

    def _resolve_symlinks(self, path: str) -> str:
        """The real path, unless symlinks form a loop; records the folder's symlinks on the way."""
        todo, here, steps = path.split("/")[::-1], "/", 0
        while todo and (steps := steps + 1) < _MAX_PATH_STEPS:
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                here = os.path.dirname(here)
                continue
            here = os.path.join(here, part)
            try:
                target = os.readlink(here)
            except OSError:
                continue  # not a symlink
            if self._is_inside(here):
                self._record(here, f"-> {_escape_surrogates(target)}")
            todo += target.split("/")[::-1]
            here = "/" if target.startswith("/") else os.path.dirname(here)
        return here

    def _record(self, path: str, symlink_target: str = "") -> None:
        name = _escape_surrogates(os.path.relpath(path, self._root))
        if name in self.files:
            return
        if len(self.files) < _MAX_FILES:
            self.files[name] = symlink_target or _hash_file(path)
        else:
            self.is_truncated = True

    def _is_inside(self, path: str) -> bool:
        return is_inside(path, (self._root,))


def _hash_file(path: str) -> str:
    """The hash of a file; for a very large one, its inode, size and change time."""
    try:
        # Not blocking: the file may just have been replaced by a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return "not a file"
            if status.st_size > _MAX_HASHED_BYTES:
                return f"{status.st_ino} {status.st_size} {status.st_ctime_ns}"
            with open(descriptor, "rb", closefd=False) as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        finally:
            os.close(descriptor)
    except OSError as error:
        return f"unreadable: {error.strerror}"


def _escape_surrogates(text: str) -> str:
    """A path as text that UTF-8 can encode."""
    return text.encode("utf-8", "backslashreplace").decode()
