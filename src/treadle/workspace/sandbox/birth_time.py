"""When a file was created. No command can change that time, other than those of `os.stat`.

What is older than the session was not made by one of its commands. Used by `protected_paths.py` and
`repositories.py`.
"""

from __future__ import annotations

import ctypes
import os
import struct

from treadle.workspace.supervisor.syscalls import libc

AT_FDCWD, AT_SYMLINK_NOFOLLOW = -100, 0x100
STATX_BTIME = 0x800
STATX_BYTES, BTIME_AT = 256, 80  # struct statx, and the place of stx_btime in it


def is_born_before(path: str, time_ns: int) -> bool | None:
    """Whether it was created before a time; None if the file system does not know it."""
    buffer = ctypes.create_string_buffer(STATX_BYTES)
    try:
        result = libc.statx(AT_FDCWD, os.fsencode(path), AT_SYMLINK_NOFOLLOW, STATX_BTIME, buffer)
    except AttributeError:  # an old C library
        return None
    (mask,) = struct.unpack_from("=I", buffer)
    if result != 0 or not mask & STATX_BTIME:
        return None
    seconds, nanoseconds = struct.unpack_from("=qI", buffer, BTIME_AT)
    return bool(seconds * 1_000_000_000 + nanoseconds < time_ns)
