"""The entries of the log.

The log is append-only and is the source of truth. Each entry records one event; what it changes in
the state of the session is in state.py. Sequence numbers, checksums and files belong to the stores.
Used by core/loop, sessions/ and the stores.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from treadle.core.transcript.items import Item, NoticeItem, ToolResultItem, UserItem
from treadle.core.transcript.usage import CallPurpose, Usage

EffectClass = Literal["pure", "verifiable", "irreversible"]
# What a tool does, in the words of editors (ACP). plan: it keeps the todo list; agent: it starts
# a child agent.
ToolKind = Literal[
    "read", "search", "edit", "execute", "fetch", "think", "plan", "agent", "other"
]  # fmt: skip
# "headless": no user could be asked. "": written by version 0.1, which did not record it.
DecidedBy = Literal["", "user", "headless", "hook"]


class _Entry(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True):
    """The shape of an entry in the log: `kind` names it."""


class ItemAdded(_Entry, frozen=True, tag="item"):
    """The transcript grew by one item. `message_id` is that of a message that was queued before, or
    given to a run."""

    item: Item
    message_id: str = ""


class InputQueued(_Entry, frozen=True, tag="queued"):
    """A message waits for its place in the transcript. Earlier versions gave it no id."""

    item: UserItem | NoticeItem
    message_id: str = ""


class InputDropped(_Entry, frozen=True, tag="unqueued"):
    """A queued message does not enter the transcript: a hook blocked it, or the user withdrew it.
    `index`, of earlier versions, is its position among the queued ones."""

    index: int = 0
    message_id: str = ""


class InputMoved(_Entry, frozen=True, tag="moved"):
    """The user gave a queued message another place: `to` is a position among the queued ones, as
    `index`, of earlier versions, is."""

    index: int
    to: int
    message_id: str = ""


class TurnBegan(_Entry, frozen=True, tag="turn"):
    """`nonce` makes keys of the turn unlike those of a turn that a damaged log has lost. With
    `continues` users count no new turn: it corrects the answer of the one before, or it is the open
    one, which another process continues. `is_child`: it is the turn of a child agent."""

    turn_id: str
    agent: str = ""  # the name of the agent
    nonce: str = ""
    continues: bool = False
    is_child: bool = False


class Intent(_Entry, frozen=True, tag="intent"):
    """A call is about to have its effect. `evidence` is what a probe will compare. `raw` holds the
    arguments of the run if they differ from the model's: edited, changed by a hook, forwarded.
    `is_assumed`: the log is damaged where the intent would be; the call may or may not have run.
    `is_withdrawn`: the intent could not be made durable in time, so the call did not run.
    `allowed_by`: why the policy allowed the call without asking, such as a rule."""

    call_id: str
    tool: str
    idempotency_key: str = msgspec.field(name="key")
    effect: EffectClass
    evidence: dict[str, Any] = {}
    raw: str | None = None
    is_assumed: bool = False
    is_withdrawn: bool = False
    allowed_by: str = ""


class EarlyResult(_Entry, frozen=True, tag="settled"):
    """A call ended while an earlier call of its round is still running: the result is durable now
    and enters the transcript later, in the model's order."""

    result: ToolResultItem


class ApprovalDecision(_Entry, frozen=True, tag="ruling"):
    """The decision on a call. `raw` holds the arguments if they were edited."""

    call_id: str
    decision: Literal["allow", "deny"]
    reason: str = ""
    raw: str | None = None
    always: bool = False
    decided_by: DecidedBy = ""


class ViewRewritten(_Entry, frozen=True, tag="compaction"):
    """Items [start, stop) of the view are replaced. The old items stay in the log.

    `is_repair`: the old items break a law, so an Uncompacted does not bring them back. `length` is
    that of the old view, so that items which a damaged log lost before are noticed; 0: written by
    an earlier version.
    """

    mutator: str
    start: int
    stop: int
    items: tuple[Item, ...]
    is_repair: bool = False
    length: int = 0


