"""What a git command does beyond its words: programs that its repository makes it run, and files
that it prints although the command does not name them.

`git status` runs `core.fsmonitor`, `git diff` runs text converters and filters: in a folder that
came from elsewhere, `.git/config` did, too. The configuration of the user and the system is
trusted. Used by `path_access.py`; uses lib/git, which reads `.git` without git.
"""

import re
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property, partial

from treadle.lib.files.file_view import FileView, is_inside
from treadle.lib.git.config import ConfigEntries, read_config
from treadle.lib.git.repository import (
    GitRepository,
    find_repositories,
    join_path,
    open_repository,
    read_pointer,
)
from treadle.lib.shell.analysis.git import (
    GitCommand,
    GitContent,
    GitReading,
    analyze_git_reading,
    find_git_content,
)
from treadle.lib.shell.analysis.git_files import is_selected
from treadle.lib.shell.analysis.programs import list_values
from treadle.lib.shell.ast import Word
from treadle.permissions.file_evaluator import FileEvaluator
from treadle.permissions.findings import PolicyFinding
from treadle.permissions.git_remotes import REMOTE_SUBCOMMANDS, find_other_remote
from treadle.permissions.ruleset.command_patterns import CommandPattern
from treadle.permissions.ruleset.rules import Rule
from treadle.permissions.tracked_files import TrackedFile, TrackedFiles

_PATHSPEC = re.compile(r"(:\([^)]*\)|:[/!^]+|)(.*)", re.DOTALL)
_MAX_DEPTH = 4  # of submodules, and of other objects
_MAX_LIST_BYTES = 1 << 16
_FILE_KEYS = ("blame.ignorerevsfile", "mailmap.file")  # git prints lines of these files
_MAX_NAMES = 50_000
# Of a git folder, besides it: commands print files in these.
_FOLDERS_OF_WORK = (
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "info",
    "refs",
    "refs/heads",
    "logs",
)
_BOOLEAN = re.compile(r"|true|false|yes|no|on|off|[01]", re.IGNORECASE)
# Keys with a program that reading commands run, and values of them that are harmless.
_PROGRAM_KEYS: tuple[tuple[str, str], ...] = (
    (r"core\.fsmonitor", _BOOLEAN.pattern),
    (r"diff\.external|diff\..+\.(?:command|textconv)", ""),
    (r"filter\..+\.(?:clean|smudge|process)", r"git-lfs [\w -]+(?:-- )?%f|git-lfs [\w -]+|cat"),
    (r"gpg(?:\..+)?\.program|gpg\.ssh\.defaultkeycommand", r"gpg2?|gpgsm|ssh-keygen"),
    (r"include\.path|includeif\..+\.path", ""),
    (r"core\.alternaterefscommand|alias\.whatchanged|lfs\.extension\..+", ""),
)
_HELP_KEY = r"help\.(?:format|browser|htmlpath)|web\.browser|(?:man|browser)\..+"
_MERGE_KEY = r"merge\..+\.driver"
# In a partial clone, reading fetches missing objects with these.
_PARTIAL_CLONE_KEY = re.compile(
    r"remote\..+\.(?:promisor|partialclonefilter)|extensions\.partialclone"
)
_FETCH_KEYS = re.compile(
    r"core\.(?:sshcommand|askpass|gitproxy)|credential\..*helper|remote\..+\.(?:uploadpack|vcs)|"
    r"url\..+"
)
_UNKNOWN_SUBMODULES = (
    "the submodules cannot be checked, and their configuration can make git run programs"
)
_HOOKS = ("post-index-change",)  # `git status` runs it when it refreshes the index


