"""What commands see in the place of a file that may not be read.

A device that cannot be opened, as a rule. git ignores devices, but calls a tracked file that is one
changed, and then fails. So a tracked file is replaced by one without content and permissions that
has the size and time of the index: git takes it for unchanged and does not open it. An index of a
repository that is seen only in part is replaced, too. Used by `mounts.py` and `bubblewrap.py`.
"""

# ruff: noqa: PTH116 - pathlib would slow down every command

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from treadle.lib.files.file_view import LOCAL_FILES
from treadle.lib.files.protected_paths import GIT_FOLDER
from treadle.lib.git.config import get_hash_size
from treadle.lib.git.index import IndexEntry
from treadle.lib.git.index_file import IndexFile, copy_partial_index
from treadle.lib.git.repository import open_repository

EXECUTABLE = stat.S_IXUSR

_GIT_SETTINGS = {"core.checkStat": "minimal", "core.trustctime": "false"}
"""git compares size and time of a file, and not its inode."""


class StandIns:
    """Makes the replacements, in a folder that commands cannot see."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[tuple[int, int, int], str] = {}
        self._indexes: dict[str, IndexFile] = {}
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

    def _find_tracked(self, path: Path, status: os.stat_result) -> IndexEntry | None:
        for folder in path.parents:
            if not os.path.lexists(folder / GIT_FOLDER):
                continue
            repository = open_repository(LOCAL_FILES, str(folder))
            index = self._indexes.get(repository.git_folder)
            if index is None:
                hash_size = get_hash_size(repository.read_config(LOCAL_FILES))
                index = IndexFile(Path(repository.git_folder, "index"), hash_size)
                self._indexes[repository.git_folder] = index
            file = index.find(str(path.relative_to(folder)))
            return file if file is None else index.settle(file, status)
        return None


class PartialIndexes:
    """Keeps copies of indexes for a part of a worktree, in a folder that commands cannot see."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[Path, tuple[IndexFile, bytes, str]] = {}

    def find(self, git: Path, folders: Iterable[str], worktree: Path) -> str:
        """The copy for these folders of the index in a git folder; "" if there can be none."""
        path = git / "index"
        index, old, copy = self._made.get(path) or (IndexFile(path), b"", "")
        data = index.read()
        if data is not old:
            if copy:
                Path(copy).unlink(missing_ok=True)  # a mount of it stays
            self._folder.mkdir(parents=True, exist_ok=True)
            fd, copy = tempfile.mkstemp(dir=self._folder)
            os.close(fd)
            if not copy_partial_index(path, Path(copy), folders, worktree):
                Path(copy).unlink()
                copy = ""
            self._made[path] = index, data, copy
        return copy


def make_git_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Variables with which git takes the replacements for unchanged."""
    count = env.get("GIT_CONFIG_COUNT", "")
    first = int(count) if count.isdecimal() else 0
    variables = {"GIT_CONFIG_COUNT": str(first + len(_GIT_SETTINGS))}
    for number, (key, value) in enumerate(_GIT_SETTINGS.items(), first):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables
