"""A shell command as a Hook: JSON on its standard input, its exit code as the answer.

    0       yes; JSON on stdout may say more, plain stdout is context at two points
    2       no, with stderr as the reason
    other   it failed: a call about to happen is denied, elsewhere the person is warned
            (so does a hang, more output than anybody reads, or JSON that is none)

How a program is run is not known here: `run` is given, and is a workspace's `execute`. What the
JSON means is protocol.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from treadle.core.contracts.hook import (
    AddContext,
    Block,
    Hook,
    HookAnswer,
    HookInput,
    HookPoint,
    Permit,
)
from treadle.core.contracts.workspace import ProgramResult
from treadle.core.errors import TreadleError
from treadle.core.sanitize import strip_escapes
from treadle.policy.hooks.config import HookConfig
from treadle.policy.hooks.protocol import HookReply, encode_input, parse_output, truncate_context

MAX_OUTPUT_BYTES = 1 << 20
MAX_REASON_CHARS = 2_000
MAX_BLOCKED_STOPS = 10
"""How often in a row one turn may be kept from ending; then the hook is taken to be stuck."""


class HookFailed(TreadleError):
    """A hook that cannot be obeyed; the loop denies the call, or warns."""


class RunProgram(Protocol):
    """Runs a program to its end, its whole tree with it, each stream kept up to `limit` bytes."""

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


class CommandHookContext(msgspec.Struct, frozen=True):
    """What every hook command of a session has in common.

    tell      a line for the person           halt      ends the turn, for this reason
    approved  asked before each run: whether the command is still what the user approved
    surround  further variables for a command
    sandboxed as the workspace takes it: False runs the user's own outside of the sandbox; what a
              folder brings runs inside wherever there is one
    """

    run: RunProgram
    folder: Path
    transcript_path: str = ""
    get_mode: Callable[[], str] = lambda: "default"
    notify: Callable[[str], None] = lambda _: None
    end_turn: Callable[[str], None] = lambda _: None
    is_approved: Callable[[HookConfig], bool] = lambda _: True
    get_extra_env: Callable[[HookConfig], Mapping[str, str]] = lambda _: {}
    sandboxed: bool | None = False

    def common_input(self) -> dict[str, Any]:
        return {
            "transcript_path": self.transcript_path,
            "cwd": str(self.folder),
            "permission_mode": self.get_mode(),
        }


def make_command_hooks(
    commands: Sequence[HookConfig],
    run: RunProgram,
    folder: Path,
    *,
    transcript_path: str = "",
    get_mode: Callable[[], str] | None = None,
    notify: Callable[[str], None] | None = None,
    end_turn: Callable[[str], None] | None = None,
    is_approved: Callable[[HookConfig], bool] | None = None,
    get_extra_env: Callable[[HookConfig], Mapping[str, str]] | None = None,
    sandboxed: bool | None = False,
) -> list[Hook]:
    """The commands as hooks, in their order; give them to an agent as they are."""
    given = {
        "get_mode": get_mode, "notify": notify, "end_turn": end_turn,
        "is_approved": is_approved, "get_extra_env": get_extra_env,
    }  # fmt: skip
    surroundings = CommandHookContext(
        run,
        folder,
        transcript_path,
        sandboxed=sandboxed,
        **{name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]
    )
    remarks, stops = DeferredContext(command.point for command in commands), BlockedStops()
    hooks: list[Hook] = [CommandHook(command, surroundings, remarks, stops) for command in commands]
    return [*hooks, remarks] if remarks.points else hooks


class CommandHook:
    """One command at one point."""

    def __init__(
        self,
        command: HookConfig,
        context: CommandHookContext,
        deferred_context: DeferredContext | None = None,
        blocked_stops: BlockedStops | None = None,
    ) -> None:
        self.command = command
        self._context = context
        self._deferred_context = deferred_context or DeferredContext()
        self._blocked_stops = blocked_stops or BlockedStops()

    @property
    def points(self) -> frozenset[HookPoint]:
        return frozenset({self.command.point})

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        if not self.command.matches(hook_input):
            return None
        if not self._context.is_approved(self.command):
            raise HookFailed(f"{self._label} changed since it was approved; look at it again")
        heard = self._interpret(hook_input, await self._run(hook_input))
        if self.command.is_project and isinstance(heard.answer, Permit):
            # A sandboxed command could have rewritten what this hook runs: a person decides.
            return None
        if heard.user_message:
            self._context.notify(heard.user_message)
        if heard.end_turn_reason is not None:
            self._context.end_turn(heard.end_turn_reason)
        if heard.extra_context:
            self._deferred_context.add(hook_input, heard.extra_context)
        if isinstance(heard.answer, Block):
            self._deferred_context.discard(hook_input)
            if hook_input.point in ("stop", "subagent_stop"):
                self._count_blocked_stop(hook_input)
        return heard.answer

    async def _run(self, hook_input: HookInput) -> ProgramResult:
        around, command = self._context, self.command
        said = around.common_input()
        if hook_input.point in ("stop", "subagent_stop"):
            said["stop_hook_active"] = self._blocked_stops.get_count(hook_input) > 0
        folder = str(around.folder)
        return await around.run(
            ("/bin/sh", "-c", command.command),
            cwd=folder,
            env={
                **around.get_extra_env(command),
                "TREADLE_PROJECT_DIR": folder,
                "CLAUDE_PROJECT_DIR": folder,
            },
            timeout=command.timeout,
            stdin=encode_input(hook_input, said),
            limit=MAX_OUTPUT_BYTES,
            sandboxed=None if command.is_project else around.sandboxed,
        )

    def _interpret(self, hook_input: HookInput, executed: ProgramResult) -> HookReply:
        if executed.timed_out:
            raise HookFailed(f"{self._label} did not end within {self.command.timeout:g} s")
        if executed.exit_code == 2:
            return self._interpret_block(
                hook_input, _decode_output(executed.stderr)[:MAX_REASON_CHARS]
            )
        if executed.exit_code != 0:
            how = (
                f"exited with {executed.exit_code}"
                if executed.exit_code
                else f"was ended by {executed.signal}"
            )
            words = (
                _decode_output(executed.stderr)[:MAX_REASON_CHARS] or "it said nothing on stderr"
            )
            raise HookFailed(f"{self._label} {how}: {words}")
        if executed.is_truncated:
            raise HookFailed(f"{self._label} wrote more than {MAX_OUTPUT_BYTES >> 20} MiB")
        try:
            return parse_output(hook_input, _decode_output(executed.stdout))
        except ValueError as error:
            raise HookFailed(f"{self._label}: {error}") from error

    def _interpret_block(self, hook_input: HookInput, stderr: str) -> HookReply:
        """Exit 2: the reason is for the model where it can act on it, else for the person."""
        reason = stderr or f"{self._label} said no without a reason"
        match hook_input.point:
            case "post_tool_use":
                return HookReply(AddContext(truncate_context(reason)))
            case "session_start" | "session_end" | "notification":
                return HookReply(user_message=reason)
            case _:
                return HookReply(Block(reason))

    def _count_blocked_stop(self, hook_input: HookInput) -> None:
        if self._blocked_stops.increment(hook_input) > MAX_BLOCKED_STOPS:
            raise HookFailed(
                f"{self._label} kept the turn from ending {MAX_BLOCKED_STOPS} times; it ends now"
            )

    @property
    def _label(self) -> str:
        line = " ".join(self.command.command.split())
        return f"`{line[:80]}{'…' if len(line) > 80 else ''}`"


class BlockedStops:
    """How often each session's turn was kept from ending; shared by the hooks of a session."""

    def __init__(self) -> None:
        self._turns: dict[str, tuple[str, int]] = {}

    def get_count(self, hook_input: HookInput) -> int:
        turn, times = self._turns.get(hook_input.session_id, ("", 0))
        return times if turn == hook_input.turn_id else 0

    def increment(self, hook_input: HookInput) -> int:
        times = self.get_count(hook_input) + 1
        self._turns[hook_input.session_id] = (hook_input.turn_id, times)
        return times


