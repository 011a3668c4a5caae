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

from treadle.policy.listed import listed
from treadle.policy.shell import Part, Word, read_command
from treadle.policy.shell.programs import effects_of

_MOST_TEXT = 20_000
_MOST_WORDS = 1_000
_MOST_FILES = 64
_MOST_FOLDERS = 16
_MOST_STEPS = 4_000  # of a path, through links that may lead in a circle
_HASHED_BYTES = 64 << 20

_PIECE = re.compile(r"""[^\s"'`$=:,;|&<>(){}\[\]]+""")
_DEFAULT = re.compile(r"\$\{(\w+):?-([^${}]*)\}")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_HERE = re.compile(
    r"\$(?:PWD|(?:TREADLE|CLAUDE)_PROJECT_DIR)\b"
    r"|\$\{(?:PWD|(?:TREADLE|CLAUDE)_PROJECT_DIR)\}"
    r"|(?<![^\s=:;&|])~\+(?=[/\s;&|]|$)"
)
_HOME = re.compile(r"\$HOME\b|\$\{HOME\}|(?<![^\s=:;&|])~(?=/)")
_REASSIGNED = re.compile(r"\b(?:PWD|HOME|(?:TREADLE|CLAUDE)_PROJECT_DIR)=")
_MODULE = re.compile(r"-[A-Za-z]*m(.*)")
_DOTTED = re.compile(r"\w+(?:\.\w+)*")

_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_PACKAGE = ("package.json",)
_PROJECT = ("pyproject.toml",)
_RUNNERS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("make", "gmake"), _MAKEFILES),
    **dict.fromkeys(("npm", "npx", "pnpm", "pnpx", "yarn", "bun", "bunx"), _PACKAGE),
    **dict.fromkeys(("uv", "poetry", "pdm", "hatch"), _PROJECT),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "rake": ("Rakefile",),
    "deno": ("deno.json", "deno.jsonc", "package.json"),
    "nox": ("noxfile.py",),
    "pre-commit": (".pre-commit-config.yaml",),
}
"""What programs do because a file says so that nobody has to name."""

_WHOLE = listed(
    "pytest tox cargo go gradle gradlew mvn mvnw bazel cmake ninja meson dotnet swift mix"
)
"""Programs that build or run the folder as a whole."""

_NODE = frozenset({"node", "nodejs", "bun", "deno", "tsx", "ts-node"})
_NODE_ENDINGS = (".js", ".mjs", ".cjs", ".ts")
_NODE_FILES = ("package.json", *(f"index{ending}" for ending in _NODE_ENDINGS))
_LOCAL_PROGRAMS = frozenset({"npm", "npx", "pnpm", "pnpx", "yarn", "bun", "bunx"})


class Binding(msgspec.Struct, frozen=True):
    """The folder's files that a definition runs, each with its hash; a link with where it leads.

    `is_sure` is false where more may be run than could be found by looking.
    """

    files: dict[str, str] = {}
    is_sure: bool = True


def binding(definition: Mapping[str, Any], folder: Path) -> Binding:
    """What of the folder this hook or server runs, looked at now."""
    parts, is_sure = _read(definition)
    words = _words(definition, parts)
    names = {_program(word) for word in words}
    if len(words) > _MOST_WORDS or not names.isdisjoint(_WHOLE):
        is_sure = False
    found = _Found(os.path.realpath(folder))
    found.look_from_all(words[:_MOST_WORDS])
    for base in found.folders:
        for place in _places(base, words[:_MOST_WORDS], names):
            found.add(place)
        if any(_is_package(part, base) for part in parts):
            is_sure = False
    return Binding(found.files, is_sure and not found.is_cut)


