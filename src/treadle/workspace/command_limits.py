"""What commands are held to: how many processes and how much memory, and deny rules about files.

Processes: a pids cgroup if one can be made, otherwise RLIMIT_NPROC, which the kernel does not apply
to root: root without a writable cgroup has no limit. Memory: the supervisor measures it; limits of
the kernel without a cgroup are for address space, which many programs reserve without using it.
The sandbox enforces the deny rules, which are the policy's path patterns (sandbox/file_denials.py).
Used by `local.py`; needs no module of the sandbox.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Protocol

import msgspec

from treadle.workspace.supervisor.process_tree import run_ps
from treadle.workspace.supervisor.syscalls import IS_LINUX

DEFAULT_MAX_PROCESSES = 4096
"""Enough for a parallel build, too few for a fork bomb."""


MEMORY_SHARE = 0.75
HIDDEN, READ_ONLY = "hidden", "read-only"  # what a denied file is for a command


@cache
def get_default_memory() -> int:
    """Bytes that a command may use: three quarters of the memory of the machine."""
    return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * MEMORY_SHARE)


@cache
def find_pids_cgroup() -> str:
    """The folder in which a pids cgroup can be made for each command, or ""."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "pids" in controllers.split(","):
            return _check_usable(Path("/sys/fs/cgroup/pids" + path))
        if not controllers:
            # In version 2 a group with processes has no children: make siblings of our own.
            return _check_usable(Path("/sys/fs/cgroup" + path).parent)
    return ""


def _check_usable(folder: Path) -> str:
    for left in folder.glob("treadle-*"):
        if not Path("/proc", left.name.rpartition("-")[2]).exists():
            with contextlib.suppress(OSError):
                left.rmdir()  # of a supervisor that was killed
    trial = folder / f"treadle-trial-{os.getpid()}"
    try:
        trial.mkdir()
    except OSError:
        return ""
    try:
        may_join = os.access(folder / "cgroup.procs", os.W_OK)
        return str(folder) if (trial / "pids.max").exists() and may_join else ""
    finally:
        trial.rmdir()


def get_thread_limit(max_processes: int) -> int:
    """RLIMIT_NPROC of a command; 0 where a cgroup counts its processes."""
    return 0 if find_pids_cgroup() else count_user_threads(os.getuid()) + max_processes


def count_user_threads(uid: int) -> int:
    """The number of the user's threads, or processes: RLIMIT_NPROC counts them all."""
    if not IS_LINUX:
        return sum(1 for row in run_ps() if row[3] == uid)
    total = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if entry.stat().st_uid == uid:
                total += sum(1 for _ in (entry / "task").iterdir())
        except OSError:
            continue  # it has just ended
    return total


class PathRule(Protocol):
    """A deny rule about paths, as the policy's path patterns are."""

    @property
    def text(self) -> str: ...

    def forbids(self, path: str) -> bool: ...

    def list_fixed_prefixes(self) -> tuple[str, ...]:
        """The paths below which it can match."""


class FileDenials(msgspec.Struct, frozen=True):
    """The deny rules that commands are held to: what they may not read, and not change."""

    unreadable: tuple[PathRule, ...] = ()
    unwritable: tuple[PathRule, ...] = ()

    def classify(self, path: str) -> str:
        if any(rule.forbids(path) for rule in self.unreadable):
            return HIDDEN
        return READ_ONLY if any(rule.forbids(path) for rule in self.unwritable) else ""

    def list_rules(self) -> Iterator[tuple[str, PathRule]]:
        """Each rule with the kind of what it matches; those that win come last."""
        for kind, rules in ((READ_ONLY, self.unwritable), (HIDDEN, self.unreadable)):
            for rule in rules:
                yield kind, rule
