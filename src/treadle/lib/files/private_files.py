"""Files and folders for this user alone, which several programs of the user may change.

make_private_folder   with mode 0700
write_private_file    replaced atomically, with mode 0600
write_private_output  the same for a file that the user names: also a pipe or a device
locked_update         read, change and write while no other program does so
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from treadle.lib.files.flock import hold_lock


def make_private_folder(path: Path) -> None:
    """Make the folder and its missing parents with mode 0700; existing ones stay as they are."""
    if path.is_dir():
        return
    if path.parent != path:
        make_private_folder(path.parent)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise


def write_private_file(file: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file atomically and durably; by default only its owner can read it."""
    import tempfile

    make_private_folder(file.parent)
    descriptor, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            os.fchmod(out.fileno(), mode)
            out.flush()
            os.fsync(out.fileno())
        Path(draft).replace(file)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_private_output(file: Path, content: bytes) -> None:
    """Write a file that the user names. Only its owner can read it, also if it was there; the
    folder has to be there. An error names the file."""
    check_output(file)
    try:
        if file.exists() and not file.is_file():  # /dev/stdout or a pipe cannot be replaced
            file.write_bytes(content)
        else:
            write_private_file(file.resolve(), content)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from error


def check_output(file: Path) -> None:
    """OSError if the folder of a file that the user names is not there: before work that costs."""
    if not file.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))


def locked_update(
    file: Path, change: Callable[[], bytes | None], new_mode: int | None = None
) -> None:
    """The one way in which a file that several programs share is changed: `change` reads it and
    returns its new content (None: it stays). Other programs that do the same wait meanwhile: the
    folder of the file is locked, so `change` must not update another file in it. The new file is
    readable by its owner only; with `new_mode` an existing one keeps its mode."""
    make_private_folder(file.parent)
    with hold_lock(file.parent):
        content = change()
        if content is None:
            return
        mode = new_mode or 0o600
        if new_mode is not None and file.exists():
            mode = file.stat().st_mode & 0o777
        write_private_file(file, content, mode)


def find_state_dir() -> Path:
    """The agent's own folder for what must survive a crash."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state", "treadle")