def _read(definition: Mapping[str, Any]) -> tuple[list[Part], bool]:
    """The commands of the line, and whether all that they run can be told from it."""
    command = definition.get("command")
    if not isinstance(command, str):
        return [], True
    if "event" in definition:
        line = command
    else:  # a server: its words are no shell's
        line = shlex.join(_filled(str(word)) for word in (command, *(definition.get("args") or ())))
    if len(line) > _MOST_TEXT:
        return [], False
    facts = read_command(_known(line))
    parts = list(_all((*facts.parts, *facts.guesses)))
    return parts, not facts.doubts and all(map(_is_clear, parts))


def _is_clear(part: Part) -> bool:
    """Whether the words of a command say what it runs."""
    if part.doubts:
        return False
    effects = effects_of(_without_m(part))
    if effects.plain or not part.argv:  # it only reads, or only keeps a value for later
        return True
    taken = [one.target for one in part.redirects if one.effect == "read"]
    words = [*part.argv, *(word for word in taken if word is not None)]
    return not effects.inline and part.moves is not None and all(map(_is_fixed, words))


def _is_fixed(word: Word) -> bool:
    return word.text is not None and not word.glob


def _without_m(part: Part) -> Part:
    """`python -m x` is no code on the line: the module is looked for."""
    texts = [word.text or "" for word in part.argv]
    if not texts or _program(texts[0]) != "python":
        return part
    named = zip(part.argv, texts, strict=True)
    kept = (Word("--", "--") if text.startswith("-m") else word for word, text in named)
    return msgspec.structs.replace(part, argv=tuple(kept))


def _is_package(part: Part, base: str) -> bool:
    """`node FOLDER`: the package.json there says which file is meant."""
    texts = [word.text or "" for word in part.argv]
    named = next((text for text in texts[1:] if not text.startswith("-")), None)
    if named is None or _program(texts[0]) not in _NODE:
        return False
    return os.path.isfile(os.path.join(base, named, "package.json"))


def _all(parts: Iterable[Part]) -> Iterator[Part]:
    for part in parts:
        yield part
        yield from _all(part.inner)


# ------------------------------------------------------------------ words


def _words(definition: Mapping[str, Any], parts: Iterable[Part]) -> list[str]:
    """Everything that may name a file, in order: words as the shell reads them, then pieces."""
    found: dict[str, None] = {}
    for part in parts:
        given = [*part.argv, *(one.value for one in part.assignments)]
        given += [one.target for one in part.redirects if one.target is not None]
        found.update((word.text, None) for word in given if word.text)
    for text in _texts(definition):
        for variant in {text: None, _known(text): None, _filled(text): None}:
            found[variant] = None
            for piece in _PIECE.findall(variant):
                found[piece] = None
                if piece[0] == "/":
                    found[piece.lstrip("/")] = None  # "$(somewhere)"/x.sh
                elif piece[0] == "-":
                    found[piece[2:]] = None  # -fbuild.mk
    home = os.path.expanduser("~")
    kept = [home + word[1:] if word.startswith("~/") else word for word in found]
    return [word for word in kept if word and "\0" not in word and len(word) < 4096]


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value[:_MOST_TEXT]
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)


def _known(text: str) -> str:
    """With what a shell in the folder would put in for the variables that everybody uses."""
    if _REASSIGNED.search(text):
        return text
    text = _HERE.sub(".", text)  # the folder itself, or one that the line has gone to
    home = os.environ.get("HOME", "")
    if re.fullmatch(r"[\w./-]+", home):
        text = _HOME.sub(lambda _: home, text)
    return _DEFAULT.sub(lambda found: found[2], text)


def _filled(text: str) -> str:
    """With variables of our environment, as a server's definition is filled in."""
    environ = os.environ
    text = _DEFAULT.sub(lambda found: environ.get(found[1]) or found[2], text)
    return _VARIABLE.sub(lambda found: environ.get(found[1] or found[2], found[0]), text)


def _program(word: str) -> str:
    """The name of the program that a word may be: `python` for /usr/bin/python3.11."""
    name = word.rpartition("/")[2]
    return name.rstrip("0123456789.") or name


# ------------------------------------------------------------------ places


