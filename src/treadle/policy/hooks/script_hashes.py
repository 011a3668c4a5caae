"""Which files of a folder a hook or a server of it runs, as far as its definition shows.

Rather too many than too few: every word that is a file of the folder counts, seen from every folder
that is named. What only the running shell knows, or too much, is said to be unseen. What the files
load in their turn is not looked for. Above: approval.py. Below: shell/, which reads the line.
"""

# ruff: noqa: PTH111, PTH112, PTH113, PTH115, PTH118, PTH120, PTH123 - most words are no paths

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

from treadle.policy.shell import SimpleCommand, Word, parse_command
from treadle.policy.shell.analysis.programs import analyze_effects
from treadle.policy.wordset import word_set

_MAX_CHARS = 20_000
_MAX_WORDS = 1_000
_MAX_FILES = 64
_MAX_FOLDERS = 16
_MAX_PATH_STEPS = 4_000  # of a path, through links that may lead in a circle
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

_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_PACKAGE_FILES = ("package.json",)
_PROJECT_FILES = ("pyproject.toml",)
_IMPLICIT_FILES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("make", "gmake"), _MAKEFILES),
    **dict.fromkeys(("npm", "npx", "pnpm", "pnpx", "yarn", "bun", "bunx"), _PACKAGE_FILES),
    **dict.fromkeys(("uv", "poetry", "pdm", "hatch"), _PROJECT_FILES),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "rake": ("Rakefile",),
    "deno": ("deno.json", "deno.jsonc", "package.json"),
    "nox": ("noxfile.py",),
    "pre-commit": (".pre-commit-config.yaml",),
}
"""What programs do because a file says so that nobody has to name."""

_BUILD_PROGRAMS = word_set(
    "pytest tox cargo go gradle gradlew mvn mvnw bazel cmake ninja meson dotnet swift mix"
)
"""Programs that build or run the folder as a whole."""

_NODE_PROGRAMS = frozenset({"node", "nodejs", "bun", "deno", "tsx", "ts-node"})
_NODE_SUFFIXES = (".js", ".mjs", ".cjs", ".ts")
_NODE_FILES = ("package.json", *(f"index{ending}" for ending in _NODE_SUFFIXES))
_NODE_RUNNERS = frozenset({"npm", "npx", "pnpm", "pnpx", "yarn", "bun", "bunx"})


class ScriptHashes(msgspec.Struct, frozen=True):
    """The folder's files that a definition runs, each with its hash; a link with where it leads.

    `is_sure` is false where more may be run than could be found by looking.
    """

    files: dict[str, str] = {}
    is_complete: bool = True


def hash_scripts(definition: Mapping[str, Any], folder: Path) -> ScriptHashes:
    """What of the folder this hook or server runs, looked at now."""
    parts, is_sure = _parse_definition(definition)
    words = _list_words(definition, parts)
    names = {_get_program_name(word) for word in words}
    if len(words) > _MAX_WORDS or not names.isdisjoint(_BUILD_PROGRAMS):
        is_sure = False
    found = _FileCollector(os.path.realpath(folder))
    found.add_named_folders(words[:_MAX_WORDS])
    for base in found.folders:
        for place in _list_candidate_paths(base, words[:_MAX_WORDS], names):
            found.add_file(place)
        if any(_runs_package(part, base) for part in parts):
            is_sure = False
    return ScriptHashes(found.files, is_sure and not found.is_truncated)


def _parse_definition(definition: Mapping[str, Any]) -> tuple[list[SimpleCommand], bool]:
    """The commands of the line, and whether all that they run can be told from it."""
    command = definition.get("command")
    if not isinstance(command, str):
        return [], True
    if "event" in definition:
        line = command
    else:  # a server: its words are no shell's
        line = shlex.join(
            _expand_environment(str(word)) for word in (command, *(definition.get("args") or ()))
        )
    if len(line) > _MAX_CHARS:
        return [], False
    facts = parse_command(_expand_known_variables(line))
    parts = list(_walk_commands((*facts.commands, *facts.guessed_commands)))
    return parts, not facts.doubts and all(map(_is_resolvable, parts))


