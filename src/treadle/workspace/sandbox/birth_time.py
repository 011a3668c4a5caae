"""When a file was created. No command can change that time, other than those of `os.stat`.

Used by `protected_paths.py`: what is older than the session was not made by one of its commands.
"""

from __future__ import annotations

import ctypes
import os
import struct

from treadle.workspace.supervisor.syscalls import libc

AT_FDCWD, AT_SYMLINK_NOFOLLOW = -100, 0x100
STATX_BTIME = 0x800
STATX_BYTES, BTIME_AT = 256, 80  # struct statx, and the place of stx_btime in it


def read_birth_ns(path: str) -> int | None:
    """Nanoseconds since the epoch; None if the file system does not know it."""
    buffer = ctypes.create_string_buffer(STATX_BYTES)
    try:
        result = libc.statx(AT_FDCWD, os.fsencode(path), AT_SYMLINK_NOFOLLOW, STATX_BTIME, buffer)
    except AttributeError:  # an old C library
        return None
    (mask,) = struct.unpack_from("=I", buffer)
    if result != 0 or not mask & STATX_BTIME:
        return None
    seconds, nanoseconds = struct.unpack_from("=qI", buffer, BTIME_AT)
    return int(seconds * 1_000_000_000 + nanoseconds)
