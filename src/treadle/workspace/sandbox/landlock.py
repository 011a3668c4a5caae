"""Landlock: no signal and no abstract socket leaves the sandbox; a reader opens what it may.

For commands only the scopes are used. A domain that handles files would forbid bubblewrap to mount,
and inside the mounts there is nothing left that runs before the command; files are the mounts'
business. A program of ours that only reads needs no mounts, and is fenced in by files alone.
Above it stand `bubblewrap.py` and `read_only.py`; the supervisor enters the ruleset just before it
execs.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable
from functools import cache

SYS_LANDLOCK_CREATE_RULESET, SYS_LANDLOCK_ADD_RULE = 444, 445
CREATE_RULESET_VERSION = 1
SCOPE_ABSTRACT_UNIX_SOCKET, SCOPE_SIGNAL = 1, 2
FIRST_WITH_SCOPES = 6
RULE_PATH_BENEATH = 1
EXECUTE, READ_FILE, READ_DIR, TRUNCATE = 1, 4, 8, 1 << 14
# How many kinds of access to files, and how many to the network, are known from a version on.
FILE_ACCESSES = ((5, 16), (3, 15), (2, 14), (1, 13))
FIRST_WITH_NETWORK, NETWORK_ACCESSES = 4, 3


class RulesetAttributes(ctypes.Structure):
    """struct landlock_ruleset_attr, as of its sixth version."""

    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class PathBeneath(ctypes.Structure):
    """struct landlock_path_beneath_attr."""

    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def version() -> int:
    """The kernel's version of Landlock; 0 where there is none."""
    number = SYS_LANDLOCK_CREATE_RULESET
    found = _libc().syscall(number, None, ctypes.c_size_t(0), CREATE_RULESET_VERSION)
    return max(0, int(found))


def make_scope_ruleset() -> int | None:
    """A ruleset's descriptor, to be closed by the caller; None where the kernel has no scopes."""
    if version() < FIRST_WITH_SCOPES:
        return None
    return _create_ruleset(RulesetAttributes(scoped=SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL))


def make_read_only_ruleset(readable: Iterable[str], runnable: Iterable[str]) -> int | None:
    """A ruleset by which nothing can be done but to read, or also to run, what lies in such places.

    Its descriptor is the caller's to close; None where the kernel has no Landlock. A place is
    taken as it is now: what its name leads to later makes no difference.
    """
    known = version()
    if not known:
        return None
    handled = (1 << next(count for since, count in FILE_ACCESSES if known >= since)) - 1
    # Whether a file may be shortened by its name is asked whenever one is opened, and where it may
    # not, up to the root of all folders: a third of the time of a search. In a folder that is
    # readable it may; what no reader does is forbidden where that costs nothing.
    folder = handled & (READ_FILE | READ_DIR | TRUNCATE)
    fd = _create_ruleset(
        RulesetAttributes(
            handled_access_fs=handled,
            handled_access_net=NETWORK_ACCESSES if known >= FIRST_WITH_NETWORK else 0,
            scoped=SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL if known >= FIRST_WITH_SCOPES else 0,
        )
    )
    try:
        for place in readable:
            _allow(fd, place, folder)
        for place in runnable:
            _allow(fd, place, folder | EXECUTE)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _create_ruleset(attributes: RulesetAttributes) -> int:
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    return _raise_on_error(
        _libc().syscall(SYS_LANDLOCK_CREATE_RULESET, ctypes.byref(attributes), size, 0)
    )


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there need not be allowed
    try:
        is_folder = stat.S_ISDIR(os.fstat(fd).st_mode)
        allowed = access if is_folder else access & (EXECUTE | READ_FILE)
        rule = ctypes.byref(PathBeneath(allowed, fd))
        _raise_on_error(_libc().syscall(SYS_LANDLOCK_ADD_RULE, ruleset, RULE_PATH_BENEATH, rule, 0))
    finally:
        os.close(fd)


def _raise_on_error(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
