"""What a file keeps when its content is replaced: owner, group, extended attributes, hard links.

Functions that block; used by `files.py` and by checkpoints/safe_tree.py.
"""

from __future__ import annotations

import os
from contextlib import suppress

from treadle.workspace.supervisor.syscalls import write_all


def copy_attributes(source: int, target: int) -> None:
    """Give the open file `target` owner, group and extended attributes of `source`, as far as the
    user may."""
    before, now = os.fstat(source), os.fstat(target)
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        try:
            os.fchown(target, before.st_uid, before.st_gid)
        except PermissionError:
            # Only root can give a file away; the group can stay if the user belongs to it.
            with suppress(PermissionError):
                os.fchown(target, -1, before.st_gid)
    with suppress(OSError, AttributeError):  # a file system, or a Python, without attributes
        for name in os.listxattr(source):
            with suppress(OSError):  # some are reserved for the system
                os.setxattr(target, name, os.getxattr(source, name))


def has_other_names(fd: int) -> bool:
    """Whether the open file has further hard links, which a replacement would leave behind."""
    return os.fstat(fd).st_nlink > 1


def overwrite(fd: int, data: bytes, mode: int | None) -> None:
    """Replace the content of a file that is open for reading and writing; if that fails, the old
    content is written back."""
    old = os.pread(fd, os.fstat(fd).st_size, 0)
    try:
        _write_content(fd, data)
    except OSError:
        with suppress(OSError):
            _write_content(fd, old)
        raise
    if mode is not None:
        os.fchmod(fd, mode)
    os.fsync(fd)


def _write_content(fd: int, data: bytes) -> None:
    os.lseek(fd, 0, os.SEEK_SET)
    write_all(fd, data)
    os.ftruncate(fd, len(data))
