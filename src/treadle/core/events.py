"""Every event that an observer can see.

    RunStarted
      TurnStarted                                       once per turn
        InputAccepted*                                  the first message, and each steered one
        (MessageQueued (InputAccepted | MessageDropped))*   a message that arrives meanwhile
        ┌ RequestStarted                                once per model call
        │   (PartBegan (TextDelta | ThinkingDelta)* PartCommitted | ToolCallBegan ToolCallDelta*)*
        │   (RetryScheduled ReplyDiscarded?)*           the attempt failed and is discarded
        │   ToolCallRequested*                          once per call, when it is complete
        │ UsageUpdated
        │   (ApprovalRequired ... ApprovalResolved)*
        │   ToolStarted*  ToolProgress*  ToolFinished*  (or ToolDetached, TaskFinished later)
        │   (MutationStarted MutationFinished)*
        └ repeated while the model calls tools
      TurnFinished | RunFailed                          exactly one, always last

    WarningRaised, Notified, ModelChanged, ToolsChanged, AuthenticationRequired, ToolsSummarized,
    ChildEvent and LoopContinued may come anywhere in between, UsageUpdated of other calls (its
    purpose: a side question, say) anywhere. A pure call may start, and finish, while its reply is
    still streaming.

Each event has the id of the session and of the turn, and a number that only grows. This module
holds values only; contracts/observer.py says how they are received.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.entries import ToolKind
from treadle.core.transcript.items import (
    AssistantItem,
    CallOutcome,
    Item,
    Metadata,
    NoticeItem,
    UserItem,
)
from treadle.core.transcript.usage import CallPurpose, Usage

TerminalReason = Literal[
    "end_turn",
    "max_turns",
    "aborted",
    "budget_exceeded",
    "repetition",
    "goal_not_met",
    "refused",
    "error",
]

# Who runs the agent: a program, the terminal, a run without a user, or a parent agent.
Caller = Literal["library", "terminal", "headless", "child"]

PREVIEW_CHARS = 200


def preview(text: str) -> str:
    """The first characters of a text, short enough for an event."""
    return text if len(text) <= PREVIEW_CHARS else text[:PREVIEW_CHARS] + "..."


class TurnResult(msgspec.Struct, frozen=True):
    """How a turn ended. `items` are the items that it added to the transcript, `usage` is that of
    its own model calls, `child_usage` that of the child agents that it started. `metadata` is the
    caller's, with what the engine adds about the end (`detail`, `interrupted`, ...)."""

    turn_id: str
    reason: TerminalReason
    items: tuple[Item, ...] = ()
    usage: Usage = Usage()
    rounds: int = 0
    metadata: Metadata = {}
    error: BaseException | None = None
    child_usage: Usage = Usage()

    @property
    def total_usage(self) -> Usage:
        return self.usage + self.child_usage

    @property
    def detail(self) -> str:
        """Why the turn stopped, in words: the limit, the hook, the interruption. "" at an end that
        needs no words."""
        return str(self.metadata.get("detail") or self.metadata.get("interrupt_reason") or "")

    @property
    def reply(self) -> AssistantItem | None:
        """The last reply of the model in this turn."""
        for item in reversed(self.items):
            if isinstance(item, AssistantItem):
                return item
        return None

    @property
    def text(self) -> str:
        """The text of the last reply, after that of the replies which it continues."""
        texts: list[str] = []
        is_continuation = False
        for item in reversed(self.items):
            if isinstance(item, AssistantItem):
                is_cut_off = item.stop in ("max_tokens", "context") and not item.calls
                if texts and not (is_continuation and is_cut_off):
                    break
                texts.append(item.text)
                is_continuation = False
            elif isinstance(item, NoticeItem):
                is_continuation = is_continuation or item.kind == "continue"
            elif texts:
                break
        return "".join(reversed(texts))


class Event(msgspec.Struct, frozen=True):
    """The fields that all events have."""

    session_id: str
    turn_id: str
    seq: int


class RunStarted(Event, frozen=True, tag="run_started"):
    """A driver started, in a new or a resumed session. `agent` is the name of the agent."""

    agent: str = ""


class TurnStarted(Event, frozen=True, tag="turn_started"):
    """A turn started with a user message, or an unfinished turn was resumed."""

    caller: Caller = "library"
    agent: str = ""  # its name


class MessageQueued(Event, frozen=True, tag="message_queued"):
    """A message arrived while the agent is working. InputAccepted with the same id tells when it
    entered the transcript, MessageDropped that it will not."""

    message_id: str
    item: UserItem


class MessageDropped(Event, frozen=True, tag="message_dropped", gc=False):
    message_id: str
    reason: Literal["withdrawn", "refused"]  # by the host, or by a hook


class InputAccepted(Event, frozen=True, tag="input_accepted"):
    item: UserItem
    message_id: str = ""


class RequestStarted(Event, frozen=True, tag="request_started", gc=False):
    model: str
    attempt: int = 1


class PartBegan(Event, frozen=True, tag="part_began", gc=False):
    """A text or a thinking part of the reply begins; its deltas follow. A call begins with
    ToolCallBegan."""

    kind: Literal["text", "thinking"]


class PartCommitted(Event, frozen=True, tag="part_committed", gc=False):
    """The part that began last is complete, or its text is kept when the user interrupts.
    ReplyDiscarded voids it too."""

    kind: Literal["text", "thinking"]


