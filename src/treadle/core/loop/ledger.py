"""The one place where the loop's state changes and the transcript grows.

Every change is written to the log, told to the observers, and recorded with its reason. The
driver decides; this keeps the books.
"""

from __future__ import annotations

from collections import deque

import msgspec

from treadle.core.contracts.gate import Account
from treadle.core.contracts.model import ModelCard, PartQuarantined
from treadle.core.errors import LoopError
from treadle.core.events import (
    LoopContinued,
    RunFailed,
    TerminalReason,
    TurnFinished,
    TurnResult,
    TurnStarted,
    UsageUpdated,
    Warning,
)
from treadle.core.loop.journaling import Journaling
from treadle.core.loop.state import LoopState, Transition, Turn
from treadle.core.loop.telling import Teller
from treadle.core.transcript import weighing
from treadle.core.transcript.content import Opaque, RedactedThinking, Text, Thinking, ToolCall
from treadle.core.transcript.entries import (
    Intent,
    Quarantined,
    Ruling,
    Settled,
    Spent,
    TurnBegan,
    TurnEnded,
    Uncompacted,
    View,
    difference,
    rewrite,
)
from treadle.core.transcript.items import (
    AssistantItem,
    Item,
    NoticeItem,
    SummaryItem,
    ToolResultItem,
)
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import NOTHING, Usage

TRACE_LENGTH = 1_000


