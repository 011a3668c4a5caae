"""`bash`: a command line, in the working directory that the last one left.

The workspace starts the processes and owns sandbox and limits. A background command becomes a
task of the loop, which reports its end and ends it with the session.
"""

import asyncio
import re
import shlex
from collections.abc import Callable, Iterable
from os.path import normpath
from pathlib import Path, PurePath
from posixpath import join
from typing import Annotated, Any, ClassVar

import msgspec

from treadle.core.arguments.fit_names import Report, fold_name
from treadle.core.contracts.tool import (
    Access,
    Preview,
    RepairedArguments,
    SandboxRequest,
    ToolContext,
    ToolOutput,
    UndoAnswer,
)
from treadle.core.contracts.workspace import CommandResult, RunningCommand
from treadle.core.errors import WorkspaceError
from treadle.core.transcript import Arguments, Item, ToolResultItem
from treadle.lib.text.lazy_regex import compile_lazily
from treadle.tools.builtin.base import BuiltinTool, describe, escape_multiline
from treadle.tools.builtin.session_memory import (
    CallSite,
    StartedCommand,
    ToolSessions,
    join_path,
    kill_shielded,
)
from treadle.tools.builtin.shell.inverse import find_inverse
from treadle.tools.call_summary import summarize_call

DEFAULT_TIMEOUT = 120.0
MAX_TIMEOUT = 600.0
REQUEST_TEXTS = {"": "", "network": " with network", "off": " outside the sandbox"}
# Arguments of other programs that ask to run a command outside of the sandbox.
_OUTSIDE_FLAGS = ("withescalatedpermissions", "dangerouslydisablesandbox")
# Arguments of other programs about how a command is shown or started, which change nothing here.
_WITHOUT_EFFECT = ("yield_time_ms", "max_output_tokens", "login", "shell")
CWD_NOTE = "[working directory is now {}]"
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}  # what a REPL prints is seen at once
# A terminal without colors, and a shell that does not read and replace by what was typed earlier.
TERMINAL_ENV = {"TERM": "dumb", "HISTFILE": "/dev/null", "HISTSIZE": "0", "PAGER": "cat"}
INTERRUPTED_NOTE = "interrupted before it ended; its effect may be incomplete"
MAX_INTERRUPTED_CHARS = 30_000
REPORT_SECONDS = 0.5  # between two looks at the output of a background command
MAX_REPORTED_CHARS = 4_000
# One search, and what it prints about a path that it could not open: only its output tells that.
_SEARCH = compile_lazily(r"\s*(?:git grep|[efz]?grep|rg|find|du|ls|wc)\s[^;&|<>`$()\n]*")
_PROBLEM = compile_lazily(r"^(?:error|[efz]?grep|rg|find|du|ls|wc): (.+)$", re.MULTILINE)
_NO_PERMISSION = compile_lazily(
    r"(?:cannot [a-z ]+|failed to [a-z]+ )?['‘]?(.+?)['’]?: "
    r"Permission denied(?: \(os error 13\))?"
)
_OLD_CWD_PATTERN = compile_lazily(r"\[working directory is now ([^\n]+)\]\Z")


class BashArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: str
    timeout: Annotated[float, describe("Milliseconds; 120000, at most 600000")] = 0
    description: Annotated[str, describe("For the user, in five to ten words")] = ""
    run_in_background: Annotated[bool, describe("Do not wait for it")] = False
    cwd: Annotated[str, describe("Folder for this command only")] = ""
    stdin: Annotated[bool, describe("With run_in_background: an input, for task_input")] = False
    tty: Annotated[bool, describe("The same, on a terminal")] = False
    sandbox: Annotated[
        SandboxRequest,
        describe("If the sandbox stops it: `network`, or `off` to run outside; the user is asked"),
    ] = ""
    domains: Annotated[tuple[str, ...], describe("With `network`: only these hosts")] = ()


