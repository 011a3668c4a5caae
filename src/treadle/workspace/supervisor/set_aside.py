"""Moves what a command made and must not leave into a folder of the agent. Nothing is deleted.

Another command may run at the same time and swap folders for symlinks, so no symlink is followed.
Used by `sandbox/protected_paths.py` when a command ends, and by the supervisor if its agent was
killed. Imports only what is small, because imports are start-up time of the fork server.
"""

# ruff: noqa: PTH103, PTH120 - pathlib would double the start-up

import errno
import os
import stat

FOLDER_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def set_aside(path: str, root: str, folder: str) -> str:
    """Move `path`, which is below `root`, into a new folder in `folder`; returns its new place."""
    target = _make_place(folder) + path[len(root) :]
    os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
    *above, name = path[len(root) + 1 :].split("/")
    parent = open_folder(root, above)
    try:
        try:
            os.rename(name, target, src_dir_fd=parent)
        except PermissionError:
            _make_writable(f"/proc/self/fd/{parent}")
            _make_entry_writable(name, parent)
            os.rename(name, target, src_dir_fd=parent)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        import shutil

        shutil.move(f"/proc/self/fd/{parent}/{name}", target)
    finally:
        os.close(parent)
    return target


def set_aside_each(paths: list[str], root: str, folder: str) -> None:
    """The same for those of several paths that exist; one that cannot be moved stays."""
    for path in paths:
        if os.path.lexists(path):
            try:
                set_aside(path, root, folder)
            except OSError:
                pass


def open_folder(root: str, names: list[str]) -> int:
    """A descriptor of a folder below `root`, without following symlinks; closed by the caller."""
    fd = os.open(root, FOLDER_FLAGS)
    for name in names:
        above = fd
        try:
            fd = os.open(name, FOLDER_FLAGS, dir_fd=above)
        finally:
            os.close(above)
    return fd


def _make_place(folder: str) -> str:
    number = 1
    while True:
        place = f"{folder}/{number}"
        try:
            os.makedirs(place, 0o700)
        except FileExistsError:
            number += 1
        else:
            return place


def _make_entry_writable(name: str, parent: int) -> None:
    """A folder can be moved only if it is writable itself."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            _make_writable(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def _make_writable(path: str) -> None:
    os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) | 0o700)  # noqa: PTH101, PTH116 - as above
