"""Reads of files that may come from anybody: a named pipe does not block, a device or an endless
file does not fill the memory. What cannot be read is None, never an error.

Code that can be shown other files than those of this machine, such as rule cases, reads through a
FileView. A FileSystemView also resolves paths as the kernel does: it follows symlinks, `..` and
`/proc/self/cwd`, and notes hard links. Used by lib/git, the permissions and the sandbox.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import ClassVar

import msgspec

from treadle.lib.files.protected_paths import fold_case, is_env_file
from treadle.lib.text.word_set import word_set

MAX_TEXT_BYTES = 1 << 20
MAX_DIR_ENTRIES = 4000
_MAX_SYMLINKS = 40
_MAX_PATH_CHARS = 4096
NULL_DEVICE = "/dev/null"
# Files outside of a project that tell of the machine only.
PUBLIC_FILES = word_set(
    "/etc/os-release /usr/lib/os-release /etc/lsb-release /etc/debian_version /proc/cpuinfo "
    "/proc/meminfo /proc/version /proc/loadavg /proc/uptime /proc/filesystems"
)
# Files that may contain secrets, by their names: the one list of them for every reader.
SECRET_FOLDERS = word_set(".ssh .gnupg .aws .azure .oci .kube .docker .password-store")
SECRET_FILES = word_set(
    ".env .envrc .netrc .pgpass .npmrc .pypirc .git-credentials .htpasswd id_rsa id_dsa "
    "id_ecdsa id_ed25519 credentials.json credentials.toml secrets.json secrets.yaml secrets.yml "
    "secrets.toml .boto .s3cfg .my.cnf .vault-token .dev.vars .databrickscfg kubeconfig "
    "service-account.json application_default_credentials.json"
)
SECRET_SUFFIXES = (
    *(".pem", ".key", ".p12", ".pfx", ".kdbx", ".keystore", ".jks"),
    *(".tfstate", ".tfvars", ".ovpn"),
)
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FileView(msgspec.Struct, frozen=True):
    """The files of this machine. `mounts` are pairs of a virtual and a real folder. A file that is
    a symlink is not read."""

    read_flags: ClassVar[int] = READ_FLAGS

    mounts: tuple[tuple[str, str], ...] = ()

    def map_path(self, path: str) -> str:
        """Where the file of this path is."""
        for virtual, real in self.mounts:
            if path == virtual or path.startswith(virtual + "/"):
                return real + path[len(virtual) :]
        return path

    def lstat(self, path: str) -> os.stat_result | None:
        try:
            return os.lstat(self.map_path(path) if self.mounts else path)
        except (OSError, ValueError):
            return None

    def readlink(self, path: str) -> str | None:
        try:
            real = self.map_path(path) if self.mounts else path
            return os.readlink(real)  # noqa: PTH115 - as written, not as a Path
        except (OSError, ValueError):
            return None

    def read(self, path: str, limit: int) -> bytes | None:
        """The content of a regular file; None if it cannot be read, or is longer than `limit`."""
        try:
            fd = os.open(self.map_path(path) if self.mounts else path, self.read_flags)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    return None
                with open(fd, "rb", closefd=False) as file:
                    content = file.read(limit + 1)
            finally:
                os.close(fd)
        except (OSError, ValueError):
            return None
        return content if len(content) <= limit else None

    def list_names(self, path: str, limit: int = MAX_DIR_ENTRIES) -> list[str] | None:
        """The names in a folder, [] if there is none; None if there are more than `limit`."""
        try:
            with os.scandir(self.map_path(path) if self.mounts else path) as entries:
                names = [entry.name for entry in islice(entries, limit + 1)]
        except OSError:
            return []
        return names if len(names) <= limit else None

    def list_symlinks(self, folders: Iterable[str], limit: int) -> list[str] | None:
        """The paths of the symlinks in some folders; None if they have more than `limit` names."""
        found: list[str] = []
        for folder in folders:
            try:
                with os.scandir(self.map_path(folder) if self.mounts else folder) as entries:
                    for entry in entries:
                        limit -= 1
                        if limit < 0:
                            return None
                        if entry.is_symlink():
                            found.append(f"{folder}/{entry.name}")
            except (OSError, ValueError):
                continue
        return found


LOCAL_FILES = FileView()


def read_text(path: Path) -> str | None:
    """What is in a small regular file; None if it is none."""
    data = LOCAL_FILES.read(str(path), MAX_TEXT_BYTES)
    return None if data is None else data.decode(errors="replace")


# ------------------------------------------------------------------ resolved paths


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
    """A view that follows symlinks."""

    read_flags: ClassVar[int] = READ_FLAGS & ~os.O_NOFOLLOW

    statuses: dict[str, os.stat_result | None] = msgspec.field(default_factory=dict)  # if cached

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

    def resolve(self, path: str, cwd: str, home: str) -> ResolvedPath:
        """The real path of `path` from `cwd`; parts that do not exist stay as written."""
        if path[:1] == "~":
            if path != "~" and path[1] != "/":
                return ResolvedPath(path, special_kind="a path in the home of another user")
            path = home + path[1:]
        if len(path) > _MAX_PATH_CHARS:
            too_long = "a path that is too long for the system"
            return ResolvedPath(path[:_MAX_PATH_CHARS], special_kind=too_long)
        full = path if path.startswith("/") else f"{cwd}/{path}"
        lexical = os.path.normpath(full).replace("//", "/")
        names, resolved, symlinks = {lexical: None}, "", 0
        todo = full.split("/")[::-1]
        while todo:
            segment = todo.pop()
            if segment in ("", "."):
                continue
            if segment == "..":
                resolved = resolved.rpartition("/")[0]
                continue
            here, target, special = f"{resolved}/{segment}", None, ""
            if resolved == "/dev" or resolved.startswith("/proc/"):
                target, special = _resolve_magic_link(resolved, segment, cwd)
            if special:
                rest = "/".join([here, *(s for s in reversed(todo) if s)])
                return ResolvedPath(rest, tuple(names), special)
            if here in ("/proc/self", "/proc/thread-self"):
                resolved = here  # it means this process to us, and the command to the command
                continue
            if target is None:
                status = self.statuses[here] if here in self.statuses else self.lstat(here)
                if status is None or not stat.S_ISLNK(status.st_mode):
                    resolved = here
                    continue
                target = self.readlink(here)
            symlinks += 1
            if target is None or symlinks > _MAX_SYMLINKS:
                return ResolvedPath(here, tuple(names), "a symlink that cannot be resolved")
            names["/".join([here, *(s for s in reversed(todo) if s)])] = None
            todo.extend(target.split("/")[::-1])
            if target.startswith("/"):
                resolved = ""
        resolved = resolved or "/"
        names.pop(resolved, None)
        status, special, inode = self.lstat(resolved), "", None
        if status is None:
            special = "a device" if resolved.startswith("/dev/") else ""
        elif not stat.S_ISREG(status.st_mode):
            if not stat.S_ISDIR(status.st_mode) and resolved != NULL_DEVICE:
                special = "not a regular file"
        elif status.st_nlink > 1:
            inode = (status.st_dev, status.st_ino)
        return ResolvedPath(resolved, tuple(names), special, inode)

    def list_folders(
        self, cd_paths: Iterable[Iterable[str]], cwd: str, home: str
    ) -> tuple[str, ...]:
        """The folders after each sequence of `cd`: by names, as in bash, and by real paths."""
        folders: dict[str, None] = {}
        for cd_path in cd_paths:
            real = lexical = cwd
            for step in cd_path:
                real = self.resolve(step, real, home).path
                is_absolute = step.startswith(("/", "~"))
                lexical = step if is_absolute else os.path.normpath(f"{lexical}/{step}")
            folders[real] = folders[self.resolve(lexical, cwd, home).path] = None
        return tuple(folders)


class CachedFileSystemView(FileSystemView, frozen=True):
    """The file system as it was when it was first looked at; for one decision."""

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


def is_inside(path: str, roots: Iterable[str]) -> bool:
    """Whether a resolved path is one of the roots or below one."""
    for root in roots:  # noqa: SIM110 (without a generator: this is asked for every path)
        if path == root or path.startswith(root.rstrip("/") + "/"):
            return True
    return False


def find_secret_part(path: str) -> tuple[str, ...]:
    """The part of a path that marks it as a secret, or ()."""
    segments = path.lower().split("/") if path.isascii() else [*map(fold_case, path.split("/"))]
    while segments and segments[-1] in ("", "."):
        segments.pop()
    last = segments.pop() if segments else ""
    if not SECRET_FOLDERS.isdisjoint(segments):
        return (next(filter(SECRET_FOLDERS.__contains__, segments)),)
    is_secret = last in SECRET_FILES or last in SECRET_FOLDERS or last.endswith(SECRET_SUFFIXES)
    return (last,) if is_secret or (last.startswith(".env.") and is_env_file(last)) else ()


def is_secret_name(folded: str) -> bool:
    """Whether a file or folder with this name (see `fold_case`) may contain secrets."""
    return bool(find_secret_part(folded))
