"""What commands see in the place of a file that may not be read.

A device that cannot be opened, as a rule. git ignores devices, but calls a tracked file that is one
changed, and then fails. So a tracked file is replaced by one without content and permissions that
has the size and time of the index: git takes it for unchanged and does not open it. Used by
`mounts.py`.
"""

# ruff: noqa: PTH116 - pathlib would slow down every command

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from treadle.lib.files.protected_paths import GIT_FOLDER
from treadle.workspace.sandbox.git_folders import read_git_link
from treadle.workspace.sandbox.git_index import GitIndex, IndexedFile

EXECUTABLE = stat.S_IXUSR

_GIT_SETTINGS = {"core.checkStat": "minimal", "core.trustctime": "false"}
"""git compares size and time of a file, and not its inode."""


class StandIns:
    """Makes the replacements, in a folder that commands cannot see."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[tuple[int, int, int], str] = {}
        self._indexes: dict[Path, GitIndex] = {}
        self.has_tracked = False

    def find(self, path: str) -> str:
        """What is mounted over this file."""
        try:
            status = os.stat(path)
            file = self._find_tracked(Path(path), status) if stat.S_ISREG(status.st_mode) else None
            if file is None:
                return os.devnull
            self.has_tracked = True
            key = (file.size, file.time_ns, file.mode & EXECUTABLE)
            if key not in self._made:
                self._made[key] = self._make(*key)
            return self._made[key]
        except OSError:
            return os.devnull

    def _make(self, size: int, time_ns: int, mode: int) -> str:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / str(len(self._made))
        path.touch()
        os.truncate(path, size)
        os.utime(path, ns=(time_ns, time_ns))
        path.chmod(mode)
        return str(path)

    def _find_tracked(self, path: Path, status: os.stat_result) -> IndexedFile | None:
        for folder in path.parents:
            git = folder / GIT_FOLDER
            if not os.path.lexists(git):
                continue
            git = (read_git_link(git) or git) if git.is_file() else git
            index = self._indexes.setdefault(git, GitIndex(git / "index"))
            name = str(path.relative_to(folder))
            file = index.find(name)
            return file if file is None else index.settle(name, file, status)
        return None


def make_git_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Variables with which git takes the replacements for unchanged."""
    count = env.get("GIT_CONFIG_COUNT", "")
    first = int(count) if count.isdecimal() else 0
    variables = {"GIT_CONFIG_COUNT": str(first + len(_GIT_SETTINGS))}
    for number, (key, value) in enumerate(_GIT_SETTINGS.items(), first):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables
