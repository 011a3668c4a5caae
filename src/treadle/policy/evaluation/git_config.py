"""Whether the configuration of a repository makes git run a program while it only reads.

`git status` runs `core.fsmonitor`, `git diff` runs `diff.external`, text converters and filters. In
a folder that came from elsewhere, `.git/config` did, too. Reads these files without git; knows no
rules. Configuration of the user and the system is trusted. Used by `path_access.py`.
"""

import re
from collections.abc import Iterator
from os.path import normpath

from treadle.policy.evaluation.git_index import list_submodules, read_indexes
from treadle.policy.ruleset.paths import FileSystemView

_MAX_CONFIG_BYTES = 1 << 20
_MAX_SUBMODULE_DEPTH = 4
_SECTION = re.compile(r"""\[\s*([\w.-]+)\s*(?:"((?:\\.|[^"\\])*)")?\s*\]""")
_KEY = re.compile(r"([A-Za-z][\w-]*)\s*(?:=\s*(.*))?", re.DOTALL)
_BOOLEAN = re.compile(r"|true|false|yes|no|on|off|[01]", re.IGNORECASE)
# Keys with a program that reading commands run, and values of them that are harmless.
_PROGRAM_KEYS: tuple[tuple[str, str], ...] = (
    (r"core\.fsmonitor", _BOOLEAN.pattern),
    (r"diff\.external|diff\..+\.(?:command|textconv)", ""),
    (r"filter\..+\.(?:clean|smudge|process)", r"git-lfs [\w -]+(?:-- )?%f|git-lfs [\w -]+|cat"),
    (r"gpg(?:\..+)?\.program|gpg\.ssh\.defaultkeycommand", r"gpg2?|gpgsm|ssh-keygen"),
    (r"include\.path|includeif\..+\.path", ""),
)
# In a partial clone, reading fetches missing objects with these.
_PARTIAL_CLONE_KEY = re.compile(
    r"remote\..+\.(?:promisor|partialclonefilter)|extensions\.partialclone"
)
_FETCH_KEYS = re.compile(
    r"core\.(?:sshcommand|askpass|gitproxy)|credential\..*helper|remote\..+\.(?:uploadpack|vcs)|"
    r"url\..+"
)
_HOOKS = ("post-index-change",)  # `git status` runs it when it refreshes the index


def find_git_program(file_system: FileSystemView, cwd: str, depth: int = 0) -> str:
    """What a reading git command in `cwd` would run, as a reason for the user; "" if nothing."""
    worktree = _find_worktree(file_system, cwd)
    if worktree is None:
        return ""
    git_folder, common = _find_git_folders(file_system, worktree)
    config = list[tuple[str, str]]()
    for file in (f"{common}/config", f"{git_folder}/config.worktree"):
        entries = _read_config(file_system, file)
        if entries is None:
            return f"{file} cannot be checked, and it can make git run programs"
        config += entries
        program = _find_program(entries)
        if program:
            return f"{program} in {file} makes git run a program"
    hooks = _find_hooks_folder(config, worktree, common)
    for name in _HOOKS:
        if file_system.lstat(f"{hooks}/{name}") is not None:
            return f"the hook {hooks}/{name} runs when git reads the files"
    hash_size = 32 if ("extensions.objectformat", "sha256") in config else 20
    return _check_submodules(file_system, worktree, git_folder, hash_size, depth)


def _find_worktree(file_system: FileSystemView, cwd: str) -> str | None:
    """The nearest folder with a repository."""
    here = cwd
    while here:
        if file_system.lstat(f"{here}/.git") is not None:
            return here
        here = here.rpartition("/")[0]
    return None


def _find_git_folders(file_system: FileSystemView, worktree: str) -> tuple[str, str]:
    """The git folder of a worktree, and the one that it shares with others."""
    git_folder = f"{worktree}/.git"
    pointer = (file_system.read(git_folder, 4096) or b"").decode(errors="replace").strip()
    if pointer.startswith("gitdir:"):
        git_folder = _join(worktree, pointer.removeprefix("gitdir:").strip())
    shared = (file_system.read(f"{git_folder}/commondir", 4096) or b"").decode(errors="replace")
    return git_folder, _join(git_folder, shared.strip() or ".")


def _join(folder: str, path: str) -> str:
    return normpath(path if path.startswith("/") else f"{folder}/{path}")


def _read_config(file_system: FileSystemView, path: str) -> list[tuple[str, str]] | None:
    """The keys (in lower case) and values of a config file; None if it cannot be parsed."""
    content = file_system.read(path, _MAX_CONFIG_BYTES)
    if content is None:
        return None if file_system.lstat(path) is not None else []
    try:
        return list(_parse_config(content.decode("utf-8-sig", errors="replace")))
    except ValueError:
        return None


def _parse_config(text: str) -> Iterator[tuple[str, str]]:
    section = ""
    for line in text.split("\n"):  # the rest of a value on the next line is a key or an error here
        rest = line.strip()
        while match := _SECTION.match(rest):
            section = ".".join(filter(None, match.groups())).lower()
            rest = rest[match.end() :].strip()
        if not rest or rest[0] in "#;":
            continue
        key = _KEY.fullmatch(rest)
        if key is None or not section:
            raise ValueError(line)
        yield f"{section}.{key[1].lower()}", (key[2] or "").strip().strip('"')


def _find_program(entries: list[tuple[str, str]]) -> str:
    """The first key with a program that a reading command runs."""
    is_partial = any(_PARTIAL_CLONE_KEY.fullmatch(key) for key, _ in entries)
    for key, value in entries:
        for pattern, harmless in _PROGRAM_KEYS:
            if re.fullmatch(pattern, key) and not re.fullmatch(harmless, value, re.IGNORECASE):
                return key
        if is_partial and (_FETCH_KEYS.fullmatch(key) or (key.endswith(".url") and "::" in value)):
            return key
    return ""


def _find_hooks_folder(config: list[tuple[str, str]], worktree: str, common: str) -> str:
    paths = [value for key, value in config if key == "core.hookspath"]
    return _join(worktree, paths[-1]) if paths else f"{common}/hooks"


def _check_submodules(
    file_system: FileSystemView, worktree: str, git_folder: str, hash_size: int, depth: int
) -> str:
    """git reads the repositories of submodules, too, each with its own configuration."""
    for content in read_indexes(file_system, git_folder):
        submodules = None if content is None else list_submodules(content, hash_size)
        if submodules is None or depth > _MAX_SUBMODULE_DEPTH:
            return "the submodules cannot be checked, and their configuration can run programs"
        for name in submodules:
            folder = f"{worktree}/{name}"
            if file_system.lstat(f"{folder}/.git") is not None:
                found = find_git_program(file_system, folder, depth + 1)
                if found:
                    return found
    return ""