class BashTool(BuiltinTool[BashArguments]):
    """`detach_after`: seconds after which a command that still runs becomes a background task."""

    name = "bash"
    kind = "execute"
    arguments_type = BashArguments
    effect = "irreversible"
    needs_policy = True
    concurrent = False  # what a command reads and writes is not known: it runs alone
    detachable = True
    timeout = 30 * 24 * 3600.0  # `run` has its own limit; a background command may have none
    aliases = (
        "shell", "shell_command", "local_shell", "exec", "exec_command", "execute_command",
        "run_command", "run_shell_command", "run_terminal_cmd", "terminal", "execute_bash", "sh",
        "container.exec",
    )  # fmt: skip
    argument_aliases: ClassVar = {
        "cmd": "command", "script": "command", "code": "command", "commands": "command",
        "workdir": "cwd", "working_directory": "cwd", "dir_path": "cwd", "directory": "cwd",
        "timeout_ms": "timeout", "background": "run_in_background",
        "is_background": "run_in_background", "sandbox_permissions": "sandbox",
        "justification": "description",
    }  # fmt: skip
    value_aliases: ClassVar = {"sandbox": {"require_escalated": "off", "use_default": ""}}

    def __init__(self, sessions: ToolSessions, *, detach_after: float | None = None) -> None:
        super().__init__(sessions)
        if detach_after is not None:
            self._spec = msgspec.structs.replace(self._spec, detach_after=detach_after)

    def validate(self, args: BashArguments) -> str | None:
        if not args.command.strip():
            return "the command is empty"
        if (args.stdin or args.tty) and not args.run_in_background:
            return "stdin and tty are for a command with run_in_background"
        return "the timeout is negative" if args.timeout < 0 else None

    def repair(self, arguments: Arguments) -> RepairedArguments:
        flag = next((name for name in arguments if fold_name(name) in _OUTSIDE_FLAGS), "")
        if flag and isinstance(arguments[flag], bool) and "sandbox" not in arguments:
            request = "off" if arguments[flag] else ""
            rest = {name: value for name, value in arguments.items() if name != flag}
            meant = self.repair({**rest, "sandbox": request})
            notes = (f"`{flag}` is sandbox `{request}`", *meant.notes)
            return msgspec.structs.replace(meant, notes=notes)
        repaired = super().repair(arguments)
        given = arguments.get("command", arguments.get("cmd"))
        folder = str(repaired.arguments.get("cwd") or "")
        patch = read_patch(given, folder) or read_patch(repaired.arguments.get("command"), folder)
        if patch is None:
            return repaired
        return msgspec.structs.replace(
            repaired, tool="apply_patch", tool_arguments={"patch": patch}
        )

    @classmethod
    def repair_values(cls, arguments: Arguments, report: Report) -> Arguments:
        for name in _WITHOUT_EFFECT:
            if name in arguments:
                report(f"`{name}` has no effect")
                arguments = {key: value for key, value in arguments.items() if key != name}
        command = arguments.get("command")
        plain = read_command(command)
        if plain == command:
            return arguments
        note = "`command` is one command line"
        report(note) if _unwrap_shell(command) == plain else report.guess(note)
        return {**arguments, "command": plain}

    @classmethod
    def describe_access(cls, arguments: Arguments, cwd: str) -> Access:
        args = cls.parse_arguments(arguments)
        if args.cwd:
            cwd = str(join_path(cwd, args.cwd))
        # No files: what a command touches is not known here, so it runs alone.
        domains = args.domains if args.sandbox == "network" else ()
        return Access(command=args.command, cwd=cwd, sandbox=args.sandbox, domains=domains)

    def summary(self, arguments: Arguments) -> str:
        request = REQUEST_TEXTS.get(str(arguments.get("sandbox", "")), "")
        return escape_multiline(summarize_call(f"{self.name}{request}", arguments))

    async def preview(self, arguments: Arguments, context: ToolContext) -> Preview | None:
        args = self.parse_arguments(arguments)
        request = REQUEST_TEXTS[args.sandbox]
        note = f"# runs{request}, for this command only\n" if request else ""
        return Preview("command", f"{note}{args.command}")

    def undo(self, arguments: Arguments, result: ToolResultItem) -> UndoAnswer:
        from treadle.lib.shell.syntax.parser import parse_command

        text = str(arguments["command"])
        if parse_command(text).only_reads:
            return ""
        command = None if result.is_error else find_inverse(text, result.text)
        if command is None:
            return "what the command did, and how to take it back, is not known"
        return self.name, {**arguments, "command": command}

    async def run(self, args: BashArguments, site: CallSite) -> ToolOutput:
        cwd = str(site.resolve(".")) if args.cwd else site.cwd
        if args.run_in_background:
            return await self._run_in_background(args, site, cwd)
        shown = ""

        def report(text: str) -> None:
            nonlocal shown
            shown = (shown + text)[-MAX_INTERRUPTED_CHARS:]
            site.context.report_progress(text)

        try:
            limit = parse_timeout(args.timeout)
            done = await site.workspace.run(
                args.command, cwd=cwd, timeout=limit, on_output=report, **_sandbox_options(args)
            )
        except asyncio.CancelledError:
            if not shown.strip() or _is_task(site):
                raise
            # The result of an interrupted call is what it printed so far.
            text = shown.rstrip("\n") + f"\n[{INTERRUPTED_NOTE}]"
            return ToolOutput(text, is_error=True, data={"cwd": site.cwd})
        except WorkspaceError as error:
            if error.kind != "bad_cwd" or cwd != site.cwd or cwd == self.sessions.root:
                raise
            # The next command must not start in a folder that is gone.
            root = self.sessions.root
            self.sessions.set_cwd(site.context.session_id, root)
            text = f"error: {error}. {CWD_NOTE.format(root)}"
            return ToolOutput(text, is_error=True, data={"cwd": root})
        done_cwd, note = (site.cwd, "") if args.cwd else self._update_cwd(done, site)
        output = _make_output(done, done_cwd, note)
        if output.is_error and _lacks_only_hidden_files(
            done, args.command, cwd, self.sessions.root
        ):
            return msgspec.structs.replace(output, is_error=False)
        return output

    def _update_cwd(self, done: CommandResult, site: CallSite) -> tuple[str, str]:
        """The working directory after a command, and a note for the model if it matters."""
        if not done.cwd or done.cwd == site.cwd:
            return site.cwd, ""
        try:
            inside = str(site.workspace.resolve(done.cwd))
        except WorkspaceError:
            still = f"working directory is still {site.cwd}"
            return site.cwd, f"[{done.cwd} is outside the workspace; {still}]"
        self.sessions.set_cwd(site.context.session_id, inside)
        return inside, CWD_NOTE.format(inside)

    async def _run_in_background(self, args: BashArguments, site: CallSite, cwd: str) -> ToolOutput:
        """Start a command and detach: the rest of the call is a task of the loop."""
        options = _sandbox_options(args)
        if args.tty:
            options |= {"stdin": "terminal", "env": TERMINAL_ENV}
        elif args.stdin:
            options |= {"stdin": True, "env": UNBUFFERED}
        running = await site.workspace.start(args.command, cwd=cwd, **options)
        call_id = site.context.call_id
        site.session.running_commands[call_id] = running
        started = StartedCommand(args.command, args.sandbox, args.tty)
        site.session.record_started(call_id, started, site.context.tasks)
        reports = _OutputReports(running, site.context.report_progress)
        reporting = asyncio.create_task(reports.run())
        try:
            site.context.detach()
            done = await running.wait()
            reports.report_new()
            return _make_output(done, site.cwd)
        finally:
            reporting.cancel()
            site.session.running_commands.pop(call_id, None)
            await kill_shielded(running)


