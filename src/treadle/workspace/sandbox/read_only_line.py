"""Command lines that only read: nothing is writable for them, and a search sees no secrets.

Decided by the same effects as the policy's verdict (lib/shell). What a line names itself is shown:
the policy asked about it. Used by `local.py` and `bubblewrap.py`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from treadle.core.errors import WorkspaceError
from treadle.lib.shell.ast import SimpleCommand
from treadle.lib.shell.syntax.parser import parse_command
from treadle.workspace.sandbox.mounts import MAX_DENIED
from treadle.workspace.sandbox.tree_scan import HIDDEN, SOCKET, UNLISTED, FoundEntry


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
                f"{MAX_DENIED} from a search; search in a folder below, or name the files"
            )
        return left

    def _names(self, path: str) -> bool:
        return any(path == named or named.startswith(f"{path}/") for named in self.named)


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