def _is_resolvable(command: SimpleCommand) -> bool:
    """Whether the words of a command say what it runs."""
    if command.doubts:
        return False
    effects = analyze_effects(_drop_module_option(command))
    if effects.is_read_only or not command.argv:  # it only reads, or only keeps a value for later
        return True
    taken = [one.target for one in command.redirects if one.effect == "read"]
    words = [*command.argv, *(word for word in taken if word is not None)]
    return (
        not effects.has_inline_code
        and command.cd_paths is not None
        and all(map(_is_literal, words))
    )


def _is_literal(word: Word) -> bool:
    return word.text is not None and not word.is_glob


def _drop_module_option(command: SimpleCommand) -> SimpleCommand:
    """`python -m x` is no code on the line: the module is looked for."""
    texts = [word.text or "" for word in command.argv]
    if not texts or _get_program_name(texts[0]) != "python":
        return command
    named = zip(command.argv, texts, strict=True)
    kept = (Word("--", "--") if text.startswith("-m") else word for word, text in named)
    return msgspec.structs.replace(command, argv=tuple(kept))


def _runs_package(command: SimpleCommand, base: str) -> bool:
    """`node FOLDER`: the package.json there says which file is meant."""
    texts = [word.text or "" for word in command.argv]
    named = next((text for text in texts[1:] if not text.startswith("-")), None)
    if named is None or _get_program_name(texts[0]) not in _NODE_PROGRAMS:
        return False
    return os.path.isfile(os.path.join(base, named, "package.json"))


def _walk_commands(commands: Iterable[SimpleCommand]) -> Iterator[SimpleCommand]:
    for part in commands:
        yield part
        yield from _walk_commands(part.inner)


# ------------------------------------------------------------------ words


def _list_words(definition: Mapping[str, Any], commands: Iterable[SimpleCommand]) -> list[str]:
    """Everything that may name a file, in order: words as the shell reads them, then pieces."""
    found: dict[str, None] = {}
    for part in commands:
        given = [*part.argv, *(one.value for one in part.assignments)]
        given += [one.target for one in part.redirects if one.target is not None]
        found.update((word.text, None) for word in given if word.text)
    for text in _list_texts(definition):
        for variant in {
            text: None,
            _expand_known_variables(text): None,
            _expand_environment(text): None,
        }:
            found[variant] = None
            for piece in _WORD.findall(variant):
                found[piece] = None
                if piece[0] == "/":
                    found[piece.lstrip("/")] = None  # "$(somewhere)"/x.sh
                elif piece[0] == "-":
                    found[piece[2:]] = None  # -fbuild.mk
    home = os.path.expanduser("~")
    kept = [home + word[1:] if word.startswith("~/") else word for word in found]
    return [word for word in kept if word and "\0" not in word and len(word) < 4096]


def _list_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value[:_MAX_CHARS]
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _list_texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _list_texts(part)


def _expand_known_variables(text: str) -> str:
    """With what a shell in the folder would put in for the variables that everybody uses."""
    if _REASSIGNMENT.search(text):
        return text
    text = _PROJECT_DIR_VARIABLE.sub(
        ".", text
    )  # the folder itself, or one that the line has gone to
    home = os.environ.get("HOME", "")
    if re.fullmatch(r"[\w./-]+", home):
        text = _HOME_VARIABLE.sub(lambda _: home, text)
    return _VARIABLE_WITH_DEFAULT.sub(lambda found: found[2], text)


def _expand_environment(text: str) -> str:
    """With variables of our environment, as a server's definition is filled in."""
    environ = os.environ
    text = _VARIABLE_WITH_DEFAULT.sub(lambda found: environ.get(found[1]) or found[2], text)
    return _VARIABLE.sub(lambda found: environ.get(found[1] or found[2], found[0]), text)


def _get_program_name(word: str) -> str:
    """The name of the program that a word may be: `python` for /usr/bin/python3.11."""
    name = word.rpartition("/")[2]
    return name.rstrip("0123456789.") or name


# ------------------------------------------------------------------ places


