"""Other names (hard links) of the files that a rule is about.

The rule names one of them; a search or a command may read the file by another. Looks at the nearest
files of the workspace first, and at a limited number of them. Used by `file_evaluator.py`.
"""

import stat
from collections.abc import Iterable, Sequence

from treadle.lib.files.file_view import FileSystemView, is_inside
from treadle.permissions.ruleset.path_patterns import PathPattern

_MAX_NAMES = 50_000
_MAX_NAMES_IN_HOME = 5_000

FileIdentity = tuple[int, int]  # the device and the inode


class HardLinks:
    """Finds files with several names. With a cached view it is for one decision."""

    def __init__(self, file_system: FileSystemView, roots: Sequence[str], home: str) -> None:
        self._file_system = file_system
        self._roots = roots
        self._home = home

    def find_identities(self, pattern: PathPattern) -> set[FileIdentity]:
        """The files with several names that a pattern forbids."""
        names = [name.lower() for name in pattern.list_last_names()]
        paths = (p for top in self._list_tops(pattern) for p in self._walk(top))
        # The first condition is a quick one: there may be thousands of files.
        forbidden = (
            path
            for path in paths
            if (not names or not path.isascii() or any(n in path.lower() for n in names))
            and pattern.forbids(path)
        )
        return set(filter(None, map(self.get_shared_identity, forbidden)))

    def list_names(self, identities: set[FileIdentity], folder: str) -> list[str]:
        """The names of these files below a folder."""
        if not identities:
            return []
        inodes = {inode for _, inode in identities}
        found = (path for path, inode in self._scan(folder).items() if inode in inodes)
        return [path for path in found if self.get_shared_identity(path) in identities]

    def get_shared_identity(self, path: str) -> FileIdentity | None:
        """The identity of a file that has other names."""
        status = self._file_system.lstat(path)
        if status is None or not stat.S_ISREG(status.st_mode) or status.st_nlink < 2:
            return None
        return status.st_dev, status.st_ino

    def _list_tops(self, pattern: PathPattern) -> Iterable[str]:
        """The files and folders below which the pattern can match."""
        for prefix in dict.fromkeys(pattern.list_fixed_prefixes()):
            status = self._file_system.lstat(prefix)
            is_file = status is not None and not stat.S_ISDIR(status.st_mode)
            if is_file or is_inside(prefix, (*self._roots, self._home)):
                yield prefix
            else:
                yield from (root for root in self._roots if is_inside(root, (prefix,)))

    def _walk(self, top: str) -> Iterable[str]:
        status = self._file_system.lstat(top)
        is_folder = status is not None and stat.S_ISDIR(status.st_mode)
        return self._scan(top) if is_folder else (top,)

    def _scan(self, folder: str) -> dict[str, int]:
        """The files below a folder with their inodes; the nearest ones if there are too many."""
        limit = _MAX_NAMES if is_inside(folder, self._roots) else _MAX_NAMES_IN_HOME
        return self._file_system.scan_tree(folder, limit)
