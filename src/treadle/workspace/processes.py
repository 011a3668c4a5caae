"""Commands: started, watched and ended through the keeper, which owns their whole trees.

Not a shell parser and not a policy. `local.py` stands above and says what to run and in which
sandbox; `keeper/` is the program on the other end of the socket.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import marshal
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from treadle.core.errors import WorkspaceError

PACKET_BYTES = 60_000
# The keeper is imported from this folder alone: the package above would cost it a second start-up.
FORK_SERVER_CODE = f"import sys; sys.path.append({str(Path(__file__).parent)!r}); "
FORK_SERVER_CODE += "from supervisor.fork_server import main; main()"
HEAD_BYTES = TAIL_BYTES = 16_000
"""Of a long output this much of both ends is shown; the whole is in its side file."""

TRAILER_FD = 198
"""Where a shell says how it stood in the end; a high descriptor, so that nothing meets it."""

EXIT_TRAP = (
    "trap '{ printf %s\\\\n $?; pwd -P; printf \\\\0; jobs -p; } "
    f"2>/dev/null >&{TRAILER_FD} || :' EXIT\n"
)
"""Goes before a command for bash: in the end it tells its status, its folder, its jobs."""

SUPERVISOR_TIMEOUT = 1.0
"""Seconds for a supervisor beyond what it may take; then somebody looks what has become of it."""


class CommandSpec(msgspec.Struct, frozen=True):
    """What to run, and within which limits.

    descriptors  the child's number to ours; they stay the caller's to close
    linger       over when the whole tree is, not when its first process is
    wrapped      argv is bubblewrap's: its own two processes are spared a TERM
    nproc        how many processes the user may have then; 0 where a cgroup counts them
    secrets      values that are taken out of what it prints before anything of it is kept
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    timeout: float | None = None
    grace: float = 2.0
    stdin: bytes = b""
    capture_output: bool = True
    descriptors: Mapping[int, int] = {}
    head: int = HEAD_BYTES
    tail: int = TAIL_BYTES
    output_file: str = ""
    output_file_limit: int = 256 << 20
    always_output_file: bool = False
    wait_for_tree: bool = False
    in_bubblewrap: bool = False
    landlock_ruleset: int | None = None
    nproc: int = 0
    secrets: tuple[bytes, ...] = ()


class CapturedStream(msgspec.Struct, frozen=True):
    """What is known of one output stream: its ends, its size, and the side file if there is one."""

    head: bytes = b""
    tail: bytes = b""
    total: int = 0
    path: str = ""
    spilled: int = 0


class ProcessExit(msgspec.Struct, frozen=True):
    """How a command ended, exactly. `left` names what it left running and what was ended then."""

    exit_code: int | None
    signal: str
    core_dumped: bool
    timed_out: bool
    killed: bool
    out_of_memory: bool
    cwd: str
    leftovers: tuple[str, ...]
    stream: CapturedStream


