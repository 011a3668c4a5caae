"""The promises of a workspace (core/contracts/workspace.py), as checks.

    await check_workspace(make)      make() opens a workspace on an empty folder

For any implementation, local or remote: the checks use files only through the workspace.
"""

# ruff: noqa: ASYNC110 - waiting for what other processes do

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from treadle.core.contracts.workspace import Workspace
from treadle.core.errors import WorkspaceError
from treadle.testing.conformance.promises import Promise, build, keep_promises, opened

TIME_LIMITS = (0.5, 2.0, 8.0, 32.0)  # seconds; the first is enough unless the machine is busy
MakeWorkspace = Callable[[], Workspace | Awaitable[Workspace]]


async def check_workspace(make: MakeWorkspace) -> None:
    """Raise an AssertionError that names the first broken promise."""
    await keep_promises("workspace", WORKSPACE_PROMISES, make)


async def files_are_read_and_written(make: MakeWorkspace) -> None:
    async with opened(make) as workspace:
        written = await workspace.write("a/b.txt", b"one\n", mode=0o640)
        assert written.size == 4, "a write returns its size, and creates missing folders"
        read = await workspace.read("a/b.txt")
        assert read.data == b"one\n", "a read returns what was written"
        assert read.digest == written.digest, "the same content has the same digest"
        assert read.mode == 0o640, "the given mode is set"
        again = await workspace.write("a/b.txt", b"two\n")
        assert again.mode == 0o640, "a write keeps the mode of the file it replaces"
        assert again.digest != written.digest, "other content has another digest"
        part = await workspace.read("a/b.txt", limit=2)
        assert (part.data, part.size, part.is_truncated) == (b"tw", 4, True), "a limit is reported"
        assert part.digest == again.digest, "the digest is that of the whole file"
        absolute = str(workspace.root / "a/b.txt")
        assert str(workspace.resolve("a/../a/b.txt")) == absolute, "a path is resolved"
        assert (await workspace.read(absolute)).data == b"two\n", "absolute paths inside work, too"
        await workspace.remove("a/b.txt", expected=again.digest)
        error = await _assert_refused(workspace.read("a/b.txt"))
        assert isinstance(error.__cause__, FileNotFoundError), "the cause is FileNotFoundError"


async def a_write_expects_the_digest_of_the_last_read(make: MakeWorkspace) -> None:
    async with opened(make) as workspace:
        first = await workspace.write("c.txt", b"1", expected="")  # "" means: it must be new
        await _assert_refused(workspace.write("c.txt", b"2", expected=""))
        second = await workspace.write("c.txt", b"2", expected=first.digest)
        await _assert_refused(workspace.write("c.txt", b"3", expected=first.digest))
        await _assert_refused(workspace.remove("c.txt", expected=first.digest))
        assert (await workspace.read("c.txt")).data == b"2", "a refused write changes nothing"
        writes = [workspace.write("c.txt", bytes([n]), expected=second.digest) for n in range(4)]
        results = await asyncio.gather(*writes, return_exceptions=True)
        done = [result for result in results if not isinstance(result, WorkspaceError)]
        assert len(done) == 1, "of writes that expect the same digest, one wins"


async def paths_stay_inside(make: MakeWorkspace) -> None:
    async with opened(make) as workspace:
        await workspace.run("ln -s / out; ln -s loop loop")
        for path in ("../x", "/x", "out/x", "loop", "a\0b", "n" * 5000):
            await _assert_refused(workspace.write(path, b""))
            await _assert_refused(workspace.read(path))


async def a_command_reports_how_it_ended(make: MakeWorkspace) -> None:
    async with opened(make) as workspace:
        chunks: list[str] = []
        done = await workspace.run("echo out; echo err >&2; exit 3", on_output=chunks.append)
        assert done.exit_code == 3, "the exit code is reported"
        assert done.output == "out\nerr\n", "both streams are captured, in order"
        assert done.total_bytes == len(done.output), "the size is reported"
        done = await workspace.run("mkdir -p sub; cd sub; echo $X", env={"X": "y"})
        assert done.output == "y\n", "variables are passed"
        assert done.cwd == str(workspace.root / "sub"), "the last folder of the shell is reported"
        done = await workspace.run("pwd; read x; echo $?", cwd="sub")
        assert done.output == f"{workspace.root}/sub\n1\n", "it runs in `cwd`, without input"
        assert (await workspace.run("kill -9 $$")).signal == "SIGKILL", "a signal is named"
        done = await workspace.run(r"printf '\033[2J\000\377'")
        assert done.output.isprintable(), "output is text without control characters"
        done = await workspace.run("head -c 3000000 /dev/zero | tr '\\0' x; echo end")
        assert len(done.output) < 100_000, "the middle of long output is left out"
        assert done.output.endswith("end\n"), "the end of long output is kept"
        assert done.total_bytes == 3_000_004, "the whole size is reported"
        assert (await workspace.read(done.full_output, limit=3)).data == b"xxx", (
            "all output is saved"
        )
        await _assert_refused(workspace.run("true", cwd="no/such/folder"))