class Uncompacted(_Entry, frozen=True, tag="uncompact"):
    """The view is the whole history again; all replacements are undone."""


class Rewound(_Entry, frozen=True, tag="rewind"):
    """The view is again what it was before this turn began; messages that wait are dropped."""

    turn_id: str


class Forked(_Entry, frozen=True, tag="fork"):
    """What is before this entry is the history of another session, which has been forked. What that
    one spent, and the messages that wait there, belong to it."""

    session_id: str


class Quarantined(_Entry, frozen=True, tag="quarantine"):
    """A provider rejected this part of the view; it is not sent again."""

    position: int
    part: int
    reason: str


class NoticeShown(_Entry, frozen=True, tag="notice"):
    """One line that was shown to the user."""

    text: str


class Restore(msgspec.Struct, frozen=True, omit_defaults=True):
    """Files that go back: `tree` is where they go, `seq` the first entry of the turn concerned.

    An undo takes back this turn, a rewind this one and all later ones, a redo an earlier restore:
    that of the entry `of` (0, from earlier versions: the last one). `is_partial`: it left
    files alone that the user had changed, maybe all.
    """

    action: Literal["undo", "rewind", "redo"]
    seq: int
    tree: str
    of: int = 0
    is_partial: bool = False


class Checkpoint(_Entry, frozen=True, tag="checkpoint"):
    """The state of the files at this point.

    Before and after work of the agent in a turn (the first version does not say `side`), or, with
    `restore`, before files go back; then there is no turn. `background`: at a time of this work
    only these calls ran, in the background, so that some of the changes may be the user's.
    """

    turn_id: str
    tree: str
    side: Literal["", "before", "after"] = ""
    restore: Restore | None = None
    background: tuple[str, ...] = ()


class UsageRecorded(_Entry, frozen=True, tag="usage"):
    """What one model call used, and what it was for; "": written by an earlier version."""

    model: str
    usage: Usage
    purpose: CallPurpose | Literal[""] = ""


class ChildUsageRecorded(_Entry, frozen=True, tag="child_usage"):
    """What a child agent used in one model call. `session_id` is the child's; its own session, if
    it has one, has the same call as a UsageRecorded."""

    session_id: str
    model: str
    usage: Usage


class HeadRecorded(_Entry, frozen=True, tag="head"):
    """What the last request began with, before its items: a later process keeps to it, or says what
    a change costs. `system` and `definitions` (of the tools) are checksums. `is_unattended`,
    only of earlier versions: the instructions say that the user cannot answer. The last three are
    sizes in characters: the instructions without the memory files, the memory files, the
    definitions of the tools."""

    model: str
    system: int
    tools: tuple[str, ...]
    definitions: int
    thinking: int | str | None = None
    is_unattended: bool = False
    system_chars: int = 0
    memory_chars: int = 0
    tools_chars: int = 0


class WakeCondition(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a suspended turn waits for: a time (`at`, seconds since 1970), a file (`path`) that
    appears, an answer of the user, or a larger budget."""

    on: Literal["time", "file", "answer", "money"]
    at: float = 0.0
    path: str = ""


class Suspended(_Entry, frozen=True, tag="parked"):
    """The turn waits on disk and the process may end. The next entry of the turn ends the wait."""

    turn_id: str
    reason: Literal["rate_limit", "approval", "question", "budget", "other"]
    wake: WakeCondition
    detail: str = ""


class TurnEnded(_Entry, frozen=True, tag="end"):
    turn_id: str
    reason: str
    detail: str = ""


Entry = (
    ItemAdded
    | InputQueued
    | InputDropped
    | InputMoved
    | TurnBegan
    | Intent
    | EarlyResult
    | ApprovalDecision
    | ViewRewritten
    | Uncompacted
    | Rewound
    | Forked
    | Quarantined
    | NoticeShown
    | Checkpoint
    | UsageRecorded
    | ChildUsageRecorded
    | HeadRecorded
    | Suspended
    | TurnEnded
)
