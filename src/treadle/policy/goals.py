"""A goal: a command that has to succeed before a turn may end.

A hook at `stop` that runs the command in the workspace and sends what it printed back to the
model; and the gate that ends the turn `goal_not_met` when it has failed too often. Budgets bound
it like everything else. Above: the hosts (`--until`). The command is the user's own, so nobody is
asked about it.
"""

from __future__ import annotations

from treadle.core.contracts.gate import Account, Pass, Stop
from treadle.core.contracts.hook import Answer, Block, HookPoint, Moment
from treadle.core.contracts.workspace import Completed, Workspace
from treadle.core.errors import WorkspaceError
from treadle.core.transcript.usage import Usage

SHOWN_CHARS = 12_000
SECONDS = 600.0

NOT_MET = """\
The goal is not met yet: the command `{command}` {ended} (attempt {attempt} of {most}).
{output}
Find the cause and repair it. The command is run again when you stop."""


class Goal:
    """Holds a turn open until the command succeeds. One goal serves one session."""

    points: frozenset[HookPoint] = frozenset({"stop"})

    def __init__(
        self, command: str, workspace: Workspace, *, attempts: int = 10, seconds: float = SECONDS
    ) -> None:
        self.command = command
        self.attempts = 0
        self.is_met = False
        self._workspace = workspace
        self._most = attempts
        self._seconds = seconds
        self._last = ""
        self._session = ""  # children of the session may stop as they like

    @property
    def is_given_up(self) -> bool:
        return not self.is_met and self.attempts >= self._most

    async def ask(self, moment: Moment) -> Answer | None:
        if moment.session_id != self._session:
            return None
        self.attempts += 1
        try:
            completed = await self._workspace.run(self.command, timeout=self._seconds)
        except WorkspaceError as error:
            self._last, output = "could not be run", str(error)
        else:
            self.is_met = completed.exit_code == 0 and not completed.timed_out
            if self.is_met:
                return None
            self._last, output = _ending(completed), _tail(completed.output)
        # Blocked on the last attempt too: the gate then ends the turn, for the right reason.
        return Block(
            NOT_MET.format(
                command=self.command,
                ended=self._last,
                attempt=self.attempts,
                most=self._most,
                output=output,
            )
        )

    def admit(self, account: Account) -> Pass | Stop:
        self._session = self._session or account.session_id  # the first to speak is the parent
        if not self.is_given_up or account.session_id != self._session:
            return Pass()
        times = "once" if self.attempts == 1 else f"{self.attempts} times"
        return Stop("goal_not_met", f"`{self.command}` {self._last}; it was tried {times}")

    def settle(self, account: Account, used: Usage) -> None:
        return None


def _ending(completed: Completed) -> str:
    if completed.timed_out:
        return "ran out of time"
    if completed.signal:
        return f"was ended by {completed.signal}"
    return f"ended with exit code {completed.exit_code}"


def _tail(output: str) -> str:
    """The end of what was printed: that is where a test run says what is wrong."""
    text = output.strip() or "(It printed nothing.)"
    if len(text) <= SHOWN_CHARS:
        return text
    return f"[... {len(text) - SHOWN_CHARS} characters left out]\n{text[-SHOWN_CHARS:]}"