class Ledger:
    def __init__(self, view: View, teller: Teller, journal: Journaling) -> None:
        self.state = LoopState(
            transcript=view.transcript,
            turns=view.turns,
            usage=view.usage,
            chars=sum(map(chars_of, view.transcript)),
            rulings=view.rulings,
            intents=view.intents,
            settled=view.settled,
            quarantine=view.quarantine,
        )
        self.trace: deque[Transition] = deque(maxlen=TRACE_LENGTH)
        self._open_turn = view.open_turn
        self._so_far = view.so_far
        self._history = view.history
        self._added: list[Item] = []
        self._teller = teller
        self._journal = journal

    @property
    def turn(self) -> Turn:
        turn = self.state.turn
        if turn is None:
            raise LoopError("no turn is running")
        return turn

    def append(self, item: Item, grown: Transcript | None = None) -> None:
        """The transcript grows; `grown` is what it becomes, if somebody has it at hand."""
        state = self.state
        if type(item) is ToolResultItem and item.call_id in state.settled:
            self._forget_call(item.call_id)
        self._journal.write_item(item)
        self.state = msgspec.structs.replace(
            self.state,
            transcript=state.transcript.append(item) if grown is None else grown,
            chars=state.chars + chars_of(item),
        )
        if self._history is not None:
            self._history = self._history.append(item)
        self._added.append(item)
        self._teller.tell_item(len(state.transcript), item)

    def account(self, card: ModelCard, request_chars: int, max_output: int) -> Account:
        """What a gate sees of the books and of the next request."""
        state = self.state
        turn = state.turn or Turn(self._teller.turn_id)
        return Account(
            self._teller.session_id,
            turn.id,
            turn.rounds,
            turn.calls,
            turn.usage,
            state.usage,
            state.transcript,
            card,
            request_chars,
            max_output,
        )

    def go_on(self, why: str, turn: Turn | None = None) -> None:
        """Record why the loop goes round again."""
        if turn is not None:
            self.state = msgspec.structs.replace(self.state, turn=turn)
        self.trace.append(Transition(self._teller.turn_id, why))
        self._teller.tell(LoopContinued, why)

    # --- turns ---------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """Open a turn, or take up the one that an earlier process left open."""
        state = self.state
        resumed, self._open_turn = self._open_turn, None
        turn_id = resumed or f"turn-{state.turns + 1}"
        self._teller.turn_id = turn_id
        self._added = []
        turn = Turn(turn_id)
        if resumed is None:
            self._journal.write(TurnBegan(turn_id))
        else:
            turn = Turn(turn_id, self._so_far.rounds, self._so_far.calls, self._so_far.usage)
        self.state = msgspec.structs.replace(
            state,
            turn=turn,
            turns=state.turns + (resumed is None),
        )
        self._teller.tell(TurnStarted)
        self.trace.append(Transition(turn_id, "resumed" if resumed else "began"))

    def end_turn(
        self,
        reason: TerminalReason,
        error: BaseException | None,
        metadata: dict[str, str | int | float | bool],
    ) -> TurnResult:
        """Close the books of the turn. The terminal event is told apart, as the last thing."""
        turn = self.turn
        detail = str(error) if error is not None else ""
        self._journal.write(TurnEnded(turn.id, reason, detail))
        self.state = msgspec.structs.replace(
            self.state, turn=None, rulings={}, intents={}, settled={}
        )
        self.trace.append(Transition(turn.id, f"ended: {reason}"))
        return TurnResult(
            turn.id, reason, tuple(self._added), turn.usage, turn.rounds, metadata, error
        )

    def tell_end(self, result: TurnResult) -> None:
        error = result.error
        if error is None:
            self._teller.tell(TurnFinished, result)
        else:
            self._teller.tell(RunFailed, str(error), type(error).__name__, result)

    # --- what a turn uses ----------------------------------------------------------------

    def spend(self, reply: AssistantItem) -> None:
        used = reply.usage
        turn = msgspec.structs.replace(self.turn, usage=self.turn.usage + used)
        self._journal.write(Spent(reply.model, used))
        self.state = msgspec.structs.replace(
            self.state, turn=turn, usage=self.state.usage + used, last_usage=used
        )
        self._teller.tell(UsageUpdated, reply.model, used, turn.usage)

    def waste(self, model: str, used: Usage) -> None:
        """Count what was used beside the replies: by a broken attempt, or a mutator's own call."""
        state = self.state
        if used == NOTHING:
            return
        self._journal.write(Spent(model, used))
        turn = state.turn
        if turn is not None:
            turn = msgspec.structs.replace(turn, usage=turn.usage + used)
        self.state = msgspec.structs.replace(state, turn=turn, usage=state.usage + used)
        self._teller.tell(UsageUpdated, model, used, turn.usage if turn is not None else used)

    # --- what is known about open calls --------------------------------------------------

    def rule(self, ruling: Ruling) -> None:
        self._journal.write(ruling)
        self.state = msgspec.structs.replace(
            self.state, rulings={**self.state.rulings, ruling.call_id: ruling}
        )

    async def intend(self, intent: Intent) -> None:
        """The effect may begin after this, and in no case again."""
        await self._journal.intend(intent)
        self.state = msgspec.structs.replace(
            self.state, intents={**self.state.intents, intent.call_id: intent}
        )

    def settle(self, result: ToolResultItem) -> None:
        """A call ended before an earlier one of its round."""
        self._journal.write(Settled(result))
        self.state = msgspec.structs.replace(
            self.state, settled={**self.state.settled, result.call_id: result}
        )

    def close_round(self, calls: int) -> None:
        """Every call is answered: rulings and intents have done their work."""
        turn = self.turn
        self.go_on(
            "tool_use",
            msgspec.structs.replace(turn, rounds=turn.rounds + 1, calls=turn.calls + calls),
        )
        state = self.state
        if state.rulings or state.intents or state.settled:
            self.state = msgspec.structs.replace(state, rulings={}, intents={}, settled={})

    def _forget_call(self, call_id: str) -> None:
        settled = {key: value for key, value in self.state.settled.items() if key != call_id}
        self.state = msgspec.structs.replace(self.state, settled=settled)

    # --- changes of the view -------------------------------------------------------------

    @property
    def history(self) -> Transcript:
        """Everything that was ever said, whatever was taken out of view."""
        return self._history if self._history is not None else self.state.transcript

    def rewrite(self, mutator: str, new: Transcript) -> None:
        """Take over a mutator's view. One that only adds is an append like any other."""
        old = self.state.transcript
        if new.extends(old):
            for position in range(len(old), len(new)):
                self.append(new[position], new.upto(position + 1))
            return
        change = difference(mutator, old, new)
        if change.start == len(old):
            for item in change.items:
                self.append(item)
            return
        self._journal.write(change)
        self._history = self.history
        self._show(rewrite(old, change))

    def uncompact(self) -> bool:
        """Bring the whole history back into view; False if all of it is there."""
        if self._history is None:
            return False
        self._journal.write(Uncompacted())
        whole, self._history = self._history, None
        self._show(whole)
        return True

    def _show(self, transcript: Transcript) -> None:
        self.state = msgspec.structs.replace(
            self.state,
            transcript=transcript,
            chars=sum(map(chars_of, transcript)),
            quarantine=frozenset(),
            last_usage=Usage(),
        )

    def quarantine(self, refused: PartQuarantined) -> None:
        place = (refused.position, refused.part)
        self._journal.write(Quarantined(*place, refused.reason))
        self.state = msgspec.structs.replace(self.state, quarantine=self.state.quarantine | {place})
        self._teller.tell(Warning, f"left out of the request: {refused.reason}")


def chars_of(item: Item) -> int:
    """How much text an item holds, for estimates that may be too large but not too small.

    Letters that are rare in what models were trained on need more tokens, about as they need more
    bytes. Pictures and documents count as the text that they weigh.
    """
    if isinstance(item, (NoticeItem, SummaryItem)):
        return _weight(item.text)
    total = 0
    for part in item.content:
        if isinstance(part, (Text, Thinking)):
            text = part.text
        elif isinstance(part, ToolCall):
            text = part.raw
        elif isinstance(part, Opaque):
            text = part.json
        elif isinstance(part, RedactedThinking):
            text = part.data
        else:
            total += weighing.chars_of(part)
            continue
        total += len(text) if text.isascii() else _weight(text)
    return total


def _weight(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