class Process:
    """One running command. Every way out of it ends with `ended` set and nothing left."""

    def __init__(
        self,
        control: socket.socket,
        command: CommandSpec,
        on_output: Callable[[bytes, int], None] | None,
        wake: Callable[[int, bool], None],
    ) -> None:
        self._control = control
        self._in_bubblewrap, self._timeout, self._grace = (
            command.in_bubblewrap,
            command.timeout,
            command.grace,
        )
        self._on_output = on_output
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._partial = b""
        self._watchdog: asyncio.TimerHandle | None = None
        self._was_woken = False
        self.pid = self._supervisor = 0
        self.started: asyncio.Future[int] = self._loop.create_future()
        self.exited: asyncio.Future[ProcessExit] = self._loop.create_future()
        self._loop.add_reader(control.fileno(), self._on_readable)
        self._set_watchdog(SUPERVISOR_TIMEOUT)

    async def send_request(self, request: dict[str, object]) -> None:
        data = marshal.dumps(request)
        for start in range(0, len(data), PACKET_BYTES):
            last = start + PACKET_BYTES >= len(data)
            packet = (b"\1" if last else b"\0") + data[start : start + PACKET_BYTES]
            await self._loop.sock_sendall(self._control, packet)

    async def wait(self) -> ProcessExit:
        """How it ended. Cancelling the wait does not end the command."""
        return await asyncio.shield(self.exited)

    async def wait_or_kill(self) -> ProcessExit:
        """How it ended; cancelled, the tree is killed at once."""
        try:
            return await self.wait()
        except asyncio.CancelledError:
            await self.kill_and_wait()
            raise

    def terminate(self) -> None:
        """TERM to the tree, KILL after the grace."""
        self._send_command("terminate", self._grace + SUPERVISOR_TIMEOUT)

    def kill(self) -> None:
        """KILL to the tree, now."""
        self._send_command("kill", SUPERVISOR_TIMEOUT)

    async def kill_and_wait(self) -> None:
        """Kill and see it gone, however often the wait is cancelled."""
        self.kill()
        cancelled = False
        while not self.exited.done():
            try:
                await asyncio.wait({self.exited})
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError

    def _send_command(self, word: str, within: float) -> None:
        if self.exited.done():
            return
        with contextlib.suppress(OSError):  # it is just ending: the reader will say so
            self._control.send(b"\1" + marshal.dumps((word,)))
        if self._watchdog is None or self._watchdog.when() > self._loop.time() + within:
            self._set_watchdog(within)

    def _set_watchdog(self, within: float | None) -> None:
        """Its supervisor has to be heard of within this time: a command may have stopped it."""
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._watchdog = (
            None if within is None else self._loop.call_later(within, self._on_watchdog)
        )

    def _on_watchdog(self) -> None:
        self._set_watchdog(SUPERVISOR_TIMEOUT)
        self._wake(self._supervisor, self._was_woken)
        self._was_woken = True

    def _on_readable(self) -> None:
        while self._control.fileno() >= 0:
            try:
                packet = self._control.recv(PACKET_BYTES + 1)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                self.fail(
                    WorkspaceError(
                        "the process that watched over the command was killed; "
                        "how the command ended is not known"
                    )
                )
                return
            self._partial += packet[1:]
            if packet[0]:
                message, self._partial = marshal.loads(self._partial), b""
                self._handle_message(message)

    def _handle_message(self, message: tuple[object, ...]) -> None:
        match message:
            case ("output", int(total), bytes(fresh)):
                if self._on_output is not None:
                    self._on_output(fresh, total)
            case ("started", int(pid), int(supervisor)):
                self.pid, self._supervisor = pid, supervisor
                limit = self._timeout
                self._set_watchdog(
                    None if limit is None else limit + self._grace + SUPERVISOR_TIMEOUT
                )
                if not self.started.done():
                    self.started.set_result(pid)
            case ("failed", int(number), str(what)):
                self.fail(_make_start_error(number, what))
            case ("exited", dict(outcome)):
                self._close()
                self.exited.set_result(_decode_exit(outcome, self._in_bubblewrap))

    def fail(self, error: WorkspaceError) -> None:
        self._close()
        for future in (self.started, self.exited):
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever waits gets it; nobody waiting is no complaint

    def _close(self) -> None:
        self._set_watchdog(None)
        self._loop.remove_reader(self._control.fileno())
        self._control.close()


class ForkServerClient:
    """The agent's end of the keeper: started with the first command, started again if it died.

    `cgroup` and `pids`: where a pids cgroup for each command can be made, and its limit.
    """

    def __init__(self, env: Mapping[str, str], cgroup: Callable[[], str], max_pids: int) -> None:
        self._env, self._cgroup, self._max_pids = env, cgroup, str(max_pids)
        self._program: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._processes: set[Process] = set()

    def ensure_started(self) -> None:
        """Start the keeper now, so that the first command need not wait for it."""
        if self._program is not None and self._program.poll() is None:
            return
        self._disconnect()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._program = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    "-c",
                    FORK_SERVER_CODE,
                    self._cgroup(),
                    self._max_pids,
                ],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(self._env),
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise WorkspaceError(f"cannot start the keeper of processes: {error}") from error
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket = ours

    async def start(
        self, command: CommandSpec, on_output: Callable[[bytes, int], None] | None = None
    ) -> Process:
        """Start a command; WorkspaceError when it cannot be. Cancelled, it leaves nothing."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        process = Process(ours, command, on_output, self._wake)
        try:
            try:
                await self._send_descriptors(command, theirs)
            except OSError as error:
                process.fail(WorkspaceError(f"cannot reach the keeper of processes: {error}"))
            except WorkspaceError as error:
                process.fail(error)
            finally:
                theirs.close()
            if not process.started.done():
                with contextlib.suppress(OSError):  # said by `started`
                    await process.send_request(_encode_request(command, on_output is not None))
            await asyncio.shield(process.started)
        except asyncio.CancelledError:
            if not process.exited.done():
                await process.kill_and_wait()
            raise
        self._processes.add(process)
        process.exited.add_done_callback(lambda _: self._processes.discard(process))
        return process

    async def run(
        self, command: CommandSpec, on_output: Callable[[bytes, int], None] | None = None
    ) -> ProcessExit:
        """Start a command and wait for its end; cancelled, the tree is killed at once."""
        return await (await self.start(command, on_output)).wait_or_kill()

    async def aclose(self) -> None:
        """End every command that still runs, then the keeper."""
        running = tuple(self._processes)
        for process in running:
            process.kill()
        for process in running:
            await process.kill_and_wait()
        program = self._program
        self._disconnect()
        if program is not None:
            await _wait_exit(program)

    async def _send_descriptors(self, command: CommandSpec, theirs: socket.socket) -> None:
        """Send the call's descriptors: its control socket, its input, and those it passes on."""
        self.ensure_started()
        assert self._socket is not None
        given = _open_stdin(command.stdin)
        try:
            fds = [theirs.fileno(), given, *command.descriptors.values()]
            if command.landlock_ruleset is not None:
                fds.append(command.landlock_ruleset)
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
            while True:
                try:
                    self._socket.sendmsg([b"\1"], ancillary)
                    return
                except BlockingIOError:
                    await asyncio.sleep(0.001)  # many calls at once: the keeper takes them in turn
        finally:
            os.close(given)

    def _wake(self, supervisor: int, again: bool) -> None:
        if self._program is not None:
            _wake_stopped(self._program, supervisor, again)

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = self._program = None


