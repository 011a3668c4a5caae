from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.patience import run_into_limit, until
from tests.workspace.helpers import BOTH, alive, marker, opened, seen
from treadle.core.contracts.workspace import RunningCommand, Workspace
from treadle.core.errors import WorkspaceError
from treadle.workspace.local import LocalWorkspace
from treadle.workspace.options import WorkspaceOptions
from treadle.workspace.processes import trailer_fd
from treadle.workspace.temp_files import ScratchDir


@pytest.mark.parametrize("sandbox", BOTH)
async def test_it_tells_where_the_shell_stood_in_the_end(folder: Path, sandbox: bool) -> None:
    async with opened(folder, sandbox=sandbox) as workspace:
        there: Workspace = workspace
        done = await there.run("mkdir -p 'a b'; cd 'a b'; false")
        again = await there.run("pwd", cwd=done.cwd)
        left = await there.run("cd /usr; exit 3")
        broken = await there.run("set -eu; cd /; false")
    assert (done.exit_code, done.cwd) == (1, str(folder / "a b"))
    assert again.output == f"{folder}/a b\n"
    assert (left.exit_code, left.cwd) == (3, "/usr")
    assert (broken.exit_code, broken.cwd) == (1, "/")


@pytest.mark.parametrize("sandbox", BOTH)
async def test_no_program_forges_how_its_command_ended(folder: Path, sandbox: bool) -> None:
    """The shell reports on a descriptor that the programs of a command inherit."""
    forged = rf"""printf '\1%s\n%s\n\0' 0 /etc >&{trailer_fd()}"""
    async with opened(folder, sandbox=sandbox) as workspace:
        failed = await workspace.run(f"({forged}); exit 5")
        killed = await workspace.run(f"{forged}; kill -9 $$")
        flooded = await workspace.run(f"timeout 1 head -c 60000 /dev/zero >&{trailer_fd()}; exit 6")
    assert (failed.exit_code, failed.cwd) == (5, str(folder))
    assert (killed.exit_code, killed.signal) == (None, "SIGKILL")
    assert (flooded.exit_code, flooded.cwd) == (6, str(folder))


@pytest.mark.parametrize("sandbox", BOTH)
async def test_progress_is_streamed_and_throttled(folder: Path, sandbox: bool) -> None:
    progress: list[str] = []
    command = "echo one; while [ ! -e go ]; do sleep 0.01; done; seq 100000; echo end"
    async with opened(folder, sandbox=sandbox) as workspace:

        def hear(text: str) -> None:
            progress.append(text)
            (folder / "go").touch()

        begin = time.monotonic()
        done = await workspace.run(command, on_output=hear)
        took = time.monotonic() - begin
    assert progress[0] == "one\n"
    assert len(progress) <= took / 0.1 + 2
    assert done.output.endswith("99999\n100000\nend\n")


