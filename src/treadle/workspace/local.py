"""The workspace on this machine: the contract, made of files, processes and sandbox.

It is not a policy: it does what it is asked, inside the sandbox. Tools use it through the contract;
it uses `workspace_files.py`, `processes.py`, `command_result.py` and `sandbox/`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from treadle.core.contracts.workspace import (
    CommandInput,
    CommandResult,
    NetworkAccess,
    ProgramResult,
)
from treadle.core.errors import WorkspaceError
from treadle.lib.files.private_files import find_state_dir, make_private_folder
from treadle.lib.files.search_path import DEFAULT_PATH, split_search_path
from treadle.workspace import command_limits, environment, landlock
from treadle.workspace.background_command import BackgroundCommand, open_input
from treadle.workspace.command_result import OutputReport, make_command_result, raise_if_not_started
from treadle.workspace.options import Confinement, WorkspaceOptions
from treadle.workspace.output import ProcessExit
from treadle.workspace.pipe_reader import PipeReader
from treadle.workspace.processes import (
    CommandSpec,
    ForkServerClient,
    Process,
    exit_trap,
)
from treadle.workspace.supervisor.syscalls import IS_LINUX
from treadle.workspace.temp_files import ScratchDir, TempFiles
from treadle.workspace.workspace_files import WorkspaceFiles

if TYPE_CHECKING:
    from treadle.workspace.sandbox.bubblewrap import Bubblewrap
    from treadle.workspace.sandbox.line_kinds import ReadOnlyLine, Removal

Env = Mapping[str, str] | None  # further variables of a command


class LocalWorkspace(WorkspaceFiles):
    """Files and processes of this machine: `await LocalWorkspace.open(root)`.

    Without `open` it can be used at once: files need nothing more, and commands wait for `prepare`.
    After that `sandboxed` is whether commands run in the sandbox by default, and `sandbox_problem`
    why they do not, as one sentence for the user.
    """

    def __init__(self, root: Path, options: WorkspaceOptions) -> None:
        if not root.is_dir():
            raise WorkspaceError(f"{root} is not a folder; choose another one", kind="not_folder")
        self._options = options
        self._max_memory = options.max_memory or command_limits.get_default_memory()
        self._scratch = ScratchDir()
        self.temp_dir = self._scratch.temp_dir
        self.outputs_dir = (options.outputs_dir or self._scratch.outputs_dir).resolve()
        make_private_folder(self.outputs_dir)
        state_dir = options.state_dir or find_state_dir()
        super().__init__(
            (root.resolve(), *(folder.resolve() for folder in options.extra_roots)),
            (*(folder.resolve() for folder in options.readable), self.outputs_dir),
            TempFiles(state_dir / "temps"),
        )
        self._secrets = tuple(text.encode(errors="surrogateescape") for text in options.secrets)
        self._output_names = (f"{secrets.token_hex(4)}-{n}.txt" for n in itertools.count(1))
        path = os.environ.get("PATH", DEFAULT_PATH)
        self._safe_path, self._writable_path = split_search_path(path, self._roots)
        self._shell = shutil.which("bash", path=self._safe_path) or "/bin/sh"
        make_env = partial(self.command_environment, sandboxed=False)
        self._fork_server = ForkServerClient(
            make_env, command_limits.find_pids_cgroup, options.max_processes
        )
        self._sandbox = self._make_sandbox(state_dir) if options.sandbox != "off" else None
        self.sandboxed = False
        self.sandbox_problem = "it has not been checked yet"
        self._preparing: asyncio.Future[None] | None = None

    def _make_sandbox(self, state_dir: Path) -> Bubblewrap:
        from treadle.workspace.sandbox.bubblewrap import Bubblewrap
        from treadle.workspace.sandbox.seatbelt import Seatbelt

        options, kind = self._options, Bubblewrap if IS_LINUX else Seatbelt
        return kind(
            Confinement(
                writable=self._roots,
                temp_dir=self.temp_dir,
                copies_dir=self._scratch.path / "copies",
                state_dir=state_dir,
                network=options.network,
                protected=options.protected,
                denials=options.denials,
                max_memory=self._max_memory,
                read_only=options.sandbox == "read-only",
                # Our own programs, such as ripgrep, wherever treadle is installed.
                readable=(
                    *self._readable[len(self._roots) :],
                    Path(sys.prefix) / "bin",
                    *(folder.resolve() for folder in options.sandbox_readable),
                ),
            ),
            shutil.which(kind.program_name, path=self._safe_path) or "",
        )

    @classmethod
    async def open(cls, root: Path, options: WorkspaceOptions | None = None) -> LocalWorkspace:
        """A workspace ready for use; raises what `prepare` raises."""
        workspace = cls(root, options or WorkspaceOptions())
        try:
            await workspace.prepare()
        except BaseException:
            await workspace.aclose()
            raise
        return workspace

    async def prepare(self) -> None:
        """Check once whether the sandbox can be built, and remove files of killed agents.
        WorkspaceError if a sandbox is required and cannot be built."""
        if self._preparing is None:
            self._preparing = asyncio.ensure_future(self._prepare())
            # No warning without a caller that waits: every `prepare` raises it again.
            self._preparing.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(self._preparing)

    async def _prepare(self) -> None:
        self._temp_files.remove_stale()
        ScratchDir.remove_stale()
        self._fork_server.ensure_started()
        if self._sandbox is None:
            self.sandbox_problem = "it is switched off"
            return
        from treadle.workspace.sandbox.probe import find_sandbox_problem

        await asyncio.to_thread(self._sandbox.scan)
        env = self.command_environment(sandboxed=True)
        problem = await find_sandbox_problem(self._fork_server, self._sandbox, self._root, env)
        if problem and self._options.requires_sandbox:
            raise WorkspaceError(f"a sandbox is required and cannot be built: {problem}")
        self.sandboxed, self.sandbox_problem = not problem, problem

    @property
    def sandbox_name(self) -> str:
        return "" if self._sandbox is None else self._sandbox.name

    @property
    def lacks_sandbox(self) -> bool:
        """Whether a sandbox is wanted and cannot be built; False while that is not known."""
        is_known = self._preparing is not None and self._preparing.done()
        return is_known and self._options.sandbox != "off" and not self.sandboxed

    def _before_write(self, path: Path) -> None:
        if self._sandbox is not None:
            self._sandbox.accept(path)

    # Processes

    def command_environment(self, *, sandboxed: bool, extra: Env = None) -> dict[str, str]:
        """The environment of a command."""
        given = self._options.env
        env = environment.build_environment(
            {**os.environ, **given},
            sandboxed=sandboxed,
            passthrough=(*self._options.env_passthrough, *given),
            extra=extra,
        )
        return {**env, "TMPDIR": "/tmp"} if sandboxed else env

    async def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Env = None,
        timeout: float | None = None,
        on_output: Callable[[str], None] | None = None,
        sandboxed: bool | None = None,
        network: NetworkAccess | None = None,
    ) -> CommandResult:
        """Run a command line to its end. `sandboxed` None means in the sandbox if there is one;
        False means outside, with the user's approval, and fails if a sandbox is required."""
        inside = await self._resolve_sandboxed(sandboxed)
        removal = reading = None
        if inside:
            from treadle.workspace.sandbox.line_kinds import parse_read_only_line, parse_removal

            folder = str(self._root / (cwd or "."))
            removal = parse_removal(command, folder)
            reading = parse_read_only_line(command, folder) if removal is None else None
        argv = self._shell_argv(command) if removal is None else removal.argv
        spec = self._make_command(argv, cwd, env, inside, timeout)
        output = None if on_output is None else OutputReport(on_output)
        with self._wrap_in_sandbox(spec, inside, network, removal, reading) as wrapped:
            process = await self._fork_server.start(wrapped, output)
            try:
                ended = await process.wait_or_kill()
            except asyncio.CancelledError:
                if output is not None and not process.exited.exception():
                    output.report_rest(process.exited.result().stream)
                raise
        return self._make_result(ended, timeout, inside, network)

    async def start(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Env = None,
        sandboxed: bool | None = None,
        network: NetworkAccess | None = None,
        stdin: CommandInput = False,
    ) -> BackgroundCommand:
        """Start a command line in the background. Outside the sandbox it ends with its last
        process, daemons included; inside, daemons are killed with the shell."""
        inside = await self._resolve_sandboxed(sandboxed)
        spec = self._make_command(self._shell_argv(command), cwd, env, inside, None)
        spec = replace(spec, always_output_file=True, wait_for_tree=True)
        with ExitStack() as stack:
            given = open_input(stdin)
            if given is not None:
                stack.callback(given.close)
                descriptors, terminal = {0: given.read_fd}, given.terminal
                spec = replace(spec, descriptors=descriptors, terminal=terminal)
            reading = None
            if inside:
                from treadle.workspace.sandbox.line_kinds import parse_read_only_line

                reading = parse_read_only_line(command, spec.cwd)
            wrapped = self._wrap_in_sandbox(spec, inside, network, reading=reading)
            process = await self._start_wrapped(wrapped, stack)
            if given is not None:
                given.close_read_end()
        make_result = partial(self._make_result, timeout=None, inside=inside, network=network)
        return BackgroundCommand(process, Path(spec.output_file), make_result, given)

    async def execute(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Env = None,
        timeout: float | None = None,
        stdin: bytes = b"",
        limit: int = 8 << 20,
        sandboxed: bool | None = None,
        read_only: bool = False,
    ) -> ProgramResult:
        """Run a program without a shell, its two streams apart, each kept up to `limit` bytes; the
        rest is read and counted. No program that a sandboxed command could have written runs
        outside. A read-only one is restricted by Landlock, or by the sandbox."""
        return await self._execute(
            *(argv, self._readable, sandboxed, read_only),
            cwd=cwd,
            env=env,
            timeout=timeout,
            stdin=stdin,
            limit=limit,
        )

    async def execute_outside(
        self, argv: Sequence[str], *, path: Path, cwd: str, timeout: float, limit: int
    ) -> ProgramResult:
        """Run a program that only reads, and may also read this path."""
        readable = (*self._readable, path)
        return await self._execute(
            argv, readable, None, True, cwd=cwd, timeout=timeout, limit=limit
        )

    async def _execute(
        self,
        argv: Sequence[str],
        readable: tuple[Path, ...],
        sandboxed: bool | None,
        read_only: bool,
        *,
        cwd: str | None,
        timeout: float | None,
        limit: int,
        env: Env = None,
        stdin: bytes = b"",
    ) -> ProgramResult:
        program, *rest = argv
        if read_only or sandboxed is False:
            program = self._find_program(program)
            sandboxed = None if self._is_writable(program) else False
        restricted = readable if read_only and sandboxed is False else ()
        with self._limit_reads(program, restricted) as ruleset:
            if read_only and ruleset is None:
                sandboxed = None
            inside = await self._resolve_sandboxed(sandboxed)
            if not inside:
                other = "" if read_only else f"{os.pathsep}{self._writable_path}"
                env = {"PATH": f"{self._safe_path}{other}", **(env or {})}
            spec = self._make_command((program, *rest), cwd, env, inside, timeout)
            spec = replace(spec, stdin=stdin, landlock_ruleset=ruleset)
            return await self._execute_captured(spec, inside, limit)

    async def _execute_captured(self, spec: CommandSpec, inside: bool, limit: int) -> ProgramResult:
        with closing(PipeReader(limit)) as out, closing(PipeReader(limit)) as err:
            fds = {1: out.write_fd, 2: err.write_fd}
            spec = replace(spec, descriptors=fds, capture_output=False)
            with self._wrap_in_sandbox(spec, inside, None) as wrapped:
                process = await self._fork_server.start(wrapped)
                out.close_write_end()
                err.close_write_end()
                ended = await process.wait_or_kill()
            done = ProgramResult(
                exit_code=ended.exit_code,
                signal=ended.signal,
                stdout=out.read_rest(),
                stderr=err.read_rest(),
                timed_out=ended.timed_out,
                is_truncated=out.is_truncated or err.is_truncated,
            )
        if inside:
            raise_if_not_started(ended, done.stderr)
        return done

    async def spawn(
        self,
        argv: Sequence[str],
        descriptors: Mapping[int, int],
        *,
        cwd: str | None = None,
        env: Env = None,
        sandboxed: bool | None = False,
    ) -> Process:
        """Start a program on descriptors of the caller, who closes them, such as an MCP server. It
        ends with the agent, whatever happens. `sandboxed` True fails without a sandbox."""
        inside = sandboxed is not False and await self._resolve_sandboxed(sandboxed)
        spec = self._make_command(tuple(argv), cwd, env, inside, None)
        spec = replace(spec, descriptors=descriptors, capture_output=False, wait_for_tree=True)
        with ExitStack() as stack:
            return await self._start_wrapped(self._wrap_in_sandbox(spec, inside, None), stack)

    async def _start_wrapped(
        self, wrapped: AbstractContextManager[CommandSpec], stack: ExitStack
    ) -> Process:
        """Start it; what the stack holds is closed when it has ended."""
        process = await self._fork_server.start(stack.enter_context(wrapped))
        ending = stack.pop_all()
        process.exited.add_done_callback(lambda _: ending.close())
        return process

    async def aclose(self) -> None:
        """End all processes and remove temporary files; the files of the workspace stay."""
        if self._preparing is not None and not self._preparing.done():
            self._preparing.cancel()
            await asyncio.wait({self._preparing})
        await self._fork_server.aclose()
        if self._sandbox is not None:
            self._sandbox.close()
        self._temp_files.close()
        await asyncio.to_thread(self._scratch.remove)

    def _find_program(self, program: str) -> str:
        if found := shutil.which(program, path=self._safe_path):
            return found
        raise WorkspaceError(f"{program} is not installed, or may not be run")

    def _is_writable(self, program: str) -> bool:
        return any(map(Path(os.path.realpath(program)).is_relative_to, self._roots))

    def _limit_reads(
        self, program: str, readable: tuple[Path, ...]
    ) -> AbstractContextManager[int | None]:
        """The Landlock ruleset for a program that only reads these paths; None if it has to run in
        the sandbox."""
        is_possible = readable and not self._options.requires_sandbox
        home = os.environ.get("HOME", "")
        return landlock.limit_reads(program, readable, home) if is_possible else nullcontext()

    async def _resolve_sandboxed(self, sandboxed: bool | None) -> bool:
        if sandboxed is False:
            if self._options.requires_sandbox:
                raise WorkspaceError("a sandbox is required: nothing may run outside of it")
            return False
        await self.prepare()
        if sandboxed and not self.sandboxed:
            raise WorkspaceError(f"there is no sandbox for this command: {self.sandbox_problem}")
        return self.sandboxed

    def _shell_argv(self, command: str) -> tuple[str, ...]:
        trap = exit_trap() if self._shell.endswith("bash") else ""
        return self._shell, "-c", trap + command

    def _make_command(
        self, argv: tuple[str, ...], cwd: str | None, env: Env, inside: bool, timeout: float | None
    ) -> CommandSpec:
        if any("\0" in word for word in argv):
            raise WorkspaceError("the command has a NUL character in it")
        return CommandSpec(
            argv=argv,
            cwd=str(self._root / (cwd or ".")),
            env=self.command_environment(sandboxed=inside, extra=env),
            timeout=timeout,
            grace=self._options.grace,
            output_file=str(self.outputs_dir / next(self._output_names)),
            nproc=self._thread_limit,
            max_memory=self._max_memory,
            disk=(str(self._root), self._options.max_disk),
            secrets=self._secrets,
        )

    @cached_property
    def _thread_limit(self) -> int:
        return command_limits.get_thread_limit(self._options.max_processes)

    @contextmanager
    def _wrap_in_sandbox(
        self,
        command: CommandSpec,
        sandboxed: bool,
        network: NetworkAccess | None,
        removal: Removal | None = None,
        reading: ReadOnlyLine | None = None,
    ) -> Iterator[CommandSpec]:
        sandbox = self._sandbox
        if not sandboxed or sandbox is None:
            yield command
            return
        if not Path(command.cwd).is_dir():
            problem = f"the working directory {command.cwd} does not exist; use another one"
            raise WorkspaceError(problem, kind="bad_cwd")
        with sandbox.wrap(command, network=network, removal=removal, reading=reading) as wrapped:
            yield wrapped

    def _make_result(
        self, ended: ProcessExit, timeout: float | None, inside: bool, network: NetworkAccess | None
    ) -> CommandResult:
        return make_command_result(
            ended,
            timeout,
            self._sandbox,
            inside=inside,
            offline=inside and not (self._options.network if network is None else network),
            max_memory=self._max_memory,
        )
