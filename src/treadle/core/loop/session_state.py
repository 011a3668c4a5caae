"""The state of a session: the one place where it changes and the transcript grows.

Every change is written to the log, sent to the observers, and recorded with its reason. The driver
decides what happens. DurableLog writes to the store and knows what must be durable first.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress

import msgspec

from treadle.core.contracts.gate import RequestEstimate, Stop
from treadle.core.contracts.model import ModelCard, PartQuarantined
from treadle.core.contracts.store import Store
from treadle.core.contracts.wrapped import WrappedStore
from treadle.core.errors import LoopError, SessionBusy, StoreError, error_message
from treadle.core.events import (
    Caller,
    LoopContinued,
    ReplyDiscarded,
    RunFailed,
    TerminalReason,
    TurnFinished,
    TurnResult,
    TurnStarted,
    UsageUpdated,
    WarningRaised,
)
from treadle.core.loop.emitter import Emitter
from treadle.core.transcript.content import Text
from treadle.core.transcript.entries import (
    ApprovalDecision,
    ChildUsageRecorded,
    EarlyResult,
    Entry,
    Intent,
    ItemAdded,
    Quarantined,
    TurnBegan,
    TurnEnded,
    TurnProgress,
    Uncompacted,
    UsageRecorded,
    View,
    ViewRewritten,
    apply_rewrite,
    diff_views,
    make_turn_id,
)
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
from treadle.core.transcript.repair import repair_entries
from treadle.core.transcript.size_estimate import estimate_item_chars
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import TURN_PURPOSES, CallPurpose, Usage

TRACE_LENGTH = 1_000


class SessionState:
    def __init__(
        self, view: View, emitter: Emitter, log: DurableLog, caller: Caller = "library"
    ) -> None:
        move = pending(view.transcript)
        open_ids = {call.id for call in move.calls} if isinstance(move, RunTools) else frozenset()
        self.state = LoopState(
            transcript=view.transcript,
            turns=view.turns,
            usage=view.usage,
            child_usage=view.child_usage,
            chars=sum(map(estimate_item_chars, view.transcript)),
            # A damaged log may have some of calls that are lost, and their ids may come again.
            decisions={key: view.decisions[key] for key in view.decisions if key in open_ids},
            intents={key: view.intents[key] for key in view.intents if key in open_ids},
            early_results={
                key: view.early_results[key] for key in view.early_results if key in open_ids
            },
            quarantine=view.quarantine,
        )
        self.trace: deque[Transition] = deque(maxlen=TRACE_LENGTH)
        self._open_turn = view.open_turn
        self._turn_progress = view.turn_progress
        self._history = view.history
        self._turn_items: list[Item] = []
        self._emitter = emitter
        self._log = log
        self._caller = caller

    @property
    def id(self) -> str:
        return self._emitter.session_id

    @property
    def turn(self) -> TurnState:
        turn = self.state.turn
        if turn is None:
            raise LoopError("no turn is running")
        return turn

    def append(self, item: Item, new_transcript: Transcript | None = None) -> None:
        """Append an item; `new_transcript` is the transcript with it, if the caller has it."""
        state = self.state
        if type(item) is ToolResultItem and item.call_id in state.early_results:
            self._drop_early_result(item.call_id)
        self._log.write_item(item)
        self.state = msgspec.structs.replace(
            self.state,
            transcript=state.transcript.append(item) if new_transcript is None else new_transcript,
            chars=state.chars + estimate_item_chars(item),
        )
        if self._history is not None:
            self._history = self._history.append(item)
        if type(item) is UserItem and item.metadata and state.turn is not None:
            turn = self.turn
            turn = msgspec.structs.replace(turn, metadata={**turn.metadata, **item.metadata})
            self.state = msgspec.structs.replace(self.state, turn=turn)
        self._turn_items.append(item)
        self._emitter.emit_item(len(state.transcript), item)

    def estimate_request(
        self, card: ModelCard, request_chars: int, max_output: int, purpose: CallPurpose
    ) -> RequestEstimate:
        """What a gate sees: usage so far and the worst case of the next request."""
        state = self.state
        turn = state.turn or TurnState(self._emitter.turn_id)
        return RequestEstimate(
            self._emitter.session_id,
            turn.id,
            turn.rounds,
            turn.calls,
            turn.usage,
            state.usage,
            state.transcript,
            card,
            request_chars,
            max_output,
            purpose,
        )

    def make_view(self, queued: tuple[UserItem | NoticeItem, ...]) -> View:
        """The state as the log describes it."""
        state, turn = self.state, self.state.turn
        progress, open_turn = self._turn_progress, self._open_turn
        if turn is not None:
            progress = TurnProgress(
                turn.rounds, turn.calls, turn.usage, turn.metadata, turn.child_usage
            )
            open_turn = turn.id
        return View(
            state.transcript,
            state.decisions,
            state.intents,
            state.early_results,
            state.quarantine,
            state.usage,
            state.turns,
            open_turn,
            queued,
            history=self._history,
            turn_progress=progress,
            child_usage=state.child_usage,
        )

    def record_transition(self, reason: str, turn: TurnState | None = None) -> None:
        """Record why the loop continues."""
        if turn is not None:
            self.state = msgspec.structs.replace(self.state, turn=turn)
        self.trace.append(Transition(self._emitter.turn_id, reason))
        self._emitter.emit(LoopContinued, reason)

    # --- turns ---------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """Begin a turn, or resume the one that an earlier process left open."""
        state = self.state
        resumed, self._open_turn = self._open_turn, None
        turn_id = resumed or make_turn_id(state.turns + 1)
        self._emitter.turn_id = turn_id
        self._turn_items = []
        if resumed is None:
            turn = TurnState(turn_id, metadata=_find_unanswered_metadata(state.transcript))
            self._log.write(TurnBegan(turn_id, self._emitter.agent))
        else:
            turn = TurnState(
                turn_id,
                self._turn_progress.rounds,
                self._turn_progress.calls,
                self._turn_progress.usage,
                self._turn_progress.child_usage,
                metadata=self._turn_progress.metadata,
            )
        self.state = msgspec.structs.replace(
            state,
            turn=turn,
            turns=state.turns + (resumed is None),
        )
        self._emitter.emit(TurnStarted, self._caller, self._emitter.agent)
        self.trace.append(Transition(turn_id, "resumed" if resumed else "began"))

    def end_turn(
        self,
        reason: TerminalReason,
        error: BaseException | None,
        metadata: Metadata,
    ) -> TurnResult:
        """End the turn. The terminal event is emitted later, as the last one."""
        assert metadata.keys() <= ENGINE_METADATA, "a caller must not use these names"
        turn = self.turn
        detail = error_message(error) if error is not None else ""
        self._log.write(TurnEnded(turn.id, reason, detail))
        self.state = msgspec.structs.replace(
            self.state, turn=None, decisions={}, intents={}, early_results={}
        )
        self.trace.append(Transition(turn.id, f"ended: {reason}"))
        return TurnResult(
            turn.id,
            reason,
            tuple(self._turn_items),
            turn.usage,
            turn.rounds,
            {**turn.metadata, **metadata} if turn.metadata else metadata,
            error,
            turn.child_usage,
        )

    def resume_turn(self) -> None:
        """The loop failed in the middle of the turn and tries again."""
        if self.state.turn is not None:
            self._emitter.emit(TurnStarted, self._caller, self._emitter.agent)
            self.trace.append(Transition(self.turn.id, "resumed"))

    def make_failed_result(self, error: Exception) -> TurnResult:
        """The result of a turn in which the loop itself failed. The turn is not ended."""
        turn = self.state.turn or TurnState("")
        items = tuple(self._turn_items) if turn.id else ()
        return TurnResult(
            turn.id,
            "error",
            items,
            turn.usage,
            turn.rounds,
            turn.metadata,
            error,
            turn.child_usage,
        )

    def emit_turn_end(self, result: TurnResult) -> None:
        error = result.error
        if error is None:
            self._emitter.emit(TurnFinished, result)
        else:
            self._emitter.emit(RunFailed, error_message(error), type(error).__name__, result)

    # --- what a turn uses ----------------------------------------------------------------

    def add_usage(
        self, model: str, used: Usage, purpose: CallPurpose, *, is_reply: bool = False
    ) -> None:
        """Add what a model call used; `is_reply`: it was a reply of the turn. What is no part of a
        turn counts for the session only, and no event tells of it."""
        self._log.write(UsageRecorded(model, used, purpose))
        state, turn = self.state, self.state.turn
        is_of_turn = purpose in TURN_PURPOSES
        if turn is not None and is_of_turn:
            turn = msgspec.structs.replace(turn, usage=turn.usage + used)
        last = used if is_reply else state.last_usage
        self.state = msgspec.structs.replace(
            state, turn=turn, usage=state.usage + used, last_usage=last
        )
        if is_of_turn or is_reply:
            self._emitter.emit(UsageUpdated, model, used, turn.usage if turn is not None else used)

    def discard_reply(self, reply: AssistantItem) -> None:
        """The reply does not enter the transcript; its usage is counted already."""
        self._emitter.emit(ReplyDiscarded, len(reply.text))

    def add_child_usage(self, session_id: str, model: str, used: Usage) -> None:
        """Add what one model call of a child agent used."""
        self._log.write(ChildUsageRecorded(session_id, model, used))
        state, turn = self.state, self.state.turn
        if turn is not None:
            turn = msgspec.structs.replace(turn, child_usage=turn.child_usage + used)
        self.state = msgspec.structs.replace(state, turn=turn, child_usage=state.child_usage + used)

    # --- what is known about open calls --------------------------------------------------

    def record_decision(self, decision: ApprovalDecision) -> None:
        self._log.write(decision)
        self.state = msgspec.structs.replace(
            self.state, decisions={**self.state.decisions, decision.call_id: decision}
        )

    async def record_intent(self, intent: Intent) -> None:
        """Log the intent; the effect may begin once this returns."""
        await self._log.write_intent(intent)
        self.state = msgspec.structs.replace(
            self.state, intents={**self.state.intents, intent.call_id: intent}
        )

    def record_early_result(self, result: ToolResultItem) -> None:
        """A call ended before an earlier one of its round."""
        self._log.write(EarlyResult(result))
        self.state = msgspec.structs.replace(
            self.state, early_results={**self.state.early_results, result.call_id: result}
        )

    def close_round(self, calls: int) -> None:
        """Every call has its result: decisions and intents are not needed any more."""
        turn = self.turn
        self.record_transition(
            "tool_use",
            msgspec.structs.replace(
                turn, rounds=turn.rounds + 1, calls=turn.calls + calls, was_compacted=False
            ),
        )
        state = self.state
        if state.decisions or state.intents or state.early_results:
            self.state = msgspec.structs.replace(state, decisions={}, intents={}, early_results={})

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

    def _drop_early_result(self, call_id: str) -> None:
        settled = {key: value for key, value in self.state.early_results.items() if key != call_id}
        self.state = msgspec.structs.replace(self.state, early_results=settled)

    # --- changes of the view -------------------------------------------------------------

    @property
    def history(self) -> Transcript:
        """Every item, also those that compaction took out of the view."""
        return self._history if self._history is not None else self.state.transcript

    def has_call_id(self, call_id: str) -> bool:
        """Whether a call of this session has the id, also one that is out of the view: the keys
        of two effects must differ."""
        return self.state.transcript.has_call_id(call_id) or self.history.has_call_id(call_id)

    def replace_view(self, mutator: str, new: Transcript) -> None:
        """Take over the view of a mutator. Items that it only added are appended."""
        old = self.state.transcript
        if new.is_extension_of(old):
            for position in range(len(old), len(new)):
                self.append(new[position], new.prefix(position + 1))
            return
        change = diff_views(mutator, old, new)
        if change.start == len(old):
            for item in change.items:
                self.append(item)
            return
        self._log.write(change)
        self._history = self.history
        self._set_view(apply_rewrite(old, change))

    def uncompact(self) -> bool:
        """Bring the whole history back into the view; False if nothing was out of it."""
        if self._history is None:
            return False
        self._log.write(Uncompacted())
        whole, self._history = self._history, None
        self._set_view(whole)
        for entry in repair_entries(View(whole, early_results=self.state.early_results)):
            if isinstance(entry, ViewRewritten):
                self._log.write(entry)
                self._set_view(apply_rewrite(whole, entry))
            elif isinstance(entry, EarlyResult):
                self.record_early_result(entry.result)
        return True

    def _set_view(self, transcript: Transcript) -> None:
        self.state = msgspec.structs.replace(
            self.state,
            transcript=transcript,
            chars=sum(map(estimate_item_chars, transcript)),
            quarantine=frozenset(),
            last_usage=Usage(),
        )

    def quarantine_part(self, refused: PartQuarantined) -> None:
        place = (refused.position, refused.part)
        self._log.write(Quarantined(*place, refused.reason))
        self.state = msgspec.structs.replace(self.state, quarantine=self.state.quarantine | {place})
        what = _describe_part(self.state.transcript[refused.position], refused.part)
        self._emitter.emit(WarningRaised, f"{what} is left out of requests: {refused.reason}")


def _find_unanswered_metadata(transcript: Transcript) -> Metadata:
    """The metadata of a message that was in the history before the turn began (`chat`)."""
    last = transcript[-1] if transcript else None
    return (last.metadata or {}) if isinstance(last, UserItem) else {}


def _describe_part(item: Item, part: int) -> str:
    if isinstance(item, (UserItem, AssistantItem, ToolResultItem)) and part < len(item.content):
        content = item.content[part]
        preview = f" ({content.text[:40]!r})" if isinstance(content, Text) else ""
        owner = {UserItem: "your message", AssistantItem: "a reply"}.get(type(item), "a result")
        return f"{type(content).__name__.lower()} of {owner}{preview}"
    return f"{type(item).__name__.removesuffix('Item').lower()} of the conversation"


class TurnState(msgspec.Struct, frozen=True):
    """The counters of the running turn."""

    id: str
    rounds: int = 0
    calls: int = 0
    usage: Usage = Usage()
    child_usage: Usage = Usage()
    continuations: int = 0
    pauses: int = 0
    stop_hook_blocks: int = 0  # of stop hooks
    had_empty_reply: bool = False
    was_compacted: bool = False  # since the last round, because a request was too long
    closing_stop: Stop | None = None
    metadata: Metadata = {}  # of the caller


class LoopState(msgspec.Struct, frozen=True):
    transcript: Transcript
    turn: TurnState | None = None
    turns: int = 0
    usage: Usage = Usage()
    last_usage: Usage = Usage()
    child_usage: Usage = Usage()  # of child agents
    chars: int = 0
    decisions: dict[str, ApprovalDecision] = {}
    intents: dict[str, Intent] = {}
    early_results: dict[str, ToolResultItem] = {}
    quarantine: frozenset[tuple[int, int]] = frozenset()


class Transition(msgspec.Struct, frozen=True, gc=False):
    """Why the loop continued: one line of the trace."""

    turn_id: str
    reason: str

    def __str__(self) -> str:
        return f"{self.turn_id}  {self.reason}"


_writers: dict[int, DurableLog] = {}  # by the id of a store: the driver that runs on it


def _get_key(store: Store) -> int:
    while isinstance(store, WrappedStore):
        store = store.wrapped
    return id(store)


def check_one_writer(store: Store, writer: DurableLog | None = None) -> None:
    """Raise SessionBusy if another driver of this process runs on the store."""
    if _writers.get(_get_key(store), writer) is not writer:
        raise SessionBusy(
            f"another run of this process writes to session {store.session_id}, and a session has "
            "one writer: await that run first, or use a store of its own"
        )


class DurableLog:
    def __init__(self, store: Store | None) -> None:
        if store is not None:
            check_one_writer(store)
        self._store = store
        self._key = 0 if store is None else _get_key(store)
        self._needs_flush = False

    def claim(self) -> None:
        """Be the one writer of the store, until `release`."""
        if self._store is not None:
            check_one_writer(self._store, self)
            _writers[self._key] = self

    def release(self) -> None:
        if _writers.get(self._key) is self:
            del _writers[self._key]

    @property
    def is_writable(self) -> bool:
        return self._store is None or _writers.get(self._key, self) is self

    def check_new(self) -> None:
        """Raise LoopError if the store has entries already: they would be there twice."""
        # A store that was written for an earlier version does not say it.
        if self._store is not None and not getattr(self._store, "is_empty", True):
            raise LoopError(
                f"session {self._store.session_id} has entries already: give an empty store for a "
                "transcript or a snapshot, or continue the session with the view of its log"
            )

    def write(self, entry: Entry) -> None:
        if self._store is not None:
            self._store.append(entry)

    def write_item(self, item: Item) -> None:
        if self._store is not None:
            self._store.append(ItemAdded(item))
            self._needs_flush = self._needs_flush or isinstance(item, UserItem)

    async def write_intent(self, intent: Intent) -> None:
        """Make the intent durable; the effect may begin once this returns. If it cannot be made
        durable, it is withdrawn: the store may still write it later."""
        if self._store is not None:
            self._store.append(intent)
            try:
                await self._store.flush()
            except Exception:
                with suppress(StoreError):
                    self._store.append(msgspec.structs.replace(intent, is_withdrawn=True))
                raise
            self._needs_flush = True  # what became of the effect

    async def flush_before_model_call(self) -> None:
        """Make the user's message and the results of effects durable before the model call; a full
        disk stops the run here, before another request is paid for."""
        if self._needs_flush or (self._store is not None and self._store.write_error is not None):
            await self.flush()

    async def flush(self) -> None:
        if self._store is not None:
            await self._store.flush()
            self._needs_flush = False

    async def aclose(self) -> None:
        if self._store is not None:
            await self._store.aclose()
