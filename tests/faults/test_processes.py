# ruff: noqa: ASYNC110, ASYNC240 - real files, and waiting for what other processes do

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.patience import run_into_limit, until
from tests.workspace.helpers import BOTH, alive, gone, marker, needs_bubblewrap, opened, seen
from treadle.core.contracts.workspace import CommandResult
from treadle.core.errors import WorkspaceError
from treadle.workspace import command_limits as limits
from treadle.workspace.local import LocalWorkspace


@pytest.fixture(autouse=True)
def census(no_leaks: object) -> None:
    """Every test here leaves no process, descriptor, thread or task behind."""


@pytest.fixture
def folder(own_place: Path) -> Path:
    path = own_place / "ws"
    path.mkdir()
    return path


async def run_until_begun(workspace: LocalWorkspace, command: str) -> CommandResult:
    """A command that is ended by its time limit after it has printed something."""
    return await run_into_limit(
        lambda limit: workspace.run(command, timeout=limit), lambda done: done.output
    )


@pytest.mark.parametrize("sandbox", BOTH)
async def test_fault_57_a_command_that_hangs_is_killed_with_its_tree(
    folder: Path, sandbox: bool
) -> None:
    mark = marker()
    async with opened(folder, sandbox=sandbox) as workspace:
        command = f"echo before; sleep {mark} & sleep {mark}; echo after"
        done = await run_until_begun(workspace, command)
    assert done.timed_out
    assert done.output == "before\n"
    assert re.search(r"within [0-9.]+ s", done.note)
    assert not alive(mark)


@pytest.mark.parametrize("sandbox", BOTH)
async def test_fault_58_a_command_that_ignores_term_is_killed_after_the_grace(
    folder: Path, sandbox: bool
) -> None:
    mark = marker()
    command = f"trap '' TERM; echo ready; while :; do sleep {mark}; done"
    async with opened(folder, sandbox=sandbox, grace=0.2) as workspace:
        done = await run_until_begun(workspace, command)
    assert done.timed_out
    assert done.signal == "SIGKILL"
    assert done.output == "ready\n"
    assert not alive(mark)


@pytest.mark.parametrize("sandbox", BOTH)
async def test_a_command_that_heeds_term_says_its_last_words(folder: Path, sandbox: bool) -> None:
    command = "trap 'echo tidied up; exit 9' TERM; echo ready; while :; do sleep 0.01; done"
    async with opened(folder, sandbox=sandbox) as workspace:
        done = await run_until_begun(workspace, command)
    assert done.output.endswith("tidied up\n")
    assert done.timed_out


@pytest.mark.parametrize("sandbox", BOTH)
async def test_fault_59_a_grandchild_in_its_own_session_is_gone_after_the_call(
    folder: Path, sandbox: bool
) -> None:
    mark = marker()
    async with opened(folder, sandbox=sandbox) as workspace:
        done = await workspace.run(f"setsid sleep {mark} & echo started")
        assert not alive(mark)
    assert done.exit_code == 0
    assert done.output == "started\n"
    assert "left running" in done.note


@pytest.mark.parametrize("sandbox", BOTH)
async def test_fault_60_a_child_that_holds_the_pipe_does_not_hold_the_call(
    folder: Path, sandbox: bool
) -> None:
    mark = marker()
    async with opened(folder, sandbox=sandbox) as workspace:
        done = await workspace.run(f"sleep {mark} & echo here")
    assert done.output == "here\n"
    assert not alive(mark)


@pytest.mark.parametrize("sandbox", BOTH)
async def test_fault_61_a_daemon_that_forked_twice_is_gone_after_the_call(
    folder: Path, sandbox: bool
) -> None:
    mark = marker()
    command = f"(env -i nohup setsid sleep {mark} >/dev/null 2>&1 &) ; echo $?"
    async with opened(folder, sandbox=sandbox) as workspace:
        done = await workspace.run(command)
        assert not alive(mark)
    assert done.output == "0\n"


