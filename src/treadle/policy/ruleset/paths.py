"""Resolves paths as the kernel does, and names the paths that no broad rule covers.

Follows symlinks, `..` and `/proc/self/cwd`, and notes hard links. Knows no rules. Reads the file
system through `FileSystemView`, so that rule cases can run in a temporary folder.
"""

import os
import stat
from collections import deque
from collections.abc import Iterable
from itertools import islice
from pathlib import PurePosixPath
from typing import ClassVar

import msgspec

from treadle.lib.files.file_view import MAX_DIR_ENTRIES, READ_FLAGS, FileView
from treadle.lib.files.protected_paths import fold_case, is_env_file
from treadle.lib.text.word_set import word_set

_MAX_SYMLINKS = 40
_MAX_PATH_CHARS = 4096
NULL_DEVICE = "/dev/null"


class ResolvedPath(msgspec.Struct, frozen=True):
    """A path without symlinks."""

    path: str
    other_paths: tuple[str, ...] = ()  # names on the way to it; each may be denied
    special_kind: str = ""  # a device, another process, …: no rule covers it
    inode: tuple[int, int] | None = None  # set if the file has other names (hard links)

    @property
    def all_paths(self) -> tuple[str, ...]:
        return (self.path, *self.other_paths)


class FileSystemView(FileView, frozen=True):
    """The file system. `mounts` are pairs of a virtual and a real folder (for rule cases)."""

    read_flags: ClassVar[int] = READ_FLAGS & ~os.O_NOFOLLOW

    mounts: tuple[tuple[str, str], ...] = ()

    def resolve(self, path: str, cwd: str, home: str) -> ResolvedPath:
        return resolve_path(self, path, cwd, home)

    def map_path(self, path: str) -> str:
        for virtual, real in self.mounts:
            if is_inside(path, (virtual,)):
                return real + path[len(virtual) :]
        return path

    def scan_tree(self, folder: str, limit: int) -> dict[str, int]:
        """The paths below a folder with their inodes; only the `limit` nearest ones."""
        found: dict[str, int] = {}
        todo, left = deque([folder]), limit
        while todo and left > 0:
            here = todo.popleft()
            try:
                with os.scandir(self.map_path(here)) as entries:
                    for entry in islice(entries, left):
                        left -= 1
                        found[f"{here}/{entry.name}"] = entry.inode()
                        if entry.is_dir(follow_symlinks=False):
                            todo.append(f"{here}/{entry.name}")
            except OSError:
                continue
        return found


class CachedFileSystemView(FileSystemView, frozen=True):
    """The file system as it was when it was first looked at; for one decision."""

    statuses: dict[str, os.stat_result | None] = msgspec.field(default_factory=dict)
    targets: dict[str, str | None] = msgspec.field(default_factory=dict)
    names: dict[tuple[str, int], list[str] | None] = msgspec.field(default_factory=dict)
    files: dict[tuple[str, int], dict[str, int]] = msgspec.field(default_factory=dict)
    resolved: dict[tuple[str, str, str], ResolvedPath] = msgspec.field(default_factory=dict)

    def resolve(self, path: str, cwd: str, home: str) -> ResolvedPath:
        key = (path, cwd, home)
        if key not in self.resolved:
            self.resolved[key] = super().resolve(path, cwd, home)
        return self.resolved[key]

    def lstat(self, path: str) -> os.stat_result | None:
        if path not in self.statuses:
            self.statuses[path] = super().lstat(path)
        return self.statuses[path]

    def readlink(self, path: str) -> str | None:
        if path not in self.targets:
            self.targets[path] = super().readlink(path)
        return self.targets[path]

    def list_names(self, path: str, limit: int = MAX_DIR_ENTRIES) -> list[str] | None:
        if (path, limit) not in self.names:
            self.names[path, limit] = super().list_names(path, limit)
        return self.names[path, limit]

    def scan_tree(self, folder: str, limit: int) -> dict[str, int]:
        if (folder, limit) not in self.files:
            self.files[folder, limit] = super().scan_tree(folder, limit)
        return self.files[folder, limit]


