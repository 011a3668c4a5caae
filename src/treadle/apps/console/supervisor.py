"""The supervisor of the user: starts the runs of background sessions, and says when they end.

    start_run    what a program asks of it: it is started if it is not there
    bring_here   waits at the terminal for a session that works in the background
    serve        the supervisor itself: ends when it has had nothing to do for a while

One per user: a lock, and a socket for this user alone, in a folder for this user alone. It holds no
session: each run is a process of its own, with the environment of the program that asked for it,
and lives on if the supervisor is killed. A turn that waits for a time is continued at that time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

import treadle
from treadle.apps.console.console import print_error
from treadle.apps.console.exit_codes import IO_ERROR, SESSION_BUSY, SUSPENDED
from treadle.apps.settings.settings import treadle_home
from treadle.core.errors import TreadleError
from treadle.lib.files.flock import try_lock
from treadle.lib.files.private_files import make_private_folder
from treadle.lib.tasks import cancel_all
from treadle.sessions.detached.background import (
    OUTPUT,
    STAY_SIGNAL,
    BackgroundChoices,
    find_run,
    mark_start,
    open_choices,
    read_choices,
    save_choices,
    signal_run,
    take_over,
)

COMES = "it works: it comes here after this round (ctrl+c lets it work on)"
IDLE_SECONDS = 5.0
START_SECONDS = 30.0  # for the supervisor to listen
MAX_REQUEST = 1 << 20  # bytes: the environment
READY = b"ready\n"
_PROGRAM = (sys.executable, "-P", str(Path(treadle.__file__).parent / "__main__.py"), "supervisor")


class RunRequest(msgspec.Struct, frozen=True):
    """Let a run work on this session, which has something to do."""

    session_dir: str
    folder: str
    environment: dict[str, str]
    umask: int


class RunReply(msgspec.Struct, frozen=True):
    problem: str = ""


# --- the side of the program --------------------------------------------------------------


def start_run(
    session_dir: Path,
    folder: Path,
    environment: Mapping[str, str],
    choices: BackgroundChoices | None = None,
) -> None:
    """Ask the supervisor for a run. When this returns, the run has been started. With `choices` the
    session is in the background from now on."""
    os.umask(mask := os.umask(0o077))
    request = RunRequest(str(session_dir), str(folder), dict(environment), mask)
    message = msgspec.json.encode(request) + b"\n"
    if len(message) > MAX_REQUEST:
        raise TreadleError("the environment is too large for the supervisor")
    deadline = time.monotonic() + START_SECONDS
    start = save_choices(session_dir, choices) if choices else open_choices(session_dir)
    try:
        while (answer := _ask(message)) is None:
            problem = _start_supervisor()
            if problem or time.monotonic() > deadline:
                raise TreadleError(f"the supervisor in {_find_folder()} does not start: {problem}")
    finally:
        os.close(start)
    if answer.problem:
        raise TreadleError(answer.problem)


def bring_here(session_dir: Path, folder: Path, wait: str = COMES) -> bool:
    """Wait until no run has the session: whether one had it. A user who does not want to wait lets
    it work on."""
    try:
        return asyncio.run(take_over(session_dir, lambda: print_error(f"treadle: {wait}")))
    except KeyboardInterrupt:
        if not signal_run(session_dir, STAY_SIGNAL) and read_choices(session_dir) is not None:
            start_run(session_dir, folder, os.environ)
        raise


def _ask(message: bytes) -> RunReply | None:
    """None if no supervisor answers, or it just ends: a run is started once all the same, for it
    has to get the lock of its session."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            folder = os.open(_find_folder(), os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return None
        try:
            connection.connect(_shorten(folder))
            connection.sendall(message)
            with connection.makefile("rb") as lines:
                return msgspec.json.decode(lines.readline(), type=RunReply)
        except (OSError, msgspec.DecodeError):
            return None
        finally:
            os.close(folder)


def _shorten(folder: int) -> str:
    """The socket by its open folder: its whole path may be longer than an address can be."""
    place = Path(f"/proc/self/fd/{folder}")
    return str((place if place.is_dir() else _find_folder()) / "socket")


