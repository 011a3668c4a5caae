"""The workspace on this machine: the contract, put together from files, processes and sandbox.

It decides nothing about what is allowed; it does what it is asked within the walls it was given.
Above it stand the tools, through the contract; below it `files.py`, `processes.py`, `sandbox/`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Literal, TypeVar
from weakref import WeakValueDictionary

import msgspec

from treadle.core.contracts.workspace import Completed, FileContent
from treadle.core.errors import WorkspaceError
from treadle.workspace import environment, files
from treadle.workspace.intake import Intake
from treadle.workspace.output import harmless, joined
from treadle.workspace.private import PrivateFolder
from treadle.workspace.processes import LAST_WORDS, Command, Ended, Keeper, Process
from treadle.workspace.sandbox import limits
from treadle.workspace.sandbox.bubblewrap import Bubblewrap, Confinement
from treadle.workspace.sandbox.probe import why_not
from treadle.workspace.sandbox.protection import PROTECTED
from treadle.workspace.temps import Temps

SandboxMode = Literal["auto", "required", "off"]
Result = TypeVar("Result")
HEAD = TAIL = 16_000
"""Of a long output this much of both ends is shown; the whole is in its side file."""


class Options(msgspec.Struct, frozen=True):
    """How a local workspace is set up.

    added      folders beside the root that may be read and written
    readable   folders that may be read only
    sandbox    auto: where it can be built · required: or refuse to run anything · off
    network    whether sandboxed commands reach the network
    protected  what stays read-only in the root besides the built-in list
    passed     further variables of ours that commands see
    state      the agent's own folder for what must outlive a crash
    outputs    where the whole of a long output is kept; without it, until closing
    processes  how many a command may have at once
    grace      seconds between TERM and KILL for a command that ran out of time
    """

    added: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    sandbox: SandboxMode = "auto"
    network: bool = False
    protected: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    state: Path | None = None
    outputs: Path | None = None
    processes: int = limits.PROCESSES
    grace: float = 2.0


class Executed(msgspec.Struct, frozen=True):
    """How a program without a shell ended: its streams apart, as bytes, each up to a limit."""

    exit_code: int | None
    signal: str
    stdout: bytes
    stderr: bytes
    timed_out: bool
    is_truncated: bool


class Background:
    """A command that goes on by itself; the contract's Running."""

    def __init__(self, process: Process, side: Path, workspace: LocalWorkspace) -> None:
        self._process, self._side, self._workspace = process, side, workspace

    @property
    def pid(self) -> int:
        return self._process.pid

    def output(self) -> str:
        """What it printed so far, the middle left out if it is long."""
        try:
            total = self._side.stat().st_size
            with self._side.open("rb") as file:
                head = file.read(HEAD)
                file.seek(max(len(head), total - TAIL))
                return joined(head, file.read(TAIL), total, str(self._side), total)
        except FileNotFoundError:
            return ""

    async def wait(self) -> Completed:
        return self._workspace.completed(await self._process.wait(), None)

    async def kill(self) -> Completed:
        await self._process.end()
        return await self.wait()