class DeferredContext:
    """Says last what commands wanted said beside a change: a hook has one answer at a time."""

    _MAX_ENTRIES = 64

    def __init__(self, points: Iterable[HookPoint] = ()) -> None:
        # Only where commands are: a hook before tools keeps them from being started early.
        self._points = frozenset(points) & {"pre_tool_use", "post_tool_use"}
        self._texts: dict[tuple[str, str, str], list[str]] = {}

    @property
    def points(self) -> frozenset[HookPoint]:
        return self._points

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        said = self._texts.pop(self._key(hook_input), None)
        return AddContext("\n".join(said)) if said else None

    def add(self, hook_input: HookInput, text: str) -> None:
        self._texts.setdefault(self._key(hook_input), []).append(text)
        if len(self._texts) > self._MAX_ENTRIES:  # left by calls that somebody else denied
            del self._texts[next(iter(self._texts))]

    def discard(self, hook_input: HookInput) -> None:
        self._texts.pop(self._key(hook_input), None)

    @staticmethod
    def _key(hook_input: HookInput) -> tuple[str, str, str]:
        return hook_input.session_id, hook_input.point, str(hook_input.data.get("call_id"))


def _decode_output(data: bytes) -> str:
    """As text without controls: a reason is shown to a person and told to a model."""
    return strip_escapes(data.decode("utf-8", errors="replace").strip())
