"""The git folders around and inside a workspace, as the sandbox sees them.

Which git folders outside the workspace belong to it (a repository above it, the one that it is a
linked worktree or a submodule of), and whether what a command made in a git folder is harmless.
Used by `bubblewrap.py`, `protected_paths.py` and `repositories.py`; lib/git reads the files.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from treadle.lib.files.file_view import LOCAL_FILES, read_text
from treadle.lib.files.protected_paths import GIT_FOLDER, PROTECTED_IN_WORKTREE
from treadle.lib.git.config import drop_subsection, read_config
from treadle.lib.git.configured_files import HARMLESS_KEYS, list_configured_files
from treadle.lib.git.repository import (
    GitRepository,
    find_own_repository,
    find_repository,
    list_worktrees,
    may_be_bare,
    open_repository,
    read_git_link,
    read_path,
)
from treadle.lib.shell.analysis.git_options import STRATEGIES
from treadle.workspace.sandbox.tree_scan import GIT, HEAD, FoundEntry, find_entry
from treadle.workspace.supervisor.set_aside import open_folder

_RISKY_VALUE = re.compile(r"::|[\x00-\x08\x0a-\x1f\x7f]")
"""`::` names a program that is run. What git does with a control character is not sure."""

# ------------------------------------------------------------------ outside the workspace


class OuterRepository(NamedTuple):
    """The repository of a folder. `git` has its index; `needed` are git folders outside of it."""

    worktree: Path
    git: Path
    needed: list[Path]


def find_outer_repository(root: Path, homes: Sequence[Path]) -> OuterRepository | None:
    """What git needs to read outside of `root` in order to work in it."""
    for folder in (root, *root.parents):
        if folder != root and (folder in homes or folder == Path("/")):
            return None  # a repository of the home folder is not the project's
        entry = folder / GIT_FOLDER
        if entry.is_symlink() or not entry.exists():
            continue
        repository, git = find_own_repository(entry), entry
        needed = [] if folder == root else [entry]
        if repository is not None:
            git = Path(repository.git_folder)
            needed += [Path(repository.common)] if git != entry else []
        elif entry.is_dir():
            continue
        needed = [path for path in needed if not path.is_relative_to(root)]
        return OuterRepository(folder, git, needed)
    return None


def list_worktree_links(git: str) -> list[Path]:
    """The `.git` files of the linked worktrees of a repository. git removes what it knows of a
    worktree whose file it does not see. Each file has to name the repository: commands can write
    to the list, and must not choose what becomes visible."""
    folders = [Path(folder) for folder in list_worktrees(git)]
    links = [(read_path(folder / "gitdir"), folder) for folder in folders]
    return [
        link
        for link, folder in links
        if link is not None
        and link.name == GIT_FOLDER
        and os.path.realpath(link) == str(link)
        and read_git_link(link) == folder
    ]


def list_worktree_parts(git: str) -> list[str]:
    """The protected parts of the linked worktrees of a repository; symlinks are such parts."""
    folders = list_worktrees(git)
    links = [path for path in (f"{git}/worktrees", *folders) if os.path.islink(path)]  # noqa: PTH114 - it may be unreadable
    return links + [f"{folder}/{part}" for folder in folders for part in PROTECTED_IN_WORKTREE]


class ConfiguredPaths:
    """What the repositories around and inside a root make git run, or read as configuration."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._found: list[str] | None = None

    def list(self, gits: Sequence[str]) -> list[str]:
        """The paths below the root. Commands may make more of the `.git` in `gits` later, whose
        settings run nothing: the first list stays."""
        if self._found is None:
            outer = find_repository(self._root)
            folders = dict.fromkeys(git.rpartition("/")[0] for git in gits)
            folders |= {str(outer): None} if outer is not None else {}
            home = str(Path.home())
            listed = [list_configured_files(LOCAL_FILES, folder, home) for folder in folders]
            below = f"{self._root}/"
            self._found = [path for one in listed for path in one if path.startswith(below)]
        return self._found