class _OutputReports:
    """Reports what a background command prints, for those who watch it."""

    def __init__(self, running: RunningCommand, report: Callable[[str], None]) -> None:
        self._running, self._report = running, report
        self._seen = ""

    async def run(self) -> None:
        while True:
            self.report_new()
            await asyncio.sleep(REPORT_SECONDS)

    def report_new(self) -> None:
        text, seen = self._running.output(), self._seen
        if text and text != seen:
            # Of a long output the middle is left out: its end is all that can be told.
            new = text[len(seen) :] if text.startswith(seen) else text[-MAX_REPORTED_CHARS:]
            self._seen = text
            self._report(new)


def _sandbox_options(args: BashArguments) -> dict[str, Any]:
    """How the workspace is asked for what the command needs; nothing for most commands."""
    match args.sandbox:
        case "network":
            return {"network": args.domains or True}
        case "off":
            return {"sandboxed": False}
    return {}


def _is_task(site: CallSite) -> bool:
    """Whether the call has become a background task, whose output the loop keeps."""
    tasks = site.context.tasks
    return tasks is not None and any(t.call_id == site.context.call_id for t in tasks.list())


def parse_timeout(timeout: float) -> float:
    """Seconds of a limit in milliseconds; a number below 1,000 is taken as seconds."""
    if not timeout:
        return DEFAULT_TIMEOUT
    return min(timeout if timeout < 1_000 else timeout / 1_000, MAX_TIMEOUT)


