"""Files beneath the roots: read with a limit, written whole or not at all.

Everything is opened beneath a root by the kernel (openat2), so that no symlink, old or new, can
leave it. Functions that block; used by `local.py`, which runs them in threads. Not a policy: what
may be read or written is decided before.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from treadle.core.contracts.workspace import FileContent
from treadle.core.errors import WorkspaceError, WorkspaceErrorKind
from treadle.core.untrusted_files import FILE_TYPE_NAMES
from treadle.workspace.file_attributes import copy_attributes, has_other_names, overwrite
from treadle.workspace.supervisor.syscalls import O_PATH, call_linux, write_all
from treadle.workspace.temp_files import TempFiles

SYS_OPENAT2 = 437
RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 0x02, 0x04, 0x08
_EXISTING_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
READ_LIMIT = 256 << 20
"""More than any tool shows; a limit for endless files, such as some in /proc."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(root: int, path: str, flags: int, *, follow_symlinks: bool = True) -> int:
    """Open `path`, relative to the folder `root`; symlinks must stay beneath it.
    `follow_symlinks=False` follows none: for a path that had none when it was judged."""
    resolve = RESOLVE_BENEATH | (RESOLVE_NO_MAGICLINKS if follow_symlinks else RESOLVE_NO_SYMLINKS)
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    name, size = os.fsencode(path), ctypes.c_size_t(ctypes.sizeof(how))
    number = 0
    for _ in range(8):
        fd = call_linux(SYS_OPENAT2, root, name, ctypes.byref(how), size)
        number = ctypes.get_errno()
        if fd >= 0:
            return fd
        if number in (errno.ENOSYS, errno.EPERM):
            return _open_step_by_step(root, path, flags)
        if number != errno.EAGAIN:  # EAGAIN: a path changed meanwhile, try again
            break
    raise OSError(number, os.strerror(number), path)