def list_git_folders(found: Sequence[FoundEntry]) -> list[str]:
    """The `.git` entries, and the folders with another name that git takes for git folders;
    without those of linked worktrees and submodules, which are parts of another one."""
    heads = sorted(entry.path.rpartition("/")[0] for entry in found if entry.kind == HEAD)
    bare: list[str] = []
    for folder in heads:  # outer ones first
        inner = [f"{git}/{part}/" for git in bare for part in ("worktrees", "modules")]
        if not folder.startswith(tuple(inner)) and may_be_bare(LOCAL_FILES, folder):
            bare.append(folder)
    return [*(entry.path for entry in found if entry.kind == GIT), *bare]


def find_submodules(root: str, found: Sequence[FoundEntry]) -> list[FoundEntry]:
    """The `.git` entries of submodules that were not found: in folders that a scan passes over."""
    known = {entry.path for entry in found}
    todo, more = [entry.path for entry in found if entry.kind == GIT], list[FoundEntry]()
    while todo:
        repository = open_repository(LOCAL_FILES, todo.pop().rpartition("/")[0])
        for folder in _list_submodules(repository, _read_version(repository.git_folder)):
            path = os.path.normpath(f"{folder}/{GIT_FOLDER}")
            if path not in known and path.startswith(f"{root}/"):
                known.add(path)
                more += find_entry(path, GIT)
                todo.append(path)
    return more


@lru_cache(maxsize=1_000)
def _list_submodules(repository: GitRepository, version: tuple[object, ...]) -> tuple[str, ...]:
    config = repository.read_config(LOCAL_FILES)
    return tuple(filter(None, repository.list_submodule_folders(LOCAL_FILES, config)))


def _read_version(git_folder: str) -> tuple[object, ...]:
    """Changes when a file of the index does."""
    states = (LOCAL_FILES.lstat(f"{git_folder}/{name}") for name in (".", "index"))
    return tuple(state and (state.st_ino, state.st_size, state.st_mtime_ns) for state in states)


# ------------------------------------------------------------------ made by a command


def list_harmful_parts(path: Path, root: Path) -> list[Path]:
    """What git on the host would run or follow, in a `.git` folder or file that was made."""
    if path.is_symlink():
        return [path]
    if path.is_file():
        return [] if _is_link_into(path, root / GIT_FOLDER) else [path]
    return list_harmful_files(path, is_module=False) + list_harmful_modules(path / "modules")


def list_harmful_modules(folder: Path) -> list[Path]:
    """The same for the git folders of submodules in `.git/modules`."""
    if folder.is_symlink():
        return [folder]
    parts: list[Path] = []
    for module in _list_modules(folder):
        parts += [module] if module.is_symlink() else list_harmful_files(module, is_module=True)
    return parts


def list_harmful_files(git: Path, *, is_module: bool) -> list[Path]:
    """The same for one git folder, without the modules in it."""
    harmful = [
        file
        for name in ("config.worktree", "commondir", "info/attributes")
        if os.path.lexists(file := git / name)
    ]
    config = git / "config"
    if os.path.lexists(config) and not is_harmless_config(config, is_module=is_module):
        harmful.append(config)
    return harmful + list_hooks(git / "hooks")


def list_hooks(hooks: Path) -> list[Path]:
    """The hooks that git runs; samples are none."""
    if hooks.is_symlink():
        return [hooks]
    if not hooks.is_dir():
        return []
    return [hook for hook in hooks.iterdir() if hook.suffix != ".sample" or hook.is_symlink()]


def is_harmless_config(path: Path, *, is_module: bool = False) -> bool:
    """Whether a git configuration has only settings that run nothing."""
    entries = read_config(LOCAL_FILES, str(path))
    allowed = HARMLESS_KEYS | ({"core.worktree"} if is_module else set())
    return entries is not None and all(
        drop_subsection(key) in allowed and not _RISKY_VALUE.search(value) for key, value in entries
    )


def _list_modules(folder: Path) -> Iterator[Path]:
    """The git folders of submodules, also unfinished ones; their names may have slashes."""
    for top, names, files in os.walk(folder):
        has_hooks = "hooks" in names and not Path(top, "hooks", "HEAD").exists()
        if has_hooks or not {"HEAD", "config"}.isdisjoint(files):
            yield Path(top)
            names[:] = [name for name in names if name == "modules"]
        for name in names:
            if (Path(top) / name).is_symlink():
                yield Path(top) / name


