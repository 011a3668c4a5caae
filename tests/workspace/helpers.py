"""Shared by the tests of the workspace: opening one, sandbox or not, processes that are alive."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.patience import until
from treadle.core.contracts.workspace import CommandResult
from treadle.workspace.checkpoints.checkpoints import Checkpoints
from treadle.workspace.checkpoints.restore import RestoreResult
from treadle.workspace.local import LocalWorkspace
from treadle.workspace.options import WorkspaceOptions

needs_bubblewrap = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bubblewrap is not installed"
)
not_for_root = pytest.mark.skipif(
    os.getuid() == 0, reason="root can list every folder; test_sandbox.py runs it as uid 1000"
)
BOTH = [
    pytest.param(False, id="bare"),
    pytest.param(True, id="sandboxed", marks=needs_bubblewrap),
]

_numbers = itertools.count(time.time_ns() % 10**9 + os.getpid() * 10**9)


@contextlib.asynccontextmanager
async def opened(
    root: Path, *, sandbox: bool = False, **options: object
) -> AsyncIterator[LocalWorkspace]:
    chosen = msgspec.structs.replace(
        WorkspaceOptions(sandbox="auto" if sandbox else "off"), **options
    )
    workspace = await LocalWorkspace.open(root, chosen)
    try:
        if sandbox and not workspace.sandboxed:
            pytest.skip(f"no sandbox here: {workspace.sandbox_problem}")
        yield workspace
    finally:
        await workspace.aclose()


async def inside(root: Path, command: str, **options: object) -> CommandResult:
    async with opened(root, sandbox=True, **options) as workspace:
        return await workspace.run(command)


def marker() -> str:
    """A number of seconds to sleep that no other process sleeps: its name in /proc."""
    return str(10**9 + next(_numbers))


def alive(mark: str) -> list[int]:
    """The processes with `mark` among their words."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


async def seen(mark: str) -> None:
    """Wait until a process with this mark runs."""
    await until(lambda: alive(mark))


async def gone(mark: str) -> None:
    """Wait until no process with this mark runs; the test's time limit is the patience."""
    await until(lambda: not alive(mark))


async def back_to(checkpoints: Checkpoints, tree: str) -> RestoreResult:
    """Make the files as they are in this tree."""
    return await checkpoints.apply((await checkpoints.take()).tree, tree)