def _start_supervisor() -> str:
    """Return when it listens, or has ended: why, unless another one was there before."""
    make_private_folder(_find_folder())
    process = subprocess.Popen(
        _PROGRAM,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout:
        reply = process.stdout.readline()
    if reply == READY:
        process.returncode = 0  # it lives on: not waited for, and no warning about that
        return ""
    return "" if process.wait() == SESSION_BUSY else reply.decode().strip() or "it was ended"


def _find_folder() -> Path:
    return treadle_home() / "supervisor"


# --- the supervisor -----------------------------------------------------------------------


def serve() -> int:
    """Start the runs that programs ask for, until there is none for a while. It has another code
    if another supervisor is there, or if it cannot listen: stdout says why."""
    folder = _find_folder()
    try:
        make_private_folder(folder)
        folder.chmod(stat.S_IRWXU)
        lock = try_lock(folder / "lock")
        if lock is None:
            print("treadle: the supervisor of this user runs already", file=sys.stderr)
            return SESSION_BUSY
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d" % os.getpid(), 0)  # for people
        os.chdir(folder)
        Path("socket").unlink(missing_ok=True)
    except OSError as error:
        print(error)
        return IO_ERROR
    try:
        asyncio.run(RunSupervisor().run())
    finally:
        Path("socket").unlink(missing_ok=True)
    return 0


class RunSupervisor:
    """`runs`: a task for each session that has a run, or waits for its time."""

    def __init__(self) -> None:
        self._runs: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    async def run(self) -> None:
        mask = os.umask(0o177)  # from the first moment the socket is that of the user alone
        server = await asyncio.start_unix_server(self._answer, "socket", limit=MAX_REQUEST)
        os.umask(mask)
        os.write(1, READY)
        os.dup2(2, 1)  # the program that started it reads no more
        try:
            while self._runs or await self._is_asked():
                self._changed.clear()
                await self._changed.wait()
        finally:
            server.close()
            await cancel_all(list(self._runs.values()))

    async def _is_asked(self) -> bool:
        """Whether a request comes before it has been idle for too long."""
        self._changed.clear()
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = msgspec.json.decode(await reader.readline(), type=RunRequest)
            reply = RunReply()
            try:
                process = await _start(request)
            except OSError as error:
                reply = RunReply(f"the run does not start: {error}")
            else:
                self._watch(request, process)
            writer.write(msgspec.json.encode(reply) + b"\n")
            await writer.drain()
        except (OSError, ValueError, msgspec.DecodeError):
            pass  # the program is gone, or it is none of ours
        finally:
            writer.close()

    def _watch(self, request: RunRequest, process: asyncio.subprocess.Process) -> None:
        name = request.session_dir
        if (earlier := self._runs.get(name)) is not None:
            earlier.cancel()  # it followed an older run
        self._runs[name] = task = asyncio.create_task(self._follow(request, process))
        task.add_done_callback(lambda done: self._forget(name, done))
        self._changed.set()

    def _forget(self, name: str, task: asyncio.Task[None]) -> None:
        if self._runs.get(name) is task:
            del self._runs[name]
        self._changed.set()

    async def _follow(self, request: RunRequest, process: asyncio.subprocess.Process) -> None:
        """Until the session has no run and no time to wait for."""
        while True:
            code = await process.wait()
            wait = await asyncio.to_thread(find_wait, Path(request.session_dir), code)
            if wait is None:
                return
            await asyncio.sleep(wait)
            if read_choices(Path(request.session_dir)) is None:
                return
            process = await _start(request)


async def _start(request: RunRequest) -> asyncio.subprocess.Process:
    session_dir = Path(request.session_dir)
    output = os.open(session_dir / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    mark_start(output)
    try:
        return await asyncio.create_subprocess_exec(
            *(*_PROGRAM, "run", session_dir.name),
            cwd=request.folder,
            env=request.environment,
            umask=request.umask,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    finally:
        os.close(output)


def find_wait(session_dir: Path, code: int) -> float | None:
    """The seconds until the session, whose run has ended, gets another one; None: never. The user
    is told."""
    from treadle.sessions.library import Library, describe_last_turn

    if read_choices(session_dir) is None or find_run(session_dir) is not None:
        return None  # another program has it, or a run of another supervisor
    library = Library()
    summary = library.get_summary(session_dir)
    wait = summary.suspended if code == SUSPENDED else None
    if wait is not None and wait.reason == "other":
        return None  # it left for another program, which is about to have it
    wake = wait.wake if wait is not None else None
    if wake is not None and wake.on == "time":
        return max(wake.at - time.time(), 0.0)
    state = "needs your answer" if wake is not None else describe_last_turn(summary)
    _notify(f"{library.get_title(summary)}: {state} (treadle attach {session_dir.name})")
    return None


# Programs that show a notification of the desktop, each with the arguments before its text.
_NOTIFIERS = {
    "notify-send": ("--", "treadle"),
    "osascript": (
        *("-e", "on run {message}"),
        *("-e", 'display notification message with title "treadle"'),
        *("-e", "end run", "--"),
    ),
}


def _notify(text: str) -> None:
    """Show a notification of the desktop, if there is one and the setting `notify` allows it."""
    from treadle.apps.settings.load import load_settings

    program = next(filter(shutil.which, _NOTIFIERS), None)
    try:
        if program is None or load_settings(Path("/")).notify == "off":
            return
        argv = [program, *_NOTIFIERS[program], text]
        subprocess.run(argv, timeout=5, check=False, capture_output=True)
    except (TreadleError, OSError, subprocess.SubprocessError):
        return  # the session does not depend on it
