"""What a git command does beyond its words: programs that its repository makes it run, and files
that it prints although the command does not name them.

Looks at the repository in the folder where the command runs. Used by `path_access.py`; uses
`git_config.py` and lib/git, which reads `.git` without git.
"""

import re
import stat
from collections.abc import Iterator, Sequence

from treadle.lib.git.repository import (
    GitRepository,
    find_bare_repository,
    list_repositories,
)
from treadle.policy.evaluation.file_evaluator import FileEvaluator
from treadle.policy.evaluation.git_config import find_git_program
from treadle.policy.evaluation.git_places import GitPlaces
from treadle.policy.evaluation.ruling import PolicyFinding
from treadle.policy.evaluation.tracked_files import TrackedFile, TrackedFiles
from treadle.policy.evaluation.word_values import list_values
from treadle.policy.ruleset.paths import is_inside
from treadle.policy.ruleset.rules import Rule
from treadle.policy.shell.analysis.git import GitCommand
from treadle.policy.shell.analysis.git_content import (
    GitContent,
    analyze_git_reading,
    find_git_content,
)
from treadle.policy.shell.analysis.git_pathspec import is_selected
from treadle.policy.shell.ast import Word

_PATHSPEC = re.compile(r"(:\([^)]*\)|:[/!^]+|)(.*)", re.DOTALL)


class GitEvaluator:
    """Evaluates the git commands of one line."""

    def __init__(self, files: FileEvaluator) -> None:
        self._files = files
        self._file_system = files.file_system
        self._places = GitPlaces(files)
        self._tracked = TrackedFiles(files.file_system)

    def evaluate_repository(self, command: GitCommand, cwd: str) -> PolicyFinding:
        """git treats a folder that looks like a bare repository as one, and uses its config."""
        folder = self._change_folder(command.list_folders(), cwd)
        bare = find_bare_repository(self._file_system, folder)
        if bare and is_inside(bare, self._files.context.roots):
            reason = "a bare repository, whose configuration can run programs"
            return PolicyFinding(bare, "ask", reason)
        return PolicyFinding(cwd, "allow", "an ordinary repository", is_read_only=True)

    def evaluate_reading(self, command: GitCommand, cwd: str) -> PolicyFinding:
        """git must run no program of the repository while it reads, and read nothing elsewhere."""
        folder = self._change_folder(command.list_folders(), cwd)
        reading = analyze_git_reading(command.name, command.arguments)
        home = self._files.context.home
        program = find_git_program(self._file_system, folder, reading, home)
        if program:
            return PolicyFinding(folder, "ask", program)
        shows_content = find_git_content(command.name, command.arguments) is not None
        for repository in list_repositories(self._file_system, folder):
            outside = self._places.find_outside(repository, shows_content=shows_content)
            if outside:
                return PolicyFinding(folder, "ask", outside)
        return PolicyFinding(folder, "allow", "git runs no other program", is_read_only=True)

    def evaluate_content(self, command: GitCommand, cwd: str) -> PolicyFinding:
        """git must not print a file that a rule is about, from the index or a commit."""
        allowed = PolicyFinding(cwd, "allow", "git prints no such file", is_read_only=True)
        content = find_git_content(command.name, command.arguments)
        if content is None or not self._files.has_read_rules:
            return allowed
        folder = self._change_folder(command.list_folders(), cwd)
        for repository in list_repositories(self._file_system, folder):
            found = self._find_named(command.arguments, repository, folder)
            if not found and content.is_whole:
                found = self._find_printed(content, repository, folder)
            if found:
                path, rule = found
                reason = f"git may print {path}; rule {rule.text}"
                return PolicyFinding(folder, "ask", reason, rule.text)
        return allowed

    def evaluate_pathspecs(self, words: Sequence[Word]) -> Iterator[PolicyFinding]:
        """Patterns that git expands itself, if they match the name of a file that a rule is about.

        `git diff -- '*.env'`, `git show ':(top).env'`; those that leave files out are harmless."""
        for word in words:
            match = _PATHSPEC.fullmatch(word.text or "")
            if match is None or "exclude" in match[1] or match[1][1:2] in ("!", "^"):
                continue
            rule = self._files.find_rule_by_name(match[2].rpartition("/")[2])
            if rule is not None and (match[1] or any(c in match[2] for c in "*?[")):
                reason = f"git reads it as a pattern; rule {rule.text}"
                yield PolicyFinding(word.source, "ask", reason, rule.text)

    def _change_folder(self, folders: Sequence[str], cwd: str) -> str:
        for folder in folders:
            cwd = self._files.resolve(folder, cwd).path
        return cwd

    def _find_named(
        self, words: Sequence[Word], repository: GitRepository, folder: str
    ) -> tuple[str, Rule] | None:
        """`HEAD:FILE` is relative to the top of the repository; other names are to the folder."""
        for word in words:
            for value in list_values(word.text or ""):
                for base in dict.fromkeys((folder, repository.worktree)):
                    path = self._files.resolve(value, base).path if value else ""
                    rule = self._files.find_read_rule(path) if path else None
                    if rule is not None:
                        return path, rule
        return None

    def _find_printed(
        self, content: GitContent, repository: GitRepository, folder: str
    ) -> tuple[str, Rule] | None:
        """A tracked file that a rule is about, if the command may print it."""
        prefix = folder[len(repository.worktree) :].strip("/")
        limits = [t for t in content.operands if self._files.exists(f"{folder}/{t}")]
        pathspecs = (*content.paths, *limits)
        names_commit = any(t not in limits and t not in content.paths for t in content.operands)
        is_of_work_tree = content.is_of_work_tree and not names_commit
        for rule in self._files.list_read_rules():
            links = frozenset(self._files.list_other_names(rule, repository.worktree))
            tracked = self._tracked.find(repository, rule, links)
            if tracked is None:
                return f"more files than can be checked in {repository.git_folder}", rule
            for file in tracked:
                may_select = file.is_folder or is_selected(file.path, pathspecs, prefix)
                is_hidden = is_of_work_tree and self._is_hidden(file, repository)
                if may_select and not is_hidden:
                    return file.path, rule
        return None

    def _is_hidden(self, file: TrackedFile, repository: GitRepository) -> bool:
        """Whether the sandbox hides a file, and git does not read the index instead."""
        status = self._file_system.lstat(f"{repository.worktree}/{file.path}")
        is_file = status is not None and stat.S_ISREG(status.st_mode)
        return self._files.context.sandbox_hides_denied and is_file and not file.is_assumed
