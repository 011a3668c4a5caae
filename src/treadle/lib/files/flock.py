"""Locks of a file or a folder that programs wait for while they change what they share.

    try_lock         if it is free
    hold_lock        after waiting for it;  wait_for_lock   in a coroutine

The kernel releases them when their process ends. Used by private_files.py, and for stores, logins
and repositories; locks.py is for locks that say who has them.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

POLL_SECONDS = 0.05


def try_lock(path: Path, *, is_shared: bool = False, waits: bool = False) -> int | None:
    """The lock of a folder, or of a file, which is made, as a descriptor to close; None if another
    holder has it. Two descriptors of one process exclude each other, too."""
    is_folder = path.is_dir()
    flags = os.O_RDONLY if is_folder else os.O_RDWR | os.O_CREAT
    fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    try:
        fcntl.flock(fd, kind if waits else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except BaseException as error:
        os.close(fd)
        if is_folder and isinstance(error, OSError) and error.errno == errno.EBADF:
            return try_lock(path / ".lock", is_shared=is_shared, waits=waits)  # NFS: files only
        raise
    return fd


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Wait for the lock of a file or a folder, and hold it. For work that takes a moment."""
    lock = try_lock(path, waits=True)
    assert lock is not None, "it was waited for"
    try:
        yield
    finally:
        os.close(lock)


@asynccontextmanager
async def wait_for_lock(path: Path) -> AsyncIterator[None]:
    """The same in a coroutine; meanwhile others run."""
    while (lock := try_lock(path)) is None:  # noqa: ASYNC110 - the kernel tells nobody
        await asyncio.sleep(POLL_SECONDS)
    try:
        yield
    finally:
        os.close(lock)
