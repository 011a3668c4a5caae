"""Symlinks at protected paths: they stay what they are, and what they name is protected, too.

A program of the user follows them, so a command that changes what they name changes what runs. Used
by `protected_paths.py`.
"""

# ruff: noqa: PTH115 - pathlib would slow down every command

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from treadle.lib.files.protected_paths import (
    GENERATED_FOLDERS,
    GIT_FOLDER,
    MEMORY_FILES,
    find_read_only_part,
    fold_case,
)
from treadle.workspace.sandbox.tree_scan import LINK, FoundEntry
from treadle.workspace.supervisor.set_aside import open_folder


class ProtectedSymlinks:
    """Those below one root. `texts`: what those at protected paths contain; `targets`: the paths
    below the root that these and the ones in protected folders name."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.texts: dict[str, str] = {}
        self.targets: list[str] = []

    def begin(self, entries: Iterable[FoundEntry]) -> list[str]:
        """Read them before the first command; returns the targets."""
        texts = {entry.path: (entry.kind, _read_symlink(entry.path)) for entry in entries}
        self.texts = {path: text for path, (kind, text) in texts.items() if text and kind != LINK}
        links = {os.path.realpath(path): path for path, (_, text) in texts.items() if text}
        self.targets = [target for target, link in links.items() if self._is_ours(target, link)]
        return self.targets

    def list_changed(self) -> list[str]:
        """The paths at which there is something else now."""
        texts = self.texts.items()
        return [path for path, text in texts if os.path.lexists(path) and _is_other(path, text)]

    def restore(self, path: str) -> None:
        *above, name = path[len(self._root) + 1 :].split("/")
        with contextlib.suppress(OSError):  # a folder of it is gone, or something is there again
            folder = open_folder(self._root, above)
            try:
                os.symlink(self.texts[path], name, dir_fd=folder)
            finally:
                os.close(folder)

    def _is_ours(self, target: str, link: str) -> bool:
        """Whether a symlink names what no other rule is about: no memory file, nothing in a
        protected or generated folder, and no folder that the symlink is in."""
        below = target.removeprefix(f"{self._root}/")
        parts = below.split("/")
        return (
            below != target
            and not link.startswith(f"{target}/")
            and GIT_FOLDER not in parts
            and fold_case(parts[-1]) not in MEMORY_FILES
            and GENERATED_FOLDERS.isdisjoint(parts)
            and not find_read_only_part(below)
        )


def _is_other(path: str, text: str) -> bool:
    return _read_symlink(path) != text


def _read_symlink(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None
