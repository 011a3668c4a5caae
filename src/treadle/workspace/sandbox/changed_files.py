"""Notices protected files that changed while several commands ran.

One command can rename folders while the mounts for another are made, and then the other may write
what should be read-only. That cannot be undone, because the user may have made the change; the
result names the file. Used by `protected_paths.py`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator

from treadle.workspace.sandbox.tree_scan import PROTECTED, FoundEntry

MAX_FILES = 5000
"""How many files are looked at."""


class ProtectedFileChanges:
    """The protected files below one root, since a second command started."""

    def __init__(self) -> None:
        self._times: dict[tuple[int, int], int] | None = None

    def reset(self) -> None:
        self._times = None

    def begin(self, entries: Iterable[FoundEntry]) -> None:
        """Another command starts while one runs."""
        if self._times is None:
            self._times = {key: time_ns for key, time_ns, _ in _list_files(entries)}

    def take_changed(self, entries: Iterable[FoundEntry]) -> list[str]:
        """The files that are new or were changed since the last call."""
        if self._times is None:
            return []
        found = list(_list_files(entries))
        times = self._times
        self._times = {key: time_ns for key, time_ns, _ in found}
        return [path for key, time_ns, path in found if times.get(key) != time_ns]


def _list_files(entries: Iterable[FoundEntry]) -> Iterator[tuple[tuple[int, int], int, str]]:
    """(device and inode, time of the last change, path) of each file. No one can set that time."""
    waiting = [entry.path for entry in entries if entry.kind == PROTECTED]
    for path in waiting:  # it grows meanwhile
        try:
            status = os.lstat(path)
            if stat.S_ISDIR(status.st_mode):
                names = os.listdir(path) if len(waiting) < MAX_FILES else []  # noqa: PTH208
                waiting += [f"{path}/{name}" for name in names]
            else:
                yield (status.st_dev, status.st_ino), status.st_ctime_ns, path
        except OSError:
            continue  # gone meanwhile
