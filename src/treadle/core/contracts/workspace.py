"""The contract of a workspace: files and processes, wherever they are.

Tools reach the world through this alone, so that the same tools work on this machine, in a
sandbox or far away. What may be done is the policy's business; what can be done is this one's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec


class FileContent(msgspec.Struct, frozen=True):
    """A file as it was when read. `digest` lets a later write notice that it changed."""

    data: bytes
    digest: str
    size: int
    mode: int
    is_truncated: bool = False


class CommandResult(msgspec.Struct, frozen=True):
    """How a command ended. `output` is harmless text with its middle left out if it was long."""

    exit_code: int | None
    output: str
    signal: str = ""
    timed_out: bool = False
    total_bytes: int = 0
    full_output: str = ""
    cwd: str = ""
    note: str = ""


class ProgramResult(msgspec.Struct, frozen=True):
    """How a program without a shell ended: its streams apart, as bytes, each up to a limit."""

    exit_code: int | None
    signal: str
    stdout: bytes
    stderr: bytes
    timed_out: bool
    is_truncated: bool


class RunningCommand(Protocol):
    """A command that goes on in the background; it is over when its whole tree is.

    Behind walls that is when its shell is: what the shell leaves behind ends with it.
    """

    @property
    def pid(self) -> int: ...

    def output(self) -> str: ...

    async def wait(self) -> CommandResult: ...

    async def kill(self) -> CommandResult: ...


class Workspace(Protocol):
    """Where it works.

    Promises: writes are atomic and durable, and refuse a file whose digest is not `expected`;
    paths never lead out of the root and the added folders; a command has no terminal and no
    input, and when it ends, is cancelled or times out, nothing of it is left; memory is bounded
    whatever it prints. Problems are WorkspaceErrors that say what to do. Files need not wait for
    what commands need, such as walls.
    """

    @property
    def root(self) -> Path: ...

    def resolve(self, path: str, *, for_write: bool = False) -> Path:
        """The real place of a path, links followed, or a WorkspaceError if it is outside; to be
        changed, also if it is protected and goes by another name."""

    async def read(self, path: str, *, limit: int | None = None) -> FileContent:
        """A missing file's WorkspaceError has a FileNotFoundError as its cause."""

    async def write(
        self, path: str, data: bytes, *, expected: str | None = None, mode: int | None = None
    ) -> FileContent:
        """`expected` is the digest that it was read with, or "" for a file that must be new."""

    async def remove(self, path: str, *, expected: str | None = None) -> None: ...

    async def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_output: Callable[[str], None] | None = None,
    ) -> CommandResult: ...

    async def start(
        self, command: str, *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> RunningCommand: ...

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
        """Run a program without a shell, its streams apart, each kept up to `limit` bytes.

        For programs of our own, such as a search or a hook. `confined` None means behind walls
        wherever there are any; False is refused where they are required. `reading` is for one
        that only reads, and stands for both: it can open no more than `read` or a command could,
        whatever the names that it was given have come to lead to.
        """

    async def aclose(self) -> None: ...
