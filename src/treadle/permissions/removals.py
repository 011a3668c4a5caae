"""Whether paths may be removed: nothing protected may go with them.

Used by `path_access.py` for `rm` and `find -delete`. Uses `file_evaluator.py`.
"""

from fnmatch import fnmatchcase
from stat import S_ISDIR, S_ISREG

from treadle.core.checkpoint_limits import (
    MAX_DEPTH,
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_GITIGNORE_BYTES,
)
from treadle.lib.files.file_view import is_inside
from treadle.lib.files.protected_paths import GENERATED_FOLDERS, describe_use, find_kept_part
from treadle.lib.git.ignore import GITIGNORE, IgnoreRules
from treadle.permissions.file_evaluator import FileEvaluator, make_finding
from treadle.permissions.findings import PolicyFinding

_MAX_SCANNED_FILES = 50_000
_MAX_REMOVED_FILES = 5000


class Removals:
    """Evaluates removals, for one decision."""

    def __init__(self, files: FileEvaluator) -> None:
        self._files = files

    def may_remove_below(self, folder: str, pattern: str, cwd: str) -> bool:
        """Whether everything below a folder whose name matches may be removed, with all in it."""
        top = self._files.resolve(folder, cwd).path
        found = self._files.file_system.scan_tree(top, _MAX_SCANNED_FILES)
        if len(found) >= _MAX_SCANNED_FILES or not is_inside(top, self._files.roots):
            return False
        matches = [path for path in found if fnmatchcase(path.rpartition("/")[2], pattern)]
        return len(matches) <= _MAX_REMOVED_FILES and all(
            self.has_copy(path, cwd)
            and self._files.evaluate(path, "write", cwd).outcome == "allow"
            and self.evaluate(path, cwd).outcome == "allow"
            for path in matches
        )

    def has_copy(self, path: str, cwd: str) -> bool:
        """Whether a checkpoint has all that goes with a path: git ignores nothing of it, and it is
        not too large. What tools fill can be made again."""
        view, top = self._files.file_system, self._files.resolve(path, cwd).path
        root = self._files.roots[0]  # no checkpoint has the folders that were added to it
        if top == root or not is_inside(top, (root,)):
            return False
        paths = [top, *view.scan_tree(top, _MAX_SCANNED_FILES)]
        if len(paths) > _MAX_REMOVED_FILES or len(view.scan_tree(root, MAX_FILES)) >= MAX_FILES:
            return False
        known: dict[str, IgnoreRules] = {root: self._read_rules(IgnoreRules(), root, "")}
        return not any(self._is_left_out(one[len(root) + 1 :], root, known) for one in paths)

    def _is_left_out(self, path: str, root: str, known: dict[str, IgnoreRules]) -> bool:
        folder, parts = root, path.split("/")
        if not GENERATED_FOLDERS.isdisjoint(parts):
            return False
        status = self._files.file_system.lstat(f"{root}/{path}")
        size = status.st_size if status is not None and S_ISREG(status.st_mode) else 0
        if size > MAX_FILE_BYTES or len(parts) > MAX_DEPTH:
            return True
        for number, name in enumerate(parts, start=1):
            is_folder = number < len(parts) or (status is not None and S_ISDIR(status.st_mode))
            below = "/".join(parts[:number])
            if known[folder].is_ignored(below, is_folder):
                return True
            rules, folder = known[folder], f"{folder}/{name}"
            if is_folder and folder not in known:
                known[folder] = self._read_rules(rules, folder, below)
        return False

    def _read_rules(self, rules: IgnoreRules, folder: str, below: str) -> IgnoreRules:
        view, file = self._files.file_system, f"{folder}/{GITIGNORE}"
        status = view.lstat(file)
        if status is None or not S_ISREG(status.st_mode):  # checkpoints follow no symlink
            return rules
        found = view.read(file, MAX_GITIGNORE_BYTES)
        text = found.decode(errors="replace") if found is not None else "*"
        return rules.with_gitignore(below, text)

    def evaluate(self, path: str, cwd: str) -> PolicyFinding:
        """The finding on a path that `rm` removes, with everything below it, if it is protected."""
        resolved = self._files.resolve(path, cwd)
        top = resolved.path
        nothing = PolicyFinding(top, "allow", "nothing protected", is_read_only=True)
        if not is_inside(top, self._files.roots):
            return nothing  # asked about in any case
        reason = ""
        if part := find_kept_part(top):
            if self._files.evaluate(path, "write", cwd).outcome == "allow":
                return nothing
            reason = f"{'/'.join(part)} is protected: {describe_use(part)}"
        elif below := self._find_kept_below(top):
            reason = f"{below} is in it and protected"
        if not reason:
            return nothing
        return make_finding(f"remove {top}", "ask", resolved, reason, kind="protected_removal")

    def _find_kept_below(self, folder: str) -> str:
        """A protected path in a folder, outside of folders that tools fill."""
        found = self._files.file_system.scan_tree(folder, _MAX_SCANNED_FILES)
        for path in found:
            name = path[len(folder) + 1 :]
            if find_kept_part(name) and GENERATED_FOLDERS.isdisjoint(path.split("/")):
                return name
        is_generated = not GENERATED_FOLDERS.isdisjoint(folder.split("/"))
        is_cut = len(found) >= _MAX_SCANNED_FILES and not is_generated
        return "more than can be checked" if is_cut else ""
