"""What an entry of a folder is for the sandbox: protected, denied, memory, a socket, or nothing.

Decides by name and type and opens no file. tree_scan.py asks it about every entry.
"""

from __future__ import annotations

import os
import stat

from treadle.lib.files.file_view import is_secret_name
from treadle.lib.files.protected_paths import (
    GIT_FOLDER,
    MEMORY_FILES,
    PROTECTED_FILES,
    PROTECTED_FOLDERS,
    PROTECTED_PAIRS,
    PROTECTED_SUFFIXES,
    fold_case,
    is_read_only_name,
)
from treadle.workspace.command_limits import FileDenials
from treadle.workspace.sandbox.file_denials import NameFilter
from treadle.workspace.sandbox.tree_scan import (
    GENERATED,
    GIT,
    HEAD,
    LINK,
    MEMORY,
    PROTECTED,
    READ_ONLY,
    SECRET,
    SOCKET,
    FoundEntry,
)

_FIRST_OF_PAIRS = frozenset(first for first, _ in PROTECTED_PAIRS)
_NAMES = frozenset(
    (
        *(GIT_FOLDER, HEAD, *PROTECTED_FOLDERS, *PROTECTED_FILES, *MEMORY_FILES),
        *(second for _, second in PROTECTED_PAIRS),
    )
)
WATCHED = frozenset({READ_ONLY, GIT, PROTECTED})
UNCHANGEABLE = frozenset({READ_ONLY, PROTECTED})


class EntryKinds:
    """`classify` gives the kind of an entry of `folder`, which is itself of the kind `around`."""

    def __init__(self, denials: FileDenials, root: str) -> None:
        self._denials = denials
        self._names = NameFilter(denials, root)

    def classify(self, folder: str, entry: os.DirEntry[str], around: str) -> str:
        name, kind = fold_case(entry.name), ""
        if self._names.may_match(name):
            kind = self._denials.classify(f"{folder}/{entry.name}")
        if kind == READ_ONLY and around in UNCHANGEABLE:
            return ""  # the folder around it is read-only
        if not kind and (name in _NAMES or name.endswith(PROTECTED_SUFFIXES)):
            kind = self._classify_name(folder, name, around)
        if not kind and around != GENERATED and is_secret_name(name):
            kind = SECRET
        if kind:
            return kind
        if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False):
            return ""
        if entry.is_symlink():  # what it names is not scanned
            if around == PROTECTED:
                return LINK
            return PROTECTED if name in _FIRST_OF_PAIRS else ""
        try:
            return SOCKET if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode) else ""
        except OSError:
            return ""

    def _classify_name(self, folder: str, name: str, around: str) -> str:
        if around in WATCHED:
            return ""  # it is protected with the folder around it
        if name == GIT_FOLDER:
            return GIT
        if is_read_only_name(folder.rpartition("/")[2], name):
            return "" if around == GENERATED else PROTECTED
        if name == HEAD and around != GENERATED:
            return HEAD
        return MEMORY if name in MEMORY_FILES else ""


def classify_git(folder: str, entry: os.DirEntry[str], around: str) -> str:
    """The kind of what belongs to git, and of nothing else: the parts of a git folder are found
    with it."""
    name = fold_case(entry.name)
    if around:
        return ""
    return GIT if name == GIT_FOLDER else HEAD if name == HEAD else ""


def is_secret(entry: FoundEntry) -> bool:
    """Whether a search does not see it; some protected files are secrets, too."""
    has_name = is_secret_name(fold_case(entry.path.rpartition("/")[2]))
    return entry.kind == SECRET or (entry.kind == PROTECTED and has_name)