async def a_program_runs_without_a_shell(make: MakeWorkspace) -> None:
    async with opened(make) as workspace:
        await workspace.run("mkdir sub")
        argv = ["sh", "-c", "cat; pwd; echo $X >&2; exit 5"]
        done = await workspace.execute(argv, cwd="sub", env={"X": "y"}, stdin=b"in\0\xff\n")
        assert done.stdout == b"in\0\xff\n" + f"{workspace.root}/sub\n".encode(), (
            "stdout is separate"
        )
        assert (done.exit_code, done.stderr) == (5, b"y\n"), "stderr is separate"
        assert not done.is_truncated, "complete output is not marked as truncated"
        long = await workspace.execute(["seq", "200000"], limit=4)
        assert (long.stdout, long.is_truncated) == (b"1\n2\n", True), "a limit is reported"
        assert long.exit_code == 0, "a limit does not end the program"
        assert (await workspace.execute(["sh", "-c", "kill -9 $$"])).signal == "SIGKILL", "a signal"
        endless = ["sh", "-c", "echo begun; sleep 1000"]
        slow = await workspace.execute(endless, timeout=TIME_LIMITS[0])
        for limit in TIME_LIMITS[1:]:
            if not slow.stdout:  # it ended before the program had begun
                slow = await workspace.execute(endless, timeout=limit)
        assert (slow.timed_out, slow.stdout) == (True, b"begun\n"), "a program can time out"
        await workspace.write("sub/f", b"here\n")
        read = await workspace.execute(["cat", "f"], cwd="sub", read_only=True)
        assert (read.stdout, read.exit_code) == (b"here\n", 0), "a read-only program can read"
        await _assert_refused(workspace.execute(["no-such-program"], read_only=True))
        await _assert_refused(workspace.execute(["no-such-program"]))
        await _assert_refused(workspace.execute(["true"], cwd="no/such/folder"))


async def a_timeout_ends_a_command_with_its_processes(make: MakeWorkspace) -> None:
    async with opened(make) as workspace:
        command = f"{_LEAVE_A_CHILD}; echo begun; sleep 1000"
        done = await workspace.run(command, timeout=TIME_LIMITS[0])
        for limit in TIME_LIMITS[1:]:
            if not done.output:
                done = await workspace.run(command, timeout=limit)
        assert done.timed_out, "a timeout is reported"
        assert done.output == "begun\n", "a timeout keeps the output so far"
        await _assert_child_ended(workspace)


async def a_cancellation_ends_a_command_with_its_processes(make: MakeWorkspace) -> None:
    async with opened(make) as workspace:
        command = f"trap '' TERM; {_LEAVE_A_CHILD}; touch begun; sleep 1000"
        work = asyncio.ensure_future(workspace.run(command))
        while not await _exists(workspace, "begun"):
            await asyncio.sleep(0.01)
        work.cancel()
        try:
            await work
        except asyncio.CancelledError:
            pass
        else:
            raise AssertionError("a cancelled command returns")
        await _assert_child_ended(workspace)


async def a_command_runs_in_the_background(make: MakeWorkspace) -> None:
    async with opened(make) as workspace:
        running = await workspace.start("echo up; sleep 1000; echo never")
        assert running.pid > 0, "a background command has a process id"
        while running.output() != "up\n":
            await asyncio.sleep(0.01)
        done = await running.kill()
        assert done.exit_code is None or done.exit_code != 0, "a killed command did not succeed"
        short = await workspace.start("echo short; exit 2")
        assert (await short.wait()).exit_code == 2, "`wait` returns at its end"
        assert (await short.wait()).output == "short\n", "`wait` can be called again"


async def can_be_closed_twice(make: MakeWorkspace) -> None:
    workspace = await build(make)
    await workspace.run("true")
    await workspace.aclose()
    await workspace.aclose()


WORKSPACE_PROMISES: tuple[Promise, ...] = (
    files_are_read_and_written,
    a_write_expects_the_digest_of_the_last_read,
    paths_stay_inside,
    a_command_reports_how_it_ended,
    a_program_runs_without_a_shell,
    a_timeout_ends_a_command_with_its_processes,
    a_cancellation_ends_a_command_with_its_processes,
    a_command_runs_in_the_background,
    can_be_closed_twice,
)

_LEAVE_A_CHILD = "sleep 1000 & echo $! > child"


# Ends with 0 if the child still runs after some seconds: the kernel may need a moment. In another
# container its number may be that of another process, also of the shell that runs these lines.
_LOOK_FOR_CHILD = """
read -r child < child
for attempt in 1 2 3 4 5 6 7 8 9 10; do
    kill -0 "$child" 2>/dev/null || exit 1
    [ ! -r /proc/self/cmdline ] ||
        [ "$(tr '\\0' ' ' 2>/dev/null < "/proc/$child/cmdline")" = "sleep 1000 " ] || exit 1
    sleep 0.5
done"""


async def _assert_child_ended(workspace: Workspace) -> None:
    done = await workspace.run(_LOOK_FOR_CHILD)
    assert done.exit_code != 0, "a process of the command still runs"


async def _exists(workspace: Workspace, path: str) -> bool:
    try:
        await workspace.read(path)
    except WorkspaceError:
        return False
    return True


async def _assert_refused(work: Awaitable[object]) -> WorkspaceError:
    try:
        await work
    except WorkspaceError as error:
        return error
    raise AssertionError("this must raise a WorkspaceError")
