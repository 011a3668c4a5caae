"""Commands that only remove files: what they name may go, also what the sandbox keeps otherwise.

A mount in a folder would stop `rm -r` half-way. The policy asks before such a command runs; it runs
without a shell, as the system's own program, so that nothing else sees what is not mounted over.
Used by `local.py` and `bubblewrap.py`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from treadle.lib.files.protected_paths import find_protected_part
from treadle.workspace.sandbox.tree_scan import GIT, HIDDEN, PINNED, PROTECTED, FoundEntry

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
