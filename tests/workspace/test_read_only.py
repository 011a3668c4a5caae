"""Our own read-only programs: a path that becomes a symlink does not let them out."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.workspace.helpers import needs_bubblewrap, opened
from treadle.core.errors import WorkspaceError
from treadle.lib.files.ripgrep import find_ripgrep
from treadle.tools.builtin.search.ripgrep import DEFAULT_OPTIONS
from treadle.workspace import landlock
from treadle.workspace.local import LocalWorkspace

needs_landlock = pytest.mark.skipif(landlock.version() == 0, reason="the kernel has no Landlock")
FENCES = [
    pytest.param("landlock", marks=needs_landlock),
    pytest.param("sandbox", marks=needs_bubblewrap),
]
RG = find_ripgrep() or "rg"
READING = [
    ([RG, *DEFAULT_OPTIONS, "SECRET|nothing", "./"], "d", b"nothing"),
    ([RG, *DEFAULT_OPTIONS, "SECRET|nothing", "./"], ".", b"nothing"),
    ([RG, *DEFAULT_OPTIONS, "--files", "./"], ".", b"/file"),
    (["ls", "-A", "d/"], ".", b"file"),
    (["sh", "-c", "tail -n +1 d/file | head -n 9"], ".", b"nothing"),
]
SWAPPING = """
import ctypes, os
libc = ctypes.CDLL(None)
print("begun", flush=True)
while True:
    libc.renameat2(-100, b"d", -100, b"link", 2)  # each gets the other's name
"""


@contextlib.asynccontextmanager
async def swapped(folder: Path) -> AsyncIterator[LocalWorkspace]:
    """A workspace in which a sandboxed command makes `d` a link to outside, and back, for ever."""
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("SECRET\n")
    (outside / "SECRET-NAME").touch()
    (folder / "d").mkdir()
    (folder / "d/file").write_text("nothing\n")
    (folder / "link").symlink_to(outside)
    (folder / "swap.py").write_text(SWAPPING)
    async with opened(folder, sandbox=True) as workspace:
        swapping = await workspace.start(f"exec {sys.executable} swap.py")
        done = await workspace.run("until [ -L d ]; do :; done; until [ ! -L d ]; do :; done")
        assert done.exit_code == 0
        yield workspace
        await swapping.kill()


@pytest.mark.parametrize("fence", FENCES)
async def test_a_folder_swapped_for_a_link_meanwhile_is_no_way_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fence: str
) -> None:
    if fence == "sandbox":
        monkeypatch.setattr(landlock, "version", lambda: 0)
    async with swapped(folder) as workspace:
        for argv, cwd, expected in READING:
            output, times = b"", 0
            while times < (30 if fence == "landlock" else 8) or expected not in output:
                times += 1
                with contextlib.suppress(WorkspaceError):  # while it is a link, it is no folder
                    output += (await workspace.execute(argv, cwd=cwd, read_only=True)).stdout
            assert b"SECRET" not in output
            assert expected in output


@needs_landlock
async def test_a_program_that_only_reads_can_do_nothing_else(folder: Path) -> None:
    (folder / "run-me").write_text("#!/bin/sh\necho ran\n")
    (folder / "run-me").chmod(0o755)
    (folder / "file").write_text("text\n")
    secret = folder.parent / "secret"
    secret.write_text("SECRET\n")
    (folder / "out").symlink_to(secret)
    script = f"cat file; cat out; cat {secret}; echo x > new; echo x >> file; ./run-me; rm file"
    async with opened(folder) as workspace:
        done = await workspace.execute(["sh", "-c", script], read_only=True)
    assert done.stdout == b"text\n"
    assert done.stderr.count(b"ermission denied") == 6, done.stderr
    assert (folder / "file").read_text() == "text\n"


@needs_landlock
async def test_what_is_to_be_ignored_is_also_read_above_the_root_and_in_home(
    folder: Path, own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = own_place / "home"
    (home / ".config/git").mkdir(parents=True, exist_ok=True)
    (home / ".config/git/ignore").write_text("*.mine\n")
    monkeypatch.setenv("HOME", str(home))
    (folder / ".git/info").mkdir(parents=True)
    (folder / ".git/info/exclude").write_text("*.local\n")
    (folder / ".gitignore").write_text("*.above\n")
    inner = folder / "inner"
    inner.mkdir()
    for name in ("a.py", "b.above", "c.mine", "d.local"):
        (inner / name).touch()
    async with opened(inner) as workspace:
        argv = [RG, *DEFAULT_OPTIONS, "--files", "./"]
        done = await workspace.execute(argv, read_only=True)
    assert (done.stdout, done.stderr, done.exit_code) == (b"./a.py\n", b"", 0)


@needs_landlock
async def test_a_git_folder_elsewhere_that_may_not_be_read_is_no_error(folder: Path) -> None:
    elsewhere = folder.parent / "main/.git"
    (elsewhere / "worktrees/ws/info").mkdir(parents=True)
    (elsewhere / "info").mkdir()
    (elsewhere / "info/exclude").write_text("*.x\n")
    (elsewhere / "worktrees/ws/commondir").write_text("../..\n")
    (folder / ".git").write_text(f"gitdir: {elsewhere}/worktrees/ws\n")
    (folder / "a.py").touch()
    async with opened(folder) as workspace:
        argv = [RG, *DEFAULT_OPTIONS, "no such thing", "./"]
        done = await workspace.execute(argv, read_only=True)
    assert (done.stdout, done.exit_code) == (b"", 1), done.stderr


def test_a_folder_inside_of_another_is_not_allowed_by_its_own_name(folder: Path) -> None:
    """It may be one that commands write to: its name there could be made a link."""
    allowed = landlock._find_readable((folder, folder / "inner", folder.parent / "beside"), "/h")
    assert str(folder) in allowed
    assert str(folder.parent / "beside") in allowed
    assert str(folder / "inner") not in allowed