class GitEvaluator:
    """Evaluates the git commands of one line. `patterns`: those of the allow rules."""

    def __init__(
        self,
        files: FileEvaluator,
        hides_secrets: Callable[[], bool],
        patterns: Sequence[CommandPattern],
    ) -> None:
        self._files, self._hides_secrets, self._patterns = files, hides_secrets, patterns
        self._file_system = files.file_system
        self._configs = _GitConfigs(files.file_system)
        self._find_repositories = cache(partial(find_repositories, files.file_system))

    @cached_property
    def _tracked(self) -> TrackedFiles:
        return TrackedFiles(self._file_system)

    def evaluate_repository(self, command: GitCommand, cwd: str) -> PolicyFinding:
        """git treats a folder that looks like a bare repository as one, and uses its config."""
        folder = self._change_folder(command, cwd)
        repositories, bare = self._find_repositories(folder)
        if bare and is_inside(bare, self._files.roots):
            reason = "a bare repository, whose configuration can run programs"
            return PolicyFinding(bare, "ask", reason)
        other = command.name in REMOTE_SUBCOMMANDS and find_other_remote(
            command,
            lambda: [entry for one in repositories for entry in self._configs.join(one)],
            lambda name: self._files.exists(f"{folder}/{name}"),
        )
        if other and not any(other in pattern.words for pattern in self._patterns):
            return PolicyFinding(
                other, "ask", "it is no remote of this repository, and no rule names it"
            )
        return PolicyFinding(cwd, "allow", "an ordinary repository", is_read_only=True)

    def evaluate_reading(self, command: GitCommand, cwd: str) -> PolicyFinding:
        """git must run no program of the repository while it reads, and read nothing elsewhere."""
        folder = self._change_folder(command, cwd)
        repositories, _ = self._find_repositories(folder)
        reading = analyze_git_reading(command.name, command.arguments)
        programs = _GitPrograms(self._file_system, self._configs, reading)
        found = programs.find(repositories, self._files.home)
        if not found:
            places = _GitPlaces(self._files, self._configs, reading)
            found = next(filter(None, map(places.find_outside, repositories)), "")
        if found:
            return PolicyFinding(folder, "ask", found)
        return PolicyFinding(folder, "allow", "git runs no other program", is_read_only=True)

    def evaluate_content(self, command: GitCommand, cwd: str) -> PolicyFinding:
        """git must not print a file that a rule is about, from the index or a commit; `git grep`
        also none that may contain secrets."""
        allowed = PolicyFinding(cwd, "allow", "git prints no such file", is_read_only=True)
        content = find_git_content(command.name, command.arguments)
        if content is None:
            return allowed
        folder = self._change_folder(command, cwd)
        for repository in self._find_repositories(folder)[0]:
            found: tuple[str, Rule | None] | None
            found = self._find_named(command.arguments, repository, folder)
            if not found and content.is_whole:
                found = self._find_printed(content, repository, folder, command.name == "grep")
            if found:
                path, rule = found
                if rule is None:
                    reason = f"git may print {path}, which may contain secrets"
                    return PolicyFinding(folder, "ask", reason)
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

    def _change_folder(self, command: GitCommand, cwd: str) -> str:
        for folder in command.folders:
            cwd = self._files.resolve(folder.text, cwd).path if folder.text else cwd
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
        self, content: GitContent, repository: GitRepository, folder: str, is_search: bool
    ) -> tuple[str, Rule | None] | None:
        """A tracked file that a rule is about, or a secret if it is a search, if the command may
        print it."""
        prefix = folder[len(repository.worktree) :].strip("/")
        limits = [t for t in content.operands if self._files.exists(f"{folder}/{t}")]
        pathspecs = (*content.paths, *limits)
        names_commit = any(t not in limits and t not in content.paths for t in content.operands)
        is_of_work_tree = content.is_of_work_tree and not names_commit
        rules: list[Rule | None] = [*self._files.rules.reading, *([None] if is_search else [])]
        for rule in rules:
            if rule is None:
                tracked, is_denied = self._tracked.find_secrets(repository), self._hides_secrets()
            else:
                links = frozenset(self._files.list_other_names(rule, repository.worktree))
                tracked = self._tracked.find(repository, rule, links)
                is_denied = self._files.context.sandbox_hides_denied
            if tracked is None:
                return f"more files than can be checked in {repository.git_folder}", rule
            for file in tracked:
                may_select = file.is_folder or is_selected(file.path, pathspecs, prefix)
                is_hidden = is_denied and is_of_work_tree and self._is_read(file, repository)
                if may_select and not is_hidden:
                    return file.path, rule
        return None

    def _is_read(self, file: TrackedFile, repository: GitRepository) -> bool:
        """Whether git reads the file of the work tree, and not the index instead."""
        status = self._file_system.lstat(f"{repository.worktree}/{file.path}")
        is_file = status is not None and stat.S_ISREG(status.st_mode)
        return is_file and not file.is_assumed


