"""The process of a server, as a contract; the local workspace's `spawn` starts such processes.

Tools do not import the workspace: the assembly passes the function in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class SpawnedProcess(Protocol):
    """A running process. `kill_and_wait` returns when its whole tree is gone."""

    async def wait(self) -> object: ...

    def terminate(self) -> None: ...

    async def kill_and_wait(self) -> None: ...


class StartProcess(Protocol):
    """Starts a program on descriptors of the caller, who closes them; it ends with the agent."""

    async def __call__(
        self,
        argv: Sequence[str],
        descriptors: Mapping[int, int],
        *,
        cwd: str | None,
        env: Mapping[str, str] | None,
    ) -> SpawnedProcess: ...


def unwrap_error(error: BaseException) -> BaseException:
    """The error, or the first error in an exception group: the SDK's task groups raise them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def describe_error(error: BaseException) -> str:
    """The message of an error, or of the first error in an exception group."""
    error = unwrap_error(error)
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, ValueError) and hasattr(error, "errors"):  # of the SDK's values
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        return f"it sent an invalid message ({where}: {first['msg']})"
    return str(error) or type(error).__name__
