"""Landlock: no signals and no abstract sockets out of the sandbox; file rules for our own programs.

Commands use only the scopes: a ruleset for files would forbid bubblewrap to mount, and the mounts
restrict the files already. Our own read-only programs, such as a search, have no mounts and use
rules for files: a path that was judged can become a symlink before the program opens it, so the
kernel checks what is opened. This costs one millisecond, a sandbox of mounts would cost ten.
Used by `bubblewrap.py` and `local.py`; the supervisor applies the ruleset before it execs.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path

from treadle.workspace.supervisor.syscalls import O_PATH, call_linux, raise_on_error

SYS_LANDLOCK_CREATE_RULESET, SYS_LANDLOCK_ADD_RULE = 444, 445
CREATE_RULESET_VERSION = 1
SCOPE_ABSTRACT_UNIX_SOCKET, SCOPE_SIGNAL = 1, 2
FIRST_WITH_SCOPES = 6
RULE_PATH_BENEATH = 1
EXECUTE, READ_FILE, READ_DIR, TRUNCATE = 1, 4, 8, 1 << 14
# (version, number of access rights for files that it knows); the same for the network.
FILE_ACCESSES = ((5, 16), (3, 15), (2, 14), (1, 13))
FIRST_WITH_NETWORK, NETWORK_ACCESSES = 4, 3


class RulesetAttributes(ctypes.Structure):
    """struct landlock_ruleset_attr of version 6."""

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
def version() -> int:
    """The kernel's version of Landlock; 0 if there is none."""
    number = SYS_LANDLOCK_CREATE_RULESET
    result = call_linux(number, None, ctypes.c_size_t(0), CREATE_RULESET_VERSION)
    return max(0, result)


def make_scope_ruleset() -> int | None:
    """A ruleset's descriptor, closed by the caller; None if the kernel has no scopes."""
    if version() < FIRST_WITH_SCOPES:
        return None
    return _create_ruleset(RulesetAttributes(scoped=SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL))


def make_read_only_ruleset(readable: Iterable[str], runnable: Iterable[str]) -> int | None:
    """A ruleset that allows only to read below `readable`, and to read and run below `runnable`.

    The caller closes its descriptor; None if the kernel has no Landlock. Paths are resolved now:
    later changes of symlinks make no difference.
    """
    known = version()
    if not known:
        return None
    handled = (1 << next(count for since, count in FILE_ACCESSES if known >= since)) - 1
    # If truncation is not allowed, the kernel checks it at every open up to the root folder: a
    # third of the time of a search. Readable folders allow it; our readers never truncate.
    folder = handled & (READ_FILE | READ_DIR | TRUNCATE)
    fd = _create_ruleset(
        RulesetAttributes(
            handled_access_fs=handled,
            handled_access_net=NETWORK_ACCESSES if known >= FIRST_WITH_NETWORK else 0,
            scoped=SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL if known >= FIRST_WITH_SCOPES else 0,
        )
    )
    try:
        for path in readable:
            _allow(fd, path, folder)
        for path in runnable:
            _allow(fd, path, folder | EXECUTE)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _create_ruleset(attributes: RulesetAttributes) -> int:
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    number = SYS_LANDLOCK_CREATE_RULESET
    return raise_on_error(call_linux(number, ctypes.byref(attributes), size, 0))


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # a missing path needs no rule
    try:
        is_folder = stat.S_ISDIR(os.fstat(fd).st_mode)
        allowed = access if is_folder else access & (EXECUTE | READ_FILE)
        rule = ctypes.byref(PathBeneath(allowed, fd))
        raise_on_error(call_linux(SYS_LANDLOCK_ADD_RULE, ruleset, RULE_PATH_BENEATH, rule, 0))
    finally:
        os.close(fd)


SYSTEM_PATHS = """
/usr /bin /sbin /lib /lib32 /lib64 /opt /nix/store /gnu/store /home/linuxbrew/.linuxbrew
/etc/ld.so.cache /etc/fonts
"""
"""Programs, libraries and their data. Not secret; sandboxed commands can read it too."""

HOME_GIT_FILES = (".gitconfig", ".config/git/config", ".config/git/ignore")
IGNORE_FILES = (".gitignore", ".ignore", ".rgignore", ".git/info/exclude")
"""Ignore files of a search; those in the folders above the root apply as well."""


@contextmanager
def limit_reads(program: str, roots: tuple[Path, ...], home: str) -> Iterator[int | None]:
    """A Landlock ruleset for one run of `program`; None if it is not possible."""
    runnable = (os.path.realpath(program), *_find_system(home))
    try:
        ruleset = make_read_only_ruleset(_find_readable(roots, home), runnable)
    except OSError:
        ruleset = None
    try:
        yield ruleset
    finally:
        if ruleset is not None:
            os.close(ruleset)


@lru_cache(maxsize=64)
def _find_readable(roots: tuple[Path, ...], home: str) -> tuple[str, ...]:
    # A root inside another is covered by it, and its path could become a symlink.
    outer = [r for r in roots if not any(r.is_relative_to(other) for other in roots if other != r)]
    above = [folder / name for root in outer for folder in root.parents for name in IGNORE_FILES]
    return (*map(str, outer), *map(str, above), *(f"{home}/{name}" for name in HOME_GIT_FILES))


@cache
def _find_system(home: str) -> tuple[str, ...]:
    own = Path(home or "/")
    return tuple(path for path in SYSTEM_PATHS.split() if not own.is_relative_to(path))