def find_last_cwd(items: Iterable[Item]) -> str | None:
    """The working directory after the last command of a transcript; for a resumed session."""
    cwd = None
    for item in items:
        if isinstance(item, ToolResultItem) and item.name == BashTool.name:
            cwd = (item.data or {}).get("cwd") or _find_old_cwd(item) or cwd
    return cwd


def _find_old_cwd(item: ToolResultItem) -> str | None:
    """The working directory in a result of version 0.1, which has it only in its text."""
    note = _OLD_CWD_PATTERN.search(item.text[-5_000:])
    return note.group(1) if note else None


def _make_output(done: CommandResult, cwd: str, cwd_note: str = "") -> ToolOutput:
    ended = done.describe_failure()
    notes = [f"[{ended}]" if ended else "", f"[{done.note}]" if done.note else "", cwd_note]
    parts = (done.output.rstrip("\n"), *notes)
    return ToolOutput(
        "\n".join(part for part in parts if part) or "(no output)",
        is_error=done.exit_code != 0,
        full_output=done.full_output,
        data={"cwd": cwd},
    )


def _lacks_only_hidden_files(done: CommandResult, command: str, cwd: str, root: str) -> bool:
    """Whether a search failed only because it could not open files that a rule denies."""
    if not done.hidden_files or done.exit_code not in (1, 2) or done.full_output:
        return False
    hidden = {normpath(f"{root}/{path}" if path[0] != "/" else path) for path in done.hidden_files}
    problems = [_NO_PERMISSION.fullmatch(text) for text in _PROBLEM.findall(done.output)]
    folders = (cwd, *map(str, Path(cwd).parents))  # git names paths from the repository's top
    return bool(_SEARCH.fullmatch(command) and problems) and all(
        problem is not None
        and any(normpath(f"{folder}/{problem[1]}") in hidden for folder in folders)
        for problem in problems
    )


