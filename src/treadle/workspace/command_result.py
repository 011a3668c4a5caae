"""The result of a command, as the contract describes it: its output, how it ended, and notes about
what the output does not show. Used by local.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from treadle.core.contracts.workspace import CommandResult
from treadle.core.errors import WorkspaceError
from treadle.workspace.output import CapturedStream, ProcessExit, decode_output, join_head_tail

if TYPE_CHECKING:
    from treadle.workspace.sandbox.bubblewrap import Bubblewrap


def make_command_result(
    ended: ProcessExit,
    timeout: float | None,
    sandbox: Bubblewrap | None,
    *,
    inside: bool,
    offline: bool,
    max_memory: int,
) -> CommandResult:
    """`inside`: it ran in the sandbox; `offline`: without the network."""
    stream = ended.stream
    raise_if_not_started(ended, stream.head)
    head, tail = stream.head, stream.tail
    output = join_head_tail(head, tail, stream.total, stream.path, stream.spilled)
    notes = [*_describe_exit(ended, timeout, max_memory)]
    hidden_files: tuple[str, ...] = ()
    if sandbox is not None:
        notes += sandbox.take_notes()
        if inside:
            notes += sandbox.describe_limits(head + tail)
            hidden_files = sandbox.hidden_files
    if offline:
        from treadle.workspace.sandbox.probe import NO_NETWORK_NOTE, mentions_network

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


def _describe_exit(ended: ProcessExit, timeout: float | None, max_memory: int) -> Iterator[str]:
    """Notes on the end of a command that its output does not show."""
    if ended.timed_out:
        yield f"it did not end within {timeout:g} s and was killed" if timeout else "timed out"
    if ended.memory_exceeded:
        limit = f"{max_memory >> 20:,} MB of memory"
        yield f"it was killed because it used more than {limit} (setting command_memory)"
    elif ended.disk_exceeded:
        limit = f"{ended.disk_exceeded >> 20:,} MB of the disk"
        yield f"it was killed because it took more than {limit} (setting command_disk)"
    elif ended.out_of_memory:
        yield "the kernel killed it because it ran out of memory"
    if ended.core_dumped:
        yield "it dumped core"
    if ended.leftovers and not ended.timed_out:
        yield f"processes that it left running were ended ({', '.join(ended.leftovers[:5])})"


SANDBOX_FAILURES = {"bwrap": 1, "sandbox-exec": 71}  # the exit codes of a sandbox itself


def raise_if_not_started(ended: ProcessExit, output: bytes) -> None:
    """Raise an error if the sandbox failed before the command ran. Only its output tells that."""
    name, _, problem = decode_output(output)[:300].strip().partition(": ")
    if ended.exit_code is None or SANDBOX_FAILURES.get(name) != ended.exit_code or ended.cwd:
        return
    step, _, program = problem.partition(" ")
    if step in ("execvp", "execvp()"):
        raise WorkspaceError(f"cannot run {program.removeprefix('of ')}")
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
