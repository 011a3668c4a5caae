"""What a container sees of the folder of its workspace: the folder, and what is mounted over it.

    git         what git runs, or takes its configuration from: read-only. What a command makes of
                it is moved away when it ends, as in the sandbox
    protected   decides which programs run on this machine later: read-only
    denied      by the deny rules about files: hidden, or read-only
    folders around what is denied, and .git: mounts of their own, which cannot be renamed

Of the last two only what exists: a command can create such files. Used by container.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import Lock

from treadle.core.errors import WorkspaceError
from treadle.lib.files.file_view import is_inside
from treadle.lib.files.private_files import find_state_dir
from treadle.lib.files.protected_paths import PROTECTED_FILES, PROTECTED_FOLDERS, fold_case
from treadle.workspace.command_limits import FileDenials
from treadle.workspace.sandbox.entry_kinds import classify_git
from treadle.workspace.sandbox.file_denials import HardLinkScanner
from treadle.workspace.sandbox.mounts import MAX_DENIED
from treadle.workspace.sandbox.protected_paths import ProtectedPaths
from treadle.workspace.sandbox.tree_scan import (
    GIT,
    HIDDEN,
    PINNED,
    READ_ONLY,
    TreeScanner,
    list_upwards,
)


class ContainerMounts:
    """The mounts of the containers of one folder."""

    def __init__(self, root: str, get_denials: Callable[[], FileDenials]) -> None:
        self._root, self._get_denials = root, get_denials
        self._denials: FileDenials | None = None
        aside = find_state_dir() / "set_aside"
        self._git = ProtectedPaths(Path(root), aside, classify=classify_git)
        self._active_count = 0
        self._notes: list[str] = []
        self._lock = Lock()  # both methods are called in threads
        self._links = HardLinkScanner(root)
        self._scanner = TreeScanner(root, self._classify, searched={READ_ONLY}, with_generated=True)

    def begin(self, empty: str) -> list[str]:
        """Before a command: values of the option `--volume`, outer folders first. `end` has to
        follow, also after an error. In the folder `empty` an empty file and an empty folder are
        made. Blocking. WorkspaceError if it cannot be known what has to hold."""
        with self._lock:
            self._active_count += 1
            return self._list_volumes(empty)

    def end(self) -> list[str]:
        """When a container is gone: move away what its command made for git. Lines about it.
        Blocking."""
        with self._lock:
            self._active_count -= 1
            notes, self._notes = [*self._notes, *self._git.check()], []
            return notes

    def _list_volumes(self, empty: str) -> list[str]:
        if self._denials is None:
            self._denials = self._get_denials()
        denied = self._find_denied() if self._denials != FileDenials() else {}
        is_read_only = self._denials.classify(self._root) == READ_ONLY
        closed = (self._root, *denied) if is_read_only else tuple(denied)
        volumes = {path: f"{path}:{path}:ro" for path in _list_protected(self._root)}
        git = self._list_git_volumes()  # in what is denied, a mount would be a way around the rule
        volumes |= {path: git[path] for path in git if not is_inside(path, closed)}
        for path in _list_pins(self._root, denied):
            volumes.setdefault(path, f"{path}:{path}")
        for path, kind in denied.items():
            volumes[path] = f"{path}:{path}:ro"
            if kind != READ_ONLY:
                volumes[path] = f"{_make_empty(path, empty)}:{path}:ro"
        whole = f"{self._root}:{self._root}" + (":ro" if is_read_only else "")
        return [whole, *(volumes[path] for path in sorted(volumes))]

    def _list_git_volumes(self) -> dict[str, str]:
        is_first = self._active_count == 1
        if not is_first:
            # Else what a running command made would be taken for known.
            self._notes += self._git.check()
        volumes: dict[str, str] = {}
        for entry in self._git.begin(is_first=is_first):
            path = entry.path
            _refuse_colon(path)
            if os.path.realpath(path) == path:  # a symlink is looked at when the command has ended
                is_writable = entry.kind in (GIT, PINNED) and Path(path).is_dir()
                volumes[path] = f"{path}:{path}" + ("" if is_writable else ":ro")
        self._notes += self._git.take_leftovers()
        return volumes

    def _find_denied(self) -> dict[str, str]:
        """The paths that the deny rules match, and other names of those files, with their kinds."""
        found = self._scanner.scan()
        denied: dict[str, str] = {}
        for entry in [*found, *self._links.find(found)]:
            path = os.path.realpath(entry.path)  # a symlink cannot be mounted over
            if path.startswith(f"{self._root}/") and denied.get(path) != HIDDEN:
                denied[path] = entry.kind
        if self._scanner.is_cut or len(denied) > MAX_DENIED:
            raise WorkspaceError(
                f"the deny rules match {len(denied)} files, or the folder is too large to find "
                f"them; a container can hide {MAX_DENIED}: write rules about whole folders"
            )
        for path in denied:
            _refuse_colon(path)
        return denied

    def _classify(self, folder: str, entry: os.DirEntry[str], around: str) -> str:
        assert self._denials is not None
        kind = self._denials.classify(f"{folder}/{entry.name}")
        return "" if kind == around == READ_ONLY else kind


def _refuse_colon(path: str) -> None:
    if ":" in path:
        raise WorkspaceError(
            f"{path} cannot be protected in a container; rename it without a colon"
        )


def _list_protected(root: str) -> Iterator[str]:
    """The protected files and folders of the folder itself."""
    protected = PROTECTED_FILES | PROTECTED_FOLDERS
    for path in Path(root).iterdir():
        if fold_case(path.name) in protected and not path.is_symlink():
            yield str(path)


def _list_pins(root: str, denied: dict[str, str]) -> Iterable[str]:
    """The folders around denied paths; a pin is writable, so there is none in a denied folder."""
    for path in denied:
        above = [*list_upwards(path.rpartition("/")[0], root)]
        held = [at for at, folder in enumerate(above) if folder in denied]
        yield from above[held[-1] + 1 :] if held else above


def _make_empty(path: str, folder: str) -> str:
    """An empty folder or file, to be mounted over the path."""
    if Path(path).is_dir():
        empty = Path(folder, "empty-folder")
        empty.mkdir(mode=0o555, exist_ok=True)
    else:
        empty = Path(folder, "empty-file")
        empty.touch(mode=0o444)
    return str(empty)
