"""`bash`: a command line, in the working directory that the last one left.

Starts nothing by itself: the workspace owns processes, walls and limits. A command in the
background becomes a task of the loop, which tells when it ends and ends it with the session.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from treadle.core.contracts.tool import Access, ToolOutput
from treadle.core.contracts.workspace import CommandResult
from treadle.core.errors import ToolError, WorkspaceError
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.items import Item, ToolResultItem
from treadle.tools.builtin.base import BuiltinTool
from treadle.tools.builtin.session import CallSite, ToolSessions, kill_shielded

DEFAULT_TIMEOUT = 120.0
MAX_TIMEOUT = 600.0
CWD_NOTE = "[working directory is now {}]"
_CWD_NOTE_PATTERN = re.compile(r"\[working directory is now ([^\n]+)\]\Z")


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
    arguments_type = BashArguments
    effect = "irreversible"
    concurrent = False
    detachable = True
    timeout = 30 * 24 * 3600.0  # a command has its own limit; one in the background may have none
    argument_aliases: ClassVar[Mapping[str, str]] = {"workdir": "cwd"}

    def __init__(self, sessions: ToolSessions, *, detach_after: float | None = None) -> None:
        super().__init__(sessions)
        if detach_after is not None:
            self._spec = msgspec.structs.replace(self._spec, detach_after=detach_after)

    def validate(self, args: BashArguments) -> str | None:
        if not args.command.strip():
            return "the command is empty"
        return "the timeout is negative" if args.timeout < 0 else None

    def access(self, arguments: Arguments, session_id: str) -> Access:
        args = self.parse_arguments(arguments)
        cwd = str(Path(self.sessions.cwd(session_id), Path(args.cwd).expanduser()))
        return Access(command=args.command, cwd=cwd)  # what it touches is not known: it runs alone

    async def run(self, args: BashArguments, site: CallSite) -> ToolOutput:
        cwd = str(site.resolve(".")) if args.cwd else site.cwd
        if args.run_in_background:
            return await self._run_in_background(args, site, cwd)
        try:
            done = await site.workspace.run(
                args.command,
                cwd=cwd,
                timeout=parse_timeout(args.timeout),
                on_output=site.context.report_progress,
            )
        except WorkspaceError as error:
            raise ToolError(self._recover_missing_cwd(error, site, cwd)) from error
        moved = "" if args.cwd else self._update_cwd(done, site)
        return _make_output(done, moved)

    def _recover_missing_cwd(self, error: WorkspaceError, site: CallSite, cwd: str) -> str:
        """A folder that is gone must not be where the next command starts."""
        if cwd == site.cwd != self.sessions.root and "working directory" in str(error):
            self.sessions.set_cwd(site.context.session_id, self.sessions.root)
            return f"{error}. {CWD_NOTE.format(self.sessions.root)}"
        return str(error)

    def _update_cwd(self, done: CommandResult, site: CallSite) -> str:
        if not done.cwd or done.cwd == site.cwd:
            return ""
        try:
            inside = str(site.workspace.resolve(done.cwd))
        except WorkspaceError:
            return f"[{done.cwd} is outside the workspace; working directory is still {site.cwd}]"
        self.sessions.set_cwd(site.context.session_id, inside)
        return CWD_NOTE.format(inside)

    async def _run_in_background(self, args: BashArguments, site: CallSite, cwd: str) -> ToolOutput:
        """The rest of the call is a task of the loop, which knows when and how it ends."""
        running = await site.workspace.start(args.command, cwd=cwd)
        call_id = site.context.call_id
        site.session.running_commands[call_id] = running
        try:
            site.context.detach()
            return _make_output(await running.wait(), "")
        finally:
            site.session.running_commands.pop(call_id, None)
            await kill_shielded(running)


def parse_timeout(timeout: float) -> float:
    """Milliseconds; a number too small to be meant so is one of seconds."""
    if not timeout:
        return DEFAULT_TIMEOUT
    return min(timeout if timeout < 1_000 else timeout / 1_000, MAX_TIMEOUT)


def find_last_cwd(items: Iterable[Item]) -> str | None:
    """Where the shell stood in the end, by what a transcript says; for a resumed session."""
    found = None
    for item in items:
        if isinstance(item, ToolResultItem) and item.name == BashTool.name:
            said = _CWD_NOTE_PATTERN.search(item.text[-5_000:])
            found = said.group(1) if said else found
    return found


def _make_output(done: CommandResult, cwd_note: str) -> ToolOutput:
    ended = _describe_exit(done)
    notes = [f"[{ended}]" if ended else "", f"[{done.note}]" if done.note else "", cwd_note]
    said = "\n".join(note for note in notes if note)
    printed = done.output.rstrip("\n")
    content = "\n".join(part for part in (printed, said) if part) or "(no output)"
    # Nothing else to display: the person sees what the model sees, and the log holds it once.
    return ToolOutput(content, is_error=done.exit_code != 0, full_output=done.full_output)


def _describe_exit(done: CommandResult) -> str:
    if done.timed_out:
        return "timed out"
    if done.signal:
        return f"killed by {done.signal}"
    return f"exit code {done.exit_code}" if done.exit_code else ""
