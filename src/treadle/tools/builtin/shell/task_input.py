"""`task_input`: write to the input of a background command, and show what it prints next.

The command was started by `bash` with `stdin`, in the same sandbox, and ends with the session. What
is typed is judged like a call of its own: a rule that denies a command denies to type it.
"""

import asyncio
import re
from typing import Annotated, ClassVar

import msgspec

from treadle.core.contracts.tool import Access, Preview, ToolContext, ToolOutput
from treadle.core.contracts.workspace import RunningCommand
from treadle.core.errors import ToolError
from treadle.core.transcript.content import Arguments
from treadle.tools.builtin.base import BuiltinTool, describe, escape_multiline
from treadle.tools.builtin.session_memory import CallSite
from treadle.tools.builtin.shell.task_output import MAX_CHARS, TASK_ID_ALIASES, find_task
from treadle.tools.call_summary import summarize_call

DEFAULT_WAIT = 1.0
MAX_WAIT = 60.0
QUIET_SECONDS = 0.25  # output that stops for so long is taken as the answer
POLL_SECONDS = 0.02
KEYS = ("\x03", "\x04", "\x1a", "\x1c")  # Ctrl-C, Ctrl-D, Ctrl-Z, Ctrl-\
# Other keys would edit the line: what runs would not be what was decided on.
_OTHER_KEYS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
ROWS = 40


class TaskInputArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task_id: Annotated[str, describe("Such as t1")]
    text: Annotated[str, describe("A line end is added; \\u0003 is Ctrl-C")] = ""
    wait: Annotated[float, describe("Milliseconds for output; 1000")] = 0
    columns: Annotated[int, describe("Width of its terminal")] = 0


class TaskInputTool(BuiltinTool[TaskInputArguments]):
    name = "task_input"
    kind = "execute"
    arguments_type = TaskInputArguments
    effect = "irreversible"
    concurrent = False
    needs_policy = True
    aliases = ("write_stdin", "send_input", "bash_input", "shell_input")
    argument_aliases: ClassVar = {
        **TASK_ID_ALIASES, "session_id": "task_id", "chars": "text", "input": "text",
        "data": "text", "yield_time_ms": "wait", "timeout": "wait",
    }  # fmt: skip

    def validate(self, args: TaskInputArguments) -> str | None:
        if not 0 <= args.columns <= 1_000:
            return "columns is a number from 1 to 1000"
        if args.text not in KEYS and _OTHER_KEYS.search(args.text):
            return "the text has a control character; only Ctrl-C, D, Z or \\, alone, can be typed"
        return None

    def summary(self, arguments: Arguments) -> str:
        given = {"text": f"{arguments.get('task_id', '')}: {arguments.get('text', '')}"}
        return escape_multiline(summarize_call(self.name, given))

    def access(self, arguments: Arguments, session_id: str) -> Access:
        args = self.parse_arguments(arguments)
        started = self.sessions.get(session_id).find_started(args.task_id)
        # A command that got the network stays in its sandbox; one outside is asked about again.
        is_outside = started is not None and started.sandbox == "off"
        cwd = self.sessions.cwd(session_id)
        command = "" if args.text in KEYS else args.text
        return Access(command=command, cwd=cwd, sandbox="off" if is_outside else "")

    async def preview(self, arguments: Arguments, context: ToolContext) -> Preview | None:
        args = self.parse_arguments(arguments)
        started = self.sessions.get(context.session_id).find_started(args.task_id)
        name = f" ({started.command})" if started is not None else ""
        return Preview("text", f"Typed into {args.task_id}{name}:\n{args.text}")

    async def run(self, args: TaskInputArguments, site: CallSite) -> ToolOutput:
        task = find_task(site, args.task_id)
        running = site.session.running_commands.get(task.call_id)
        if running is None:
            raise ToolError(f"task {task.id} is {task.state}; it takes no input")
        started = site.session.find_started(args.task_id)
        if started is not None and started.has_terminal and "\t" in args.text:
            raise ToolError("a tab completes names in a terminal; type spaces")
        if args.columns:
            running.resize(args.columns, ROWS)
        before = running.output()
        is_line = not args.text.endswith(("\n", *KEYS)) and (args.text or not args.columns)
        await running.write(f"{args.text}\n" if is_line else args.text)
        await _wait_for_output(running, before, site, task.call_id, _parse_wait(args.wait))
        after = running.output()
        fresh = after.removeprefix(before)
        if len(fresh) > MAX_CHARS:
            fresh = f"... [{len(fresh) - MAX_CHARS} characters left out]\n{fresh[-MAX_CHARS:]}"
        has_ended = task.call_id not in site.session.running_commands
        note = "\n[the command has ended]" if has_ended else ""
        return ToolOutput((fresh.rstrip("\n") or "(no output yet)") + note)


def _parse_wait(milliseconds: float) -> float:
    return min(max(milliseconds / 1_000, 0), MAX_WAIT) if milliseconds else DEFAULT_WAIT


async def _wait_for_output(
    running: RunningCommand, before: str, site: CallSite, call_id: str, wait: float
) -> None:
    """Return when new output has stopped for a moment, the command has ended, or time is over."""
    loop = asyncio.get_running_loop()
    deadline, last, changed_at = loop.time() + wait, before, 0.0
    while loop.time() < deadline and call_id in site.session.running_commands:
        await asyncio.sleep(POLL_SECONDS)
        now = running.output()
        if now != last:
            last, changed_at = now, loop.time()
        elif changed_at and loop.time() - changed_at >= QUIET_SECONDS:
            return
