"""A shell command as a Hook: JSON on its standard input, its exit code as the answer.

    0       yes; JSON on stdout may say more, plain stdout is context at two points
    2       no, with stderr as the reason
    other   it failed: a call about to happen is denied, elsewhere the person is warned
            (so does a hang, more output than anybody reads, or JSON that is none)

How a program is run is not known here: `run` is given, and is a workspace's `execute`. What the
JSON means is speaking.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from treadle.core.contracts.hook import Add, Answer, Block, Hook, HookPoint, Moment, Permit
from treadle.core.contracts.workspace import Executed
from treadle.core.errors import TreadleError
from treadle.core.terminal import harmless
from treadle.policy.hooks.configured import HookCommand
from treadle.policy.hooks.speaking import Heard, clipped, heard, told

OUTPUT_BYTES = 1 << 20
REASON_CHARS = 2_000
MOST_BLOCKED_STOPS = 10
"""How often in a row one turn may be kept from ending; then the hook is taken to be stuck."""


class HookFailed(TreadleError):
    """A hook that cannot be obeyed; the loop denies the call, or warns."""


class Run(Protocol):
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
        confined: bool | None,
    ) -> Executed: ...


class Surroundings(msgspec.Struct, frozen=True):
    """What every hook command of a session has in common.

    tell      a line for the person           halt      ends the turn, for this reason
    approved  asked before each run: whether the command is still what the user approved
    surround  further variables for a command
    confined  as the workspace takes it: False runs the user's own outside of the sandbox; what a
              folder brings runs inside wherever there is one
    """

    run: Run
    folder: Path
    transcript_path: str = ""
    mode: Callable[[], str] = lambda: "default"
    tell: Callable[[str], None] = lambda _: None
    halt: Callable[[str], None] = lambda _: None
    approved: Callable[[HookCommand], bool] = lambda _: True
    surround: Callable[[HookCommand], Mapping[str, str]] = lambda _: {}
    confined: bool | None = False

    def told(self) -> dict[str, Any]:
        return {
            "transcript_path": self.transcript_path,
            "cwd": str(self.folder),
            "permission_mode": self.mode(),
        }


def shell_hooks(
    commands: Sequence[HookCommand],
    run: Run,
    folder: Path,
    *,
    transcript_path: str = "",
    mode: Callable[[], str] | None = None,
    tell: Callable[[str], None] | None = None,
    halt: Callable[[str], None] | None = None,
    approved: Callable[[HookCommand], bool] | None = None,
    surround: Callable[[HookCommand], Mapping[str, str]] | None = None,
    confined: bool | None = False,
) -> list[Hook]:
    """The commands as hooks, in their order; give them to an agent as they are."""
    given = {
        "mode": mode, "tell": tell, "halt": halt, "approved": approved, "surround": surround
    }  # fmt: skip
    surroundings = Surroundings(
        run,
        folder,
        transcript_path,
        confined=confined,
        **{name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]
    )
    remarks, stops = Remarks(command.point for command in commands), Stops()
    hooks: list[Hook] = [ShellHook(command, surroundings, remarks, stops) for command in commands]
    return [*hooks, remarks] if remarks.points else hooks


class ShellHook:
    """One command at one point."""

    def __init__(
        self,
        command: HookCommand,
        surroundings: Surroundings,
        remarks: Remarks | None = None,
        stops: Stops | None = None,
    ) -> None:
        self.command = command
        self._around = surroundings
        self._remarks = remarks or Remarks()
        self._stops = stops or Stops()

    @property
    def points(self) -> frozenset[HookPoint]:
        return frozenset({self.command.point})

    async def ask(self, moment: Moment) -> Answer | None:
        if not self.command.concerns(moment):
            return None
        if not self._around.approved(self.command):
            raise HookFailed(f"{self._named} changed since it was approved; look at it again")
        heard = self._understood(moment, await self._run(moment))
        if self.command.of_folder and isinstance(heard.answer, Permit):
            # A sandboxed command could have rewritten what this hook runs: a person decides.
            return None
        if heard.message:
            self._around.tell(heard.message)
        if heard.halt is not None:
            self._around.halt(heard.halt)
        if heard.remark:
            self._remarks.keep(moment, heard.remark)
        if isinstance(heard.answer, Block):
            self._remarks.drop(moment)
            if moment.point in ("stop", "subagent_stop"):
                self._count_stop(moment)
        return heard.answer

    async def _run(self, moment: Moment) -> Executed:
        around, command = self._around, self.command
        said = around.told()
        if moment.point in ("stop", "subagent_stop"):
            said["stop_hook_active"] = self._stops.blocked(moment) > 0
        folder = str(around.folder)
        return await around.run(
            ("/bin/sh", "-c", command.command),
            cwd=folder,
            env={
                **around.surround(command),
                "TREADLE_PROJECT_DIR": folder,
                "CLAUDE_PROJECT_DIR": folder,
            },
            timeout=command.timeout,
            stdin=told(moment, said),
            limit=OUTPUT_BYTES,
            confined=None if command.of_folder else around.confined,
        )

    def _understood(self, moment: Moment, ran: Executed) -> Heard:
        if ran.timed_out:
            raise HookFailed(f"{self._named} did not end within {self.command.timeout:g} s")
        if ran.exit_code == 2:
            return self._refused(moment, _text(ran.stderr)[:REASON_CHARS])
        if ran.exit_code != 0:
            how = f"exited with {ran.exit_code}" if ran.exit_code else f"was ended by {ran.signal}"
            words = _text(ran.stderr)[:REASON_CHARS] or "it said nothing on stderr"
            raise HookFailed(f"{self._named} {how}: {words}")
        if ran.is_truncated:
            raise HookFailed(f"{self._named} wrote more than {OUTPUT_BYTES >> 20} MiB")
        try:
            return heard(moment, _text(ran.stdout))
        except ValueError as error:
            raise HookFailed(f"{self._named}: {error}") from error

    def _refused(self, moment: Moment, words: str) -> Heard:
        """Exit 2: the reason is for the model where it can act on it, else for the person."""
        reason = words or f"{self._named} said no without a reason"
        match moment.point:
            case "post_tool_use":
                return Heard(Add(clipped(reason)))
            case "session_start" | "session_end" | "notification":
                return Heard(message=reason)
            case _:
                return Heard(Block(reason))

    def _count_stop(self, moment: Moment) -> None:
        if self._stops.count(moment) > MOST_BLOCKED_STOPS:
            raise HookFailed(
                f"{self._named} kept the turn from ending {MOST_BLOCKED_STOPS} times; it ends now"
            )

    @property
    def _named(self) -> str:
        line = " ".join(self.command.command.split())
        return f"`{line[:80]}{'…' if len(line) > 80 else ''}`"


class Stops:
    """How often each session's turn was kept from ending; shared by the hooks of a session."""

    def __init__(self) -> None:
        self._turns: dict[str, tuple[str, int]] = {}

    def blocked(self, moment: Moment) -> int:
        turn, times = self._turns.get(moment.session_id, ("", 0))
        return times if turn == moment.turn_id else 0

    def count(self, moment: Moment) -> int:
        times = self.blocked(moment) + 1
        self._turns[moment.session_id] = (moment.turn_id, times)
        return times