@pytest.mark.parametrize("sandbox", BOTH)
async def test_a_background_command_is_read_waited_for_and_killed(
    folder: Path, sandbox: bool
) -> None:
    mark = marker()
    async with opened(folder, sandbox=sandbox) as workspace:
        running: RunningCommand = await workspace.start(f"echo up; sleep {mark}")
        await seen(mark)
        await until(lambda: running.output() == "up\n")
        assert running.pid > 0
        waiting = asyncio.ensure_future(running.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        assert alive(mark), "to stop waiting is not to kill"
        done = await running.kill()
        assert not alive(mark)
        short = await (await workspace.start("echo done; exit 4")).wait()
    assert done.signal == "SIGKILL"
    assert done.output == "up\n"
    assert (short.exit_code, short.output) == (4, "done\n")


async def test_closing_ends_what_still_runs(folder: Path) -> None:
    mark = marker()
    async with opened(folder) as workspace:
        await workspace.start(f"trap '' TERM; sleep {mark}")
        await workspace.start(f"setsid sleep {mark}")
        await until(lambda: len(alive(mark)) >= 2)
        private = workspace.temp_dir.parent
    assert not alive(mark)
    assert not private.exists()


@pytest.mark.parametrize("sandbox", BOTH)
async def test_a_program_without_a_shell_has_its_streams_apart(folder: Path, sandbox: bool) -> None:
    script = "cat; echo problem >&2; exit 5"
    async with opened(folder, sandbox=sandbox) as workspace:
        done = await workspace.execute(["sh", "-c", script], stdin=b'{"a": 1}\0' * 20_000)
        cut = await workspace.execute(["seq", "1000"], limit=10)
    assert (done.exit_code, done.stderr) == (5, b"problem\n")
    assert done.stdout == b'{"a": 1}\0' * 20_000
    assert not done.is_truncated
    assert (cut.stdout, cut.is_truncated) == (b"1\n2\n3\n4\n5\n", True)


async def test_a_server_is_spoken_to_over_descriptors_and_dies_with_us(folder: Path) -> None:
    mark = marker()
    async with opened(folder) as workspace:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        talk = ["bash", "-c", f"cat; sleep {mark}"]
        server = await workspace.spawn(talk, {0: theirs_in, 1: theirs_out})
        os.close(theirs_in)
        os.close(theirs_out)
        os.write(ours_out, b"hello")
        os.close(ours_out)
        assert await asyncio.to_thread(os.read, ours_in, 100) == b"hello"
        os.close(ours_in)
        await seen(mark)
        server.terminate()
        assert (await server.wait()).signal == "SIGTERM"
        await workspace.spawn(["sleep", mark], {})
    assert not alive(mark)


async def test_long_outputs_are_kept_where_the_host_wants_them(
    folder: Path, own_place: Path
) -> None:
    kept = own_place / "kept/outputs"
    for _ in range(2):
        async with opened(folder, outputs_dir=kept) as workspace:
            done = await workspace.run("seq 100000")
            assert (await workspace.read(done.full_output, limit=4)).data == b"1\n2\n"
            await workspace.run("echo short")
    assert len(list(kept.iterdir())) == 2


async def test_the_private_folder_of_a_killed_agent_is_removed_and_a_living_ones_is_not(
    folder: Path,
) -> None:
    dead = ScratchDir()
    assert dead._lock is not None
    os.close(dead._lock)  # as the kernel does when the agent is killed
    async with opened(folder) as first, opened(folder):
        assert not dead.path.exists()
        assert first.temp_dir.is_dir()


async def test_many_commands_at_once(folder: Path) -> None:
    async with opened(folder) as workspace:
        calls = [workspace.run(f"echo {n}; exit {n}") for n in range(40)]
        done = await asyncio.gather(*calls)
    assert [(one.exit_code, one.output) for one in done] == [(n, f"{n}\n") for n in range(40)]


async def test_what_cannot_be_started_is_an_error_that_says_why(folder: Path) -> None:
    async with opened(folder) as workspace:
        with pytest.raises(WorkspaceError, match="too long"):
            await workspace.run("true " + "x" * 200_000)
        with pytest.raises(WorkspaceError, match="NUL"):
            await workspace.run("true \0")
        with pytest.raises(WorkspaceError, match=r"run nowhere: No such file"):
            await workspace.execute(["nowhere"])
        assert (await workspace.run("nowhere")).exit_code == 127
    with pytest.raises(WorkspaceError, match="not a folder"):
        await LocalWorkspace.open(folder / "none", WorkspaceOptions(sandbox="off"))


async def test_no_key_of_ours_reaches_a_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    async with opened(folder) as workspace:
        done = await workspace.run(
            "env; cat /proc/$$/environ /proc/$PPID/environ; echo $MEANT", env={"MEANT": "this"}
        )
    assert "sk-very-secret" not in done.output
    assert done.output.endswith("this\n")


async def test_files_and_searches_do_not_wait_for_the_sandbox(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, let = asyncio.Event(), asyncio.Event()

    async def slow(*_: object) -> str:
        asked.set()
        await let.wait()
        return "none today"

    monkeypatch.setattr("treadle.workspace.sandbox.probe.find_sandbox_problem", slow)
    workspace = LocalWorkspace(folder, WorkspaceOptions())
    try:
        command = asyncio.ensure_future(workspace.run("echo ran"))
        await asked.wait()
        await workspace.write("a", b"1")
        assert (await workspace.read("a")).data == b"1"
        assert (await workspace.execute(["ls"], sandboxed=False)).stdout == b"a\n"
        assert not command.done()
        let.set()
        assert (await command).output == "ran\n"
        assert (workspace.sandboxed, workspace.sandbox_problem) == (False, "none today")
    finally:
        await workspace.aclose()


async def test_a_workspace_can_be_closed_while_it_prepares(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def never(*_: object) -> str:
        asked.set()
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr("treadle.workspace.sandbox.probe.find_sandbox_problem", never)
    workspace = LocalWorkspace(folder, WorkspaceOptions())
    command = asyncio.ensure_future(workspace.run("true"))
    await asked.wait()
    await workspace.aclose()
    with pytest.raises(asyncio.CancelledError):
        await command


@pytest.mark.parametrize("sandbox", BOTH)
async def test_a_program_that_prints_without_end_is_read_until_its_time_is_over(
    folder: Path, sandbox: bool
) -> None:
    async with opened(folder, sandbox=sandbox) as workspace:
        done = await run_into_limit(
            lambda limit: workspace.execute(["yes"], timeout=limit, limit=1000),
            lambda done: done.stdout,
        )
    assert done.timed_out
    assert done.is_truncated
    assert done.stdout == b"y\n" * 500


@pytest.mark.parametrize("sandbox", BOTH)
async def test_a_program_that_prints_line_by_line_loses_none(folder: Path, sandbox: bool) -> None:
    script = "for ((n = 0; n < 20000; n++)); do echo $n; done; echo end >&2"
    async with opened(folder, sandbox=sandbox) as workspace:
        done = await workspace.execute(["bash", "-c", script])
    assert done.stdout.split() == [str(n).encode() for n in range(20000)]
    assert done.stderr == b"end\n"


@pytest.mark.parametrize("sandbox", BOTH)
async def test_a_cancelled_program_leaves_nothing(folder: Path, sandbox: bool) -> None:
    mark = marker()
    async with opened(folder, sandbox=sandbox) as workspace:
        argv = ["bash", "-c", f"setsid sleep {mark} & yes"]
        call = asyncio.ensure_future(workspace.execute(argv))
        await seen(mark)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not alive(mark)


async def test_a_child_that_holds_the_pipe_does_not_hold_a_program(folder: Path) -> None:
    mark = marker()
    async with opened(folder) as workspace:
        done = await workspace.execute(["bash", "-c", f"setsid sleep {mark} & echo here"])
        assert not alive(mark)
    assert (done.exit_code, done.stdout) == (0, b"here\n")


@pytest.mark.parametrize("sandbox", BOTH)
async def test_no_program_of_the_folder_is_run_in_the_place_of_the_systems(
    folder: Path, monkeypatch: pytest.MonkeyPatch, sandbox: bool
) -> None:
    """A project's own folder of programs comes first on many a PATH, and commands write to it."""
    programs = folder / ".venv/bin"
    programs.mkdir(parents=True)
    for name in ("ls", "sh", "bash", "bwrap", "only-here"):
        (programs / name).write_text(f"#!/bin/sh\ntouch {folder}/planted-{name}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:.:{os.environ['PATH']}")
    async with opened(folder, sandbox=sandbox) as workspace:
        listed = await workspace.execute(["ls", "-A", str(folder)], sandboxed=False)
        assert listed.stdout == b".venv\n"
        piped = await workspace.execute(["sh", "-c", "ls -A | head -1"], sandboxed=False)
        assert piped.stdout == b".venv\n"
        with pytest.raises(WorkspaceError, match="only-here is not installed"):
            await workspace.execute(["only-here"], sandboxed=False)
        assert (await workspace.run("echo on")).output == "on\n"
    assert not list(folder.glob("planted-*"))  # noqa: ASYNC240 - it is all over


async def test_a_command_that_comes_after_the_end_starts_nothing(folder: Path) -> None:
    workspace = await LocalWorkspace.open(folder, WorkspaceOptions(sandbox="off"))
    await workspace.aclose()
    with pytest.raises(WorkspaceError, match="the workspace is closed"):
        await workspace.run("true")
