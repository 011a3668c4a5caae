"""Which repository git uses in a folder, where its parts are, and what is checked out.

Looks at the same files as git, without running it: in a folder that came from elsewhere the
configuration can make git run programs. Paths stay as the files have them, with `..`: behind a
symlink that is not the folder that the text names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from treadle.lib.files.file_view import LOCAL_FILES, FileView
from treadle.lib.files.protected_paths import GIT_FOLDER
from treadle.lib.git.config import ConfigEntries, get_hash_size, read_config

_MAX_POINTER_BYTES = 8192
_HEAD = re.compile(rb"ref:\s*refs/|[0-9a-f]{40}")
_GIT_PARTS = frozenset(
    ("config", "config.worktree", "commondir", "hooks", "info", "modules", "objects", "refs")
)
_HASH_CHARS = 8  # of a commit that is checked out without a branch


class GitRepository(msgspec.Struct, frozen=True):
    """A folder with a `.git`."""

    worktree: str
    git_folder: str
    common: str  # the git folder that it shares with linked worktrees; often the same

    @property
    def config_files(self) -> tuple[str, str]:
        return f"{self.common}/config", f"{self.git_folder}/config.worktree"

    def read_config(self, files: FileView) -> ConfigEntries:
        """The entries of all its config files that can be parsed."""
        return [entry for file in self.config_files for entry in read_config(files, file) or ()]

    def list_submodule_folders(self, files: FileView, config: ConfigEntries) -> Iterator[str]:
        """The folders of the submodules, whether they are there or not; "" if an index cannot be
        read."""
        from treadle.lib.git.index import list_submodules, read_indexes

        for content in read_indexes(files, self.git_folder):
            paths = None if content is None else list_submodules(content, get_hash_size(config))
            yield from [""] if paths is None else [f"{self.worktree}/{path}" for path in paths]

    def list_submodules(
        self, files: FileView, config: ConfigEntries
    ) -> Iterator[GitRepository | None]:
        """The repositories of the submodules that are there; None if an index cannot be read."""
        for folder in self.list_submodule_folders(files, config):
            if not folder:
                yield None
            elif files.lstat(f"{folder}/{GIT_FOLDER}") is not None:
                yield open_repository(files, folder)


def find_repositories(files: FileView, cwd: str) -> tuple[list[GitRepository], str]:
    """The repositories that git may use in `cwd`, and a folder that it would take for a bare one,
    with its configuration, or "". git passes over a `.git` that is not valid."""
    found: list[GitRepository] = []
    bare = ""
    for folder in list_parents(cwd):
        if files.lstat(f"{folder}/{GIT_FOLDER}") is not None:
            found.append(open_repository(files, folder))
            if is_valid(files, found[-1]):
                break
        if not bare and may_be_bare(files, folder):
            bare = folder or "/"
    return found, bare


def may_be_bare(files: FileView, folder: str) -> bool:
    """Whether git may take a folder for a git folder although it is not called so. Its objects may
    be in another one, which `commondir` names."""
    if files.lstat(f"{folder}/HEAD") is None:
        return False
    return any(files.lstat(f"{folder}/{part}") is not None for part in ("objects", "commondir"))


def find_bare_part(files: FileView, path: str) -> tuple[str, ...]:
    """The part of a git folder that is not called so, or could become one, if a path that is to be
    written is in it; else ()."""
    folder, _, name = path.rpartition("/")
    if name.lower() == "head":  # what makes a folder one
        return (name,)
    while folder:
        if name.lower() in _GIT_PARTS and files.lstat(f"{folder}/HEAD") is not None:
            return (name,)
        folder, _, name = folder.rpartition("/")
    return ()


def list_parents(folder: str) -> Iterator[str]:
    """The folder and those above it; "" for the root."""
    here = folder.rstrip("/")
    while here:
        yield here
        here = here.rpartition("/")[0]
    yield ""


def open_repository(files: FileView, worktree: str) -> GitRepository:
    git_folder = f"{worktree}/{GIT_FOLDER}"
    pointer = read_pointer(files, git_folder)
    if pointer.startswith("gitdir:"):
        git_folder = join_path(worktree, pointer.removeprefix("gitdir:").removeprefix(" "))
    shared = read_pointer(files, f"{git_folder}/commondir")
    return GitRepository(worktree, git_folder, join_path(git_folder, shared))


def is_valid(files: FileView, repository: GitRepository) -> bool:
    """Whether git certainly uses it, and does not look further up."""
    file = f"{repository.git_folder}/HEAD"
    head = files.read(file, _MAX_POINTER_BYTES)
    if head is None or not _HEAD.match(head) or files.readlink(file) is not None:
        return False
    has_objects = files.lstat(f"{repository.common}/objects/.") is not None
    return has_objects and files.lstat(f"{repository.common}/refs/.") is not None


def read_pointer(files: FileView, path: str) -> str:
    """The path in a file such as `.git` or `commondir`; "" if there is none."""
    content = files.read(path, _MAX_POINTER_BYTES) or b""
    return content.decode(errors="surrogateescape").rstrip("\r\n")


def join_path(folder: str, path: str) -> str:
    """A path that may be relative to a folder."""
    if not path:
        return folder
    return path if path.startswith("/") else f"{folder}/{path}"


# ------------------------------------------------------------------ on this machine


def find_repository(folder: Path) -> Path | None:
    """The folder with a `.git` that this one is in, or is."""
    return next((one for one in (folder, *folder.parents) if (one / GIT_FOLDER).exists()), None)


def read_branch(folder: Path) -> str:
    """The branch that is checked out in a folder, or the begin of a commit; "" if none is."""
    for parent in (folder, *folder.parents):
        branch, commit = read_head(open_repository(LOCAL_FILES, str(parent)))
        if branch or commit:
            return branch or commit[:_HASH_CHARS]
    return ""


def read_head(repository: GitRepository) -> tuple[str, str]:
    """The branch that is checked out, or else the commit; "" if there is none."""
    head = read_pointer(LOCAL_FILES, f"{repository.git_folder}/HEAD")
    branch = head.partition("refs/heads/")[2].strip()
    return branch, "" if branch else head


def is_git_folder(path: Path) -> bool:
    """Whether git takes it for a git folder."""
    return is_valid(LOCAL_FILES, GitRepository("", str(path), str(path)))


def read_path(file: Path) -> Path | None:
    """The path in a file of git, such as `commondir`; it may be relative to the file's folder."""
    text = read_pointer(LOCAL_FILES, str(file)).strip()
    return Path(os.path.normpath(file.parent / text)) if text else None


