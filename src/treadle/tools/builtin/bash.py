"""`bash`: a command line, in the working directory that the last one left.

Starts nothing by itself: the workspace owns processes, walls and limits. A command in the
background becomes a task of the loop, which tells when it ends and ends it with the session.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar

import msgspec

from treadle.core.contracts.tool import Resources, ToolOutput
from treadle.core.contracts.workspace import Completed
from treadle.core.errors import ToolError, WorkspaceError
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.items import Item, ToolResultItem
from treadle.tools.builtin.desk import Desk, Seat, gone
from treadle.tools.builtin.form import BuiltinTool

USUAL_SECONDS = 120.0
MOST_SECONDS = 600.0
MOVED = "[working directory is now {}]"
_MOVED = re.compile(r"\[working directory is now ([^\n]+)\]\Z")


class BashArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[str, msgspec.Meta(description="The command line, for bash")]
    timeout: Annotated[
        float,
        msgspec.Meta(description="Milliseconds until it is killed; usually 120000, 600000 at most"),
    ] = 0
    description: Annotated[
        str, msgspec.Meta(description="What it does, in five to ten words, for the user")
    ] = ""
    run_in_background: Annotated[
        bool, msgspec.Meta(description="Do not wait for it; for servers, watchers, long builds")
    ] = False
    cwd: Annotated[
        str, msgspec.Meta(description="Another folder to run in, for this command only")
    ] = ""


class BashTool(BuiltinTool[BashArguments]):
    """`detach_after`: seconds after which a command that still runs becomes a background task."""

    name = "bash"
    form = BashArguments
    effect = "irreversible"
    concurrent = False
    detachable = True
    timeout = 30 * 24 * 3600.0  # a command has its own limit; one in the background may have none
    synonyms: ClassVar[Mapping[str, str]] = {"workdir": "cwd"}

    def __init__(self, desk: Desk, *, detach_after: float | None = None) -> None:
        super().__init__(desk)
        if detach_after is not None:
            self._spec = msgspec.structs.replace(self._spec, detach_after=detach_after)

    def objection(self, given: BashArguments) -> str | None:
        if not given.command.strip():
            return "the command is empty"
        return "the timeout is negative" if given.timeout < 0 else None

    def resources(self, arguments: Arguments) -> Resources:
        return Resources()  # what a command touches is not known: it runs alone

    async def run(self, given: BashArguments, seat: Seat) -> ToolOutput:
        cwd = str(seat.resolve(given.cwd)) if given.cwd else seat.cwd
        if given.run_in_background:
            return await self._in_background(given, seat, cwd)
        try:
            done = await seat.workspace.run(
                given.command,
                cwd=cwd,
                timeout=seconds(given.timeout),
                on_output=seat.context.progress,
            )
        except WorkspaceError as error:
            raise ToolError(self._recovered(error, seat, cwd)) from error
        moved = "" if given.cwd else self._moved(done, seat)
        return _output(done, moved)

    def _recovered(self, error: WorkspaceError, seat: Seat, cwd: str) -> str:
        """A folder that is gone must not be where the next command starts."""
        if cwd == seat.cwd != self.desk.root and "working directory" in str(error):
            self.desk.move(seat.context.session_id, self.desk.root)
            return f"{error}. {MOVED.format(self.desk.root)}"
        return str(error)

    def _moved(self, done: Completed, seat: Seat) -> str:
        if not done.cwd or done.cwd == seat.cwd:
            return ""
        try:
            inside = str(seat.workspace.resolve(done.cwd))
        except WorkspaceError:
            return f"[{done.cwd} is outside the workspace; working directory is still {seat.cwd}]"
        self.desk.move(seat.context.session_id, inside)
        return MOVED.format(inside)

    async def _in_background(self, given: BashArguments, seat: Seat, cwd: str) -> ToolOutput:
        """The rest of the call is a task of the loop, which knows when and how it ends."""
        running = await seat.workspace.start(given.command, cwd=cwd)
        call_id = seat.context.call_id
        seat.notes.running[call_id] = running
        try:
            seat.context.detach()
            return _output(await running.wait(), "")
        finally:
            seat.notes.running.pop(call_id, None)
            await gone(running)


def seconds(timeout: float) -> float:
    """Milliseconds; a number too small to be meant so is one of seconds."""
    if not timeout:
        return USUAL_SECONDS
    return min(timeout if timeout < 1_000 else timeout / 1_000, MOST_SECONDS)


def last_directory(items: Iterable[Item]) -> str | None:
    """Where the shell stood in the end, by what a transcript says; for a resumed session."""
    found = None
    for item in items:
        if isinstance(item, ToolResultItem) and item.name == BashTool.name:
            said = _MOVED.search(item.text[-5_000:])
            found = said.group(1) if said else found
    return found


def _output(done: Completed, moved: str) -> ToolOutput:
    ended = _ended(done)
    notes = [f"[{ended}]" if ended else "", f"[{done.note}]" if done.note else "", moved]
    said = "\n".join(note for note in notes if note)
    printed = done.output.rstrip("\n")
    content = "\n".join(part for part in (printed, said) if part) or "(no output)"
    # Nothing else to display: the person sees what the model sees, and the log holds it once.
    return ToolOutput(content, is_error=done.exit_code != 0, full_output=done.full_output)


def _ended(done: Completed) -> str:
    if done.timed_out:
        return "timed out"
    if done.signal:
        return f"killed by {done.signal}"
    return f"exit code {done.exit_code}" if done.exit_code else ""