class LocalWorkspace:
    """Files and processes of this machine; open one with `await LocalWorkspace.open(root)`.

    `sandboxed` says whether commands are walled in by default, and `sandbox_problem` why they
    are not, in one sentence for the user.
    """

    def __init__(self, root: Path, options: Options) -> None:
        if not root.is_dir():
            raise WorkspaceError(f"{root} is not a folder; name one to work in")
        self._root = root.resolve()
        self._options = options
        self._roots = (self._root, *(folder.resolve() for folder in options.added))
        self._private = PrivateFolder()
        self.temp = self._private.temp
        self.outputs = (options.outputs or self._private.outputs).resolve()
        self.outputs.mkdir(parents=True, exist_ok=True)
        self._readable = (*self._roots, *(p.resolve() for p in options.readable), self.outputs)
        self._temps = Temps((options.state or state_folder()) / "temps")
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()
        self._names = (f"{secrets.token_hex(4)}-{n}.txt" for n in itertools.count(1))
        self._shell = shutil.which("bash") or "/bin/sh"
        self._cgroup = limits.pids_cgroup()
        self._nproc = 0 if self._cgroup else limits.processes_of_user(os.getuid())
        own = self.environment(confined=False)
        self._keeper = Keeper(own, self._cgroup, options.processes)
        self._sandbox = Bubblewrap(
            Confinement(
                writable=self._roots,
                temp=self.temp,
                network=options.network,
                protected=(*PROTECTED, *options.protected),
                readable=self._readable[len(self._roots) :],
            )
        )
        self.sandboxed = False
        self.sandbox_problem = ""

    @classmethod
    async def open(cls, root: Path, options: Options | None = None) -> LocalWorkspace:
        """A workspace ready for use. WorkspaceError if a sandbox is required and cannot be."""
        workspace = cls(root, options or Options())
        try:
            await workspace._prepare()
        except BaseException:
            await workspace.aclose()
            raise
        return workspace

    async def _prepare(self) -> None:
        self._temps.sweep()
        PrivateFolder.sweep()
        self._keeper.warm()
        if self._options.sandbox == "off":
            self.sandbox_problem = "it is switched off"
            return
        confined = self.environment(confined=True)
        problem = await why_not(self._keeper, self._sandbox, self._root, confined)
        if problem and self._options.sandbox == "required":
            raise WorkspaceError(f"a sandbox is required and cannot be built: {problem}")
        self.sandboxed, self.sandbox_problem = not problem, problem

    @property
    def root(self) -> Path:
        return self._root

    # Files

    def resolve(self, path: str) -> Path:
        root, rest = files.place(self._readable, self._root, path)
        return root / rest

    async def read(self, path: str, *, limit: int | None = None) -> FileContent:
        root, rest = files.place(self._readable, self._root, path)
        return await asyncio.to_thread(files.read, root, rest, limit)

    async def write(
        self, path: str, data: bytes, *, expected: str | None = None, mode: int | None = None
    ) -> FileContent:
        """`expected` is the digest it was read with, or "" for a file that must be new."""
        root, rest = files.place(self._roots, self._root, path)
        async with self._locked(root / rest):
            return await _to_the_end(
                lambda: files.write(root, rest, data, self._temps, expected=expected, mode=mode)
            )

    async def remove(self, path: str, *, expected: str | None = None) -> None:
        root, rest = files.place(self._roots, self._root, path, follow=False)
        async with self._locked(root / rest):
            await _to_the_end(lambda: files.remove(root, rest, expected=expected))

    def _locked(self, path: Path) -> asyncio.Lock:
        return self._locks.setdefault(path, asyncio.Lock())

    # Processes

    def environment(
        self, *, confined: bool, extra: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """What a command sees of our environment."""
        passed = self._options.passed
        made = environment.for_command(os.environ, confined=confined, passed=passed, extra=extra)
        return {**made, "TMPDIR": "/tmp"} if confined else made

    async def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_output: Callable[[str], None] | None = None,
        confined: bool | None = None,
        network: bool | None = None,
    ) -> Completed:
        """Run a command line to its end. `confined` None means sandboxed wherever that is built;
        False is for one that the user let out, and is refused where a sandbox is required."""
        inside = self._inside(confined)
        asked = self._shell_command(command, cwd, env, inside, timeout)
        hear = None if on_output is None else lambda fresh, _: on_output(harmless(fresh))
        with self._walls(asked, inside, network) as wrapped:
            ended = await self._keeper.run(wrapped, hear)
        return self.completed(ended, timeout)

    async def start(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        confined: bool | None = None,
        network: bool | None = None,
    ) -> Background:
        inside = self._inside(confined)
        asked = self._shell_command(command, cwd, env, inside, None)
        asked = msgspec.structs.replace(asked, always_side=True, linger=True)
        with ExitStack() as stack:
            wrapped = stack.enter_context(self._walls(asked, inside, network))
            process = await self._keeper.start(wrapped)
            walls = stack.pop_all()
        process.ended.add_done_callback(lambda _: walls.close())
        return Background(process, Path(asked.side), self)

    async def execute(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        stdin: bytes = b"",
        limit: int = 8 << 20,
        confined: bool | None = None,
    ) -> Executed:
        """Run a program without a shell, its two streams apart, each kept up to `limit` bytes."""
        inside = self._inside(confined)
        asked = self._command(tuple(argv), cwd, env, inside, timeout)
        with closing(Intake(limit)) as out, closing(Intake(limit)) as err:
            given = {1: out.writing, 2: err.writing}
            asked = msgspec.structs.replace(asked, stdin=stdin, descriptors=given, spooled=False)
            with self._walls(asked, inside, None) as wrapped:
                process = await self._keeper.start(wrapped)
                out.handed_over()
                err.handed_over()
                ended = await process.completed()
            return Executed(
                exit_code=ended.exit_code,
                signal=ended.signal,
                stdout=out.taken(),
                stderr=err.taken(),
                timed_out=ended.timed_out,
                is_truncated=out.is_cut or err.is_cut,
            )

    async def spawn(
        self,
        argv: Sequence[str],
        descriptors: Mapping[int, int],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Process:
        """A program on descriptors of the caller's, as for a server that is spoken to; unconfined.
        It dies with us, whatever happens; its descriptors stay the caller's to close."""
        asked = self._command(tuple(argv), cwd, env, False, None)
        asked = msgspec.structs.replace(asked, descriptors=descriptors, spooled=False, linger=True)
        return await self._keeper.start(asked)

    async def aclose(self) -> None:
        """End what runs and remove what is private; the workspace itself stays as it is."""
        await self._keeper.aclose()
        await self._sandbox.aclose()
        self._temps.close()
        await asyncio.to_thread(self._private.remove)

    def _inside(self, confined: bool | None) -> bool:
        if confined is None:
            return self.sandboxed
        if confined and not self.sandboxed:
            raise WorkspaceError(f"there is no sandbox to run this in: {self.sandbox_problem}")
        if not confined and self._options.sandbox == "required":
            raise WorkspaceError("a sandbox is required here: nothing runs outside of it")
        return confined

    def _shell_command(
        self,
        command: str,
        cwd: str | None,
        env: Mapping[str, str] | None,
        confined: bool,
        timeout: float | None,
    ) -> Command:
        words = LAST_WORDS if self._shell.endswith("bash") else ""
        return self._command((self._shell, "-c", words + command), cwd, env, confined, timeout)

    def _command(
        self,
        argv: tuple[str, ...],
        cwd: str | None,
        env: Mapping[str, str] | None,
        confined: bool,
        timeout: float | None,
    ) -> Command:
        if any("\0" in word for word in argv):
            raise WorkspaceError("the command has a NUL character in it")
        return Command(
            argv=argv,
            cwd=str(self._root / (cwd or ".")),
            env=self.environment(confined=confined, extra=env),
            timeout=timeout,
            grace=self._options.grace,
            head=HEAD,
            tail=TAIL,
            side=str(self.outputs / next(self._names)),
            nproc=self._nproc + self._options.processes if self._nproc else 0,
        )

    @contextmanager
    def _walls(self, command: Command, confined: bool, network: bool | None) -> Iterator[Command]:
        if not confined:
            yield command
            return
        if not Path(command.cwd).is_dir():
            raise WorkspaceError(
                f"the working directory {command.cwd} does not exist; name another one"
            )
        with self._sandbox.enter(command, network=network) as wrapped:
            yield wrapped

    def completed(self, ended: Ended, timeout: float | None) -> Completed:
        """The contract's account of how a command ended."""
        stream = ended.stream
        if stream.head.startswith(b"bwrap: ") and not ended.cwd and ended.exit_code == 1:
            raise WorkspaceError(f"the sandbox failed: {harmless(stream.head)[:300].strip()}")
        return Completed(
            exit_code=ended.exit_code,
            output=joined(stream.head, stream.tail, stream.total, stream.path, stream.spilled),
            signal=ended.signal,
            timed_out=ended.timed_out,
            total_bytes=stream.total,
            full_output=stream.path,
            cwd=ended.cwd,
            note="; ".join(_notes(ended, timeout, self._sandbox.take_swept())),
        )


def _notes(ended: Ended, timeout: float | None, swept: Sequence[str]) -> Iterator[str]:
    """What a reader would otherwise have to guess."""
    if ended.timed_out:
        yield f"it did not end within {timeout:g} s and was killed" if timeout else "it timed out"
    if ended.out_of_memory:
        yield "the kernel killed it because memory ran out"
    if ended.core_dumped:
        yield "it dumped core"
    if ended.left and not ended.timed_out:
        names = ", ".join(ended.left[:5])
        yield f"processes that it left running were ended ({names})"
    if swept:
        yield f"{', '.join(swept)} was removed: a command may not redirect git"


def state_folder() -> Path:
    """Where the agent keeps what must outlive a crash, unless it is told otherwise."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    return Path(base) / "treadle"


async def _to_the_end(work: Callable[[], Result]) -> Result:
    """In a thread, and waited for even when cancelled: half a write is nobody's wish."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
