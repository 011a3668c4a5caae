"""The workspace on this machine: the contract, made of files, processes and sandbox.

It is not a policy: it does what it is asked, inside the sandbox. Tools use it through the contract;
it uses `files.py`, `processes.py` and `sandbox/`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar
from weakref import WeakValueDictionary

import msgspec

from treadle.core.contracts.workspace import (
    CommandInput,
    CommandResult,
    FileContent,
    ProgramResult,
)
from treadle.core.errors import WorkspaceError
from treadle.lib.files.private_files import find_state_dir, make_private_folder
from treadle.lib.files.protected_paths import find_aliased_part
from treadle.lib.files.search_path import DEFAULT_PATH, split_search_path
from treadle.workspace import command_limits, environment, files, read_only
from treadle.workspace.background_command import BackgroundCommand, open_input
from treadle.workspace.command_limits import FileDenials
from treadle.workspace.output import decode_output, join_head_tail
from treadle.workspace.pipe_reader import PipeReader
from treadle.workspace.processes import (
    CapturedStream,
    CommandSpec,
    ForkServerClient,
    Process,
    ProcessExit,
    exit_trap,
)
from treadle.workspace.scratch_dir import ScratchDir
from treadle.workspace.temp_files import TempFiles

if TYPE_CHECKING:
    from treadle.workspace.sandbox.bubblewrap import Bubblewrap
    from treadle.workspace.sandbox.removal import Removal

SandboxMode = Literal["auto", "required", "off"]
Env = Mapping[str, str] | None  # further variables of a command
_T = TypeVar("_T")


class WorkspaceOptions(msgspec.Struct, frozen=True):
    """How a local workspace is set up.

    extra_roots      folders beside the root that may be read and written
    readable         folders that may be read only
    sandbox          auto: if it can be built · required: or run nothing · off
    network          whether sandboxed commands can use the network
    protected        further paths in the root that stay read-only
    denials          deny rules about files, which hold for sandboxed commands too
    env_passthrough  further environment variables that commands get
    env              variables that commands get, with their values; never a secret
    state_dir        the agent's own folder for what must survive a crash
    outputs_dir      where long outputs are kept; by default only until closing
    max_processes    how many processes a command may have at once
    max_memory       bytes that a command may use; by default three quarters of the machine's
    grace            seconds between TERM and KILL for a command that timed out
    secrets          values that are redacted from the output of commands
    """

    extra_roots: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    sandbox: SandboxMode = "auto"
    network: bool = False
    protected: tuple[str, ...] = ()
    denials: FileDenials = FileDenials()
    env_passthrough: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    state_dir: Path | None = None
    outputs_dir: Path | None = None
    max_processes: int = command_limits.DEFAULT_MAX_PROCESSES
    max_memory: int | None = None
    grace: float = 2.0
    secrets: tuple[str, ...] = ()


class LocalWorkspace:
    """Files and processes of this machine: `await LocalWorkspace.open(root)`.

    Without `open` it can be used at once: files need nothing more, and commands wait for `prepare`.
    After that `sandboxed` is whether commands run in the sandbox by default, and `sandbox_problem`
    why they do not, as one sentence for the user.
    """

    def __init__(self, root: Path, options: WorkspaceOptions) -> None:
        if not root.is_dir():
            raise WorkspaceError(f"{root} is not a folder; choose another one", kind="not_folder")
        self._root = root.resolve()
        self._options = options
        self._roots = (self._root, *(folder.resolve() for folder in options.extra_roots))
        self._max_memory = options.max_memory or command_limits.get_default_memory()
        self._scratch = ScratchDir()
        self.temp_dir = self._scratch.temp_dir
        self.outputs_dir = (options.outputs_dir or self._scratch.outputs_dir).resolve()
        make_private_folder(self.outputs_dir)
        self._readable = (*self._roots, *(p.resolve() for p in options.readable), self.outputs_dir)
        state_dir = options.state_dir or find_state_dir()
        self._temp_files = TempFiles(state_dir / "temps")
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()
        self._secrets = tuple(text.encode(errors="surrogateescape") for text in options.secrets)
        self._output_names = (f"{secrets.token_hex(4)}-{n}.txt" for n in itertools.count(1))
        path = os.environ.get("PATH", DEFAULT_PATH)
        self._safe_path, self._writable_path = split_search_path(path, self._roots)
        self._shell = shutil.which("bash", path=self._safe_path) or "/bin/sh"
        # No library of the project is loaded into our own programs; commands get LD_* separately.
        own = {k: v for k, v in self.command_environment(sandboxed=False).items() if k[:3] != "LD_"}
        self._fork_server = ForkServerClient(
            own, command_limits.find_pids_cgroup, options.max_processes
        )
        self._sandbox = self._make_sandbox(state_dir) if options.sandbox != "off" else None
        self.sandboxed = False
        self.sandbox_problem = "it has not been checked yet"
        self._preparing: asyncio.Future[None] | None = None

    def _make_sandbox(self, state_dir: Path) -> Bubblewrap:
        from treadle.workspace.sandbox.bubblewrap import Bubblewrap, Confinement

        options = self._options
        return Bubblewrap(
            Confinement(
                writable=self._roots,
                temp_dir=self.temp_dir,
                set_aside_dir=state_dir / "set_aside",
                copies_dir=self._scratch.path / "copies",
                record_dir=state_dir / "running",
                network=options.network,
                protected=options.protected,
                denials=options.denials,
                max_memory=self._max_memory,
                # Our own programs, such as ripgrep, wherever treadle is installed.
                readable=(*self._readable[len(self._roots) :], Path(sys.prefix) / "bin"),
            ),
            shutil.which("bwrap", path=self._safe_path) or "",
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
        if problem and self._options.sandbox == "required":
            raise WorkspaceError(f"a sandbox is required and cannot be built: {problem}")
        self.sandboxed, self.sandbox_problem = not problem, problem

    @property
    def lacks_sandbox(self) -> bool:
        """Whether a sandbox is wanted and cannot be built; False while that is not known."""
        is_known = self._preparing is not None and self._preparing.done()
        return is_known and self._options.sandbox != "off" and not self.sandboxed

    @property
    def root(self) -> Path:
        return self._root

    # Files

    def resolve(self, path: str, *, for_write: bool = False) -> Path:
        root, rest = files.locate(self._readable, self._root, path)
        if for_write:
            self._refuse_aliased_protected(path, root / rest)
        return root / rest

    def _refuse_aliased_protected(self, path: str, real: Path) -> None:
        """A protected file may be changed only under its own name: the target of a symlink may
        have changed since the approval."""
        named = os.path.normpath(self._root / Path(path).expanduser())
        if named != str(real) and find_aliased_part(str(real)):
            raise WorkspaceError(f"{path} resolves to {real}, which is protected; use that path")

    async def read(self, path: str, *, limit: int | None = None) -> FileContent:
        root, rest = files.locate(self._readable, self._root, path)
        return await asyncio.to_thread(files.read, root, rest, limit)

    async def read_outside(self, path: str, *, limit: int | None = None) -> FileContent:
        """A file anywhere, which a policy has allowed to read."""
        real = self.resolve_outside(path)
        return await asyncio.to_thread(files.read, Path("/"), str(real.relative_to("/")), limit)

    def resolve_outside(self, path: str) -> Path:
        """The real path. Not through the folders that commands can write, where a symlink may have
        changed since the approval; not what differs by process."""
        given = self._root / Path(path).expanduser()
        named, real = os.path.normpath(given), Path(os.path.realpath(given))
        is_plain = os.path.realpath(named) == str(real)
        if not is_plain or any(Path(named).is_relative_to(root) for root in self._roots):
            raise WorkspaceError(f"{path} resolves to {real}, outside of the folder; use that path")
        if any(real.is_relative_to(top) for top in ("/proc", "/sys", "/dev", "/run")):
            raise WorkspaceError(f"{path} is not a file on disk; read it with bash")
        return real

    async def write(
        self, path: str, data: bytes, *, expected: str | None = None, mode: int | None = None
    ) -> FileContent:
        """`expected` is the digest it was read with, or "" for a file that must be new."""
        root, rest = files.locate(self._roots, self._root, path)
        self._refuse_aliased_protected(path, root / rest)
        async with self._file_lock(root / rest):
            if self._sandbox is not None:
                self._sandbox.accept(root / rest)
            return await _run_uncancelled(
                lambda: files.write(root, rest, data, self._temp_files, expected, mode)
            )

    async def remove(self, path: str, *, expected: str | None = None) -> None:
        root, rest = files.locate(self._roots, self._root, path, follow=False)
        self._refuse_aliased_protected(path, root / rest)
        async with self._file_lock(root / rest):
            await _run_uncancelled(lambda: files.remove(root, rest, expected=expected))

    def _file_lock(self, path: Path) -> asyncio.Lock:
        return self._locks.setdefault(path, asyncio.Lock())

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
        network: bool | None = None,
    ) -> CommandResult:
        """Run a command line to its end. `sandboxed` None means in the sandbox if there is one;
        False means outside, with the user's approval, and fails if a sandbox is required."""
        inside = await self._resolve_sandboxed(sandboxed)
        removal = self._parse_removal(command, cwd) if inside else None
        argv = self._shell_argv(command) if removal is None else removal.argv
        spec = self._make_command(argv, cwd, env, inside, timeout)
        output = None if on_output is None else OutputReport(on_output)
        with self._wrap_in_sandbox(spec, inside, network, removal) as wrapped:
            process = await self._fork_server.start(wrapped, output)
            try:
                ended = await process.wait_or_kill()
            except asyncio.CancelledError:
                if output is not None and not process.exited.exception():
                    output.report_rest(process.exited.result().stream)
                raise
        offline = self._is_offline(inside, network)
        return self._make_completed(ended, timeout, inside=inside, offline=offline)

    async def start(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Env = None,
        sandboxed: bool | None = None,
        network: bool | None = None,
        stdin: CommandInput = False,
    ) -> BackgroundCommand:
        """Start a command line in the background. Outside the sandbox it ends with its last
        process, daemons included; inside, daemons are killed with the shell."""
        inside = await self._resolve_sandboxed(sandboxed)
        spec = self._make_command(self._shell_argv(command), cwd, env, inside, None)
        spec = msgspec.structs.replace(spec, always_output_file=True, wait_for_tree=True)
        with ExitStack() as stack:
            given = open_input(stdin)
            if given is not None:
                stack.callback(given.close)
                descriptors, terminal = {0: given.read_fd}, given.terminal
                spec = msgspec.structs.replace(spec, descriptors=descriptors, terminal=terminal)
            wrapped = stack.enter_context(self._wrap_in_sandbox(spec, inside, network))
            process = await self._fork_server.start(wrapped)
            if given is not None:
                given.close_read_end()
            ending = stack.pop_all()
        process.exited.add_done_callback(lambda _: ending.close())
        output_file = Path(spec.output_file)
        offline = self._is_offline(inside, network)
        return BackgroundCommand(
            process,
            output_file,
            lambda end: self._make_completed(end, None, inside=inside, offline=offline),
            given,
        )

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
        rest is read and counted, so that the program can end. No program that a sandboxed command
        could have written runs outside the sandbox. A read-only program is restricted by Landlock
        and needs the sandbox only if that is not possible."""
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
        with self._read_only_ruleset(program, restricted) as ruleset:
            if read_only and ruleset is None:
                sandboxed = None
            inside = await self._resolve_sandboxed(sandboxed)
            if not inside:
                other = "" if read_only else f"{os.pathsep}{self._writable_path}"
                env = {"PATH": f"{self._safe_path}{other}", **(env or {})}
            spec = self._make_command((program, *rest), cwd, env, inside, timeout)
            spec = msgspec.structs.replace(spec, stdin=stdin, landlock_ruleset=ruleset)
            return await self._execute_captured(spec, inside, limit)

    async def _execute_captured(self, spec: CommandSpec, inside: bool, limit: int) -> ProgramResult:
        with closing(PipeReader(limit)) as out, closing(PipeReader(limit)) as err:
            fds = {1: out.write_fd, 2: err.write_fd}
            spec = msgspec.structs.replace(spec, descriptors=fds, capture_output=False)
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
            _raise_if_not_started(ended, done.stderr)
        return done

    async def spawn(
        self,
        argv: Sequence[str],
        descriptors: Mapping[int, int],
        *,
        cwd: str | None = None,
        env: Env = None,
    ) -> Process:
        """Start a program on descriptors of the caller, such as an MCP server; not sandboxed. It
        ends with the agent, whatever happens; the caller closes the descriptors."""
        spec = self._make_command(tuple(argv), cwd, env, False, None)
        spec = msgspec.structs.replace(
            spec, descriptors=descriptors, capture_output=False, wait_for_tree=True
        )
        return await self._fork_server.start(spec)

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
        found = shutil.which(program, path=self._safe_path)
        if found is None:
            raise WorkspaceError(f"{program} is not installed, or may not be run")
        return found

    def _is_writable(self, program: str) -> bool:
        real = Path(os.path.realpath(program))
        return any(real.is_relative_to(root) for root in self._roots)

    @contextmanager
    def _read_only_ruleset(self, program: str, readable: tuple[Path, ...]) -> Iterator[int | None]:
        """The Landlock ruleset for a program that only reads these paths; None if it has to run in
        the sandbox."""
        if not readable or self._options.sandbox == "required":
            yield None
            return
        ruleset = read_only.make_ruleset(program, readable, os.environ.get("HOME", ""))
        try:
            yield ruleset
        finally:
            if ruleset is not None:
                os.close(ruleset)

    async def _resolve_sandboxed(self, sandboxed: bool | None) -> bool:
        if sandboxed is False:
            if self._options.sandbox == "required":
                raise WorkspaceError("a sandbox is required: nothing may run outside of it")
            return False
        await self.prepare()
        if sandboxed and not self.sandboxed:
            raise WorkspaceError(f"there is no sandbox for this command: {self.sandbox_problem}")
        return self.sandboxed

    def _parse_removal(self, command: str, cwd: str | None) -> Removal | None:
        from treadle.workspace.sandbox.removal import parse_removal

        return parse_removal(command, str(self._root / (cwd or ".")))

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
            nproc=self._nproc,
            max_memory=self._max_memory,
            secrets=self._secrets,
        )

    @cached_property
    def _nproc(self) -> int:
        if command_limits.find_pids_cgroup():
            return 0
        return command_limits.count_user_threads(os.getuid()) + self._options.max_processes

    @contextmanager
    def _wrap_in_sandbox(
        self,
        command: CommandSpec,
        sandboxed: bool,
        network: bool | None,
        removal: Removal | None = None,
    ) -> Iterator[CommandSpec]:
        if not sandboxed or self._sandbox is None:
            yield command
            return
        if not Path(command.cwd).is_dir():
            problem = f"the working directory {command.cwd} does not exist; use another one"
            raise WorkspaceError(problem, kind="bad_cwd")
        with self._sandbox.wrap(command, network=network, removal=removal) as wrapped:
            yield wrapped

    def _is_offline(self, inside: bool, network: bool | None) -> bool:
        return inside and not (self._options.network if network is None else network)

    def _make_completed(
        self, ended: ProcessExit, timeout: float | None, *, inside: bool, offline: bool
    ) -> CommandResult:
        """The contract's result of a command. `inside`: it ran in the sandbox."""
        stream = ended.stream
        _raise_if_not_started(ended, stream.head)
        head, tail = stream.head, stream.tail
        output = join_head_tail(head, tail, stream.total, stream.path, stream.spilled)
        notes = [*self._describe_exit(ended, timeout)]
        hidden_files: tuple[str, ...] = ()
        if self._sandbox is not None:
            notes += self._sandbox.take_notes()
            if inside:
                notes += self._sandbox.describe_limits(head + tail)
                hidden_files = self._sandbox.hidden_files
        if offline:
            from treadle.workspace.sandbox.network_errors import NO_NETWORK_NOTE, mentions_network

            if mentions_network(output, failed=ended.exit_code != 0):
                notes.append(NO_NETWORK_NOTE)
        return CommandResult(
            exit_code=ended.exit_code,
            output=output,
            signal=ended.signal,
            timed_out=ended.timed_out,
            total_bytes=stream.total,
            full_output=stream.path,
            cwd=ended.cwd,
            note="; ".join(notes),
            hidden_files=hidden_files,
        )

    def _describe_exit(self, ended: ProcessExit, timeout: float | None) -> Iterator[str]:
        """Notes on the end of a command that its output does not show."""
        if ended.timed_out:
            yield f"it did not end within {timeout:g} s and was killed" if timeout else "timed out"
        if ended.memory_exceeded:
            limit = f"{self._max_memory >> 20:,} MB of memory"
            yield f"it was killed because it used more than {limit} (setting command_memory)"
        elif ended.out_of_memory:
            yield "the kernel killed it because it ran out of memory"
        if ended.core_dumped:
            yield "it dumped core"
        if ended.leftovers and not ended.timed_out:
            yield f"processes that it left running were ended ({', '.join(ended.leftovers[:5])})"


def _raise_if_not_started(ended: ProcessExit, output: bytes) -> None:
    """Raise an error if bubblewrap failed before the command ran. Only its output tells that."""
    if output.startswith(b"bwrap: ") and ended.exit_code == 1 and not ended.cwd:
        problem = decode_output(output)[:300].strip().removeprefix("bwrap: ")
        if problem.startswith("execvp "):
            raise WorkspaceError(f"cannot run {problem.removeprefix('execvp ')}")
        raise WorkspaceError(f"the sandbox failed: {problem}")


class OutputReport:
    """Passes the output of a command on as text, while it runs; what is left if it is cancelled."""

    def __init__(self, on_output: Callable[[str], None]) -> None:
        self._on_output = on_output
        self._total = 0

    def __call__(self, fresh: bytes, total: int) -> None:
        self._total = total
        self._on_output(decode_output(fresh))

    def report_rest(self, stream: CapturedStream) -> None:
        rest = stream.total - self._total
        if rest > 0:
            self((stream.head + stream.tail)[-rest:], stream.total)


async def _run_uncancelled(work: Callable[[], _T]) -> _T:
    """Run in a thread and wait for it even if cancelled, so that writes are never partial."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
