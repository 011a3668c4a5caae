"""Commands: started, watched and ended through the fork server, which owns their whole trees.

Not a shell parser and not a policy. Used by `local.py`, which decides what to run in which
sandbox; `supervisor/` is the program on the other end of the socket.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import msgspec

from treadle.core.errors import WorkspaceError
from treadle.workspace.output import ProcessExit, decode_exit
from treadle.workspace.supervisor.syscalls import (
    IS_LINUX,
    encode_message,
    open_memory_file,
    take_messages,
)

# The fork server imports from this folder only: importing the treadle package would take longer.
_CODE = f"import sys; sys.path.append({str(Path(__file__).parent)!r}); "
_CODE += "from supervisor.fork_server import main; main()"
FORK_SERVER = (sys.executable, "-I", "-S", "-c", _CODE)
HEAD_BYTES = TAIL_BYTES = 16_000
"""Of a long output this much of both ends is shown; the whole is in its output file."""

RECEIVE_BYTES = 1 << 16
RESERVED_FDS = 40
"""Descriptors from `trailer_fd` on: three with a meaning, and those that a call passes."""


@cache
def trailer_fd() -> int:
    """Where a shell reports its final state; a high number, so that no command uses it. The next
    one is free for the sandbox. Below the limit of descriptors (`ulimit -n`)."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 198 if limit == resource.RLIM_INFINITY else max(10, min(198, limit - RESERVED_FDS))


@cache
def exit_trap() -> str:
    """Put before a command for bash: at exit it reports its status, its folder and its jobs. The
    last report counts: programs that it starts inherit the descriptor."""
    report = "printf \\\\1%s\\\\n $?; pwd -P; printf \\\\0; jobs -p"
    return f"trap '{{ {report}; }} 2>/dev/null >&{trailer_fd()} || :' EXIT\n"


EXIT_INTERVAL = 0.01
SUPERVISOR_TIMEOUT = 1.0
"""Seconds that a supervisor may be late; then it is woken or killed."""

_START_STEPS = {
    "setup": "set up the process",
    "limit": "set the limits of the process",
    "descriptors": "pass the descriptors",
    "restrict": "apply the Landlock rules",
    "supervise": "supervise the command",
}
"""The steps of `supervisor/supervisor.py` before a command runs; `chdir` and `exec` are apart."""

OnOutput = Callable[[bytes, int], None]  # the new output, and the size of all so far


