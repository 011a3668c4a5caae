"""A workspace that is made at first use: what waits for the sandbox check, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.apps.assembly.lazy import LazyWorkspace
from treadle.core.errors import WorkspaceError
from treadle.workspace.options import WorkspaceOptions

UNKNOWN = "it has not been checked yet"


@pytest.fixture
def no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")


async def test_files_and_programs_outside_the_sandbox_do_not_wait_for_it(own_place: Path):
    workspace = LazyWorkspace(Path.cwd(), WorkspaceOptions)
    await workspace.write("a.txt", b"one")
    assert (await workspace.read("a.txt")).data == b"one"
    assert workspace.resolve("a.txt") == Path.cwd() / "a.txt"
    ran = await workspace.execute(("/bin/echo", "hi"), sandboxed=False)
    assert ran.stdout == b"hi\n"
    assert workspace.get_local().sandbox_problem == UNKNOWN
    await workspace.run("true")
    assert workspace.get_local().sandbox_problem != UNKNOWN
    await workspace.aclose()


async def test_a_missing_sandbox_is_notified_once(no_sandbox: None):
    notes: list[str] = []
    workspace = LazyWorkspace(Path.cwd(), WorkspaceOptions, notes.append)
    workspace.preload()
    for _ in range(2):
        await workspace.run("true")
    await workspace.aclose()
    [line] = notes
    assert line.startswith("commands run without a sandbox: ")


async def test_a_required_sandbox_that_cannot_be_built_is_an_error_for_commands(no_sandbox: None):
    workspace = LazyWorkspace(Path.cwd(), lambda: WorkspaceOptions(sandbox="required"))
    workspace.preload()
    with pytest.raises(WorkspaceError, match="a sandbox is required and cannot be built"):
        await workspace.run("true")
    await workspace.aclose()


async def test_one_that_is_closed_says_so_and_is_not_made_again(no_leaks: object):
    workspace = LazyWorkspace(Path.cwd(), WorkspaceOptions)
    workspace.preload()
    await workspace.aclose()
    workspace.preload()
    with pytest.raises(WorkspaceError, match="the workspace is closed"):
        await workspace.read("a.txt")