class Remarks:
    """Says last what commands wanted said beside a change: a hook has one answer at a time."""

    _MOST = 64

    def __init__(self, points: Iterable[HookPoint] = ()) -> None:
        # Only where commands are: a hook before tools keeps them from being started early.
        self._points = frozenset(points) & {"pre_tool_use", "post_tool_use"}
        self._kept: dict[tuple[str, str, str], list[str]] = {}

    @property
    def points(self) -> frozenset[HookPoint]:
        return self._points

    async def ask(self, moment: Moment) -> Answer | None:
        said = self._kept.pop(self._key(moment), None)
        return Add("\n".join(said)) if said else None

    def keep(self, moment: Moment, text: str) -> None:
        self._kept.setdefault(self._key(moment), []).append(text)
        if len(self._kept) > self._MOST:  # left by calls that somebody else denied
            del self._kept[next(iter(self._kept))]

    def drop(self, moment: Moment) -> None:
        self._kept.pop(self._key(moment), None)

    @staticmethod
    def _key(moment: Moment) -> tuple[str, str, str]:
        return moment.session_id, moment.point, str(moment.data.get("call_id"))


def _text(data: bytes) -> str:
    """As text without controls: a reason is shown to a person and told to a model."""
    return harmless(data.decode("utf-8", errors="replace").strip())
