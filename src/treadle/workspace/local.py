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
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar
from weakref import WeakValueDictionary

import msgspec

from treadle.core.contracts.workspace import Completed, Executed, FileContent
from treadle.core.errors import WorkspaceError
from treadle.workspace import environment, files
from treadle.workspace.background import Background
from treadle.workspace.intake import Intake
from treadle.workspace.output import harmless, joined
from treadle.workspace.private import PrivateFolder
from treadle.workspace.processes import LAST_WORDS, Command, Ended, Keeper, Process
from treadle.workspace.sandbox import limits, readers
from treadle.workspace.sandbox.bubblewrap import Bubblewrap, Confinement
from treadle.workspace.sandbox.probe import why_not
from treadle.workspace.sandbox.protection import GUARDED, PROTECTED
from treadle.workspace.temps import Temps

SandboxMode = Literal["auto", "required", "off"]
Result = TypeVar("Result")


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
    secrets    values that are taken out of what commands print, wherever that is kept
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
    secrets: tuple[str, ...] = ()


class LocalWorkspace:
    """Files and processes of this machine: `await LocalWorkspace.open(root)`.

    Made without `open`, it can be used at once: files need nothing more, and what needs the walls
    waits for `prepare`. After that `sandboxed` says whether commands are walled in by default, and
    `sandbox_problem` why they are not, in one sentence for the user.
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
        self._secrets = tuple(one.encode(errors="surrogateescape") for one in options.secrets)
        self._names = (f"{secrets.token_hex(4)}-{n}.txt" for n in itertools.count(1))
        path = os.environ.get("PATH", environment.DEFAULT_PATH)
        self._safe_path, self._other_path = environment.search_path(path, self._roots)
        self._shell = shutil.which("bash", path=self._safe_path) or "/bin/sh"
        # Nothing of the folder is loaded into programs of ours: commands are told in their turn.
        own = {k: v for k, v in self.environment(confined=False).items() if k[:3] != "LD_"}
        self._keeper = Keeper(own, limits.pids_cgroup, options.processes)
        self._sandbox = Bubblewrap(
            Confinement(
                writable=self._roots,
                temp=self.temp,
                network=options.network,
                protected=(*PROTECTED, *options.protected),
                # Our own programs, ripgrep among them, wherever we are installed.
                readable=(*self._readable[len(self._roots) :], Path(sys.prefix) / "bin"),
            ),
            shutil.which("bwrap", path=self._safe_path) or "",
        )
        self.sandboxed = False
        self.sandbox_problem = "it is not known yet whether it can be built"
        self._preparing: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, root: Path, options: Options | None = None) -> LocalWorkspace:
        """A workspace ready for use. WorkspaceError if a sandbox is required and cannot be."""
        workspace = cls(root, options or Options())
        try:
            await workspace.prepare()
        except BaseException:
            await workspace.aclose()
            raise
        return workspace

    async def prepare(self) -> None:
        """Find out, once, whether commands can be walled in, and tidy up after killed agents.
        WorkspaceError if a sandbox is required and cannot be built."""
        if self._preparing is None:
            self._preparing = asyncio.ensure_future(self._prepare())
            self._preparing.add_done_callback(_seen)
        await asyncio.shield(self._preparing)

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

    def resolve(self, path: str, *, changing: bool = False) -> Path:
        root, rest = files.place(self._readable, self._root, path)
        if changing:
            self._refuse_detour(path, root / rest)
        return root / rest

    def _refuse_detour(self, path: str, real: Path) -> None:
        """A protected file is changed under its own name, or not at all: what a link leads to may
        have changed since somebody allowed it."""
        named = os.path.normpath(self._root / Path(path).expanduser())
        if named != str(real) and not GUARDED.isdisjoint(real.parts):
            raise WorkspaceError(f"{path} leads to {real}, which is protected; name that itself")

    async def read(self, path: str, *, limit: int | None = None) -> FileContent:
        root, rest = files.place(self._readable, self._root, path)
        return await asyncio.to_thread(files.read, root, rest, limit)

    async def write(
        self, path: str, data: bytes, *, expected: str | None = None, mode: int | None = None
    ) -> FileContent:
        """`expected` is the digest it was read with, or "" for a file that must be new."""
        root, rest = files.place(self._roots, self._root, path)
        self._refuse_detour(path, root / rest)
        async with self._locked(root / rest):
            return await _to_the_end(
                lambda: files.write(root, rest, data, self._temps, expected=expected, mode=mode)
            )

    async def remove(self, path: str, *, expected: str | None = None) -> None:
        root, rest = files.place(self._roots, self._root, path, follow=False)
        self._refuse_detour(path, root / rest)
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
        inside = await self._inside(confined)
        asked = self._shell_command(command, cwd, env, inside, timeout)
        hear = None if on_output is None else lambda fresh, _: on_output(harmless(fresh))
        with self._walls(asked, inside, network) as wrapped:
            ended = await self._keeper.run(wrapped, hear)
        return self._completed(ended, timeout)

    async def start(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        confined: bool | None = None,
        network: bool | None = None,
    ) -> Background:
        """Begin a command line and go on. Outside of a sandbox it is over when its last process is,
        a daemon included; inside, daemons die with the shell."""
        inside = await self._inside(confined)
        asked = self._shell_command(command, cwd, env, inside, None)
        asked = msgspec.structs.replace(asked, always_side=True, linger=True)
        with ExitStack() as stack:
            wrapped = stack.enter_context(self._walls(asked, inside, network))
            process = await self._keeper.start(wrapped)
            walls = stack.pop_all()
        process.ended.add_done_callback(lambda _: walls.close())
        return Background(process, Path(asked.side), lambda ended: self._completed(ended, None))

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
        reading: bool = False,
    ) -> Executed:
        """Run a program without a shell, its two streams apart, each kept up to `limit` bytes.
        Beyond that it is read and counted, so that the program can go on to its end. Outside of
        the sandbox no program is run that a command inside of it could have written. One that
        only reads is fenced in by itself, and waits for the sandbox only where it needs that."""
        program, *rest = argv
        if reading or confined is False:
            program = self._found(program)
            confined = None if self._is_writable(program) else False
        with self._fence(program, reading and confined is False) as ruleset:
            if reading and ruleset is None:
                confined = None
            inside = await self._inside(confined)
            if not inside:
                other = "" if reading else f"{os.pathsep}{self._other_path}"
                env = {"PATH": f"{self._safe_path}{other}", **(env or {})}
            asked = self._command((program, *rest), cwd, env, inside, timeout)
            asked = msgspec.structs.replace(asked, stdin=stdin, landlock=ruleset)
            return await self._executed(asked, inside, limit)

    async def _executed(self, asked: Command, inside: bool, limit: int) -> Executed:
        with closing(Intake(limit)) as out, closing(Intake(limit)) as err:
            given = {1: out.writing, 2: err.writing}
            asked = msgspec.structs.replace(asked, descriptors=given, spooled=False)
            with self._walls(asked, inside, None) as wrapped:
                process = await self._keeper.start(wrapped)
                out.handed_over()
                err.handed_over()
                ended = await process.completed()
            done = Executed(
                exit_code=ended.exit_code,
                signal=ended.signal,
                stdout=out.taken(),
                stderr=err.taken(),
                timed_out=ended.timed_out,
                is_truncated=out.is_cut or err.is_cut,
            )
        if inside:
            _raise_if_not_begun(ended, done.stderr)
        return done

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
        if self._preparing is not None and not self._preparing.done():
            self._preparing.cancel()
            await asyncio.wait({self._preparing})
        await self._keeper.aclose()
        await self._sandbox.aclose()
        self._temps.close()
        await asyncio.to_thread(self._private.remove)

    def _found(self, program: str) -> str:
        found = shutil.which(program, path=self._safe_path)
        if found is None:
            raise WorkspaceError(f"{program} is not installed, or may not be run")
        return found

    def _is_writable(self, program: str) -> bool:
        real = Path(os.path.realpath(program))
        return any(real.is_relative_to(root) for root in self._roots)

    @contextmanager
    def _fence(self, program: str, wanted: bool) -> Iterator[int | None]:
        """Where a program that only reads needs no sandbox: the rules for it."""
        if not wanted or self._options.sandbox == "required":
            yield None
            return
        ruleset = readers.fence(program, self._readable, os.environ.get("HOME", ""))
        try:
            yield ruleset
        finally:
            if ruleset is not None:
                os.close(ruleset)

    async def _inside(self, confined: bool | None) -> bool:
        if confined is False:
            if self._options.sandbox == "required":
                raise WorkspaceError("a sandbox is required here: nothing runs outside of it")
            return False
        await self.prepare()
        if confined and not self.sandboxed:
            raise WorkspaceError(f"there is no sandbox to run this in: {self.sandbox_problem}")
        return self.sandboxed

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
            side=str(self.outputs / next(self._names)),
            nproc=self._nproc,
            secrets=self._secrets,
        )

    @cached_property
    def _nproc(self) -> int:
        if limits.pids_cgroup():
            return 0
        return limits.processes_of_user(os.getuid()) + self._options.processes

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

    def _completed(self, ended: Ended, timeout: float | None) -> Completed:
        """The contract's account of how a command ended."""
        stream = ended.stream
        _raise_if_not_begun(ended, stream.head)
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


def _raise_if_not_begun(ended: Ended, said: bytes) -> None:
    """What bubblewrap says is no word of the command's: that has not run at all."""
    if said.startswith(b"bwrap: ") and ended.exit_code == 1 and not ended.cwd:
        words = harmless(said)[:300].strip().removeprefix("bwrap: ")
        if words.startswith("execvp "):
            raise WorkspaceError(f"cannot run {words.removeprefix('execvp ')}")
        raise WorkspaceError(f"the sandbox failed: {words}")


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


def _seen(preparing: asyncio.Future[None]) -> None:
    if not preparing.cancelled():
        preparing.exception()  # raised again to whoever needs the walls


async def _to_the_end(work: Callable[[], Result]) -> Result:
    """In a thread, and waited for even when cancelled: half a write is nobody's wish."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
