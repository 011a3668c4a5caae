"""What a server process has to be able to do; the local workspace's `spawn` starts such ones.

Tools do not know the workspace: who puts the parts together passes the function in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class SpawnedProcess(Protocol):
    """A running process. `end` returns when its whole tree is gone."""

    async def wait(self) -> object: ...

    def terminate(self) -> None: ...

    async def kill_and_wait(self) -> None: ...


class StartProcess(Protocol):
    """Starts a program on descriptors of ours, which stay ours to close; it dies with us."""

    async def __call__(
        self,
        argv: Sequence[str],
        descriptors: Mapping[int, int],
        *,
        cwd: str | None,
        env: Mapping[str, str] | None,
    ) -> SpawnedProcess: ...


def describe_error(error: BaseException) -> str:
    """What went wrong, out of the groups that task groups make of it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, ValueError) and hasattr(error, "errors"):  # of the SDK's values
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        return f"what it sent is not of the protocol ({where}: {first['msg']})"
    return str(error) or type(error).__name__