def resolve_path(file_system: FileSystemView, path: str, cwd: str, home: str) -> ResolvedPath:
    """The real path of `path` from `cwd`; parts that do not exist stay as written."""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    elif path.startswith("~"):
        return ResolvedPath(path, special_kind="a path in the home of another user")
    if len(path) > _MAX_PATH_CHARS:
        return ResolvedPath(
            path[:_MAX_PATH_CHARS], special_kind="a path that is too long for the system"
        )
    full = path if path.startswith("/") else f"{cwd}/{path}"
    lexical = os.path.normpath(full).replace("//", "/")
    names, resolved, symlinks = [lexical], "", 0
    todo = [s for s in reversed(full.split("/")) if s]
    while todo:
        segment = todo.pop()
        if segment == ".":
            continue
        if segment == "..":
            resolved = resolved.rpartition("/")[0]
            continue
        target, special = _resolve_magic_link(resolved, segment, cwd)
        if special:
            rest = "/".join([resolved, segment, *reversed(todo)])
            return ResolvedPath(rest or "/", tuple(names), special)
        here = f"{resolved}/{segment}"
        if here in ("/proc/self", "/proc/thread-self"):
            resolved = here  # it means this process to us, and the command to the command
            continue
        if target is None:
            status = file_system.lstat(here)
            if status is None or not stat.S_ISLNK(status.st_mode):
                resolved = here
                continue
            target = file_system.readlink(here)
        symlinks += 1
        if target is None or symlinks > _MAX_SYMLINKS:
            return ResolvedPath(here, tuple(names), "a symlink that cannot be resolved")
        names.append(here if not todo else "/".join([here, *reversed(todo)]))
        todo.extend(s for s in reversed(target.split("/")) if s)
        if target.startswith("/"):
            resolved = ""
    resolved = resolved or "/"
    status, special, inode = file_system.lstat(resolved), "", None
    if status is not None:
        special = _find_special_kind(resolved, status.st_mode)
        if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
            inode = (status.st_dev, status.st_ino)
    elif resolved.startswith("/dev/"):
        special = "a device"
    other_paths = tuple(p for p in dict.fromkeys(names) if p != resolved)
    return ResolvedPath(resolved, other_paths, special, inode)


def _resolve_magic_link(parent: str, segment: str, cwd: str) -> tuple[str | None, str]:
    """The target or the special kind of a link whose meaning depends on the process."""
    if parent == "/dev" and segment in ("fd", "stdin", "stdout", "stderr"):
        return None, "a stream of the process, not a file"
    if parent == "/dev" and segment in ("tcp", "udp"):
        return None, "a network connection"
    parts = parent.split("/")
    if len(parts) == 3 and parts[1] == "proc" and (parts[2].isdigit() or "self" in parts[2]):
        own = "self" in parts[2]
        if segment == "cwd" and own:
            return cwd, ""
        if segment == "root" and own:
            return "/", ""
        return None, "the state of a process"
    return None, ""


def _find_special_kind(path: str, mode: int) -> str:
    if path == NULL_DEVICE or stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return ""
    return "not a regular file"


def is_inside(path: str, roots: Iterable[str]) -> bool:
    """Whether a resolved path is one of the roots or below one."""
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


# ---------------------------------------------------------------- secret

_CONFIG_FOLDER = ".treadle"

_SECRET_FOLDERS = word_set(".ssh .gnupg .aws .kube .docker .password-store")
_SECRET_FILES = word_set(
    ".env .envrc .netrc .pgpass .npmrc .pypirc .git-credentials .htpasswd id_rsa id_dsa "
    "id_ecdsa id_ed25519 credentials.json secrets.json secrets.yaml secrets.yml .boto .s3cfg"
)
_SECRET_SUFFIXES = (".pem", ".key", ".p12", ".pfx", ".kdbx", ".keystore", ".jks")


def is_own_config(path: str) -> bool:
    """Whether the path is the agent's own configuration."""
    return _CONFIG_FOLDER in (fold_case(s) for s in path.split("/"))


def find_secret_part(path: str) -> tuple[str, ...]:
    """The part of a path that marks it as a secret, or ()."""
    segments = [fold_case(s) for s in PurePosixPath(path).parts if s != "/"]
    for segment in segments[:-1]:
        if segment in _SECRET_FOLDERS:
            return (segment,)
    last = segments[-1] if segments else ""
    if last in _SECRET_FILES or last in _SECRET_FOLDERS or last.endswith(_SECRET_SUFFIXES):
        return (last,)
    return (last,) if is_env_file(last) else ()