def _list_candidate_paths(base: str, words: list[str], names: set[str]) -> Iterator[str]:
    """Where the files of these words may be, seen from one folder."""
    is_node, has_own_programs = bool(names & _NODE_PROGRAMS), bool(names & _NODE_RUNNERS)
    for name in names & _IMPLICIT_FILES.keys():
        yield from (f"{base}/{file}" for file in _IMPLICIT_FILES[name])
    for position, word in enumerate(words):
        place = os.path.join(base, word)
        yield place
        if is_node:
            yield from (place + ending for ending in _NODE_SUFFIXES)
        if has_own_programs:
            yield f"{base}/node_modules/.bin/{word}"
        if module := _MODULE_OPTION.fullmatch(word):
            yield from _list_module_files(
                base, module[1] or "".join(words[position + 1 : position + 2])
            )
        if os.path.isdir(place):
            yield from (f"{place}/{file}" for file in _NODE_FILES if is_node)
            if "python" in names:
                yield f"{place}/__main__.py"


def _list_module_files(base: str, name: str) -> Iterator[str]:
    """The files of a Python module, or of the whole package that it belongs to."""
    if not _DOTTED_NAME.fullmatch(name):
        return
    top = f"{base}/{name.partition('.')[0]}"
    yield f"{top}.py"
    yield f"{base}/{name.replace('.', '/')}.py"
    for folder, below, files in islice(os.walk(top), _MAX_WORDS):
        below.sort()
        yield from (f"{folder}/{file}" for file in sorted(files) if file.endswith(".py"))


class _FileCollector:
    """What was found below the root: files with their hashes, links, folders to look from."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.files: dict[str, str] = {}
        self.folders = [root]  # from which words may count
        self.is_truncated = False
        for folder in os.environ.get("PATH", "").split(os.pathsep):
            self._add_folder(os.path.realpath(folder) if folder else root)

    def add_named_folders(self, words: Sequence[str]) -> None:
        """Every folder that a word names is one from which the others may count: `cd x && ./y`."""
        for base in self.folders:  # which grows meanwhile
            for word in words:
                if os.path.isdir(place := os.path.join(base, word)):
                    self._add_folder(os.path.realpath(place))

    def _add_folder(self, folder: str) -> None:
        if not self._contains(folder) or folder in self.folders or not os.path.isdir(folder):
            return
        if len(self.folders) < _MAX_FOLDERS:
            self.folders.append(folder)
        else:
            self.is_truncated = True

    def add_file(self, path: str) -> None:
        """Keep a file, and every link on the way to it, also where it leads out of the folder."""
        if not os.path.lexists(path):
            return
        real = self._resolve_symlinks(path)
        if self._contains(real) and os.path.isfile(real):
            self._record(real)

    def _resolve_symlinks(self, path: str) -> str:
        """The real path, as far as it has an end; the links of the folder on the way are kept."""
        ahead, here, steps = path.split("/")[::-1], "/", 0
        while ahead and (steps := steps + 1) < _MAX_PATH_STEPS:
            part = ahead.pop()
            if part in ("", "."):
                continue
            if part == "..":
                here = os.path.dirname(here)
                continue
            here = os.path.join(here, part)
            try:
                target = os.readlink(here)
            except OSError:
                continue  # no link
            if self._contains(here):
                self._record(here, f"-> {_escape_surrogates(target)}")
            ahead += target.split("/")[::-1]
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

    def _contains(self, path: str) -> bool:
        return path == self._root or path.startswith(self._root.rstrip("/") + "/")


def _hash_file(path: str) -> str:
    """The hash of a file; of a very large one, what changes whenever it is written to."""
    try:
        # Whoever puts a pipe in its place in this moment must not make anybody wait.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return "not a file"
            if status.st_size > _MAX_HASHED_BYTES:
                return f"{status.st_ino} {status.st_size} {status.st_ctime_ns}"
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return f"unreadable: {error.strerror}"


def _escape_surrogates(text: str) -> str:
    """A path as text that can be encoded."""
    return text.encode("utf-8", "backslashreplace").decode()