def read_git_link(link: Path) -> Path | None:
    """The git folder that a `.git` file names."""
    kind, _, target = read_pointer(LOCAL_FILES, str(link)).strip().partition(":")
    return Path(os.path.normpath(link.parent / target.strip())) if kind == "gitdir" else None


def list_worktrees(git: str) -> list[str]:
    """What a repository knows of its linked worktrees: the entries of `.git/worktrees`."""
    try:
        with os.scandir(f"{git}/worktrees") as entries:
            return [entry.path for entry in entries]
    except OSError:
        return []


def find_own_repository(git: Path) -> GitRepository | None:
    """The repository of a `.git`, if that is its own.

    The folder that a `.git` file names has to name the file or its worktree, too: a file of a
    project must not lead to any other folder of the user."""
    if git.is_symlink():
        return None
    target = common = git
    if git.is_file():
        link = read_git_link(git)
        if link is None:
            return None
        target = common = link.resolve()
        back = read_path(target / "gitdir")
        if back is not None:  # of a linked worktree
            common = target.parent.parent
            is_own = back == git and target.parent.name == "worktrees"
        else:  # of a submodule
            entries = read_config(LOCAL_FILES, f"{target}/config") or ()
            worktree = dict(entries).get("core.worktree", "")
            is_own = bool(worktree) and os.path.normpath(target / worktree) == str(git.parent)
        if not is_own:
            return None
    repository = GitRepository(str(git.parent), str(target), str(common))
    return repository if is_git_folder(common) else None