async def test_fault_61_a_daemon_of_a_background_command_lives_until_the_end(folder: Path) -> None:
    mark = marker()
    async with opened(folder) as workspace:
        running = await workspace.start(f"nohup setsid sleep {mark} >/dev/null 2>&1 & echo up")
        await seen(mark)
        await until(lambda: running.output() == "up\n")
    assert not alive(mark)


@needs_bubblewrap
async def test_fault_61_a_daemon_of_a_sandboxed_background_command_dies_with_its_shell(
    folder: Path,
) -> None:
    mark = marker()
    command = f"setsid sleep {mark} & (env -i nohup setsid sleep {mark} &) ; echo up; exit 3"
    async with opened(folder, sandbox=True) as workspace:
        running = await workspace.start(command)
        done = await running.wait()
        assert not alive(mark)
        assert running.output() == "up\n"
    assert (done.exit_code, done.output) == (3, "up\n")


@pytest.mark.skipif(
    os.getuid() == 0 and not limits.find_pids_cgroup(),
    reason="root can be limited by a cgroup only",
)
@pytest.mark.parametrize("sandbox", BOTH)
async def test_fault_62_a_fork_bomb_is_contained(folder: Path, sandbox: bool) -> None:
    mark = marker()
    bomb = f"bomb() {{ sleep {mark} & bomb & bomb; }}; bomb 2>&1"
    async with opened(folder, sandbox=sandbox, max_processes=40, grace=0.2) as workspace:
        done = await run_into_limit(
            lambda limit: workspace.run(bomb, timeout=limit),
            lambda done: "Resource temporarily unavailable" in done.output,
        )
        assert (await workspace.run("echo on")).output == "on\n"
    assert done.timed_out
    assert not alive(mark)


async def test_fault_63_a_gigabyte_of_output_is_held_in_bounded_memory(folder: Path) -> None:
    async with opened(folder) as workspace:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        done = await workspace.run("echo first; head -c 1000000000 /dev/zero; echo last")
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        whole = Path(done.full_output)
        assert whole.stat().st_size == 256 << 20
        assert (await workspace.read(str(whole), limit=6)).data == b"first\n"
    assert grown < 50 * 1024
    assert done.total_bytes == 1_000_000_000 + 11
    assert done.output.startswith("first\n")
    assert done.output.endswith("last\n")
    assert "bytes left out" in done.output
    assert len(done.output) < 40_000


@pytest.mark.parametrize("sandbox", BOTH)
async def test_fault_64_endless_output_ends_with_the_timeout(folder: Path, sandbox: bool) -> None:
    async with opened(folder, sandbox=sandbox) as workspace:
        done = await run_until_begun(workspace, "yes")
    assert done.timed_out
    assert done.output.startswith("y\ny\n")
    assert len(done.output) < 40_000


async def test_fault_65_binary_and_escapes_in_output_are_harmless(folder: Path) -> None:
    printed = r"\000\033[31mred\033[0m\033]52;c;aGk=\007\377\376 \033]0;title\007end\a\n"
    async with opened(folder) as workspace:
        done = await workspace.run(f"printf '{printed}'")
    assert done.output == "\u2400red\ufffd\ufffd end\u2407\n"


@pytest.mark.parametrize("sandbox", BOTH)
async def test_fault_67_a_prompt_gets_no_answer(folder: Path, sandbox: bool) -> None:
    command = "read x; echo $?; read y </dev/tty; echo $?; tty; ps -o tty= -p $$"
    async with opened(folder, sandbox=sandbox) as workspace:
        done = await workspace.run(command)
    assert done.output.startswith("1\n")
    assert "No such device or address" in done.output
    assert "not a tty" in done.output


