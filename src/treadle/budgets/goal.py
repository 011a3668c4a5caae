"""A goal: a command that must succeed before a turn may end.

A hook at `stop` that runs the command in the workspace and sends its output to the model, and a
gate that ends the turn with `goal_not_met` after too many failures, or at once if there is no such
command. Each turn has its own attempts. Used by the hosts (`--until`).
The command is the user's own, so it needs no approval.
"""

from __future__ import annotations

from collections.abc import Callable

from treadle.core.contracts.gate import Admit, BaseGate, RequestEstimate, Stop
from treadle.core.contracts.hook import Block, HookAnswer, HookInput, HookPoint
from treadle.core.contracts.workspace import CommandResult, Workspace
from treadle.core.errors import WorkspaceError
from treadle.lib.text.text import plural

MAX_OUTPUT_CHARS = 12_000
MAX_REPORTED_LINES = 5
COMMAND_NOT_FOUND = 127  # of the shell

NOT_MET_NOTICE = """\
The goal is not met yet: the command `{command}` {ended} ({attempt}).
{output}
Find the cause and repair it. The command is run again when you stop."""


class Goal(BaseGate):
    """Keeps a turn from ending until the command succeeds. One goal is for one session.

    `report` gets a text for the user about each attempt that failed.
    """

    points: frozenset[HookPoint] = frozenset({"stop"})
    timeout: float | None = None  # the command has its own

    def __init__(
        self,
        command: str,
        workspace: Workspace,
        *,
        max_attempts: int = 10,
        timeout: float = 600.0,
        report: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.command = command
        self.attempts = 0
        self.is_met = False
        self._workspace = workspace
        self._max_attempts = max_attempts
        self._timeout = timeout
        self._report = report
        self._last_failure = ""
        self._is_command_missing = False
        self._turn_id = ""
        self._session_id = ""  # only this session has the goal, not its children

    @property
    def is_given_up(self) -> bool:
        is_last = self.attempts >= self._max_attempts or self._is_command_missing
        return not self.is_met and is_last

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        if hook_input.session_id != self._session_id:
            return None
        self.attempts += 1
        try:
            completed = await self._workspace.run(self.command, timeout=self._timeout)
        except WorkspaceError as error:
            self._last_failure, output = "could not be run", str(error)
        else:
            self.is_met = completed.exit_code == 0 and not completed.timed_out
            if self.is_met:
                return None
            self._last_failure = _describe_exit(completed)
            self._is_command_missing = completed.exit_code == COMMAND_NOT_FOUND
            output = _truncate_to_tail(completed.output)
        # Blocks the last attempt too: then the gate ends the turn with `goal_not_met`.
        attempt = f"attempt {self.attempts} of {self._max_attempts}"
        last_lines = "".join(f"\n  {line}" for line in output.splitlines()[-MAX_REPORTED_LINES:])
        self._report(f"goal, {attempt}: `{self.command}` {self._last_failure}{last_lines}")
        notice = NOT_MET_NOTICE.format(
            command=self.command, ended=self._last_failure, attempt=attempt, output=output
        )
        return Block(notice, data={"goal_command": self.command})

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        # The parent makes the first request.
        self._session_id = self._session_id or estimate.session_id
        if estimate.session_id == self._session_id and estimate.turn_id != self._turn_id:
            self._begin_turn(estimate.turn_id)
        if not self.is_given_up or estimate.session_id != self._session_id:
            return Admit()
        after = plural(self.attempts, "attempt")
        return Stop("goal_not_met", f"`{self.command}` {self._last_failure} after {after}")

    def _begin_turn(self, turn_id: str) -> None:
        self._turn_id, self.attempts = turn_id, 0
        self.is_met = self._is_command_missing = False


def _describe_exit(completed: CommandResult) -> str:
    if completed.timed_out:
        return "timed out"
    if completed.signal:
        return f"was killed by {completed.signal}"
    if completed.exit_code == COMMAND_NOT_FOUND:
        return f"cannot run: command not found (exit code {COMMAND_NOT_FOUND})"
    return f"failed with exit code {completed.exit_code}"


def _truncate_to_tail(output: str) -> str:
    """The end of the output: a test run reports its failures there."""
    text = output.strip() or "(It printed nothing.)"
    if len(text) <= MAX_OUTPUT_CHARS:
        return text
    return f"[... {len(text) - MAX_OUTPUT_CHARS} characters left out]\n{text[-MAX_OUTPUT_CHARS:]}"