def _wake_stopped(program: subprocess.Popen[bytes], supervisor: int, again: bool) -> None:
    """The keeper or a supervisor is late. If they were stopped they go on; the next time, who still
    is stopped, or traced, is ended with its command."""
    program.send_signal(signal.SIGCONT)
    if supervisor:
        with contextlib.suppress(ProcessLookupError):
            os.kill(supervisor, signal.SIGCONT)
    if again:
        from treadle.workspace.supervisor.process_tree import (
            kill_stopped_supervisors,  # hardly ever needed
        )

        kill_stopped_supervisors(program.pid if program.returncode is None else -1, supervisor)


async def _wait_exit(program: subprocess.Popen[bytes]) -> None:
    """Wait for a child without a thread; the keeper ends as soon as its socket does."""
    if program.poll() is not None:
        return
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    fd = os.pidfd_open(program.pid)
    loop.add_reader(fd, over.set)
    try:
        again = False
        while not over.is_set():
            _wake_stopped(program, 0, again)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), SUPERVISOR_TIMEOUT)
            again = True
    finally:
        loop.remove_reader(fd)
        os.close(fd)
        program.poll()


def _open_stdin(data: bytes) -> int:
    if not data:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    fd = os.memfd_create("treadle-input", os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _encode_request(command: CommandSpec, progress: bool) -> dict[str, object]:
    passed = [(0, 0)] + [(n, i) for i, n in enumerate(command.descriptors, start=1)]
    return {
        "argv": list(command.argv),
        "cwd": command.cwd,
        "env": dict(command.env),
        "timeout": command.timeout,
        "grace": command.grace,
        "pass": passed,
        "spooled": command.capture_output,
        "head": command.head,
        "tail": command.tail,
        "side": command.output_file,
        "cap": command.output_file_limit,
        "always": command.always_output_file,
        "linger": command.wait_for_tree,
        "wrapped": command.in_bubblewrap,
        "landlock": None if command.landlock_ruleset is None else len(command.descriptors) + 1,
        "nproc": command.nproc,
        "secrets": list(command.secrets),
        "progress": progress,
        "trailer": TRAILER_FD,
    }


def _make_start_error(number: int, what: str) -> WorkspaceError:
    reason = os.strerror(number) if number else what
    if what.startswith("enter "):
        folder = what.removeprefix("enter ")
        return WorkspaceError(
            f"the working directory {folder} cannot be entered: {reason}; name another one"
        )
    if number == 7:  # E2BIG
        return WorkspaceError(
            "the command line is too long for the system; write it to a file and run that"
        )
    return WorkspaceError(f"cannot {what}: {reason}")


def _decode_exit(outcome: dict[str, object], in_bubblewrap: bool) -> ProcessExit:
    status, trailer = outcome["status"], outcome["trailer"]
    left = outcome["left"]
    assert isinstance(status, int)
    assert isinstance(trailer, bytes)
    assert isinstance(left, list)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    said, _, rest = trailer.partition(b"\n")
    folder, _, jobs = rest.partition(b"\n\0")
    # Bubblewrap says 128 + n for a signal; a shell that left of its own will said the same code.
    if in_bubblewrap and code is not None and 128 < code < 193 and said != str(code).encode():
        number, code = code - 128, None
    return ProcessExit(
        exit_code=code,
        signal=_signal_name(number) if number else "",
        core_dumped=os.WCOREDUMP(status),
        timed_out=bool(outcome["timed_out"]),
        killed=bool(outcome["killed"]),
        out_of_memory=bool(outcome["out_of_memory"]),
        cwd=os.fsdecode(folder),
        # Inside a sandbox the names of what was left cannot be seen; the shell counted them.
        leftovers=tuple(left) or tuple(f"job {job.decode()}" for job in jobs.split()),
        stream=msgspec.convert(outcome["stream"], CapturedStream),
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
