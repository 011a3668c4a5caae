"""The files that git tracks and that a rule is about. Used by `git_evaluator.py`.

Looks in the index of a repository and of its submodules. A file that only older commits contain is
not found: to look for it would mean to read the whole history.
"""

import msgspec

from treadle.lib.files.file_view import FileView
from treadle.lib.files.secret_files import is_searched_secret
from treadle.lib.git.config import get_hash_size
from treadle.lib.git.index import (
    IndexEntry,
    list_entries,
    may_contain,
    may_list_folders,
    read_indexes,
)
from treadle.lib.git.repository import GitRepository, open_repository
from treadle.permissions.ruleset.path_patterns import PathPattern
from treadle.permissions.ruleset.rules import Rule

_MAX_SUBMODULE_DEPTH = 4


class TrackedFile(msgspec.Struct, frozen=True):
    """A file in an index that a rule is about."""

    path: str  # relative to the top of the repository
    is_assumed: bool = False  # git may read the index instead of the file
    is_folder: bool = False  # a folder of which it is not known what it contains


class TrackedFiles:
    """Finds tracked files, for one decision."""

    def __init__(self, file_system: FileView) -> None:
        self._file_system = file_system
        self._found: dict[tuple[str, Rule], tuple[TrackedFile, ...] | None] = {}

    def find(
        self, repository: GitRepository, rule: Rule, links: frozenset[str] = frozenset()
    ) -> tuple[TrackedFile, ...] | None:
        """The tracked files that a rule is about; None if that cannot be known.

        `links`: other names of such files."""
        key = (repository.git_folder, rule)
        if key not in self._found:
            self._found[key] = self._find(repository, rule, links, 0)
        return self._found[key]

    def find_secrets(self, repository: GitRepository) -> tuple[TrackedFile, ...] | None:
        """The tracked files that may contain secrets, without those of submodules: `git grep` does
        not search them by itself. None if that cannot be known."""
        found: list[TrackedFile] = []
        hash_size = get_hash_size(repository.read_config(self._file_system))
        for content in read_indexes(self._file_system, repository.git_folder):
            try:
                entries = list(list_entries(content, hash_size)) if content is not None else None
            except ValueError:
                entries = None
            if entries is None:
                return None
            found += [
                TrackedFile(entry.path, entry.is_assumed, entry.is_folder)
                for entry in entries
                if entry.is_folder or is_searched_secret(entry.path)
            ]
        return tuple(found)

    def _find(
        self, repository: GitRepository, rule: Rule, links: frozenset[str], depth: int
    ) -> tuple[TrackedFile, ...] | None:
        pattern = rule.pattern
        if not isinstance(pattern, PathPattern) or depth > _MAX_SUBMODULE_DEPTH:
            return None
        names = pattern.list_last_names()
        found: list[TrackedFile] = []
        for content in read_indexes(self._file_system, repository.git_folder):
            if content is None:
                return None
            is_plain = bool(names) and not links and not may_list_folders(content)
            if is_plain and not any(may_contain(content, name) for name in names):
                continue
            hash_size = get_hash_size(repository.read_config(self._file_system))
            try:
                entries = list(list_entries(content, hash_size))
            except ValueError:
                return None
            for entry in entries:
                below = self._find_in_entry(repository, entry, rule, links, depth)
                if below is None:
                    return None
                found += below
        return tuple(found)

    def _find_in_entry(
        self,
        repository: GitRepository,
        entry: IndexEntry,
        rule: Rule,
        links: frozenset[str],
        depth: int,
    ) -> tuple[TrackedFile, ...] | None:
        path = f"{repository.worktree}/{entry.path}"
        if entry.is_submodule:
            inner = open_repository(self._file_system, path)
            below = self._find(inner, rule, links, depth + 1)
            if below is None:
                return None
            return tuple(
                TrackedFile(f"{entry.path}/{file.path}", file.is_assumed, file.is_folder)
                for file in below
            )
        is_found = isinstance(rule.pattern, PathPattern) and rule.pattern.forbids(path)
        if is_found or entry.is_folder or path in links:
            return (TrackedFile(entry.path, entry.is_assumed, entry.is_folder),)
        return ()
