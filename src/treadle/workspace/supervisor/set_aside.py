"""Moves what a command made and must not leave into a folder of the agent. Nothing is deleted.

Used by `sandbox/protected_paths.py` when a command ends, and by the supervisor if its agent was
killed. Imports only what is small, because imports are start-up time of the fork server.
"""

# ruff: noqa: PTH103 - pathlib would double the start-up

import errno
import os


def set_aside(path: str, root: str, folder: str) -> str:
    """Move `path`, which is below `root`, into a new folder in `folder`; returns its new place."""
    number = 1
    while True:
        place = f"{folder}/{number}"
        try:
            os.makedirs(place, 0o700)
            break
        except FileExistsError:
            number += 1
    target = place + path[len(root) :]
    os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)  # noqa: PTH120 - as above
    try:
        os.rename(path, target)  # noqa: PTH104 - as above
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        import shutil

        shutil.move(path, target)
    return target


def set_aside_each(paths: list[str], root: str, folder: str) -> None:
    """The same for those of several paths that exist; one that cannot be moved stays."""
    for path in paths:
        if os.path.lexists(path):
            try:
                set_aside(path, root, folder)
            except OSError:
                pass
