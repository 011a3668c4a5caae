"""A hook of the settings as a Hook. A command gets JSON on its standard input, and its exit code
is the answer:

    0       yes; JSON on stdout may add details, plain stdout is context at three points
    2       no, with stderr as the reason
    other   failure: `pre_tool_use` denies the call, other points warn the user
            (also a timeout, too much output, or invalid JSON)

An address gets the same JSON, and its response counts as the standard output; what a model says
about a prompt, too. A hook for edits is asked about each file of a patch. Uses protocol.py for the
JSON. The caller passes the functions that run them: for a command `execute` of the workspace.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from treadle.core.contracts.hook import (
    ALLOWED_ANSWERS,
    AddContext,
    Block,
    Change,
    Hook,
    HookAnswer,
    HookInput,
    Permit,
)
from treadle.core.contracts.model import CallModel
from treadle.core.contracts.tool import NO_ACCESS
from treadle.core.contracts.workspace import ProgramResult
from treadle.core.errors import TreadleError
from treadle.hooks.background_hooks import BackgroundHooks
from treadle.hooks.hook_config import HookConfig
from treadle.hooks.protocol import (
    HookReply,
    encode_input,
    parse_late_output,
    parse_output,
    truncate_context,
)
from treadle.lib.text.sanitize import strip_escapes

MAX_OUTPUT_BYTES = 1 << 20
MAX_REASON_CHARS = 2_000
# The permission modes as Claude Code names them.
_FOREIGN_MODES = {
    "ask": "default",
    "accept-edits": "acceptEdits",
    "bypass": "bypassPermissions",
}
MAX_BLOCKED_STOPS = 10  # in one turn; then the turn ends anyway
PATCH_TOOL = "apply_patch"
RENAME_TOOL = "rename_symbol"
_HEADER = re.compile(r"\*\*\* (?P<kind>Add|Update|Delete) File: (?P<path>.+)")
_MOVE = re.compile(r"\*\*\* Move to: (?P<path>.+)")


class HookFailed(TreadleError):
    """The hook failed; the loop denies the call or warns the user."""


class RunProgram(Protocol):
    """Runs a program with all its children, and keeps up to `limit` bytes of each stream."""

    async def __call__(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None,
        env: Mapping[str, str] | None,
        timeout: float | None,
        stdin: bytes,
        limit: int,
        sandboxed: bool | None,
    ) -> ProgramResult: ...


RunHook = Callable[[HookConfig, bytes, CallModel], Awaitable[ProgramResult]]
"""Runs a hook that is no command, with the JSON; HookFailed if it cannot."""


class CommandHookContext(msgspec.Struct, frozen=True):
    """What all hooks of the settings share in a session.

    `notify` shows a line to the user, `warn` one that is always shown: a hook failed. `end_turn`,
    given a session id, ends its turn with a reason.
    `is_approved` is called before each run: whether the command is still the approved one.
    `sandboxed` is for the user's own commands: False runs them outside of the sandbox; a project's
    commands always run inside if there is one. `runners` run the hooks of the other kinds.
    """

    run: RunProgram
    folder: Path
    transcript_path: str = ""
    get_mode: Callable[[], str] = lambda: "default"
    notify: Callable[[str], None] = lambda _: None
    warn: Callable[[str], None] = lambda _: None
    end_turn: Callable[[str, str], None] = lambda session_id, reason: None
    is_approved: Callable[[HookConfig], bool] = lambda _: True
    get_extra_env: Callable[[HookConfig], Mapping[str, str]] = lambda _: {}
    sandboxed: bool | None = False
    runners: Mapping[str, RunHook] = {}
    # By session and turn: how often hooks kept it going.
    blocked_stops: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)


def make_command_hooks(commands: Sequence[HookConfig], context: CommandHookContext) -> list[Hook]:
    """The hooks of the settings as hooks for an agent, in their order."""
    deferred = DeferredContext([one for one in commands if not one.is_background])
    background = BackgroundHooks(context.notify)
    hooks: list[Hook] = [CommandHook(one, context, deferred, background) for one in commands]
    hooks += [deferred] if deferred.points else []
    return [*hooks, background] if any(one.is_background for one in commands) else hooks


class CommandHook:
    """One command at one point."""

    timeout: float | None = None  # the command has its own

    def __init__(
        self,
        command: HookConfig,
        context: CommandHookContext,
        deferred: DeferredContext,
        background: BackgroundHooks,
    ) -> None:
        self.command = command
        self.points = frozenset({command.point})
        self._context = context
        self._deferred = deferred
        self._background = background

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        if not self.command.matches_tool(hook_input):
            return None
        is_named = self.command.names_tool(str(hook_input.data.get("tool_name", "")))
        parts = [hook_input] if is_named else _split_files(hook_input)
        answers: list[HookAnswer | None] = []
        for part in filter(self.command.matches_call, parts):
            answer = await self._ask(part)
            answers.append(answer if part is hook_input else _refuse_change(part, answer))
            if isinstance(answers[-1], Block):
                break
        return _join_answers(answers)

    async def _ask(self, hook_input: HookInput) -> HookAnswer | None:
        """Run the command for a call, or for one file of a patch."""
        if not self._context.is_approved(self.command):
            raise HookFailed(f"{self._label} changed since you approved it; approve it again")
        if self.command.is_background:
            work = self._run_in_background(hook_input)
            self._background.start(hook_input.session_id, self._label, work)
            return None
        try:
            reply = self._interpret(hook_input, await self._run(hook_input))
        except HookFailed as error:
            if self.command.is_foreign and hook_input.point == "pre_tool_use":
                # Scripts for Claude Code count on it: only exit code 2 denies a call.
                self._context.warn(f"a hook failed: {error} (the call was not denied)")
                return None
            raise
        if self.command.is_project and isinstance(reply.answer, Permit):
            # A sandboxed command could have changed what this hook runs: the user decides.
            return None
        if reply.user_message:
            self._context.notify(reply.user_message)
        if reply.end_turn_reason is not None:
            self._context.end_turn(hook_input.session_id, reply.end_turn_reason)
        if reply.extra_context:
            self._deferred.add(hook_input, reply.extra_context)
        if isinstance(reply.answer, Block):
            self._deferred.discard(hook_input)
            if hook_input.point in ("stop", "subagent_stop"):
                self._count_blocked_stop(hook_input)
        return reply.answer

    async def _run_in_background(self, hook_input: HookInput) -> HookReply:
        executed = await self._run(hook_input)
        if executed.exit_code == 2 and not executed.timed_out:
            return HookReply(extra_context=_decode_output(executed.stderr)[:MAX_REASON_CHARS])
        return self._read_output(executed, parse_late_output)

    async def _run(self, hook_input: HookInput) -> ProgramResult:
        context, command = self._context, self.command
        folder = str(context.folder)
        common_input: dict[str, Any] = {
            "transcript_path": context.transcript_path,
            "cwd": folder,
            "permission_mode": self._get_mode(),
        }
        if hook_input.point in ("stop", "subagent_stop"):
            turn = hook_input.session_id, hook_input.turn_id
            common_input["stop_hook_active"] = context.blocked_stops[turn] > 0
        data = encode_input(hook_input, common_input, command.event)
        if command.kind != "command":
            runner = context.runners.get(command.kind)
            if runner is None:
                raise HookFailed(f"{self._label}: hooks of the type {command.kind} do not run here")
            return await runner(command, data, hook_input.call_model)
        folders = dict.fromkeys(("TREADLE_PROJECT_DIR", "CLAUDE_PROJECT_DIR"), folder)
        if command.plugin_root:  # the files that Python caches would change the plugin
            folders |= {"CLAUDE_PLUGIN_ROOT": command.plugin_root, "PYTHONDONTWRITEBYTECODE": "1"}
        return await context.run(
            ("/bin/sh", "-c", command.command),
            cwd=folder,
            env={**context.get_extra_env(command), **folders},
            timeout=command.timeout,
            stdin=data,
            limit=MAX_OUTPUT_BYTES,
            sandboxed=None if command.is_project else context.sandboxed,
        )

    def _get_mode(self) -> str:
        mode = self._context.get_mode()
        return _FOREIGN_MODES.get(mode, mode) if self.command.is_foreign else mode

    def _interpret(self, hook_input: HookInput, executed: ProgramResult) -> HookReply:
        if executed.exit_code == 2 and not executed.timed_out:
            reason = _decode_output(executed.stderr)[:MAX_REASON_CHARS]
            return self._interpret_block(hook_input, reason)
        folder = str(self._context.folder)
        return self._read_output(executed, lambda text: parse_output(hook_input, text, folder))

    def _read_output(self, executed: ProgramResult, parse: Callable[[str], HookReply]) -> HookReply:
        """What a command says that did not fail."""
        if executed.timed_out:
            raise HookFailed(f"{self._label} did not finish within {self.command.timeout:g} s")
        if executed.exit_code != 0:
            stderr = _decode_output(executed.stderr)[:MAX_REASON_CHARS]
            code, signal = executed.exit_code, executed.signal
            how = f"exited with {code}" if code else f"was killed by {signal}"
            raise HookFailed(f"{self._label} {how}: {stderr or 'nothing on stderr'}")
        if executed.is_truncated:
            raise HookFailed(f"{self._label} wrote more than {MAX_OUTPUT_BYTES >> 20} MiB")
        try:
            return parse(_decode_output(executed.stdout))
        except ValueError as error:
            raise HookFailed(f"{self._label}: {error}") from error

    def _interpret_block(self, hook_input: HookInput, stderr: str) -> HookReply:
        """Exit code 2: the reason is for the model if it can act on it, else for the user."""
        reason = stderr or f"{self._label} denied it without a reason"
        match hook_input.point:
            case "post_tool_use":
                return HookReply(AddContext(truncate_context(reason)))
            case point if Block in ALLOWED_ANSWERS[point]:
                return HookReply(Block(reason))
        return HookReply(user_message=reason)

    def _count_blocked_stop(self, hook_input: HookInput) -> None:
        turn = hook_input.session_id, hook_input.turn_id
        stops = self._context.blocked_stops
        for earlier in [key for key in stops if key[0] == turn[0] and key != turn]:
            del stops[earlier]  # only the running turn of a session counts
        stops[turn] += 1
        if stops[turn] > MAX_BLOCKED_STOPS:
            problem = f"kept the turn from ending {MAX_BLOCKED_STOPS} times; the turn ends now"
            raise HookFailed(f"{self._label} {problem}")

    @property
    def _label(self) -> str:
        line = " ".join(self.command.command.split())
        return f"`{line[:80]}{'…' if len(line) > 80 else ''}`"


class DeferredContext:
    """Adds the context that commands gave in addition to a change, since a hook has one answer."""

    _MAX_ENTRIES = 64

    def __init__(self, commands: Sequence[HookConfig]) -> None:
        # Only where there are commands: a hook at `pre_tool_use` prevents eager tool calls.
        self.points = frozenset(c.point for c in commands) & {"pre_tool_use", "post_tool_use"}
        self._texts: dict[tuple[str, str, str], list[str]] = {}

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        texts = self._texts.pop(self._key(hook_input), None)
        return AddContext("\n".join(texts)) if texts else None

    def add(self, hook_input: HookInput, text: str) -> None:
        self._texts.setdefault(self._key(hook_input), []).append(text)
        if len(self._texts) > self._MAX_ENTRIES:  # left by calls that were denied elsewhere
            del self._texts[next(iter(self._texts))]

    def discard(self, hook_input: HookInput) -> None:
        self._texts.pop(self._key(hook_input), None)

    @staticmethod
    def _key(hook_input: HookInput) -> tuple[str, str, str]:
        return hook_input.session_id, hook_input.point, str(hook_input.data.get("call_id"))


def _decode_output(data: bytes) -> str:
    """The output as text without escapes: the user and the model read it."""
    return strip_escapes(data.decode("utf-8", errors="replace").strip())


# ---------------------------------------------------------------- calls that change several files


def _split_files(hook_input: HookInput) -> list[HookInput]:
    """One input for each file that a patch or a rename changes, as if it was edited or written,
    because scripts that guard files read `file_path`; of another call the input itself."""
    data = hook_input.data
    access = data.get("access", NO_ACCESS)
    paths = list(dict.fromkeys(file.path for file in access.files if file.mode == "write"))
    given = data.get("tool_input", {})
    changes: dict[str, dict[str, str]] = {}
    if data.get("tool_name") == PATCH_TOOL:
        changes = _read_changes(str(given.get("patch", "")))
    elif data.get("tool_name") == RENAME_TOOL:
        names = {"old_string": str(given.get("symbol")), "new_string": str(given.get("new_name"))}
        changes = dict.fromkeys(paths, names)
    else:
        return [hook_input]
    parts = [_make_file_input(hook_input, path, changes.get(path, {})) for path in paths]
    return parts or [hook_input]


def _make_file_input(hook_input: HookInput, path: str, texts: dict[str, str]) -> HookInput:
    name = "write" if "content" in texts else "edit"
    change = {"file_path": path, **(texts or {"old_string": "", "new_string": ""})}
    data = {**hook_input.data, "tool_name": name, "tool_input": change}
    return msgspec.structs.replace(hook_input, data=data)


def _read_changes(patch: str) -> dict[str, dict[str, str]]:
    """The texts of each file: the `content` of a new one, the old and new lines of another."""
    changes: dict[str, dict[str, str]] = {}
    current = {"old_string": "", "new_string": ""}  # what precedes the first file
    for line in patch.split("\n"):
        line = line.removesuffix("\r")
        if header := _HEADER.fullmatch(line):
            keys = ("content",) if header["kind"] == "Add" else ("old_string", "new_string")
            current = changes.setdefault(header["path"].strip(), dict.fromkeys(keys, ""))
        elif moved := _MOVE.fullmatch(line):
            changes[moved["path"].strip()] = current
        else:
            _add_line(current, line[:1], f"{line[1:]}\n")
    return changes


def _add_line(texts: dict[str, str], mark: str, line: str) -> None:
    added = "content" if "content" in texts else "new_string"
    if mark in ("+", " "):
        texts[added] += line
    if mark in ("-", " ") and "old_string" in texts:
        texts["old_string"] += line


def _refuse_change(part: HookInput, answer: HookAnswer | None) -> HookAnswer | None:
    """The answer about one file, which cannot be changed without the rest of the patch."""
    if not isinstance(answer, Change) or answer.arguments is None:
        return answer
    if answer.arguments == part.data["tool_input"]:
        return None
    path = part.data["tool_input"]["file_path"]
    return Block(f"a hook wants other text for {path}: change this file with `write`")


def _join_answers(answers: Sequence[HookAnswer | None]) -> HookAnswer | None:
    """One answer for the call: it is blocked if one file is, and permitted only if all are."""
    given: list[Any] = [answer for answer in answers if answer is not None]
    for kind in (Block, Change):
        if found := [answer for answer in given if isinstance(answer, kind)]:
            return found[-1]
    contexts = dict.fromkeys(answer.text for answer in given if isinstance(answer, AddContext))
    if contexts:
        return AddContext("\n".join(contexts))
    is_permitted = len(given) == len(answers) and all(isinstance(one, Permit) for one in given)
    return given[0] if given and is_permitted else None
