"""Whether paths may be removed: nothing protected may go with them.

Used by `path_access.py` for `rm` and `find -delete`. Uses `file_evaluator.py`.
"""

from fnmatch import fnmatchcase

from treadle.lib.files.file_view import is_inside
from treadle.lib.files.protected_paths import GENERATED_FOLDERS, describe_use, find_kept_part
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
            self._files.evaluate(path, "write", cwd).outcome == "allow"
            and self.evaluate(path, cwd).outcome == "allow"
            for path in matches
        )

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
