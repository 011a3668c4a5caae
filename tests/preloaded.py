"""A program as a process of its own that has its imports: a fork of an interpreter that made them.

An interpreter spends most of a short run on imports. Tests start the same programs many hundred
times, so the first test that needs a set of imports starts an interpreter that makes them, and each
start is a fork of it. All workers of a run of pytest share these interpreters.
What is forked has run nothing: no setting, environment or folder is known to it before the fork.
Tests of the start itself use PROGRAM of tests/apps/program.py.

This file is both sides: run as a script it is the interpreter that forks.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, cast

# The interpreters of a run listen in this folder, which is locked when one starts or ends.
RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
FOLDER = Path(tempfile.gettempdir())
LARGEST_REQUEST = 1 << 17
EXIT_ROUNDS = 200

# --- the side of the test ----------------------------------------------------------------


class ForkedTransport(asyncio.SubprocessTransport):
    """What asyncio's Process asks of a transport; the interpreter that forks reports the end."""

    def __init__(self, pid: int, status: asyncio.StreamReader, pipes: dict[int, Any]) -> None:
        super().__init__()
        self._pid = pid
        self._pipes = pipes
        self._exit_code: int | None = None
        self._end = asyncio.ensure_future(self._follow(status))

    async def _follow(self, status: asyncio.StreamReader) -> int:
        self._exit_code = int(await status.readline())
        await status.read()
        for _ in range(EXIT_ROUNDS):  # what it wrote is read, unless a child of it holds the pipe
            if all(pipe.is_closing() for pipe in self._pipes.values()):
                break
            await asyncio.sleep(0)
        return self._exit_code

    async def _wait(self) -> int:
        return await asyncio.shield(self._end)

    def get_pid(self) -> int:
        return self._pid

    def get_returncode(self) -> int | None:
        return self._exit_code

    def get_pipe_transport(self, fd: int) -> Any:
        return self._pipes.get(fd)

    def send_signal(self, number: int) -> None:
        if self._exit_code is not None:
            raise ProcessLookupError
        os.kill(self._pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        for pipe in self._pipes.values():
            pipe.close()


async def start_preloaded(
    imports: str,
    code: str,
    *arguments: str,
    stdin: int = DEVNULL,
    cwd: Path | None = None,
    env: dict[str, str],
    limit: int = 1 << 24,
) -> Process:
    """Like asyncio.create_subprocess_exec of `python -c code`, with pipes for stdout and stderr.

    `imports` is code, too; it is run once.
    """
    loop = asyncio.get_running_loop()
    mine: dict[int, int] = {}
    its: list[int] = []
    for fd in range(3):
        if fd == 0 and stdin == DEVNULL:
            its.append(os.open(os.devnull, os.O_RDONLY))
            continue
        assert fd or stdin == PIPE
        reading, writing = os.pipe()
        mine[fd], other = (writing, reading) if fd == 0 else (reading, writing)
        its.append(other)
    status_reading, status_writing = os.pipe()
    request = json.dumps([code, arguments, str((cwd or Path()).absolute()), env]).encode()
    try:
        assert len(request) <= LARGEST_REQUEST
        connection = connect_to_forking_interpreter(imports)
        socket.send_fds(connection, [request], [*its, status_writing])
    finally:
        for fd in (*its, status_writing):
            os.close(fd)
    status, _ = await read_pipe(status_reading, limit)
    pipes: dict[int, Any] = {}
    streams = SimpleNamespace(stdin=None, stdout=None, stderr=None)
    streams.stdout, pipes[1] = await read_pipe(mine[1], limit)
    streams.stderr, pipes[2] = await read_pipe(mine[2], limit)
    if 0 in mine:
        pipes[0], protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(mine[0], "wb")
        )
        streams.stdin = asyncio.StreamWriter(pipes[0], protocol, None, loop)
    pid = int(await status.readline())
    return Process(ForkedTransport(pid, status, pipes), cast("Any", streams), loop)