def _is_link_into(link: Path, git: Path) -> bool:
    """Whether a `.git` file names a worktree or submodule of the repository of the workspace."""
    target = read_git_link(link)
    if target is None or git.is_symlink():
        return False
    inside = [git / "worktrees", git / "modules"]
    if Path(os.path.realpath(target)) != target or not any(map(target.is_relative_to, inside)):
        return False
    files = list_harmful_files(target, is_module=True)
    if target.parent == git / "worktrees" and read_path(target / "commondir") == git:
        files = [file for file in files if file.name != "commondir"]
    return not files


NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
COMMONDIR, COMMONDIR_TEXT = "commondir", b"../..\n"
REBASE_FOLDER, REBASE_TODO = "rebase-merge", "git-rebase-todo"
LOCKS = ("config.lock", "config.worktree.lock")
MODULES_LOCK = ".gitmodules.lock"

_EXEC_LINE = re.compile(r"^\s*(?:exec|x)\s.*", re.MULTILINE)


class GitControlFiles:
    """Those of the git folders below one root."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._before: frozenset[tuple[str, str]] = frozenset()

    def begin(self, gits: Iterable[str]) -> None:
        """What is harmful before a command is the user's."""
        self._before = frozenset(found for git in gits for found in _find_harmful(git))

    def list_harmful(self, gits: Iterable[str]) -> list[str]:
        """The files with something harmful that was not there before."""
        found = (found for git in gits for found in _find_harmful(git))
        return list(dict.fromkeys(path for path, line in found if (path, line) not in self._before))

    def restore(self, path: str) -> None:
        """Make what git needs in the place of a file that was moved away."""
        *above, name = path[len(self._root) + 1 :].split("/")
        if name != COMMONDIR:
            return
        with contextlib.suppress(OSError):  # a folder of it is gone, or something is there again
            folder = open_folder(self._root, above)
            try:
                fd = os.open(name, NEW_FILE_FLAGS, 0o644, dir_fd=folder)
                os.write(fd, COMMONDIR_TEXT)
                os.close(fd)
            finally:
                os.close(folder)


def _find_harmful(git: str) -> Iterator[tuple[str, str]]:
    """(file, line) of what redirects git, makes it run a command, or locks a protected file."""
    worktrees = list_worktrees(git)
    locks = [f"{place}/{name}" for place in (git, *worktrees) for name in LOCKS]
    if git.endswith(f"/{GIT_FOLDER}"):
        locks.append(f"{git.removesuffix(GIT_FOLDER)}{MODULES_LOCK}")
    yield from ((lock, "") for lock in locks if os.path.lexists(lock))
    for folder in map(Path, worktrees):
        file = folder / COMMONDIR
        if os.path.lexists(file) and read_path(file) != Path(git):
            yield str(file), read_text(file) or ""
    for rebase in (Path(place, REBASE_FOLDER) for place in (git, *worktrees)):
        if not os.path.lexists(rebase):
            continue
        if os.path.islink(rebase):  # noqa: PTH114 - it may be gone, or unreadable
            yield str(rebase), ""
            continue
        todo = rebase / REBASE_TODO
        text = read_text(todo)
        if text is None and os.path.lexists(todo):
            yield str(todo), ""
        for match in _EXEC_LINE.finditer(text or ""):
            yield str(todo), match.group()
    # `--continue` runs the program of a merge strategy, wherever its name leads.
    for place in (git, *worktrees):
        file, options = Path(place, REBASE_FOLDER, "strategy"), f"{place}/sequencer/opts"
        if os.path.lexists(file) and (read_text(file) or "").strip() not in STRATEGIES:
            yield str(file), ""
        entries = read_config(LOCAL_FILES, options)
        named = [value for key, value in entries or () if key == "options.strategy"]
        if entries is None or not STRATEGIES.issuperset(named):
            yield options, ""
