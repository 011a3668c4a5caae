"""A record that commands run, for the next session if this one is killed with its supervisors.

It has what existed at protected paths before the commands. It is locked while its agent lives and
empty while no command runs. Used by `bubblewrap.py`.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from treadle.workspace.temp_files import try_lock

MAX_RECORD_BYTES = 64 << 20
_FLAGS = os.O_RDWR | os.O_CREAT


class StartedRun(msgspec.Struct, frozen=True):
    """Commands that started at a time, and what was known of one root then."""

    root: bytes
    known: list[bytes]  # names need not be text
    time_ns: int


class RunRecord:
    """The record of one agent; its file is made with the first command."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"{os.getpid()}-{secrets.token_hex(4)}"
        self._fd: int | None = None

    def begin(self, known: Sequence[tuple[str, list[str]]]) -> None:
        """The first command starts; `known` are the roots and what exists there."""
        now, encode = time.time_ns(), os.fsencode
        runs = [StartedRun(encode(root), [encode(p) for p in paths], now) for root, paths in known]
        data = msgspec.msgpack.encode(runs)
        try:
            if self._fd is None:
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._fd = try_lock(self._path, _FLAGS)
            if self._fd is not None:
                os.pwrite(self._fd, data, 0)
        except OSError:
            return  # a full disk must not stop a command

    def finish(self) -> None:
        """The last command has ended."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)

    def close(self) -> None:
        if self._fd is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = None


def take_interrupted(folder: Path, roots: Collection[str]) -> list[StartedRun]:
    """The runs in these roots whose agents were killed; each one is returned once."""
    taken: list[StartedRun] = []
    for path in list(folder.glob("*")):
        try:
            fd = try_lock(path, os.O_RDWR)
        except OSError:
            continue  # of another user
        if fd is None:
            continue  # its agent lives
        runs = _read(fd)
        ours = [run for run in runs if os.fsdecode(run.root) in roots]
        taken += ours
        if ours or not runs:
            path.unlink(missing_ok=True)
        os.close(fd)
    return taken


def describe_interrupted(made: Sequence[str]) -> list[str]:
    if not made:
        return []
    names = ", ".join(sorted(set(made))[:10])
    return [
        f"a session was killed here while a command ran, and {names} appeared since then: look at "
        "it before programs use it"
    ]


def _read(fd: int) -> list[StartedRun]:
    try:
        return msgspec.msgpack.decode(os.pread(fd, MAX_RECORD_BYTES, 0), type=list[StartedRun])
    except (OSError, msgspec.DecodeError):
        return []