class TextDelta(Event, frozen=True, tag="text_delta", gc=False, omit_defaults=True):
    """A piece of the reply. `by` is "engine" for a text that the engine wrote, not the model."""

    text: str
    by: str = ""


class ThinkingDelta(Event, frozen=True, tag="thinking_delta", gc=False):
    text: str


class ToolCallBegan(Event, frozen=True, tag="tool_call_began", gc=False):
    call_id: str
    name: str


class ToolCallDelta(Event, frozen=True, tag="tool_call_delta", gc=False):
    call_id: str
    text: str


class ToolCallRequested(Event, frozen=True, tag="tool_call_requested"):
    call: ToolCall


class RetryScheduled(Event, frozen=True, tag="retry_scheduled", gc=False):
    """The model call failed with a transient error; the next attempt is in `delay` seconds."""

    attempt: int
    delay: float
    reason: str


class ReplyDiscarded(Event, frozen=True, tag="reply_discarded", gc=False):
    """The attempt failed, or the reply calls tools beyond a limit. Everything streamed since
    RequestStarted is void: text, thinking and calls."""

    chars: int  # of text


class ModelChanged(Event, frozen=True, tag="model_changed", gc=False):
    """Another model is used from now on: a fallback, or (`is_choice`) the one that the host or a
    run chose."""

    old: str
    new: str
    reason: str
    is_choice: bool = False


class UsageUpdated(Event, frozen=True, tag="usage_updated", gc=False):
    """The usage of the last model call, whatever it was for, and of the turn so far. One that is
    no part of a turn may come after its end. `stop` is why the reply ended; "" if it broke off."""

    model: str
    last: Usage
    turn: Usage
    purpose: CallPurpose = "turn"
    stop: str = ""


class ApprovalRequired(Event, frozen=True, tag="approval_required"):
    call: ToolCall
    summary: str
    reason: str


class ApprovalResolved(Event, frozen=True, tag="approval_resolved", gc=False):
    call_id: str
    decision: Literal["allow", "deny"]
    reason: str = ""


class ToolStarted(Event, frozen=True, tag="tool_started", gc=False):
    call_id: str
    name: str
    summary: str
    kind: ToolKind = "other"


class ToolProgress(Event, frozen=True, tag="tool_progress", gc=False):
    call_id: str
    text: str


class ToolFault(msgspec.Struct, frozen=True, gc=False):
    """What a tool raised that is no ToolError: an error of its code, for its author."""

    type: str
    message: str
    traceback: str


class ToolFinished(Event, frozen=True, tag="tool_finished", gc=False):
    call_id: str
    name: str
    result: str
    display: str = ""
    is_error: bool = False
    is_truncated: bool = False
    outcome: CallOutcome = "finished"
    fault: ToolFault | None = None


class AuthenticationRequired(Event, frozen=True, tag="authentication_required", gc=False):
    """A call failed because its server needs a login. The host gives it to the server, outside of
    the turn; the next call connects again."""

    call_id: str
    server: str
    url: str
    challenge: str  # of the server


class ToolDetached(Event, frozen=True, tag="tool_detached", gc=False):
    """The call continues in the background as a task; its result tells the model."""

    call_id: str
    task_id: str


class TaskFinished(Event, frozen=True, tag="task_finished", gc=False):
    """`is_error`: it was not done; `is_cancelled`: because it was stopped."""

    task_id: str
    name: str
    result: str
    is_error: bool = False
    is_cancelled: bool = False


class ChildEvent(Event, frozen=True, tag="child_event", omit_defaults=True):
    """An event of a child agent, with the call that started the child. `takes_over`: the child
    has the conversation, after a hand-off: what it says is the answer of the run."""

    call_id: str
    child: Event
    takes_over: bool = False


def unwrap(event: Event) -> Event:
    """The event itself, also if it is of a child or of a child's child."""
    while isinstance(event, ChildEvent):
        event = event.child
    return event


class ToolsSummarized(Event, frozen=True, tag="tools_summarized"):
    """One line of a small model about the last calls (context/tool_summaries.py)."""

    text: str
    call_ids: tuple[str, ...]


class ToolsChanged(Event, frozen=True, tag="tools_changed"):
    added: tuple[str, ...]
    removed: tuple[str, ...]


class MutationStarted(Event, frozen=True, tag="mutation_started", gc=False):
    mutator: str
    point: str


class MutationFinished(Event, frozen=True, tag="mutation_finished", gc=False):
    mutator: str
    point: str
    changed: bool = msgspec.field(name="dirty")


class LoopContinued(Event, frozen=True, tag="loop_continued", gc=False):
    """Why the loop makes another model call: the recorded transition."""

    transition: str


class Notified(Event, frozen=True, tag="notified", gc=False):
    """One line of information for the user."""

    text: str


class WarningRaised(Event, frozen=True, tag="warning", gc=False):
    """One line for the user: something is wrong, but the run continues."""

    text: str


class RunFailed(Event, frozen=True, tag="run_failed"):
    """Terminal: the turn ended with an error, or the loop itself failed. After a failure of the
    loop the turn may be tried again: then TurnStarted comes once more."""

    error: str
    kind: str
    result: TurnResult


class TurnFinished(Event, frozen=True, tag="turn_finished"):
    """Terminal: the turn ended for one of the typed reasons."""

    result: TurnResult
