"""What the deny rules about files match, to which commands are held (`FileDenials`).

Used by `protected_paths.py` for the writable roots, and
by `bubblewrap.py` for what lies outside of them.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from treadle.core.errors import WorkspaceError
from treadle.lib.files.protected_paths import fold_case
from treadle.workspace.command_limits import FileDenials, PathRule
from treadle.workspace.sandbox.tree_scan import (
    HIDDEN,
    READ_ONLY,
    UNLISTED,
    FoundEntry,
    TreeScanner,
    find_entry,
    may_be_entered,
)

MAX_OUTER_FOLDERS = 100_000
"""How many folders outside of the roots are searched for one rule, once; some 2 s."""

_NAME = re.compile(r"(\**)([^*?\[\]{}\\/]+)(/\*\*)?/?")


class NameFilter:
    """Which names a rule could match, in a folder that none matches: most are sorted out fast."""

    def __init__(self, denials: FileDenials, root: str) -> None:
        rules = [rule for _, rule in denials.list_rules()]
        found = [_NAME.fullmatch(_get_last_part(rule.text)) for rule in rules]
        self._is_any = any(match is None for match in found)
        self._is_any |= any(rule.forbids(root) for rule in rules)
        names = [(m.group(1), fold_case(m.group(2))) for m in found if m is not None]
        self._names = frozenset(name for stars, name in names if not stars)
        self._suffixes = tuple(name for stars, name in names if stars)

    def may_match(self, folded_name: str) -> bool:
        return self._is_any or folded_name in self._names or folded_name.endswith(self._suffixes)


def _get_last_part(text: str) -> str:
    """The part of a pattern that matches the name of the first path that it matches."""
    body = text.rstrip("/").removesuffix("/**").rstrip("/")
    last = body.rpartition("/")[2]
    return last if last not in (".", "..", "~") else "*"


def find_outer(
    denials: FileDenials, roots: Sequence[Path], skipped: Iterable[str] = ()
) -> list[FoundEntry]:
    """What the deny rules match outside of the writable roots. `skipped` folders are not searched.
    WorkspaceError if there are too many folders."""
    found: dict[str, FoundEntry] = {}
    skipped = frozenset((*skipped, *map(str, roots)))
    for kind, rule in denials.list_rules():
        for prefix in rule.list_fixed_prefixes():
            if not any(Path(prefix).is_relative_to(root) for root in roots):
                for entry in _find_matches(rule, prefix, kind, skipped):
                    if entry.kind != UNLISTED or may_be_entered(entry.path):
                        found[entry.path] = entry
    return list(found.values())


def _find_matches(
    rule: PathRule, prefix: str, kind: str, skipped: frozenset[str]
) -> list[FoundEntry]:
    if prefix != "/" and rule.forbids(prefix):
        return find_entry(prefix, kind)

    def classify(folder: str, entry: os.DirEntry[str], around: str) -> str:
        path = f"{folder}/{entry.name}"
        return kind if rule.forbids(path) else _SKIPPED if path in skipped else ""

    scanner = TreeScanner(
        prefix.rstrip("/"), classify, with_generated=True, max_folders=MAX_OUTER_FOLDERS
    )
    found = scanner.scan()
    if scanner.is_cut:
        raise WorkspaceError(
            f"the deny rule {rule.text} is about more than {MAX_OUTER_FOLDERS:,} folders outside "
            "of the project; write it for a folder, or run without the sandbox"
        )
    return [entry for entry in found if entry.kind != _SKIPPED]


_SKIPPED = "skipped"


class HardLinkScanner:
    """Finds other names (hard links) of denied files: the same content under an allowed name."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._kinds: dict[int, str] = {}
        self._scanner: TreeScanner | None = None

    def find(self, found: Sequence[FoundEntry]) -> list[FoundEntry]:
        """The other names of these entries below the root."""
        kinds: dict[int, str] = {}
        for entry in found:
            if entry.kind in (HIDDEN, READ_ONLY):
                with contextlib.suppress(OSError):
                    status = os.lstat(entry.path)
                    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                        kinds[entry.inode] = entry.kind
        if not kinds:
            return []
        if self._scanner is None or kinds != self._kinds:
            self._kinds = kinds
            self._scanner = TreeScanner(
                self._root, lambda _, entry, __: kinds.get(entry.inode(), ""), with_generated=True
            )
        known = {entry.path for entry in found}
        return [entry for entry in self._scanner.scan() if entry.path not in known]
