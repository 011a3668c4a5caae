"""What a container sees of the folder of its workspace: the folder, and what is mounted over it.

    protected   decides which programs run on this machine later: read-only
    denied      by the deny rules about files: hidden, or read-only
    folders around what is denied, and .git: mounts of their own, which cannot be renamed

Only what exists is protected or denied: a command can create such files. Used by container.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from treadle.core.errors import WorkspaceError
from treadle.lib.files.protected_paths import (
    GIT_FOLDER,
    PROTECTED_FILES,
    PROTECTED_FOLDERS,
    PROTECTED_IN_GIT,
    fold_case,
)
from treadle.workspace.command_limits import FileDenials
from treadle.workspace.sandbox.file_denials import HardLinkScanner
from treadle.workspace.sandbox.mounts import MAX_DENIED
from treadle.workspace.sandbox.tree_scan import HIDDEN, READ_ONLY, TreeScanner, list_upwards


class ContainerMounts:
    """The mounts of the containers of one folder."""

    def __init__(self, root: str, get_denials: Callable[[], FileDenials]) -> None:
        self._root, self._get_denials = root, get_denials
        self._denials: FileDenials | None = None
        self._links = HardLinkScanner(root)
        self._scanner = TreeScanner(root, self._classify, searched={READ_ONLY}, with_generated=True)

    def list_volumes(self, empty: str) -> list[str]:
        """Values of the option `--volume`, outer folders first. In the folder `empty` an empty file
        and an empty folder are made. Blocking. WorkspaceError if the deny rules cannot hold."""
        if self._denials is None:
            self._denials = self._get_denials()
        denied = self._find_denied() if self._denials != FileDenials() else {}
        volumes = dict(_list_protected(self._root))
        for path in _list_pins(self._root, denied):
            volumes.setdefault(path, f"{path}:{path}")
        for path, kind in denied.items():
            volumes[path] = f"{path}:{path}:ro"
            if kind != READ_ONLY:
                volumes[path] = f"{_make_empty(path, empty)}:{path}:ro"
        is_read_only = self._denials.classify(self._root) == READ_ONLY
        whole = f"{self._root}:{self._root}" + (":ro" if is_read_only else "")
        return [whole, *(volumes[path] for path in sorted(volumes))]

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
            if ":" in path:
                raise WorkspaceError(f"a deny rule matches {path}; rename it without a colon")
        return denied

    def _classify(self, folder: str, entry: os.DirEntry[str], around: str) -> str:
        assert self._denials is not None
        kind = self._denials.classify(f"{folder}/{entry.name}")
        return "" if kind == around == READ_ONLY else kind


def _list_protected(root: str) -> Iterator[tuple[str, str]]:
    """Protected files of the folder, and the configuration and the hooks of git."""
    protected = PROTECTED_FILES | PROTECTED_FOLDERS
    found = [path for path in Path(root).iterdir() if fold_case(path.name) in protected]
    git = Path(root, GIT_FOLDER)
    if git.is_dir() and not git.is_symlink():
        found += [git / name for name in PROTECTED_IN_GIT]
        yield str(git), f"{git}:{git}"
    for path in found:
        if path.exists() and not path.is_symlink():
            yield str(path), f"{path}:{path}:ro"


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
