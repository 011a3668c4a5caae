"""Which repository git uses in a folder, and where its parts are.

Looks at the same files as git, without running it: its configuration could run programs. Used by
`git_config.py`, `git_evaluator.py` and `path_access.py`.
"""

import re
from collections.abc import Iterator

import msgspec

from treadle.lib.files.paths import FileSystemView

_MAX_POINTER_BYTES = 8192
_HEAD = re.compile(rb"ref:\s*refs/|[0-9a-f]{40}")


class GitRepository(msgspec.Struct, frozen=True):
    """A folder with a `.git`."""

    worktree: str
    git_folder: str
    common: str  # the git folder that it shares with linked worktrees; often the same


def list_repositories(file_system: FileSystemView, cwd: str) -> Iterator[GitRepository]:
    """The repositories that git may use in `cwd`: git passes over a `.git` that is not valid."""
    for folder in list_parents(cwd):
        if file_system.lstat(f"{folder}/.git") is not None:
            repository = open_repository(file_system, folder)
            yield repository
            if is_valid(file_system, repository):
                return


def find_bare_repository(file_system: FileSystemView, cwd: str) -> str:
    """A folder that git would take for a bare repository, and use its configuration; or ""."""
    for folder in list_parents(cwd):
        if is_valid(file_system, open_repository(file_system, folder)):
            return ""
        if all(file_system.lstat(f"{folder}/{name}") is not None for name in ("HEAD", "objects")):
            return folder or "/"
    return ""


def list_parents(folder: str) -> Iterator[str]:
    """The folder and those above it; "" for the root."""
    here = folder.rstrip("/")
    while here:
        yield here
        here = here.rpartition("/")[0]
    yield ""


def open_repository(file_system: FileSystemView, worktree: str) -> GitRepository:
    git_folder = f"{worktree}/.git"
    pointer = read_pointer(file_system, git_folder)
    if pointer.startswith("gitdir:"):
        git_folder = join_path(worktree, pointer.removeprefix("gitdir:").removeprefix(" "))
    shared = read_pointer(file_system, f"{git_folder}/commondir")
    return GitRepository(worktree, git_folder, join_path(git_folder, shared))


def is_valid(file_system: FileSystemView, repository: GitRepository) -> bool:
    """Whether git certainly uses it, and does not look further up."""
    file = f"{repository.git_folder}/HEAD"
    head = file_system.read(file, _MAX_POINTER_BYTES)
    if head is None or not _HEAD.match(head) or file_system.readlink(file) is not None:
        return False
    folders = (f"{repository.common}/{name}/." for name in ("objects", "refs"))
    return all(file_system.lstat(folder) is not None for folder in folders)


def read_pointer(file_system: FileSystemView, path: str) -> str:
    """The path in a file such as `.git` or `commondir`; "" if there is none."""
    content = file_system.read(path, _MAX_POINTER_BYTES) or b""
    return content.decode(errors="surrogateescape").rstrip("\r\n")


def join_path(folder: str, path: str) -> str:
    """Keeps `..`: behind a symlink it is not the folder that the text names."""
    if not path:
        return folder
    return path if path.startswith("/") else f"{folder}/{path}"