def _open_step_by_step(root: int, path: str, flags: int) -> int:
    """Without openat2: open each part by itself, and follow no symlink at all."""
    parts = [part for part in path.split("/") if part not in ("", ".")] or ["."]
    if ".." in parts:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    fd = os.dup(root)
    for number, part in enumerate(parts, start=1):
        step = flags if number == len(parts) else O_PATH
        try:
            inner = os.open(part, step | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path) from error
            raise
        finally:
            os.close(fd)
        fd = inner
        if stat.S_ISLNK(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    return fd


def locate(
    roots: Sequence[Path], base: Path, path: str, *, follow: bool = True
) -> tuple[Path, str]:
    """The root that a path lies in and the rest of it, with symlinks resolved.

    Only a hint: opening it is restricted to the root again, in case a symlink is made meanwhile.
    `follow=False` does not resolve the last part.
    """
    if "\0" in path:
        raise WorkspaceError("the path has a NUL character in it")
    try:
        wanted = base / Path(path).expanduser()
        real = Path(os.path.realpath(wanted if follow else wanted.parent))
    except (OSError, RuntimeError) as error:
        raise WorkspaceError(f"{path} cannot be resolved: {error}") from error
    real = real if follow or not wanted.name else real / wanted.name
    for root in roots:
        if real.is_relative_to(root):
            return root, str(real.relative_to(root))
    where = " and ".join(str(root) for root in roots)
    place = "is" if str(wanted) == str(real) else f"resolves to {real},"
    problem = f"{path} {place} outside of {where}; use a path inside, or ask for `--add-dir`"
    raise WorkspaceError(problem, kind="outside")


def read(root: Path, relative: str, limit: int | None = None) -> FileContent:
    """The file's content up to `limit` bytes, with the digest of the whole of it."""
    with _translate_errors(root / relative), _open_folder(root) as top:
        # O_NONBLOCK: a pipe without a writer must not block; the file type is checked after.
        fd = open_beneath(top, relative, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            return _read_content(fd, root / relative, READ_LIMIT if limit is None else limit)
        finally:
            os.close(fd)


def write(
    root: Path, relative: str, data: bytes, temps: TempFiles, expected: str | None, mode: int | None
) -> FileContent:
    """Replace or create the file and its parent folders; atomic and durable.

    `expected` is the digest that it was read with, or "" if it must not exist yet. Mode, owner,
    extended attributes and hard links of an existing file stay. One with hard links is overwritten
    in place, which is not atomic.
    """
    path, (parent, name) = root / relative, os.path.split(relative)
    with _translate_errors(path), _open_folder(root) as top, _make_folder(top, parent) as folder:
        before = _read_existing(folder, name, path)
        _check_expected(before, expected, path)
        with temps.reserve_name(root / parent) as temp:
            try:
                wanted = before.mode if before is not None and mode is None else mode
                new_mode = _write_temp(folder, temp, data, name if before else "", wanted)
                _check_expected(_read_existing(folder, name, path), expected, path)
                if not (before and _overwrite_linked(folder, name, data, wanted)):
                    os.rename(temp, name, src_dir_fd=folder, dst_dir_fd=folder)
                else:
                    os.unlink(temp, dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temp, dir_fd=folder)
                raise
        os.fsync(folder)
        return FileContent(data, hashlib.sha256(data).hexdigest(), len(data), new_mode)


def remove(root: Path, relative: str, *, expected: str | None = None) -> None:
    """Remove a file or a symlink, not the target of a symlink."""
    path, (parent, name) = root / relative, os.path.split(relative)
    with _translate_errors(path), _open_folder(root, parent) as folder:
        if expected is not None:
            _check_expected(_read_existing(folder, name, path), expected, path)
        os.unlink(name, dir_fd=folder)
        os.fsync(folder)


def _read_content(fd: int, path: Path, limit: int) -> FileContent:
    info = os.fstat(fd)
    kind = stat.S_IFMT(info.st_mode)
    if kind != stat.S_IFREG:
        raise WorkspaceError(
            f"{path} is {FILE_TYPE_NAMES.get(kind, 'no regular file')} and cannot be read",
            kind="is_folder" if kind == stat.S_IFDIR else "other",
        )
    kept, total, hasher = bytearray(), 0, hashlib.sha256()
    while total <= READ_LIMIT and (chunk := os.read(fd, 1 << 20)):
        hasher.update(chunk)
        kept += chunk[: max(0, limit - total)]
        total += len(chunk)
    if total > READ_LIMIT:  # too large to compare by content: use inode, size and time
        hasher.update(f"{info.st_ino} {info.st_size} {info.st_mtime_ns}".encode())
    return FileContent(
        data=bytes(kept),
        digest=hasher.hexdigest(),
        size=max(total, info.st_size),
        mode=stat.S_IMODE(info.st_mode),
        is_truncated=len(kept) < max(total, info.st_size),
    )


def _read_existing(folder: int, name: str, path: Path) -> FileContent | None:
    """The file that a write would replace, without its data; None if there is none.
    WorkspaceError if it is read-only."""
    try:
        fd = open_beneath(folder, name, _EXISTING_FLAGS)
    except FileNotFoundError:
        return None
    try:
        content = _read_content(fd, path, 0)
        if not content.mode & 0o222 or not os.access(name, os.W_OK, dir_fd=folder):
            raise WorkspaceError(f"{path} is read-only; change its mode first to edit it")
        return content
    finally:
        os.close(fd)


def _check_expected(content: FileContent | None, expected: str | None, path: Path) -> None:
    if expected is None:
        return
    if content is None and expected:
        raise WorkspaceError(f"{path} was removed since it was read; read it again")
    if content is not None and not expected:
        raise WorkspaceError(f"{path} exists already; read it first")
    if content is not None and content.digest != expected:
        raise WorkspaceError(f"{path} was changed since it was read; read it again, then edit")


def _write_temp(folder: int, temp: str, data: bytes, replaced: str, mode: int | None) -> int:
    """Write and sync the new content under its temporary name, with the attributes of the old
    file; returns the mode of the new one."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temp, flags, 0o600 if replaced else 0o666, dir_fd=folder)
    try:
        write_all(fd, data)
        if replaced:
            old = open_beneath(folder, replaced, _EXISTING_FLAGS)
            try:
                copy_attributes(old, fd)
            finally:
                os.close(old)
        if mode is not None:
            os.fchmod(fd, mode)
        os.fsync(fd)
        return stat.S_IMODE(os.fstat(fd).st_mode)
    finally:
        os.close(fd)


def _overwrite_linked(folder: int, name: str, data: bytes, mode: int | None) -> bool:
    """Overwrite a file that has other hard links, so that they keep sharing it; False if it has
    none."""
    flags = os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
    fd = open_beneath(folder, name, flags)
    try:
        if not has_other_names(fd):
            return False
        overwrite(fd, data, mode)
        return True
    finally:
        os.close(fd)


@contextmanager
def _open_folder(root: Path, beneath: str = "") -> Iterator[int]:
    top = os.open(root, O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with _open_subfolder(top, beneath) as folder:
            yield folder
    finally:
        os.close(top)


@contextmanager
def _make_folder(top: int, parent: str) -> Iterator[int]:
    """The folder, opened; created beneath `top` with its parents if it is missing."""
    done: list[str] = []
    for part in Path(parent).parts:
        with _open_subfolder(top, "/".join(done)) as above:
            try:
                os.mkdir(part, dir_fd=above)
                os.fsync(above)
            except FileExistsError:
                pass
        done.append(part)
    with _open_subfolder(top, parent) as folder:
        yield folder


@contextmanager
def _open_subfolder(top: int, path: str) -> Iterator[int]:
    folder = open_beneath(top, path or ".", os.O_RDONLY | os.O_DIRECTORY, follow_symlinks=False)
    try:
        yield folder
    finally:
        os.close(folder)


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    """Errors of the system as WorkspaceErrors."""
    try:
        yield
    except OSError as error:
        kind = _ERROR_KINDS.get(error.errno or 0, "other")
        raise WorkspaceError(_error_message(error, path), kind=kind) from error


_ERROR_KINDS: dict[int, WorkspaceErrorKind] = {
    errno.ENOENT: "not_found",
    errno.EISDIR: "is_folder",
    errno.ENOTDIR: "not_folder",
}


def _error_message(error: OSError, path: Path) -> str:
    match error.errno:
        case errno.ENOENT:
            return f"{path} does not exist"
        case errno.EXDEV:
            return f"{path}: a symlink leaves the workspace and is not followed"
        case errno.ELOOP:
            return f"{path}: the symlinks form a loop"
        case errno.ENAMETOOLONG:
            return f"the path {str(path)[:80]}... is too long for the file system"
        case errno.EACCES | errno.EPERM:
            return f"no permission for {path}"
        case errno.EAGAIN | errno.ENXIO | errno.ENODEV:
            return f"{path} cannot be read without waiting for data"
        case errno.ENOSPC | errno.EDQUOT:
            return f"{path} was not written: no space is left; the old content is intact"
        case errno.EROFS:
            return f"{path} is on a read-only file system"
    return f"{path}: {error.strerror}"
