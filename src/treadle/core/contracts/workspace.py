"""The contract of a workspace: files and processes, local or remote.

Tools use files and processes only through this contract, so the same tools work on this machine,
in a sandbox or on another machine. The policy decides what is allowed; a workspace enforces its
own limits (folders, sandbox).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from pathlib import Path


# The network of a command: all of it, none, or these hosts: `x.org`, `*.x.org`, `x.org:8080`.
NetworkAccess = bool | tuple[str, ...]


class FileContent(msgspec.Struct, frozen=True):
    """The content of a file when it was read. A later write compares `digest` to detect changes."""

    data: bytes
    digest: str
    size: int
    mode: int
    is_truncated: bool = False


class CommandResult(msgspec.Struct, frozen=True):
    """How a command ended. `output` has no escape sequences; a long one is cut in the middle."""

    exit_code: int | None
    output: str
    signal: str = ""
    timed_out: bool = False
    total_bytes: int = 0
    full_output: str = ""
    cwd: str = ""
    note: str = ""
    hidden_files: tuple[str, ...] = ()  # paths that the command could not open: a rule denies it

    def describe_failure(self) -> str:
        """For people; "" if it did not fail."""
        if self.timed_out:
            return "timed out"
        if self.signal:
            return f"killed by {self.signal}"
        return f"exit code {self.exit_code}" if self.exit_code else ""


class ProgramResult(msgspec.Struct, frozen=True):
    """How a program without a shell ended: stdout and stderr as bytes, each up to a limit."""

    exit_code: int | None
    signal: str
    stdout: bytes
    stderr: bytes
    timed_out: bool
    is_truncated: bool


CommandInput = bool | Literal["terminal"]
"""Whether a command has an input, and whether that is a terminal."""


class RunningCommand(Protocol):
    """A command in the background. It is over when its whole process tree has ended.

    In the sandbox it is over when the shell exits; leftover processes are killed.
    """

    @property
    def pid(self) -> int: ...

    def output(self) -> str: ...

    async def write(self, text: str) -> None:
        """Send input to a command that was started with `stdin`; WorkspaceError if it cannot."""

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of its terminal; WorkspaceError if it has none."""

    async def wait(self) -> CommandResult: ...

    async def kill(self) -> CommandResult: ...


@runtime_checkable
class OutsideReader(Protocol):
    """A workspace that can also read files outside of itself, if a policy has allowed it."""

    def resolve_outside(self, path: str) -> Path:
        """The real path; a WorkspaceError if a command could have changed where it leads."""

    async def read_outside(self, path: str, *, limit: int | None = None) -> FileContent: ...

    async def execute_outside(
        self, argv: Sequence[str], *, path: Path, cwd: str, timeout: float, limit: int
    ) -> ProgramResult:
        """Run a program that only reads, and may also read `path`, a result of
        `resolve_outside`."""


class Workspace(Protocol):
    """Files and processes of an agent.

    Promises: writes are atomic and durable, and fail if the digest of the file is not `expected`.
    Paths never leave the root and the added folders, also not by a symlink. A command has no
    terminal and no input unless it was started with one; when it ends, is cancelled or times out,
    none of its processes is left. Memory stays bounded whatever a command prints. Problems are
    WorkspaceErrors that say what to do. File operations do not wait for the setup that only
    commands need, such as the sandbox.
    """

    @property
    def root(self) -> Path: ...

    def resolve(self, path: str, *, for_write: bool = False) -> Path:
        """The real path, with symlinks resolved; a WorkspaceError if it is outside the workspace.
        With `for_write` also if it is another name of a protected file."""

    async def read(self, path: str, *, limit: int | None = None) -> FileContent:
        """If the file is missing, the WorkspaceError has a FileNotFoundError as its cause."""

    async def write(
        self, path: str, data: bytes, *, expected: str | None = None, mode: int | None = None
    ) -> FileContent:
        """`expected` is the digest from the last read, or "" for a file that must be new."""

    async def remove(self, path: str, *, expected: str | None = None) -> None: ...

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
        """`on_output` gets the output while it runs, and on cancellation what is left of it.

        `sandboxed=False`: outside of the sandbox, which the user has approved; it raises if a
        sandbox is required. `network`: with this one, whatever the sandbox has."""

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
        """Start it in the background; with `stdin` its input stays open for `write`. With
        "terminal", input and output are a terminal of its own."""

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
        """Run a program without a shell; stdout and stderr are kept up to `limit` bytes each.

        For programs of the engine, such as a search or a hook. `sandboxed=None`: in the sandbox
        if there is one; False raises if the sandbox is required. `read_only=True`: the program may
        only read what the workspace may read, even if a path is swapped for a symlink meanwhile.
        """

    async def aclose(self) -> None: ...
