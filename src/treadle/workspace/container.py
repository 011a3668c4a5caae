"""A workspace whose commands run in containers of podman or docker: the Workspace contract.

    workspace = ContainerWorkspace(folder, ContainerOptions(image="python:3.12"))
    agent = Agent(model, tools=[builtin_tools(workspace)], workspace=workspace)

Files are read and written here, by the local workspace; the folder is mounted at the same path in
the container. Each command has a container of its own, so nothing of it is left when it ends, and
nothing outside of the folder stays. Programs that only read, such as a search, run here.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

from treadle.core.contracts.workspace import (
    CommandInput,
    CommandResult,
    NetworkAccess,
    ProgramResult,
    RunningCommand,
    Workspace,
)
from treadle.core.contracts.wrapped import WrappedCommand, WrappedWorkspace
from treadle.core.errors import ConfigError, WorkspaceError
from treadle.lib.child_process import start_child
from treadle.workspace.command_limits import FileDenials
from treadle.workspace.container_mounts import ContainerMounts
from treadle.workspace.environment import FIXED_VARIABLES
from treadle.workspace.local import LocalWorkspace
from treadle.workspace.options import WorkspaceOptions

ContainerProgram = Literal["podman", "docker"]
PROGRAMS: tuple[ContainerProgram, ...] = ("podman", "docker")
REMOVE_SECONDS = 30.0
POLL_SECONDS = 0.02  # between two looks whether the command has begun
_REPORTS = "/run/treadle"  # in the container: where a command reports how it ended
_CLIENT_VARIABLES = ("CONTAINERS_CONF", "CONTAINER_HOST", "DOCKER_HOST", "DOCKER_CONFIG")

# The first process of a container does not get signals as others do: the command is its child.
_RUN_COMMAND = f"""\
exec 2>&1
: > {_REPORTS}/begun
/bin/sh -c "trap 'pwd -P > {_REPORTS}/cwd' EXIT
$1"
code=$?; echo $code > {_REPORTS}/code; exit $code"""
_RUN_PROGRAM = f"""\
: > {_REPORTS}/begun
command -v "$1" > /dev/null || {{ echo missing > {_REPORTS}/code; exit 127; }}
"$@"
code=$?; echo $code > {_REPORTS}/code; exit $code"""


class ContainerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """image      what the containers are made of; it needs /bin/sh
    program    podman or docker; by default the one that is installed
    network    whether commands reach the network
    memory     of one container, such as "4g"; by default no limit
    arguments  more arguments of `podman run` or `docker run`
    """

    image: str
    program: ContainerProgram | None = None
    network: bool = False
    memory: str = ""
    arguments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.image or self.image.startswith("-") or any(map(str.isspace, self.image)):
            raise ConfigError(f"{self.image!r} is not the name of an image; use NAME or NAME:TAG")


class ContainerWorkspace(WrappedWorkspace):
    """Files of a folder here, commands in containers. Close it with `aclose`."""

    def __init__(
        self,
        root: Path,
        options: ContainerOptions,
        *,
        files: Workspace | None = None,
        client: Workspace | None = None,
        get_denials: Callable[[], FileDenials] = FileDenials,
    ) -> None:
        """`files` reads and writes files, and runs programs that only read. `client` runs podman or
        docker; it is not for the model, and has no sandbox (make_client_options). They stay open
        when this one is closed. `get_denials` has the deny rules about files, for commands; it is
        called at the first one. WorkspaceError if neither program is installed."""
        self._options = options
        self._program = _find_program(options.program)
        self._mounts = ContainerMounts(str(root.resolve()), get_denials)
        self._own_client = None
        if client is None:
            client = self._own_client = LocalWorkspace(root, make_client_options())
        self._client = client
        super().__init__(files or self._client)

    # --- commands --------------------------------------------------------------------------

    async def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_output: Callable[[str], None] | None = None,
        sandboxed: bool | None = None,
        network: NetworkAccess | None = None,
    ) -> CommandResult:
        _refuse_sandbox_request(sandboxed, network)
        async with self._open_container() as container:
            argv = await self._make_argv(container, cwd, env, _RUN_COMMAND, [command])
            async with container.limit_time(timeout):
                done = await self._client.run(shlex.join(argv), env=env, on_output=on_output)
            result = container.make_result(done)
        return container.add_notes(result)

    async def start(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        sandboxed: bool | None = None,
        network: NetworkAccess | None = None,
        stdin: CommandInput = False,
    ) -> RunningCommand:
        _refuse_sandbox_request(sandboxed, network)
        if stdin:
            raise WorkspaceError("a command in a container has no input; run it with its input")
        container = _Container(self._program, self._mounts)
        try:
            argv = await self._make_argv(container, cwd, env, _RUN_COMMAND, [command])
            running = await self._client.start(shlex.join(argv), env=env)
        except BaseException:
            await container.remove()
            raise
        return _ContainerCommand(running, container)

    async def execute(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        stdin: bytes = b"",
        limit: int = 8 << 20,
        sandboxed: bool | None = None,
        read_only: bool = False,
    ) -> ProgramResult:
        if read_only or sandboxed is False:
            self._check_cwd(cwd)
            return await super().execute(
                argv,
                cwd=cwd,
                env=env,
                timeout=timeout,
                stdin=stdin,
                limit=limit,
                sandboxed=sandboxed,
                read_only=read_only,
            )
        async with self._open_container() as container:
            words = await self._make_argv(
                container, cwd, env, _RUN_PROGRAM, argv, ["--interactive"]
            )
            async with container.limit_time(timeout):
                done = await self._client.execute(words, env=env, stdin=stdin, limit=limit)
            return container.make_program_result(done, argv[0])

    async def aclose(self) -> None:
        if self._own_client is not None:
            await self._own_client.aclose()

    # --- containers ------------------------------------------------------------------------

    @asynccontextmanager
    async def _open_container(self) -> AsyncIterator[_Container]:
        """A container that is gone at the end, also after a cancellation."""
        container = _Container(self._program, self._mounts)
        try:
            yield container
        finally:
            removal = asyncio.ensure_future(container.remove())
            try:
                await asyncio.shield(removal)
            except asyncio.CancelledError:
                await asyncio.wait({removal})
                raise

    async def _make_argv(
        self,
        container: _Container,
        cwd: str | None,
        env: Mapping[str, str] | None,
        script: str,
        words: Sequence[str],
        more: Sequence[str] = (),
    ) -> list[str]:
        if any("\0" in word for word in words):
            raise WorkspaceError("the command has a NUL character in it")
        options = self._options
        argv = [self._program, "run", "--rm", "--name", container.name, *more]
        argv += ["--workdir", str(self._check_cwd(cwd))]
        volumes = await container.begin()
        argv += [word for volume in volumes for word in ("--volume", volume)]
        argv += ["--volume", f"{container.reports}:{_REPORTS}"]
        argv += ["--security-opt", "label=disable", *_list_user_options(self._program)]
        argv += [] if options.network else ["--network", "none"]
        argv += ["--memory", options.memory] if options.memory else []
        # Values of the caller are not arguments, which other users of the machine could read.
        argv += [word for name in env or {} for word in ("--env", name)]
        argv += [f"--env={name}={value}" for name, value in FIXED_VARIABLES.items()]
        return [*argv, *options.arguments, options.image, "/bin/sh", "-c", script, "sh", *words]

    def _check_cwd(self, cwd: str | None) -> Path:
        path = self.root / (cwd or ".")
        if not path.is_dir():
            problem = f"the working directory {path} does not exist; use another one"
            raise WorkspaceError(problem, kind="bad_cwd")
        return path


def _refuse_sandbox_request(sandboxed: bool | None, network: NetworkAccess | None) -> None:
    if sandboxed is False or network:
        raise WorkspaceError("the container cannot be left, and its network is that of the task")


class _Container:
    """The name of one container, and the folder in which its command reports how it ended."""

    def __init__(self, program: str, mounts: ContainerMounts) -> None:
        self._program = program
        self._mounts = mounts
        self._has_begun = False
        self._notes: list[str] = []  # about what its command made and must not leave
        self.name = f"treadle-{secrets.token_hex(8)}"
        self.reports = tempfile.mkdtemp(prefix="treadle-container-")
        self._limit: float | None = None  # the time limit, if it was exceeded
        self._is_killed = False

    async def begin(self) -> list[str]:
        """What has to be mounted. After it `remove` looks at what the command made."""
        return await asyncio.to_thread(self._begin)

    def _begin(self) -> list[str]:
        self._has_begun = True
        return self._mounts.begin(self.reports)

    @asynccontextmanager
    async def limit_time(self, seconds: float | None) -> AsyncIterator[None]:
        """End the container so many seconds after its command began: the time that the container
        itself needs does not count."""
        if seconds is None:
            yield
            return
        timer = asyncio.ensure_future(self._end_after(seconds))
        try:
            yield
        finally:
            timer.cancel()
            await asyncio.wait({timer})

    async def _end_after(self, seconds: float) -> None:
        while not self._locate("begun").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(POLL_SECONDS)
        await asyncio.sleep(seconds)
        self._limit = seconds
        await self.kill()

    def make_result(self, done: CommandResult) -> CommandResult:
        code, name = self._read_end(done.output)
        limit = self._limit
        note = "" if limit is None else f"it did not end within {limit:g} s and was killed"
        return msgspec.structs.replace(
            done,
            exit_code=code,
            signal=name,
            timed_out=limit is not None,
            cwd=self._read("cwd"),
            note=note,
        )

    def add_notes(self, result: CommandResult) -> CommandResult:
        """The result, when the container is gone."""
        notes = filter(None, (result.note, *self._notes))
        return msgspec.structs.replace(result, note="; ".join(notes))

    def make_program_result(self, done: ProgramResult, program: str) -> ProgramResult:
        if self._read("code") == "missing":
            raise WorkspaceError(f"{program} is not installed in the container")
        code, name = self._read_end(done.stderr.decode(errors="replace"))
        is_late = self._limit is not None
        return msgspec.structs.replace(done, exit_code=code, signal=name, timed_out=is_late)

    def _read_end(self, output: str) -> tuple[int | None, str]:
        """The exit code, or the signal: a shell reports 128 and its number."""
        text = self._read("code")
        if not text.isdigit():
            if self._is_killed:
                return None, "SIGKILL"
            problem = " ".join(output.split())[-300:] or "it was removed"
            raise WorkspaceError(f"the container did not run the command: {problem}")
        code = int(text)
        if code > 128 and code - 128 in {*signal.Signals}:
            return None, signal.Signals(code - 128).name
        return code, ""

    def _read(self, name: str) -> str:
        try:
            return self._locate(name).read_text(errors="surrogateescape").rstrip("\n")
        except OSError:
            return ""

    def _locate(self, name: str) -> Path:
        return Path(self.reports, name)

    async def kill(self) -> None:
        """End what still runs in it. Without an error if it is gone, as usual."""
        self._is_killed = True
        words = ("rm", "--force", *(("--time", "0") if "podman" in self._program else ()))
        starting = start_child(
            *(self._program, *words, self.name),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with starting as process:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), REMOVE_SECONDS)

    async def remove(self) -> None:
        try:
            await self.kill()
        finally:
            await asyncio.to_thread(self._clear)

    def _clear(self) -> None:
        shutil.rmtree(self.reports, ignore_errors=True)
        if self._has_begun:
            self._has_begun = False
            self._notes += self._mounts.end()


class _ContainerCommand(WrappedCommand):
    """A command in the background."""

    def __init__(self, running: RunningCommand, container: _Container) -> None:
        super().__init__(running)
        self._container = container
        self._ended: asyncio.Future[CommandResult] | None = None

    async def wait(self) -> CommandResult:
        if self._ended is None:
            self._ended = asyncio.ensure_future(self._finish())
        return await asyncio.shield(self._ended)

    async def kill(self) -> CommandResult:
        await self._container.kill()
        await self._command.kill()
        return await self.wait()

    async def _finish(self) -> CommandResult:
        done = await self._command.wait()
        try:
            result = self._container.make_result(done)
        finally:
            await self._container.remove()
        return self._container.add_notes(result)


def make_client_options(
    outputs_dir: Path | None = None, secrets: tuple[str, ...] = ()
) -> WorkspaceOptions:
    """The workspace in which podman or docker is run."""
    passthrough = tuple(name for name in _CLIENT_VARIABLES if name in os.environ)
    return WorkspaceOptions(
        sandbox="off", env_passthrough=passthrough, outputs_dir=outputs_dir, secrets=secrets
    )


def _find_program(wanted: ContainerProgram | None) -> str:
    for name in PROGRAMS if wanted is None else (wanted,):
        found = shutil.which(name)
        if found is not None:
            return found
    names = wanted or " nor ".join(PROGRAMS)
    raise WorkspaceError(f"neither {names} is installed; install one to run commands in containers")


def _list_user_options(program: str) -> list[str]:
    """Files that a command makes belong to this user, not to root."""
    if os.getuid() == 0:
        return []
    if Path(program).name == "podman":
        return ["--userns=keep-id"]
    return ["--user", f"{os.getuid()}:{os.getgid()}"]