@pytest.mark.parametrize("sandbox", BOTH)
@pytest.mark.parametrize(
    ("command", "code", "name"),
    [
        ("exit 0", 0, ""),
        ("exit 255", 255, ""),
        ("exit 137", 137, ""),
        ("exit 143", 143, ""),
        ("kill -9 $$", None, "SIGKILL"),
        ("kill -TERM $$", None, "SIGTERM"),
        ("kill -SEGV $$", None, "SIGSEGV"),
        ("bash -c 'kill -9 $$'; exit", 137, ""),
        ("if", 2, ""),
    ],
)
async def test_fault_68_how_it_ended_is_reported_exactly(
    folder: Path, sandbox: bool, command: str, code: int | None, name: str
) -> None:
    async with opened(folder, sandbox=sandbox) as workspace:
        done = await workspace.run(command)
    assert (done.exit_code, done.signal) == (code, name)


async def test_fault_68_a_core_dump_is_reported(folder: Path) -> None:
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip("core dumps are forbidden here")
    async with opened(folder) as workspace:
        done = await workspace.run("ulimit -c unlimited; kill -ABRT $$")
    assert done.signal == "SIGABRT"


@pytest.mark.skipif(
    not os.access("/sys/fs/cgroup/memory/cgroup.procs", os.W_OK), reason="no memory cgroup to fill"
)
async def test_fault_69_the_oom_killer_is_named(folder: Path) -> None:
    group = Path(f"/sys/fs/cgroup/memory/treadle-test-{os.getpid()}")
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text("16M")
        async with opened(folder) as workspace:
            done = await workspace.run(f"echo 0 > {group}/cgroup.procs; exec tail /dev/zero")
            again = await workspace.run("echo on")
    finally:
        group.rmdir()
    assert done.signal == "SIGKILL"
    assert "ran out of memory" in done.note
    assert again.output == "on\n"


@pytest.mark.parametrize("sandbox", BOTH)
async def test_fault_73_a_working_directory_that_is_gone_is_a_clear_error(
    folder: Path, sandbox: bool
) -> None:
    async with opened(folder, sandbox=sandbox) as workspace:
        done = await workspace.run("mkdir sub; cd sub; rmdir ../sub")
        assert done.exit_code == 0
        with pytest.raises(WorkspaceError, match=r"working directory .*sub"):
            await workspace.run("true", cwd="sub")
        assert (await workspace.run("echo on")).output == "on\n"


@pytest.mark.parametrize("sandbox", BOTH)
async def test_cancellation_kills_the_tree_at_once(folder: Path, sandbox: bool) -> None:
    mark = marker()
    async with opened(folder, sandbox=sandbox) as workspace:
        call = asyncio.ensure_future(
            workspace.run(f"trap '' TERM; setsid sleep {mark} & sleep {mark}")
        )
        await seen(mark)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not alive(mark)


AGENT = """
    import asyncio, sys
    from pathlib import Path
    from treadle.workspace.local import LocalWorkspace
    from treadle.workspace.options import WorkspaceOptions

    async def main():
        options = WorkspaceOptions(sandbox=sys.argv[3])
        workspace = await LocalWorkspace.open(Path(sys.argv[1]), options)
        await workspace.run(sys.argv[2])

    asyncio.run(main())
"""


async def die_with_their_agent(folder: Path, mark: str, before: str, mode: str) -> None:
    nap = f"sleep {mark}"
    command = f"{before}setsid {nap} & ({nap} &) ; {nap}"
    agent = subprocess.Popen(  # noqa: ASYNC220 - it is killed below
        [sys.executable, "-c", textwrap.dedent(AGENT), str(folder), command, mode],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )
    try:
        await until(lambda: len(alive(mark)) >= 3)
    finally:
        agent.kill()
        agent.wait()
    await gone(mark)


@pytest.mark.parametrize("sandbox", BOTH)
async def test_commands_die_with_an_agent_that_is_killed(folder: Path, sandbox: bool) -> None:
    await die_with_their_agent(folder, marker(), "", "auto" if sandbox else "off")


