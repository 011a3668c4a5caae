"""Whether the configuration of a repository makes git run a program while it only reads.

`git status` runs `core.fsmonitor`, `git diff` runs `diff.external`, text converters and filters. In
a folder that came from elsewhere, `.git/config` did, too. Reads these files without git; knows no
rules. Configuration of the user and the system is trusted. Used by `git_evaluator.py`.
"""

import re
import stat
from collections.abc import Sequence

from treadle.lib.files.file_view import FileView
from treadle.lib.git.config import ConfigEntries, read_config
from treadle.lib.git.repository import (
    GitRepository,
    join_path,
    list_repositories,
    open_repository,
)
from treadle.policy.shell.analysis.git_content import GitReading

_MAX_SUBMODULE_DEPTH = 4
_MAX_NESTED_NAMES = 50_000
_BOOLEAN = re.compile(r"|true|false|yes|no|on|off|[01]", re.IGNORECASE)
# Keys with a program that reading commands run, and values of them that are harmless.
_PROGRAM_KEYS: tuple[tuple[str, str], ...] = (
    (r"core\.fsmonitor", _BOOLEAN.pattern),
    (r"diff\.external|diff\..+\.(?:command|textconv)", ""),
    (r"filter\..+\.(?:clean|smudge|process)", r"git-lfs [\w -]+(?:-- )?%f|git-lfs [\w -]+|cat"),
    (r"gpg(?:\..+)?\.program|gpg\.ssh\.defaultkeycommand", r"gpg2?|gpgsm|ssh-keygen"),
    (r"include\.path|includeif\..+\.path", ""),
    (r"core\.alternaterefscommand|alias\.whatchanged", ""),
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


NO_OPTIONS = GitReading()


def find_git_program(
    file_system: FileView, cwd: str, reading: GitReading = NO_OPTIONS, home: str = ""
) -> str:
    """What a reading git command in `cwd` would run, as a reason for the user; "" if nothing."""
    repositories = list(list_repositories(file_system, cwd))
    found = (_check_repository(file_system, r, reading, 0) for r in repositories)
    return next(filter(None, found), "") or _check_old_submodules(
        file_system, repositories, reading, home
    )


def _check_repository(
    file_system: FileView, repository: GitRepository, reading: GitReading, depth: int
) -> str:
    config = ConfigEntries()
    for file in repository.config_files:
        entries = read_config(file_system, file)
        if entries is None:
            return f"{file} cannot be checked, and it can make git run programs"
        config += entries
        program = _find_program(entries, config, reading)
        if program:
            return f"{program} in {file} makes git run a program"
    remotes = f"{repository.common}/remotes"  # where older versions of git keep URLs
    if _is_partial_clone(config) and file_system.list_names(remotes) != []:
        return f"the URLs in {remotes} can make git run a program"
    hooks = _find_hooks_folder(config, repository)
    for name in _HOOKS:
        if file_system.lstat(f"{hooks}/{name}") is not None:
            return f"the hook {hooks}/{name} runs when git reads the files"
    return _check_submodules(file_system, repository, config, reading, depth)


def _is_partial_clone(config: ConfigEntries) -> bool:
    return any(_PARTIAL_CLONE_KEY.fullmatch(key) for key, _ in config)


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


def _check_submodules(
    file_system: FileView,
    repository: GitRepository,
    config: ConfigEntries,
    reading: GitReading,
    depth: int,
) -> str:
    """git reads the repositories of submodules, too, each with its own configuration."""
    for inner in repository.list_submodules(file_system, config):
        if inner is None or depth > _MAX_SUBMODULE_DEPTH:
            return _UNKNOWN_SUBMODULES
        found = _check_repository(file_system, inner, reading, depth + 1)
        if found:
            return found
    return ""


def _check_old_submodules(
    file_system: FileView,
    repositories: Sequence[GitRepository],
    reading: GitReading,
    home: str,
) -> str:
    """Where git shows the changes inside of submodules, it enters those of older commits, too."""
    for repository in repositories:
        files = [*repository.config_files, f"{home}/.gitconfig", f"{home}/.config/git/config"]
        entries = [e for file in files for e in read_config(file_system, file) or ()]
        is_set = reading.shows_changes and ("diff.submodule", "diff") in entries
        if not is_set and not reading.shows_submodules:
            continue
        nested = _list_nested(file_system, repository)
        if nested is None:
            return _UNKNOWN_SUBMODULES
        found = (_check_repository(file_system, inner, reading, 1) for inner in nested)
        program = next(filter(None, found), "")
        if program:
            return program
    return ""


def _list_nested(file_system: FileView, repository: GitRepository) -> list[GitRepository] | None:
    """Every repository below a worktree and in its git folder; None if there is too much."""
    found: list[GitRepository] = []
    todo, left = [repository.worktree, f"{repository.common}/modules"], _MAX_NESTED_NAMES
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