def _places(base: str, words: list[str], names: set[str]) -> Iterator[str]:
    """Where the files of these words may be, seen from one folder."""
    is_node, has_own_programs = bool(names & _NODE), bool(names & _LOCAL_PROGRAMS)
    for name in names & _RUNNERS.keys():
        yield from (f"{base}/{file}" for file in _RUNNERS[name])
    for position, word in enumerate(words):
        place = os.path.join(base, word)
        yield place
        if is_node:
            yield from (place + ending for ending in _NODE_ENDINGS)
        if has_own_programs:
            yield f"{base}/node_modules/.bin/{word}"
        if module := _MODULE.fullmatch(word):
            yield from _module(base, module[1] or "".join(words[position + 1 : position + 2]))
        if os.path.isdir(place):
            yield from (f"{place}/{file}" for file in _NODE_FILES if is_node)
            if "python" in names:
                yield f"{place}/__main__.py"


def _module(base: str, name: str) -> Iterator[str]:
    """The files of a Python module, or of the whole package that it belongs to."""
    if not _DOTTED.fullmatch(name):
        return
    top = f"{base}/{name.partition('.')[0]}"
    yield f"{top}.py"
    yield f"{base}/{name.replace('.', '/')}.py"
    for folder, below, files in islice(os.walk(top), _MOST_WORDS):
        below.sort()
        yield from (f"{folder}/{file}" for file in sorted(files) if file.endswith(".py"))


class _Found:
    """What was found below the root: files with their hashes, links, folders to look from."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.files: dict[str, str] = {}
        self.folders = [root]  # from which words may count
        self.is_cut = False
        for folder in os.environ.get("PATH", "").split(os.pathsep):
            self._look_from(os.path.realpath(folder) if folder else root)

    def look_from_all(self, words: Sequence[str]) -> None:
        """Every folder that a word names is one from which the others may count: `cd x && ./y`."""
        for base in self.folders:  # which grows meanwhile
            for word in words:
                if os.path.isdir(place := os.path.join(base, word)):
                    self._look_from(os.path.realpath(place))

    def _look_from(self, folder: str) -> None:
        if not self._holds(folder) or folder in self.folders or not os.path.isdir(folder):
            return
        if len(self.folders) < _MOST_FOLDERS:
            self.folders.append(folder)
        else:
            self.is_cut = True

    def add(self, place: str) -> None:
        """Keep a file, and every link on the way to it, also where it leads out of the folder."""
        if not os.path.lexists(place):
            return
        real = self._follow(place)
        if self._holds(real) and os.path.isfile(real):
            self._keep(real)

    def _follow(self, path: str) -> str:
        """The real path, as far as it has an end; the links of the folder on the way are kept."""
        ahead, here, steps = path.split("/")[::-1], "/", 0
        while ahead and (steps := steps + 1) < _MOST_STEPS:
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
            if self._holds(here):
                self._keep(here, f"-> {_plain(target)}")
            ahead += target.split("/")[::-1]
            here = "/" if target.startswith("/") else os.path.dirname(here)
        return here

    def _keep(self, path: str, leads: str = "") -> None:
        name = _plain(os.path.relpath(path, self._root))
        if name in self.files:
            return
        if len(self.files) < _MOST_FILES:
            self.files[name] = leads or _digest(path)
        else:
            self.is_cut = True

    def _holds(self, path: str) -> bool:
        return path == self._root or path.startswith(self._root.rstrip("/") + "/")


def _digest(path: str) -> str:
    """The hash of a file; of a very large one, what changes whenever it is written to."""
    try:
        # Whoever puts a pipe in its place in this moment must not make anybody wait.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return "not a file"
            if status.st_size > _HASHED_BYTES:
                return f"{status.st_ino} {status.st_size} {status.st_ctime_ns}"
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return f"unreadable: {error.strerror}"


def _plain(text: str) -> str:
    """A path as text that can be encoded."""
    return text.encode("utf-8", "backslashreplace").decode()