class _GitConfigs:
    """The configuration of repositories, read once."""

    def __init__(self, file_system: FileView) -> None:
        self.read = cache(partial(read_config, file_system))  # (path) -> entries
        self.join = cache(self._join)  # (repository) -> the entries of all its files

    def _join(self, repository: GitRepository) -> ConfigEntries:
        return [entry for file in repository.config_files for entry in self.read(file) or ()]


class _GitPlaces:
    """Finds what a repository makes git read outside of the workspace while it only reads.

    A `.git` that came from elsewhere can name another git folder, another work tree, objects of
    another repository, or files that git prints. Linked worktrees and submodules are ordinary: the
    git folder that they name points back to them."""

    def __init__(self, files: FileEvaluator, configs: _GitConfigs, reading: GitReading) -> None:
        self._files, self._configs, self._reading = files, configs, reading
        self._file_system = files.file_system

    def find_outside(self, repository: GitRepository) -> str:
        """A place that may not be read, as a reason for the user; "" if there is none."""
        return next(self._list_outside(repository, 0), "")

    def _list_outside(self, repository: GitRepository, depth: int) -> Iterator[str]:
        config = self._configs.join(repository)
        if not self._is_own_folder(repository, config):
            yield f"{repository.worktree}/.git is the repository of another folder"
        for key, value in config:
            if key == "core.worktree":
                path = self._resolve(value, repository.git_folder)
                is_here = path == self._resolve(repository.worktree, "/")
            elif key in _FILE_KEYS and value:
                path, is_here = self._resolve(value, repository.worktree), False
            else:
                continue
            if not is_here and not self._may_read(path):
                yield f"{key} makes git read {path}"
        yield from self._list_links(repository)
        if not self._reading.shows_content:
            return
        for path in self._list_other_objects(f"{repository.common}/objects", 0):
            yield f"git would also read the objects of another repository in {path}"
        if depth < _MAX_DEPTH:
            for inner in filter(None, repository.list_submodules(self._file_system, config)):
                yield from self._list_outside(inner, depth + 1)

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

    def _list_links(self, repository: GitRepository) -> Iterator[str]:
        """Symlinks among git's own files that lead to what may not be read."""
        own = [*dict.fromkeys((repository.git_folder, repository.common))]
        trees = f"{repository.common}/worktrees"
        worktrees = self._file_system.list_names(trees, _MAX_NAMES) or ()
        folders = [*own, trees, *(f"{trees}/{name}" for name in worktrees)]
        folders += [f"{folder}/{name}" for folder in own for name in _FOLDERS_OF_WORK]
        links = self._file_system.list_symlinks(folders, _MAX_NAMES)
        if links is None:
            yield f"{repository.git_folder} has more files than can be checked"
        for link in links or ():
            real = self._resolve(link, "/")
            is_checked = link.endswith("/objects")  # with the objects
            if not is_checked and not is_inside(real, own) and not self._may_read(real):
                yield f"a link in {repository.git_folder} makes git read {real}"

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


