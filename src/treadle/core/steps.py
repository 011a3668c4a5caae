"""What `Driver.next()` returns.

    AwaitingInput     cooperative   submit a message, or stop here
    ApprovalRequest   blocking      approve or deny every call, then call next() again
    AfterToolResult   cooperative   a message may be submitted here
    Finished          the turn is over; the next step awaits input

Values with callbacks; the driver carries them out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from treadle.core.argument_checks import DICT, FLAG, TEXT, check_fields, one_of, optional
from treadle.core.contracts.policy import Risk
from treadle.core.contracts.tool import NO_ACCESS, Access, Preview
from treadle.core.errors import SessionTooNew, StoreError
from treadle.core.events import TurnResult
from treadle.core.transcript.content import Arguments, ToolCall, UserContent, parse_arguments
from treadle.core.transcript.entries import DecidedBy, Entry, Intent
from treadle.core.transcript.entry_json import to_json
from treadle.core.transcript.items import NoticeItem, ToolResultItem, UserItem
from treadle.core.transcript.recover import list_entries
from treadle.core.transcript.state import SessionState, fold_entries
from treadle.core.transcript.transcript import Transcript

SNAPSHOT_VERSION = 2
DECIDER = one_of("user", "headless", "hook")

UserInput = str | UserItem | UserContent | Sequence[str | UserContent]


class AwaitingInput(msgspec.Struct, frozen=True):
    """There is no input. Calling next() again without input returns this again.

    `blocked` is the reason of the hook that blocked the input of this step; "" if none did.
    """

    submit: Callable[[UserInput], str]
    blocked: str = ""


class PendingApproval(msgspec.Struct, frozen=True):
    """One call that needs a decision. `rules` are what "always" would save, `preview` shows what
    the call would do, `risks` what the user should know about it. `wider_mode` is the permission
    mode that would allow it and may be offered."""

    call: ToolCall
    summary: str
    reason: str
    rules: tuple[str, ...] = ()
    preview: Preview | None = None
    access: Access = NO_ACCESS
    kind: Literal["approval", "question"] = "approval"
    session_id: str = ""  # of the agent that makes the call: this one, or a child
    risks: tuple[Risk, ...] = ()
    wider_mode: str = ""

    @property
    def arguments(self) -> Arguments:
        """The arguments of the call. One whose arguments cannot be read is refused, never asked."""
        return self.call.arguments or {}


class Approval(msgspec.Struct, frozen=True):
    """An approver's yes, with other arguments if the user edited them: `arguments` replaces all
    arguments of the call. `always`: the policy saves the rules of the request."""

    arguments: Arguments | None = None
    always: bool = False

    def __post_init__(self) -> None:
        check_fields(self, {"arguments": optional(DICT), "always": FLAG})


class Denial(msgspec.Struct, frozen=True):
    """An approver's no: the reason that the model reads, and who decided."""

    reason: str
    decided_by: DecidedBy = "user"

    def __post_init__(self) -> None:
        check_fields(self, {"reason": TEXT, "decided_by": DECIDER})


class ApprovalCallbacks(msgspec.Struct, frozen=True):
    """How approvals are resolved; each answers False if nothing was waiting under that id."""

    approve: Callable[[str, Arguments | None, bool], bool]
    deny: Callable[[str, str, DecidedBy], bool]
    pending_ids: Callable[[], tuple[str, ...]]


class ApprovalRequest(msgspec.Struct, frozen=True):
    """These calls wait for a decision. next() before all are resolved is an error.

    They are calls of this agent, or of one child agent, which then have another `session_id`.
    """

    pending: tuple[PendingApproval, ...]
    callbacks: ApprovalCallbacks

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(approval.call for approval in self.pending)

    @property
    def unresolved(self) -> tuple[str, ...]:
        return self.callbacks.pending_ids()

    def approve(
        self, call_id: str, *, arguments: Arguments | None = None, always: bool = False
    ) -> bool:
        """Let the call happen, as it is or with edited arguments."""
        return self.callbacks.approve(call_id, arguments, always)

    def deny(
        self, call_id: str, reason: str = "The user said no.", *, decided_by: DecidedBy = "user"
    ) -> bool:
        """Answer the call with the reason instead of running it."""
        return self.callbacks.deny(call_id, reason, decided_by)

    def approve_all(self) -> None:
        for call_id in self.unresolved:
            self.approve(call_id)

    def deny_all(self, reason: str = "The user said no.") -> None:
        for call_id in self.unresolved:
            self.deny(call_id, reason)


class AfterToolResult(msgspec.Struct, frozen=True):
    """A tool round is over and the model is about to be asked again."""

    results: tuple[ToolResultItem, ...]
    submit: Callable[[UserInput], str]


class Finished(msgspec.Struct, frozen=True):
    """The turn is over."""

    result: TurnResult


Step = AwaitingInput | ApprovalRequest | AfterToolResult | Finished


class Doubt(msgspec.Struct, frozen=True):
    """A call that a process had begun when it ended: whether it had its effect is not known.

    `evidence` is what the tool noted before. `settle` tells the outcome; otherwise a probe of the
    tool finds it out, or the model is told that it is unknown. It is never run again unasked.
    `is_answered`: the model has been told already, as after a timeout; it cannot be settled.
    """

    call: ToolCall
    tool: str
    arguments: Arguments
    idempotency_key: str
    evidence: dict[str, Any] = {}
    session_id: str = ""  # of the agent that made the call: this one, or a child
    is_answered: bool = False


def make_doubt(
    call: ToolCall, intent: Intent, session_id: str, *, is_answered: bool = False
) -> Doubt:
    parsed = call.parsed if intent.raw is None else parse_arguments(intent.raw)
    given = {} if isinstance(parsed, str) else parsed
    noted = intent.idempotency_key, intent.evidence
    return Doubt(call, intent.tool, given, *noted, session_id, is_answered)


class DriverSnapshot(msgspec.Struct, frozen=True):
    """What a driver holds at one moment; it does not change. `agent.start(snapshot=...)` continues
    from it, also in another process: `to_json` and `from_json` keep everything."""

    session_id: str
    state: SessionState
    version: int = SNAPSHOT_VERSION

    @property
    def transcript(self) -> Transcript:
        return self.state.transcript

    @property
    def pending_input(self) -> tuple[UserItem | NoticeItem, ...]:
        return tuple([one.item for one in self.state.queued])

    def to_json(self) -> bytes:
        entries = list_entries(self.state)
        return to_json(_SnapshotEntries(self.session_id, self.version, entries))

    @classmethod
    def from_json(cls, data: bytes | str) -> DriverSnapshot:
        """Raises StoreError if the data is not a snapshot, or of another version."""
        try:
            version = msgspec.json.decode(data, type=_SnapshotVersion).version
            if version != SNAPSHOT_VERSION:
                known = SNAPSHOT_VERSION
                raise SessionTooNew(
                    f"the snapshot has version {version}; this program reads {known}"
                )
            stored = msgspec.json.decode(data, type=_SnapshotEntries)
        except msgspec.DecodeError as error:
            raise StoreError(f"this is not a snapshot of a driver: {error}") from error
        return cls(stored.session_id, fold_entries(stored.entries))


class _SnapshotVersion(msgspec.Struct):
    version: int


class _SnapshotEntries(msgspec.Struct):
    session_id: str
    version: int
    entries: list[Entry]
