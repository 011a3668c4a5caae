"""What a reply leads to: it is appended, and the loop goes on, or the turn ends.

    refusal                  the turn ends `refused`
    closing summary          the turn ends for the reason that asked for it
    window reached           ContextTooLong, as if the provider had said so
    cut at the output limit  it is asked to go on, up to three times
    empty                    it is nudged, once
    paused                   it is asked again, a bounded number of times
    anything else            the transcript says what comes next

No waiting and no I/O here: the driver carries it out.
"""

from __future__ import annotations

import msgspec

from treadle.core.contracts.gate import Stop
from treadle.core.errors import ContextTooLong, EmptyReply
from treadle.core.events import TerminalReason
from treadle.core.loop.ledger import Ledger
from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.integrity import is_empty
from treadle.core.transcript.items import AssistantItem, NoticeItem

CONTINUE = "Your reply was cut off at the output limit. Go on exactly where it stopped."
CUT_CALL = "Your reply was cut off inside a tool call, which was not run. Use smaller steps."
NUDGE = "Your last reply was empty. Answer, or call a tool."
CLOSING = "The budget is used up: {detail}. Without tools, sum up what is done and what is left."
MOST_PAUSES = 20
MOST_OBJECTIONS = 100


class Ending(msgspec.Struct, frozen=True):
    """The turn is over, and why."""

    reason: TerminalReason
    error: BaseException | None = None
    metadata: dict[str, str | int | float | bool] = {}


def take(reply: AssistantItem, ledger: Ledger, max_continuations: int) -> Ending | None:
    turn = ledger.turn
    if turn.closing is not None or reply.stop == "refusal":
        reply = _without_calls(reply)
    says_nothing = is_empty(reply)
    if not says_nothing:
        ledger.append(reply)
    if reply.stop == "refusal":
        return Ending("refused")
    if turn.closing is not None:
        return Ending(turn.closing.reason, metadata={"detail": turn.closing.detail})
    if reply.stop == "context" and not reply.calls:
        raise ContextTooLong(f"{reply.model} reached the end of its window", provider=reply.model)
    if reply.stop == "max_tokens" and not reply.calls:
        return _ask_for_the_rest(says_nothing, ledger, max_continuations)
    if says_nothing:
        return _nudge(reply, ledger)
    if reply.stop == "pause" and not reply.calls:
        if turn.pauses >= MOST_PAUSES:
            return Ending("end_turn", metadata={"paused": True})
        ledger.go_on("pause", msgspec.structs.replace(turn, pauses=turn.pauses + 1))
    return None


def take_stop(stop: Stop, ledger: Ledger) -> Ending | None:
    """A gate closed: the turn ends, or one last reply without tools is asked for."""
    if not stop.closing:
        return Ending(stop.reason, metadata={"detail": stop.detail})
    ledger.append(NoticeItem(CLOSING.format(detail=stop.detail), kind="budget", then="ask"))
    ledger.go_on("closing_summary", msgspec.structs.replace(ledger.turn, closing=stop))
    return None


def take_objection(reason: str, ledger: Ledger) -> Ending | None:
    """A stop hook sends the model back to work; not for ever."""
    turn = ledger.turn
    if turn.objections >= MOST_OBJECTIONS:
        return Ending("end_turn", metadata={"stop_hook": reason})
    ledger.append(NoticeItem(reason, kind="stop_hook", then="ask"))
    ledger.go_on("stop_hook", msgspec.structs.replace(turn, objections=turn.objections + 1))
    return None


def _without_calls(reply: AssistantItem) -> AssistantItem:
    """Calls that nothing will answer: of a refusal, or though it was told to call for none."""
    kept = tuple(part for part in reply.content if not isinstance(part, ToolCall))
    return msgspec.structs.replace(reply, content=kept)


def _ask_for_the_rest(says_nothing: bool, ledger: Ledger, most: int) -> Ending | None:
    turn = ledger.turn
    if turn.continuations >= most:
        return Ending("end_turn", metadata={"truncated": True})
    text = CUT_CALL if says_nothing else CONTINUE
    ledger.append(NoticeItem(text, kind="continue", then="ask"))
    ledger.go_on(
        "max_tokens_recovery",
        msgspec.structs.replace(turn, continuations=turn.continuations + 1),
    )
    return None


def _nudge(reply: AssistantItem, ledger: Ledger) -> Ending | None:
    turn = ledger.turn
    if turn.was_nudged:
        who = reply.model or "the model"
        return Ending("error", EmptyReply(f"{who} gave an empty reply twice", provider=reply.model))
    ledger.append(NoticeItem(NUDGE, kind="nudge", then="ask"))
    ledger.go_on("empty_reply", msgspec.structs.replace(turn, was_nudged=True))
    return None