class CommandSpec(msgspec.Struct, frozen=True):
    """What to run, and within which limits.

    descriptors    the child's number to ours; the caller closes them
    wait_for_tree  it ends when its whole tree has ended, not with its first process
    in_bubblewrap  argv is bubblewrap's: its own two processes get no TERM
    nproc          RLIMIT_NPROC; 0 if a cgroup limits the processes
    max_memory     bytes that its processes may use together; 0 for no limit
    disk           a folder, and how many bytes its disk may lose; 0: half of what is free
    terminal       our end of a terminal; the child's number 0 is its other end
    secrets        values that are redacted from its output before it is stored
    cleanup        what `set_aside_made` needs, which runs if the agent is killed
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
    terminal: int | None = None
    nproc: int = 0
    max_memory: int = 0
    disk: tuple[str, int] = ("", 0)
    secrets: tuple[bytes, ...] = ()
    cleanup: Mapping[str, object] = {}
    set_aside_dir: str = ""


class Process:
    """One running command. In every case `exited` is set in the end and no process is left."""

    def __init__(
        self,
        control: socket.socket,
        command: CommandSpec,
        on_output: OnOutput | None,
        wake: Callable[[int, bool], None],
    ) -> None:
        self._control, self._command = control, command
        self._on_output, self._wake = on_output, wake
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._watchdog: asyncio.TimerHandle | None = None
        self._was_woken = False
        self.pid = self._supervisor = 0
        self.started: asyncio.Future[int] = self._loop.create_future()
        self.exited: asyncio.Future[ProcessExit] = self._loop.create_future()
        self._loop.add_reader(control.fileno(), self._on_readable)
        self._set_watchdog(SUPERVISOR_TIMEOUT)

    async def send_request(self, request: dict[str, object]) -> None:
        await self._loop.sock_sendall(self._control, encode_message(request))

    async def wait(self) -> ProcessExit:
        """How it ended. Cancelling the wait does not end the command."""
        return await asyncio.shield(self.exited)

    async def wait_or_kill(self) -> ProcessExit:
        """How it ended; on cancellation the tree is killed at once."""
        try:
            return await self.wait()
        except asyncio.CancelledError:
            await self.kill_and_wait()
            raise

    def terminate(self) -> None:
        """TERM to the tree, KILL after the grace period."""
        self._send_command("terminate", self._command.grace + SUPERVISOR_TIMEOUT)

    def kill(self) -> None:
        """KILL to the tree, now."""
        self._send_command("kill", SUPERVISOR_TIMEOUT)

    async def kill_and_wait(self) -> None:
        """Kill it and wait until it is gone, even if the wait is cancelled."""
        self.kill()
        cancelled = False
        while not self.exited.done():
            try:
                await asyncio.wait({self.exited})
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            raise asyncio.CancelledError

    def _send_command(self, name: str, within: float) -> None:
        if self.exited.done():
            return
        with contextlib.suppress(OSError):  # it is just ending: the reader notices
            self._control.send(encode_message((name,)))
        if self._watchdog is None or self._watchdog.when() > self._loop.time() + within:
            self._set_watchdog(within)

    def _set_watchdog(self, within: float | None) -> None:
        """Expect a message of its supervisor within this time: a command may have stopped it."""
        if self._watchdog is not None:
            self._watchdog.cancel()
        later = self._loop.call_later
        self._watchdog = None if within is None else later(within, self._on_watchdog)

    def _on_watchdog(self) -> None:
        self._set_watchdog(SUPERVISOR_TIMEOUT)
        self._wake(self._supervisor, self._was_woken)
        self._was_woken = True

    def _on_readable(self) -> None:
        while self._control.fileno() >= 0:
            try:
                data = self._control.recv(RECEIVE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                unknown = "it is not known how the command ended"
                self.fail(WorkspaceError(f"the supervisor of the command was killed; {unknown}"))
                return
            self._received += data
            for message in take_messages(self._received):
                self._handle_message(message)

    def _handle_message(self, message: object) -> None:
        match message:
            case ("output", int(total), bytes(fresh)):
                if self._on_output is not None:
                    self._on_output(fresh, total)
            case ("started", int(pid), int(supervisor)):
                self.pid, self._supervisor = pid, supervisor
                limit, grace = self._command.timeout, self._command.grace
                self._set_watchdog(None if limit is None else limit + grace + SUPERVISOR_TIMEOUT)
                if not self.started.done():
                    self.started.set_result(pid)
            case ("failed", int(number), str(step), str(detail)):
                self.fail(_make_start_error(self._command, number, step, detail))
            case ("exited", dict(outcome)):
                self._close()
                self.exited.set_result(decode_exit(outcome, self._command.in_bubblewrap))

    def fail(self, error: WorkspaceError) -> None:
        self._close()
        for future in (self.started, self.exited):
            if not future.done():
                future.set_exception(error)
                future.exception()  # no warning if the future is never awaited

    def _close(self) -> None:
        self._set_watchdog(None)
        self._loop.remove_reader(self._control.fileno())
        self._control.close()


class ForkServerClient:
    """The client of the fork server, which starts with the first command, and again if it died.

    `make_env` returns the environment; no library of the project is loaded into the fork server, so
    LD_* are for commands only. `cgroup` returns the folder for a pids cgroup per command;
    `max_pids` is its limit.
    """

    def __init__(
        self, make_env: Callable[[], dict[str, str]], cgroup: Callable[[], str], max_pids: int
    ) -> None:
        self._make_env, self._cgroup, self._max_pids = make_env, cgroup, str(max_pids)
        self._program: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._processes: set[Process] = set()
        self._is_closed = False

    def ensure_started(self) -> None:
        """Start the fork server now, so that the first command need not wait for it."""
        if self._is_closed:  # a command that comes too late would leave it behind
            raise WorkspaceError("the workspace is closed")
        if self._program is not None and self._program.poll() is None:
            return
        self._disconnect()
        ours, theirs = socket.socketpair(socket.AF_UNIX)
        try:
            self._program = subprocess.Popen(
                [*FORK_SERVER, self._cgroup(), self._max_pids],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={k: v for k, v in self._make_env().items() if not k.startswith("LD_")},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise WorkspaceError(f"cannot start the fork server: {error}") from error
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket = ours

    async def start(self, command: CommandSpec, on_output: OnOutput | None = None) -> Process:
        """Start a command; WorkspaceError if that fails. On cancellation nothing stays running."""
        ours, theirs = socket.socketpair(socket.AF_UNIX)
        ours.setblocking(False)
        process = Process(ours, command, on_output, self._wake)
        try:
            try:
                await self._send_descriptors(command, theirs)
            except OSError as error:
                process.fail(WorkspaceError(f"cannot reach the fork server: {error}"))
            except WorkspaceError as error:
                process.fail(error)
            finally:
                theirs.close()
            if not process.started.done():
                with contextlib.suppress(OSError):  # `started` gets the error
                    await process.send_request(_encode_request(command, on_output is not None))
            await asyncio.shield(process.started)
        except asyncio.CancelledError:
            if not process.exited.done():
                await process.kill_and_wait()
            raise
        self._processes.add(process)
        process.exited.add_done_callback(lambda _: self._processes.discard(process))
        return process

    async def run(self, command: CommandSpec, on_output: OnOutput | None = None) -> ProcessExit:
        """Start a command and wait for its end; on cancellation the tree is killed at once."""
        return await (await self.start(command, on_output)).wait_or_kill()

    async def aclose(self) -> None:
        """End every command that still runs, then the fork server, for good."""
        self._is_closed = True
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
        """Send the call's descriptors: its control socket, its stdin, and those for the command."""
        self.ensure_started()
        assert self._socket is not None
        if command.stdin:
            stdin = open_memory_file("treadle-input", command.stdin)
        else:
            stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fds = [theirs.fileno(), stdin, *command.descriptors.values()]
            fds += [fd for fd in (command.landlock_ruleset, command.terminal) if fd is not None]
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
            while True:
                try:
                    self._socket.sendmsg([b"\1"], ancillary)
                    return
                except BlockingIOError:
                    await asyncio.sleep(0.001)  # many calls at once: wait for the supervisors
        finally:
            os.close(stdin)

    def _wake(self, supervisor: int, again: bool) -> None:
        if self._program is not None:
            _wake_stopped(self._program, supervisor, again)

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = self._program = None


