"""Landlock for commands: no signal and no abstract socket leaves the sandbox.

Only the scopes are used. A domain that handles files would forbid bubblewrap to mount, and inside
the mounts there is nothing left that runs before the command; files are the mounts' business.
Above it stands `bubblewrap.py`; the supervisor enters the ruleset just before it execs.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

SYS_LANDLOCK_CREATE_RULESET = 444
CREATE_RULESET_VERSION = 1
SCOPE_ABSTRACT_UNIX_SOCKET, SCOPE_SIGNAL = 1, 2
FIRST_WITH_SCOPES = 6


class RulesetAttributes(ctypes.Structure):
    """struct landlock_ruleset_attr, as of its sixth version."""

    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def version() -> int:
    """The kernel's version of Landlock; 0 where there is none."""
    number = SYS_LANDLOCK_CREATE_RULESET
    found = _libc().syscall(number, None, ctypes.c_size_t(0), CREATE_RULESET_VERSION)
    return max(0, int(found))


def scopes() -> int | None:
    """A ruleset's descriptor, to be closed by the caller; None where the kernel has no scopes."""
    if version() < FIRST_WITH_SCOPES:
        return None
    attributes = RulesetAttributes(scoped=SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    fd = int(_libc().syscall(SYS_LANDLOCK_CREATE_RULESET, ctypes.byref(attributes), size, 0))
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd
