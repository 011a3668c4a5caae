"""Harmless programs that files of the folder replace: then the words do not say what runs.

A toolchain file of a repository may name a folder of programs, which rustup then starts as `cargo`,
and `nodejs path:./x` in `.tool-versions` is what asdf and mise start as `node`.
And a folder of the workspace in PATH, as that of an activated virtual environment is, comes before
those of the system. And a rule for `npm test` is about the project, not about what it depends on.
Used by path_access.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from treadle.lib.files.file_view import is_inside
from treadle.lib.files.search_path import is_shim_folder
from treadle.lib.shell.analysis.program_table import VERSION_OPTIONS
from treadle.lib.shell.ast import SimpleCommand
from treadle.lib.text.word_set import word_set
from treadle.permissions.file_evaluator import FileEvaluator
from treadle.permissions.findings import PolicyFinding

TOOLCHAIN_PROGRAMS = frozenset({"cargo", "rustc"})
_TOOLCHAIN_FILES = ("rust-toolchain.toml", "rust-toolchain")
_VERSION_FILES = (
    ".tool-versions",
    "mise.toml",
    ".mise.toml",
    "mise.local.toml",
    ".mise.local.toml",
)
_MAX_BYTES = 64 * 1024
_DEPENDENCY_FOLDERS = word_set(
    "node_modules bower_components site-packages dist-packages vendor .venv venv .tox .git"
)
# An environment has these, and they only print their version.
_OF_ENVIRONMENTS = frozenset().union(*VERSION_OPTIONS.values()) - word_set(
    "git rg bash make curl php g++ clang++ cc c++"
)


def find_replaced(
    command: SimpleCommand, files: FileEvaluator, folders: Sequence[str], path: Sequence[str]
) -> list[PolicyFinding]:
    """A question about a command that only reads if its program is the one of the system.
    `folders`: those in which it may run; `path`: those of PATH that are in the workspace."""
    name = command.program or ""
    names = [*_TOOLCHAIN_FILES] if name in TOOLCHAIN_PROGRAMS else []
    if any(is_shim_folder(entry) and files.exists(f"{entry}/{name}") for entry in path):
        names += _VERSION_FILES
    places = _list_upwards(folders, files.roots, names)
    chosen = [place for place in places if _may_name_folder(place, files)]
    if name and name not in _OF_ENVIRONMENTS:
        local = [entry for entry in path if not is_shim_folder(entry)]
        found = (f"{folder}/{name}" for folder in _list_path(local, folders))
        chosen += filter(files.exists, found)
    reason = "{} chooses what {} is: it may be any program"
    return [PolicyFinding(command.source, "ask", reason.format(one, name)) for one in chosen[:1]]


def runs_dependency(command: SimpleCommand, folder: str, roots: Sequence[str]) -> bool:
    """Whether a command that may run code of its folder would run there that of a dependency."""
    if command.effects.is_read_only:
        return False
    below = [folder[len(root) :].split("/") for root in roots if is_inside(folder, (root,))]
    return any(not _DEPENDENCY_FOLDERS.isdisjoint(parts) for parts in below)


def _may_name_folder(place: str, files: FileEvaluator) -> bool:
    """Whether a toolchain file may name a folder of programs; also if it cannot be read."""
    content = files.file_system.read(place, _MAX_BYTES) if files.exists(place) else b""
    return content is None or b"path" in content


def _list_upwards(
    folders: Sequence[str], roots: Sequence[str], names: Sequence[str]
) -> Iterator[str]:
    """Where rustup, asdf and mise look: in the folder and above it."""
    for folder in folders:
        while names and is_inside(folder, roots):
            yield from (f"{folder}/{name}" for name in names)
            folder = os.path.dirname(folder)  # noqa: PTH120 - a text


def _list_path(entries: Sequence[str], folders: Sequence[str]) -> Iterator[str]:
    for entry in entries:
        yield from [entry] if entry.startswith("/") else [f"{one}/{entry}" for one in folders]
