"""Command lines that the sandbox treats apart: those that only remove, and those that only read.

Removal: what it names may go, also what the sandbox keeps otherwise, where a mount would stop
`rm -r` half-way. The policy asks first; it runs without a shell, as the system's own program.
ReadOnlyLine: nothing is writable for it, and a search sees no secrets, by the same effects as the
verdict's (lib/shell). What a line names itself is shown: the policy asked about it. Used by
`local.py`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from treadle.core.errors import WorkspaceError
from treadle.lib.files.protected_paths import find_protected_part
from treadle.lib.shell.ast import SimpleCommand
from treadle.lib.shell.syntax.parser import parse_command
from treadle.workspace.sandbox.mounts import MAX_DENIED
from treadle.workspace.sandbox.tree_scan import (
    GIT,
    HIDDEN,
    PINNED,
    PROTECTED,
    SOCKET,
    UNLISTED,
    FoundEntry,
)

_PROGRAMS = ("/bin/rm", "/usr/bin/rm")  # not by PATH: a command may have made another one
_NOT_PLAIN = re.compile(r"""[^\w ./+@=,:'"-]""")
_OPTIONS = re.compile(r"-[rRfvd]+|--recursive|--force")


class Removal(NamedTuple):
    """A command that removes these paths and does nothing else."""

    argv: tuple[str, ...]
    paths: tuple[str, ...]

    def lets_go(self, entry: FoundEntry) -> bool:
        """Whether an entry is removed and not mounted; a file that only a rule hides stays."""
        if not any(entry.path == path or entry.path.startswith(f"{path}/") for path in self.paths):
            return False
        if entry.kind == HIDDEN:
            return bool(find_protected_part(entry.path.rpartition("/")[2]))
        return entry.kind in (GIT, PROTECTED)


def parse_removal(command: str, cwd: str) -> Removal | None:
    """The removal that a command line is; None if it is more than one `rm` of plain names."""
    if not command.startswith("rm ") or _NOT_PLAIN.search(command):
        return None
    try:
        words = shlex.split(command)[1:]
    except ValueError:
        return None
    names = [word for word in words if not _OPTIONS.fullmatch(word)]
    if not names or any(name.startswith("-") or not name for name in names):
        return None
    program = next(filter(os.path.exists, _PROGRAMS), None)
    paths = tuple(os.path.normpath(Path(cwd, name)) for name in names)
    return Removal((program, *words), paths) if program is not None else None


def drop_removed(entries: Sequence[FoundEntry], removal: Removal) -> list[FoundEntry]:
    """The entries that are still mounted; a folder is pinned only if one of them is in it."""
    kept = [entry for entry in entries if not removal.lets_go(entry)]
    others = [entry.path for entry in kept if entry.kind != PINNED]
    return [
        entry
        for entry in kept
        if entry.kind != PINNED or any(path.startswith(f"{entry.path}/") for path in others)
    ]


class ReadOnlyLine(NamedTuple):
    """`is_search`: it searches a folder with all that is in it. `named`: the paths it names."""

    is_search: bool
    named: frozenset[str]

    def choose(self, entries: Sequence[FoundEntry]) -> list[FoundEntry]:
        """What is still mounted where nothing is writable."""
        return [entry for entry in entries if entry.kind in (HIDDEN, UNLISTED, SOCKET)]

    def hide(self, secrets: Sequence[FoundEntry], roots: Sequence[str]) -> list[FoundEntry]:
        """The entries for the secrets that a search does not see. A folder with many of them is
        hidden as a whole; WorkspaceError if there are still too many."""
        if not self.is_search:
            return []
        hidden = [entry for entry in sorted(secrets) if not self._names(entry.path)]
        left = [entry._replace(kind=HIDDEN) for entry in hidden]
        folders = Counter(entry.path.rpartition("/")[0] for entry in left)
        for folder, _ in folders.most_common():
            if len(left) <= MAX_DENIED:
                return left
            if folder not in roots and not self._names(folder):
                left = [entry for entry in left if not entry.path.startswith(f"{folder}/")]
                left.append(FoundEntry(folder, HIDDEN, 0, (0, 0)))
        if len(left) > MAX_DENIED:
            raise WorkspaceError(
                f"{len(left)} files here may contain secrets, and the sandbox can hide "
                f"{MAX_DENIED} from a command; work in a folder below, or name the files"
            )
        return left

    def _names(self, path: str) -> bool:
        return any(path == named or named.startswith(f"{path}/") for named in self.named)


UNKNOWN_LINE = ReadOnlyLine(is_search=True, named=frozenset())
"""Any command line, where nothing may be writable and no secrets may be read."""


def parse_read_only_line(command: str, cwd: str) -> ReadOnlyLine | None:
    """The line that only reads; None if it may do more."""
    line = parse_command(command)
    if not line.only_reads:
        return None
    named = {os.path.normpath(Path(cwd, name)) for c in line.commands for name in _list_names(c)}
    return ReadOnlyLine(line.is_search, frozenset(named))


def _list_names(command: SimpleCommand) -> list[str]:
    """The files that a command names; a folder in which it searches names nothing in it."""
    words = [*command.effects.reads, *(r.target for r in command.redirects if r.target)]
    names = [word.text for word in words if word.text]
    return names + [name for inner in command.inner for name in _list_names(inner)]