async def read_pipe(fd: int, limit: int) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    reader = asyncio.StreamReader(limit=limit)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb")
    )
    return reader, transport


# The connections of this process, and the interpreters that it started itself. They are no leaks of
# the test that needed one first.
connections: dict[tuple[int, str], socket.socket] = {}
interpreters: list[subprocess.Popen[bytes]] = []


def connect_to_forking_interpreter(imports: str) -> socket.socket:
    key = (os.getpid(), imports)
    if key not in connections:
        digest = hashlib.sha256(imports.encode()).hexdigest()
        path = FOLDER / f"treadle-forks-{RUN[:12]}-{digest[:12]}"
        with locked(FOLDER):
            connections[key] = connect(path) or start_forking_interpreter(path, imports)
    return connections[key]


def connect(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * LARGEST_REQUEST)
    try:
        connection.connect(str(path))
    except OSError:  # nobody listens
        connection.close()
        return None
    return connection


def start_forking_interpreter(path: Path, imports: str) -> socket.socket:
    """Start one and return the first connection: it ends when its last connection is closed."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen(64)
        connection = connect(path)
        assert connection is not None
        command = [sys.executable, "-I", __file__, str(listener.fileno()), str(path), imports]
        interpreters.append(
            subprocess.Popen(command, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL)
        )
    return connection


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Whoever connects does it before an interpreter decides to end, or starts another one."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# --- the interpreter that forks ----------------------------------------------------------


def serve_forks(listener: socket.socket, path: Path) -> str | None:
    """Fork for each request; returns the code in a fork, and None when the last client has left."""
    started: dict[int, int] = {}  # pid -> descriptor for its exit code

    def report_ended(_number: int = 0, _frame: FrameType | None = None) -> None:
        while started:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with os.fdopen(started.pop(pid), "w") as report:
                report.write(f"{os.waitstatus_to_exitcode(status)}\n")

    signal.signal(signal.SIGCHLD, report_ended)
    connected = [listener.accept()[0]]
    while connected:
        for ready in select.select([listener, *connected], [], [])[0]:
            if ready is listener:
                connected.append(listener.accept()[0])
                continue
            request, fds, _, _ = socket.recv_fds(ready, LARGEST_REQUEST, 4)
            if not request:
                connected.remove(ready)
                ready.close()
                continue
            if (code := fork(request, fds, started)) is not None:
                return code
        if not connected:
            with locked(path.parent):
                if select.select([listener], [], [], 0)[0]:
                    connected.append(listener.accept()[0])
                else:
                    path.unlink(missing_ok=True)
    return None


def fork(request: bytes, fds: list[int], started: dict[int, int]) -> str | None:
    """The code to run, in the fork; None in the interpreter."""
    *streams, status = fds
    code, arguments, folder, variables = json.loads(request)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        become_program(arguments, folder, variables, streams)
        return cast("str", code)
    for fd in streams:
        os.close(fd)
    os.write(status, f"{pid}\n".encode())
    started[pid] = status
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    return None


def become_program(
    arguments: list[str], folder: str, variables: dict[str, str], streams: list[int]
) -> None:
    """What the kernel and the interpreter do at the start of a program."""
    import time

    for fd, given in enumerate(streams):
        os.dup2(given, fd, inheritable=True)
    os.closerange(3, 1024)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    time.tzset()
    sys.argv = ["-c", *arguments]
    sys.stdin = open_stream(0, "r", "surrogateescape")
    sys.stdout = open_stream(1, "w", "surrogateescape")
    sys.stderr = open_stream(2, "w", "backslashreplace")


def open_stream(fd: int, mode: str, errors: str) -> Any:
    buffering = 1 if fd == 2 else -1
    return open(fd, mode, buffering, "utf-8", errors)


def main() -> None:
    import gc

    exec(sys.argv[3], {})
    gc.freeze()
    code = serve_forks(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]))
    if code is not None:
        exec(code, {"__name__": "__main__"})


if __name__ == "__main__":
    main()
