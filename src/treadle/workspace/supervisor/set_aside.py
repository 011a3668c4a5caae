"""Moves what a command made and must not leave into a folder of the agent. Nothing is deleted.

Another command may run at the same time and swap folders for symlinks, so no symlink is followed.
Used by `sandbox/protected_paths.py` when a command ends, and by the supervisor if its agent was
killed. Imports only what is small, because imports are start-up time of the fork server.
"""

# ruff: noqa: PTH103, PTH120 - pathlib would double the start-up

import errno
import os
import stat

from .syscalls import O_PATH, change_mode, find_path

FOLDER_FLAGS = O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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
            _make_writable(parent)
            _make_entry_writable(name, parent)
            os.rename(name, target, src_dir_fd=parent)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        import shutil

        shutil.move(f"{find_path(parent)}/{name}", target)
    finally:
        os.close(parent)
    return target


def set_aside_made(folder: str, roots: "list[tuple[str, list[str]]]", **tables: object) -> None:
    """Move away every protected path below the roots that was not known before the command.
    `tables` are those of `lib/files/protected_paths.py`."""
    for root, known in roots:
        for path in _find_made(root, frozenset(known), **tables):  # type: ignore[arg-type]
            try:
                set_aside(path, root, folder)
            except OSError:
                pass  # gone, or it cannot be moved


def _find_made(
    root: str,
    known: "frozenset[str]",
    *,
    names: "frozenset[str]",
    suffixes: "tuple[str, ...]",
    pairs: "frozenset[tuple[str, str]]",
    git_folder: str,
    git_parts: "tuple[str, ...]",
    generated: "frozenset[str]",
) -> "list[str]":
    made: list[str] = []
    waiting = [root]
    for folder in waiting:  # it grows meanwhile
        above = folder.rpartition("/")[2].casefold()
        for name, is_folder in _list_entries(folder, folder in known):
            path, folded = f"{folder}/{name}", name.casefold()
            if folded == git_folder:
                parts = [f"{path}/{part}" for part in git_parts] if is_folder else [path]
                made += [part for part in parts if part not in known and os.path.lexists(part)]
            elif path in known:
                continue
            elif folded in names or folded.endswith(suffixes) or (above, folded) in pairs:
                made.append(path)
            elif is_folder and name not in generated:
                waiting.append(path)
    return made


def _list_entries(folder: str, is_known: bool) -> "list[tuple[str, bool]]":
    """(name, whether it is a folder). A command may have made the folder unreadable."""
    for is_last in (is_known, True):
        try:
            with os.scandir(folder) as entries:
                return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        except PermissionError:
            if not is_last:
                try:
                    os.chmod(folder, os.stat(folder).st_mode | 0o700)  # noqa: PTH101, PTH116
                except OSError:
                    break
        except OSError:
            break
    return []


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
    fd = os.open(name, O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            _make_writable(fd)
    finally:
        os.close(fd)


def _make_writable(fd: int) -> None:
    change_mode(fd, stat.S_IMODE(os.fstat(fd).st_mode) | 0o700)
