"""Whether the repository of a folder makes git read files elsewhere while it only reads.

A `.git` that came from elsewhere can name another git folder, another work tree, objects of another
repository, or files that git prints. Linked worktrees and submodules are ordinary: the git folder
that they name points back to them. Used by `git_evaluator.py`.
"""

from collections.abc import Iterator

from treadle.lib.git.config import ConfigEntries
from treadle.lib.git.repository import GitRepository, join_path, read_pointer
from treadle.policy.evaluation.file_evaluator import FileEvaluator
from treadle.policy.ruleset.paths import is_inside

_MAX_DEPTH = 4
_MAX_LIST_BYTES = 1 << 16
_FILE_KEYS = ("blame.ignorerevsfile", "mailmap.file")  # git prints lines of these files


class GitPlaces:
    """Finds what a repository makes git read outside of the workspace."""

    def __init__(self, files: FileEvaluator) -> None:
        self._files = files
        self._file_system = files.file_system

    def find_outside(self, repository: GitRepository, *, shows_content: bool) -> str:
        """A place that may not be read, as a reason for the user; "" if there is none."""
        found = self._list_outside(repository, shows_content, 0)
        return next(found, "")

    def _list_outside(
        self, repository: GitRepository, shows_content: bool, depth: int
    ) -> Iterator[str]:
        config = repository.read_config(self._file_system)
        if not self._is_own_folder(repository, config):
            yield f"{repository.worktree}/.git is the repository of another folder"
        for key, value in config:
            path = self._resolve(value, repository.git_folder)
            is_here = path == self._resolve(repository.worktree, "/")
            if key == "core.worktree" and not is_here and not self._may_read(path):
                yield f"core.worktree makes git read {path}"
            if key in _FILE_KEYS and value:
                path = self._resolve(value, repository.worktree)
                if not self._may_read(path):
                    yield f"{key} makes git read {path}"
        if not shows_content:
            return
        for path in self._list_other_objects(f"{repository.common}/objects", 0):
            yield f"git would also read the objects of another repository in {path}"
        if depth < _MAX_DEPTH:
            for inner in filter(None, repository.list_submodules(self._file_system, config)):
                yield from self._list_outside(inner, shows_content, depth + 1)

    def _is_own_folder(self, repository: GitRepository, config: ConfigEntries) -> bool:
        """Whether the git folder is in the workspace, or belongs to this worktree."""
        worktree = self._resolve(repository.worktree, "/")
        git_folder = self._resolve(repository.git_folder, "/")
        common = self._resolve(repository.common, "/")
        if is_inside(git_folder, (f"{common}/worktrees",)):  # a linked worktree
            pointer = read_pointer(self._file_system, f"{git_folder}/gitdir")
            if self._resolve(pointer, git_folder) == f"{worktree}/.git":
                return True
        elif git_folder == common and common == f"{worktree}/.git":
            return True
        elif git_folder == common:  # of a submodule
            targets = [value for key, value in config if key == "core.worktree"]
            if targets and self._resolve(targets[-1], git_folder) == worktree:
                return True
        return self._may_read(git_folder) and self._may_read(common)

    def _list_other_objects(self, objects: str, depth: int) -> Iterator[str]:
        """The folders with objects of other repositories that may not be read."""
        parent = self._resolve(objects.rpartition("/")[0], "/")
        for name in ("", "/pack"):
            real = self._resolve(f"{objects}{name}", "/")
            if not is_inside(real, (parent,)) and not self._may_read(real):
                yield real
        content = self._file_system.read(f"{objects}/info/alternates", _MAX_LIST_BYTES) or b""
        for line in content.decode(errors="surrogateescape").splitlines():
            if line and not line.startswith("#"):
                path = join_path(objects, line.strip('"'))
                if not self._may_read(self._resolve(path, "/")):
                    yield self._resolve(path, "/")
                elif depth < _MAX_DEPTH:
                    yield from self._list_other_objects(path, depth + 1)

    def _resolve(self, path: str, folder: str) -> str:
        return self._files.resolve(path, folder).path if path else folder

    def _may_read(self, path: str) -> bool:
        return self._files.evaluate(path, "read", "/").outcome == "allow"