_SHELLS = ("bash", "sh", "zsh")
_SHELL_OPTIONS = ("-c", "-lc", "-ic", "-lic", "-cl")
# Quoted, and without what a shell would expand in it: the text has one meaning.
_ONE_QUOTED = r"""(?P<quote>['"])(?P<text>(?:(?!(?P=quote)).)*)(?P=quote)\s*"""
_LINE_OF_SHELL = compile_lazily(rf"\s*(?P<shell>\S+)\s+(?P<option>-\w+)\s+{_ONE_QUOTED}", re.DOTALL)
_ARGUMENT = compile_lazily(rf"\s*\w+\s+{_ONE_QUOTED}", re.DOTALL)
_FENCE = compile_lazily(r"\s*```(?:bash|sh|shell|console|zsh)?[ \t]*\n(.*?)\n?```\s*", re.DOTALL)
_CHANGE_FOLDER = compile_lazily(r"\s*cd\s+(?P<folder>[\w./-]+)\s*&&\s*")
_PATCH_PATH = compile_lazily(
    r"^(\*\*\* (?:(?:Add|Update|Delete) File|Move to): )(.+)$", re.MULTILINE
)
_HERE_DOCUMENT = compile_lazily(
    r"""\s*(?:applypatch|apply_patch)\s*<<-?\s*(?P<quote>['"]?)(?P<end>\w+)(?P=quote)[ \t]*\n"""
    r"(?P<patch>.*?\n)(?P=end)\s*",
    re.DOTALL,
)


def _unwrap_shell(command: Any) -> str | None:
    """The command line of `["bash", "-lc", "…"]`, the form of OpenAI's models."""
    match command:
        case [str(shell), str(option), str(line)] if option in _SHELL_OPTIONS:
            return line if PurePath(shell).name in _SHELLS else None
    return None


def read_command(command: Any) -> Any:
    """The command line; what is neither a text nor a list of texts stays as it is."""
    if isinstance(command, list) and command and all(isinstance(one, str) for one in command):
        line = _unwrap_shell(command)
        if line is not None:
            return line
        # One element is a whole command line; several are its words.
        return command[0] if len(command) == 1 else shlex.join(command)
    if not isinstance(command, str):
        return command
    if command.lstrip()[:1] == "[":
        return _read_list(command)
    fence = _FENCE.fullmatch(command)
    plain = fence.group(1) if fence else command
    return plain.removeprefix("$ ")


def _read_list(command: str) -> str:
    """The command of a list that was written as text; `[ -f x ]` is a command itself."""
    import json

    try:
        words = json.loads(command)
    except (ValueError, RecursionError):
        return command
    read = read_command(words) if isinstance(words, list) else command
    return read if isinstance(read, str) else command


def read_patch(command: Any, folder: str = "") -> str | None:
    """The patch of `apply_patch <<'EOF' ... EOF` or `apply_patch '...'`, also in `bash -lc`, and of
    nothing else. Its paths start from `folder`, and from that of a `cd` before it."""
    if isinstance(command, list) and len(command) == 2:
        name, patch = command
        is_patch = name in ("apply_patch", "applypatch") and isinstance(patch, str)
        return _move_paths(patch, folder) if is_patch else None
    line = read_command(command)
    if not isinstance(line, str):
        return None
    inner = _LINE_OF_SHELL.fullmatch(line)
    if inner is not None:
        line = _unwrap_shell([inner["shell"], inner["option"], _read_quoted(inner)]) or ""
    change = _CHANGE_FOLDER.match(line)
    if change is not None:
        line, folder = line[change.end() :], join(folder, change["folder"])
    found = _find_patch(line)
    return _move_paths(found, folder) if found is not None else None


def _move_paths(patch: str, folder: str) -> str:
    """The patch with paths that start from `folder`."""
    if not folder:
        return patch
    return _PATCH_PATH.sub(lambda m: m.group(1) + join(folder, m.group(2).strip()), patch)


def _find_patch(line: str) -> str | None:
    if not line.lstrip().startswith(("apply_patch", "applypatch")):
        return None
    document = _HERE_DOCUMENT.fullmatch(line if line.endswith("\n") else f"{line}\n")
    if document is not None:
        # Without quotes the shell would expand `$x`: then the text is not the patch.
        is_plain = document["quote"] or not re.search(r"[$`\\]", document["patch"])
        return document["patch"] if is_plain else None
    argument = _ARGUMENT.fullmatch(line)
    return _read_quoted(argument) if argument is not None else None


def _read_quoted(found: re.Match[str]) -> str | None:
    is_plain = found["quote"] == "'" or not re.search(r"[$`\\]", found["text"])
    return found["text"] if is_plain else None