class _GitPrograms:
    """Finds what a reading git command runs, as a reason for the user; "" if nothing."""

    def __init__(self, file_system: FileView, configs: _GitConfigs, reading: GitReading) -> None:
        self._file_system, self._configs, self._reading = file_system, configs, reading

    def find(self, repositories: Sequence[GitRepository], home: str) -> str:
        found = next(filter(None, map(self._find_in_repository, repositories)), "")
        return found or self._find_in_old_submodules(repositories, home)

    def _find_in_repository(self, repository: GitRepository, depth: int = 0) -> str:
        config = ConfigEntries()
        for file in repository.config_files:
            entries = self._configs.read(file)
            if entries is None:
                return f"{file} cannot be checked, and it can make git run programs"
            config += entries
            program = entries and _find_program(entries, config, self._reading)
            if program:
                return f"{program} in {file} makes git run a program"
        if _is_partial_clone(config):
            remotes = f"{repository.common}/remotes"  # where older versions of git keep URLs
            if self._file_system.list_names(remotes) != []:
                return f"the URLs in {remotes} can make git run a program"
            if self._reading.shows_content:
                return "in a partial clone git fetches what is missing, and can run programs then"
        hooks = _find_hooks_folder(config, repository)
        for name in _HOOKS:
            if self._file_system.lstat(f"{hooks}/{name}") is not None:
                return f"the hook {hooks}/{name} runs when git reads the files"
        return self._find_in_submodules(repository, config, depth)

    def _find_in_submodules(
        self, repository: GitRepository, config: ConfigEntries, depth: int
    ) -> str:
        """git reads the repositories of submodules, too, each with its own configuration."""
        for inner in repository.list_submodules(self._file_system, config):
            if inner is None or depth > _MAX_DEPTH:
                return _UNKNOWN_SUBMODULES
            found = self._find_in_repository(inner, depth + 1)
            if found:
                return found
        return ""

    def _find_in_old_submodules(self, repositories: Sequence[GitRepository], home: str) -> str:
        """Where git shows the changes inside of submodules, it enters those of older commits."""
        of_user = (f"{home}/.gitconfig", f"{home}/.config/git/config")
        for repository in repositories:
            shows_submodules = self._reading.shows_submodules
            if self._reading.shows_changes:
                configs = (self._configs.join(repository), *map(self._configs.read, of_user))
                shows_submodules |= any(("diff.submodule", "diff") in (c or ()) for c in configs)
            if not shows_submodules:
                continue
            nested = _list_nested(self._file_system, repository)
            if nested is None:
                return _UNKNOWN_SUBMODULES
            found = (self._find_in_repository(inner, 1) for inner in nested)
            program = next(filter(None, found), "")
            if program:
                return program
        return ""


def _is_partial_clone(config: ConfigEntries) -> bool:
    return any(map(_PARTIAL_CLONE_KEY.fullmatch, dict(config)))


def _find_program(entries: ConfigEntries, config: ConfigEntries, reading: GitReading) -> str:
    """The first key with a program that a reading command runs. `config`: all entries so far."""
    patterns = [
        *_PROGRAM_KEYS,
        *([(_HELP_KEY, "")] if reading.shows_help else []),
        *([(_MERGE_KEY, "")] if reading.may_merge else []),
    ]
    for key, value in entries:
        for pattern, harmless in patterns:
            if re.fullmatch(pattern, key) and not re.fullmatch(harmless, value, re.IGNORECASE):
                return key
    is_partial = _is_partial_clone(config)
    for key, value in config:
        if is_partial and (_FETCH_KEYS.fullmatch(key) or (key.endswith(".url") and "::" in value)):
            return key
    return ""


def _find_hooks_folder(config: ConfigEntries, repository: GitRepository) -> str:
    paths = [value for key, value in config if key == "core.hookspath"]
    return join_path(repository.worktree, paths[-1]) if paths else f"{repository.common}/hooks"


def _list_nested(file_system: FileView, repository: GitRepository) -> list[GitRepository] | None:
    """Every repository below a worktree and in its git folder; None if there is too much."""
    found: list[GitRepository] = []
    todo, left = [repository.worktree, f"{repository.common}/modules"], _MAX_NAMES
    while todo:
        folder = todo.pop()
        names = file_system.list_names(folder, left)
        left -= 1 + len(names or ())
        if names is None or left < 0:
            return None
        if "config" in names and "objects" in names:
            found.append(GitRepository(folder, folder, folder))
        elif ".git" in names and folder != repository.worktree:
            found.append(open_repository(file_system, folder))
        for name in names:
            status = file_system.lstat(f"{folder}/{name}") if name != ".git" else None
            if status is not None and stat.S_ISDIR(status.st_mode):
                todo.append(f"{folder}/{name}")
    return found