STOPS = {
    "supervisor": "kill -STOP $PPID; ",
    "both": "kill -STOP $(ps -o ppid= -p $PPID) $PPID; ",
}


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
async def test_commands_that_stop_their_supervisor_die_with_their_agent(
    folder: Path, stop: str
) -> None:
    await die_with_their_agent(folder, marker(), stop, "off")


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
async def test_fault_57_a_command_that_stops_its_supervisor_keeps_its_time_limit(
    folder: Path, stop: str
) -> None:
    mark = marker()
    async with opened(folder, grace=0.1) as workspace:
        done = await workspace.run(f"{stop}setsid sleep {mark} & sleep {mark}", timeout=0.3)
        assert done.timed_out
        assert not alive(mark)
        assert (await workspace.run("echo on")).output == "on\n"


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
async def test_a_command_that_stops_its_supervisor_can_be_cancelled(
    folder: Path, stop: str
) -> None:
    mark = marker()
    async with opened(folder) as workspace:
        call = asyncio.ensure_future(workspace.run(f"{stop}setsid sleep {mark} & sleep {mark}"))
        await seen(mark)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert not alive(mark)


async def test_a_command_that_stops_its_supervisor_again_and_again_is_ended(folder: Path) -> None:
    mark = marker()
    async with opened(folder) as workspace:
        with pytest.raises(WorkspaceError, match="not known"):
            await workspace.run(f"sleep {mark} & while :; do kill -STOP $PPID; done")
        await gone(mark)
        assert (await workspace.run("echo on")).output == "on\n"


async def test_a_stopped_fork_server_blocks_neither_commands_nor_the_end(
    folder: Path,
) -> None:
    async with opened(folder) as workspace:
        await workspace.run("true")
        fork_server = workspace._fork_server._program
        assert fork_server is not None
        fork_server.send_signal(signal.SIGSTOP)
        for number in range(3):
            assert (await workspace.run(f"echo {number}")).output == f"{number}\n"
        fork_server.send_signal(signal.SIGSTOP)
    assert fork_server.returncode == 0


async def test_a_command_that_kills_its_supervisor_is_killed_too(
    folder: Path,
) -> None:
    mark = marker()
    async with opened(folder) as workspace:
        with pytest.raises(WorkspaceError, match="not known"):
            await workspace.run(f"setsid sleep {mark} & kill -9 $PPID; sleep {mark}")
        await gone(mark)
        assert (await workspace.run("echo on")).output == "on\n"


async def test_a_killed_fork_server_is_started_again(folder: Path) -> None:
    async with opened(folder) as workspace:
        await workspace.run("true")
        fork_server = workspace._fork_server._program
        assert fork_server is not None
        os.kill(fork_server.pid, signal.SIGKILL)
        fork_server.wait()
        assert (await workspace.run("echo on")).output == "on\n"


async def test_a_supervisor_that_is_killed_while_it_waits_is_replaced(folder: Path) -> None:
    async with opened(folder) as workspace:
        await workspace.run("true")
        fork_server = workspace._fork_server._program
        assert fork_server is not None
        for _ in range(3):
            while not (waiting := supervisors(fork_server.pid)):
                await asyncio.sleep(0.005)
            for pid in waiting:
                with contextlib.suppress(ProcessLookupError):  # the last command's own, just gone
                    os.kill(pid, signal.SIGKILL)
            await until(lambda: not waiting & supervisors(fork_server.pid))
            assert (await workspace.run("echo on")).output == "on\n"


def supervisors(pid: int) -> set[int]:
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


@pytest.mark.skipif(not limits.find_pids_cgroup(), reason="no cgroup can be made here")
async def test_the_cgroups_of_commands_go_with_them(folder: Path) -> None:
    async with opened(folder, max_processes=50) as workspace:
        done = await workspace.run("cat /proc/self/cgroup")
        own = re.search(r"/(treadle-\d+)$", done.output, re.MULTILINE)
        assert own is not None
    assert not Path(limits.find_pids_cgroup(), own.group(1)).exists()