def _wake_stopped(program: subprocess.Popen[bytes], supervisor: int, again: bool) -> None:
    """The fork server or a supervisor is late: continue it if it was stopped. `again`: kill a
    supervisor that is still stopped, or traced, with its command."""
    program.send_signal(signal.SIGCONT)
    if supervisor:
        with contextlib.suppress(ProcessLookupError):
            os.kill(supervisor, signal.SIGCONT)
    if again:
        # Imported here because it is rarely needed.
        from treadle.workspace.supervisor.process_tree import kill_stopped_supervisors

        kill_stopped_supervisors(program.pid if program.returncode is None else -1, supervisor)


async def _wait_exit(program: subprocess.Popen[bytes]) -> None:
    """Wait for the fork server without a thread; it exits when its socket is closed."""
    again = False
    while program.poll() is None:
        _wake_stopped(program, 0, again)
        await _wait_signal(program)
        again = True


async def _wait_signal(program: subprocess.Popen[bytes]) -> None:
    """Until it has ended, at most SUPERVISOR_TIMEOUT."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    if not IS_LINUX:  # no descriptor stands for a process
        deadline = loop.time() + SUPERVISOR_TIMEOUT
        while program.poll() is None and loop.time() < deadline:  # noqa: ASYNC110 - as above
            await asyncio.sleep(EXIT_INTERVAL)
        return
    try:
        fd = os.pidfd_open(program.pid)
    except ProcessLookupError:
        return  # it ended, and a poll has noticed
    loop.add_reader(fd, over.set)
    try:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), SUPERVISOR_TIMEOUT)
    finally:
        loop.remove_reader(fd)
        os.close(fd)


def _encode_request(command: CommandSpec, progress: bool) -> dict[str, object]:
    """The fields of the spec; descriptors are positions in the list that was sent before."""
    count, has_ruleset = len(command.descriptors), command.landlock_ruleset is not None
    request = msgspec.structs.asdict(command) | {
        "env": dict(command.env),
        "cleanup": dict(command.cleanup),
        "descriptors": [(0, 0)] + [(n, i) for i, n in enumerate(command.descriptors, start=1)],
        "landlock_ruleset": count + 1 if has_ruleset else None,
        "terminal": count + 1 + has_ruleset if command.terminal is not None else None,
        "progress": progress,
        "trailer_fd": trailer_fd(),
    }
    del request["stdin"]  # sent as a descriptor
    return request


def _make_start_error(command: CommandSpec, number: int, step: str, detail: str) -> WorkspaceError:
    reason = os.strerror(number) if number else detail
    if step == "chdir":
        problem = f"the working directory {command.cwd} cannot be entered: {reason}"
        return WorkspaceError(f"{problem}; use another one", kind="bad_cwd")
    if number == errno.E2BIG:
        problem = "the command line is too long for the system"
        return WorkspaceError(f"{problem}; write it to a file and run that")
    action = f"run {command.argv[0]}" if step == "exec" else _START_STEPS.get(step, step)
    return WorkspaceError(f"cannot {action}: {reason}")
