"""The session of a driver: what the loop records, each an entry of the log.

Every change is an entry, which session_log.py logs and applies, and is sent to the observers with
its reason. The driver decides what happens.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from treadle.core import events
from treadle.core.contracts.gate import RequestEstimate, Stop
from treadle.core.contracts.model import ModelCard, PartQuarantined
from treadle.core.errors import LoopError, StoreError, error_message
from treadle.core.loop.config import NO_CHANGES
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.session_log import SessionLog
from treadle.core.transcript import entries
from treadle.core.transcript.content import Text
from treadle.core.transcript.items import (
    ENGINE_METADATA,
    AssistantItem,
    Item,
    Metadata,
    NoticeItem,
    ToolResultItem,
    UserItem,
)
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.recover import CLOSING, repair_entries
from treadle.core.transcript.state import SessionState, TurnState, diff_views, make_turn_id
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import NO_USAGE, CallPurpose, Usage

TRACE_LENGTH = 1_000


class LoopSession:
    """The state of the log, and a method for each thing that the loop records."""

    if TYPE_CHECKING:

        @property
        def state(self) -> SessionState: ...
    else:
        state = property(attrgetter("_log.state"))  # read many times a round

    def __init__(
        self,
        log: SessionLog,
        emitter: Emitter,
        caller: events.Caller = "library",
        parent_ids: tuple[str, ...] = (),
    ) -> None:
        self.id = emitter.session_id
        self.trace: deque[Transition] = deque(maxlen=TRACE_LENGTH)
        self.old_intents = frozenset(log.state.intents)  # of an earlier process
        self.is_turn_running = False  # an open turn of an earlier process is not, until it resumes
        self.was_compacted = False  # since the last round, because a request was too long
        self.settings = NO_CHANGES  # of the turn
        self._has_old_nonce = False
        self.turn_items: list[Item] = []  # of the running turn, since it began or resumed
        self._emitter = emitter
        self._log = log
        self.write = log.append  # the only way in which the state changes
        self._caller = caller
        self._parent_ids = parent_ids

    @property
    def turn(self) -> TurnState:
        turn = self.state.turn
        if turn is None:
            raise LoopError("no turn is running")
        return turn

    @property
    def closing_stop(self) -> Stop | None:
        """Why the reply that is asked for is the last one of the turn; None if it is not."""
        transcript = self.state.transcript
        if type(transcript.last) is not NoticeItem:
            return None
        for item in reversed(transcript):
            if type(item) is not NoticeItem:
                break
            if item.kind == CLOSING and item.data is not None:
                return msgspec.convert(item.data, Stop)
        return None

    def append(self, item: Item, message_id: str = "") -> None:
        """Append an item to the transcript; `message_id` if it was a message. A reply in a turn of
        an earlier process may replace one that is lost: its calls get other keys."""
        if self._has_old_nonce and type(item) is AssistantItem:
            self._has_old_nonce = False
            self._write_turn(self.turn.id, continues=True)
        self.write(entries.ItemAdded(item, message_id))
        self.turn_items.append(item)
        if self._emitter.has_item_readers:
            self._emitter.emit_item(len(self.state.transcript) - 1, item)

    def estimate_request(
        self, card: ModelCard, request_chars: int, max_output: int, purpose: CallPurpose
    ) -> RequestEstimate:
        """What a gate sees: usage so far and the worst case of the next request."""
        state, children = self.state, self.state.child_usage
        turn = state.turn or TurnState(self._emitter.turn_id)
        return RequestEstimate(
            self._emitter.session_id,
            turn.id,
            turn.rounds,
            turn.calls,
            turn.usage,
            state.usage if children is NO_USAGE else state.usage + children,
            state.transcript,
            card,
            request_chars,
            max_output,
            purpose,
            self._parent_ids,
        )

    def record_transition(self, reason: str) -> None:
        """Record why the loop continues."""
        self.trace.append(Transition(self._emitter.turn_id, reason))
        self._emitter.emit(events.LoopContinued, reason)

    # --- turns ---------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """Begin a turn, or resume the one that an earlier process left open."""
        resumed = self.state.turn
        turn_id = make_turn_id(self.state.turns + 1) if resumed is None else resumed.id
        self._emitter.turn_id = turn_id
        self.turn_items = []
        self.was_compacted = False
        self._has_old_nonce = resumed is not None
        if resumed is None:
            self._write_turn(turn_id, continues=self.settings.continues)
        self.is_turn_running = True
        self._emitter.emit(events.TurnStarted, self._caller, self._emitter.agent)
        self.trace.append(Transition(turn_id, "resumed" if resumed else "began"))

    def _write_turn(self, turn_id: str, *, continues: bool) -> None:
        nonce = os.urandom(4).hex()
        agent, is_child = self._emitter.agent, bool(self._parent_ids)
        self.write(entries.TurnBegan(turn_id, agent, nonce, continues, is_child))

    def end_turn(
        self,
        reason: events.TerminalReason,
        error: BaseException | None,
        metadata: Metadata,
    ) -> events.TurnResult:
        """End the turn. The terminal event is emitted later, as the last one."""
        assert metadata.keys() <= ENGINE_METADATA, "a caller must not use these names"
        turn = self.turn
        detail = error_message(error) if error is not None else ""
        self.write(entries.TurnEnded(turn.id, reason, detail))
        self.is_turn_running = False
        self.trace.append(Transition(turn.id, f"ended: {reason}"))
        return self._make_result(turn, reason, error, metadata)

    def rewind(self, turn_id: str) -> None:
        """Take back this turn and all later ones."""
        self.write(entries.Rewound(turn_id))
        self._repair()
        self.is_turn_running = False
        self.trace.append(Transition(turn_id, "rewound"))

    def resume_turn(self) -> None:
        """The loop failed in the middle of the turn and tries again."""
        if self.is_turn_running:
            self._emitter.emit(events.TurnStarted, self._caller, self._emitter.agent)
            self.trace.append(Transition(self.turn.id, "resumed"))

    def make_failed_result(self, error: Exception) -> events.TurnResult:
        """The result of a turn in which the loop itself failed. The turn is not ended."""
        turn = self.state.turn if self.is_turn_running else None
        return self._make_result(turn or TurnState(""), "error", error, {})

    def _make_result(
        self,
        turn: TurnState,
        reason: events.TerminalReason,
        error: BaseException | None,
        metadata: Metadata,
    ) -> events.TurnResult:
        return events.TurnResult(
            turn.id,
            reason,
            tuple(self.turn_items) if turn.id else (),
            turn.usage,
            turn.rounds,
            {**turn.metadata, **metadata} if turn.metadata else metadata,
            error,
            turn.child_usage,
        )

    def emit_turn_end(self, result: events.TurnResult) -> None:
        error = result.error
        if error is None:
            self._emitter.emit(events.TurnFinished, result)
        else:
            self._emitter.emit(events.RunFailed, error_message(error), type(error).__name__, result)

    # --- what a turn uses ----------------------------------------------------------------

    def add_usage(self, model: str, used: Usage, purpose: CallPurpose, stop: str = "") -> None:
        """Add what a model call used. What is no part of a turn counts for the session only."""
        self.write(entries.UsageRecorded(model, used, purpose))
        turn = self.state.turn
        total = turn.usage if turn is not None else used
        self._emitter.emit(events.UsageUpdated, model, used, total, purpose, stop)

    def discard_reply(self, reply: AssistantItem) -> None:
        """The reply does not enter the transcript; its usage is counted already."""
        self._emitter.emit(events.ReplyDiscarded, len(reply.text))

    def add_child_usage(self, session_id: str, model: str, used: Usage) -> None:
        """Add what one model call of a child agent used."""
        self.write(entries.ChildUsageRecorded(session_id, model, used))

    # --- what is known about open calls --------------------------------------------------

    async def record_intent(self, intent: entries.Intent) -> None:
        """Make the intent durable; the effect may begin once this returns. If it cannot be made
        durable, it is withdrawn: the store may still write it later."""
        self.write(intent)
        try:
            await self._log.flush_intent()
        except Exception:
            with suppress(StoreError):
                self.write(msgspec.structs.replace(intent, is_withdrawn=True))
            raise

    def close_round(self) -> None:
        """Every call has its result."""
        self.was_compacted = False
        self.record_transition("tool_use")

    @property
    def open_call_ids(self) -> frozenset[str]:
        """The calls that have no result yet."""
        move = pending(self.state.transcript)
        if not isinstance(move, RunTools):
            return frozenset()
        return frozenset([call.id for call in move.calls]) - self.state.early_results.keys()

    @property
    def undecided_call_ids(self) -> frozenset[str]:
        """The open calls that were neither begun nor decided by the user."""
        return self.open_call_ids - self.state.decisions.keys() - self.state.intents.keys()

    # --- changes of the view -------------------------------------------------------------

    def has_call_id(self, call_id: str) -> bool:
        """Whether a call of this session has the id, also one that is out of the view: the keys
        of two effects must differ."""
        view, history = self.state.transcript, self.state.history
        return view.has_call_id(call_id) or (history is not None and history.has_call_id(call_id))

    def replace_view(self, mutator: str, new: Transcript) -> None:
        """Take over the view of a mutator. Items that it only added are appended."""
        old = self.state.transcript
        change = None if new.is_extension_of(old) else diff_views(mutator, old, new)
        if change is not None and change.start < len(old):
            self.write(change)
            return
        for item in new[len(old) :]:
            self.append(item)

    def uncompact(self) -> bool:
        """Bring the whole history back into the view; False if nothing was out of it."""
        if self.state.history is None:
            return False
        self.write(entries.Uncompacted())
        self._repair()
        return True

    def _repair(self) -> None:
        """What comes back into the view may be of a damaged log, from before its repair."""
        for entry in repair_entries(self.state):
            self.write(entry)

    def quarantine_part(self, refused: PartQuarantined) -> None:
        self.write(entries.Quarantined(refused.position, refused.part, refused.reason))
        what = _describe_part(self.state.transcript[refused.position], refused.part)
        self._emitter.emit(
            events.WarningRaised, f"{what} is left out of requests: {refused.reason}"
        )


def _describe_part(item: Item, part: int) -> str:
    if isinstance(item, (UserItem, AssistantItem, ToolResultItem)) and part < len(item.content):
        content = item.content[part]
        preview = f" ({content.text[:40]!r})" if isinstance(content, Text) else ""
        owner = {UserItem: "your message", AssistantItem: "a reply"}.get(type(item), "a result")
        return f"{type(content).__name__.lower()} of {owner}{preview}"
    return f"{type(item).__name__.removesuffix('Item').lower()} of the conversation"


class Transition(msgspec.Struct, frozen=True, gc=False):
    """Why the loop continued: one line of the trace."""

    turn_id: str
    reason: str

    def __str__(self) -> str:
        return f"{self.turn_id}  {self.reason}"
