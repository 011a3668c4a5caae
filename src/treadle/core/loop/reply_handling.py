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
from treadle.core.contracts.hook import Block
from treadle.core.errors import ContextTooLong, EmptyReply
from treadle.core.events import TerminalReason
from treadle.core.loop.session_state import SessionState
from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.integrity import is_empty
from treadle.core.transcript.items import AssistantItem, NoticeItem

CONTINUE_NOTICE = "Your reply was cut off at the output limit. Go on exactly where it stopped."
TRUNCATED_CALL_NOTICE = (
    "Your reply was cut off inside a tool call, which was not run. Use smaller steps."
)
EMPTY_REPLY_NOTICE = "Your last reply was empty. Answer, or call a tool."
CLOSING_NOTICE = (
    "The budget is used up: {detail}. Without tools, sum up what is done and what is left."
)
MAX_PAUSES = 20
MAX_STOP_HOOK_BLOCKS = 100


class TurnEnd(msgspec.Struct, frozen=True):
    """The turn is over, and why."""

    reason: TerminalReason
    error: BaseException | None = None
    metadata: dict[str, str | int | float | bool] = {}


def handle_reply(
    reply: AssistantItem, session: SessionState, max_continuations: int
) -> TurnEnd | None:
    turn = session.turn
    if turn.closing_stop is not None or reply.stop == "refusal":
        reply = _without_calls(reply)
    says_nothing = is_empty(reply)
    if not says_nothing:
        session.append(reply)
    if reply.stop == "refusal":
        return TurnEnd("refused")
    if turn.closing_stop is not None:
        return TurnEnd(turn.closing_stop.reason, metadata={"detail": turn.closing_stop.detail})
    if reply.stop == "context" and not reply.calls:
        raise ContextTooLong(f"{reply.model} reached the end of its window", provider=reply.model)
    if reply.stop == "max_tokens" and not reply.calls:
        return _request_continuation(says_nothing, session, max_continuations)
    if says_nothing:
        return _retry_empty_reply(reply, session)
    if reply.stop == "pause" and not reply.calls:
        if turn.pauses >= MAX_PAUSES:
            return TurnEnd("end_turn", metadata={"paused": True})
        session.record_transition("pause", msgspec.structs.replace(turn, pauses=turn.pauses + 1))
    return None


def handle_stop(stop: Stop, session: SessionState) -> TurnEnd | None:
    """A gate closed: the turn ends, or one last reply without tools is asked for."""
    if not stop.closing_tokens:
        return TurnEnd(stop.reason, metadata={"detail": stop.detail})
    session.append(
        NoticeItem(CLOSING_NOTICE.format(detail=stop.detail), kind="budget", next_move="ask")
    )
    session.record_transition(
        "closing_summary", msgspec.structs.replace(session.turn, closing_stop=stop)
    )
    return None


def handle_stop_hook(block: Block, session: SessionState) -> TurnEnd | None:
    """A stop hook sends the model back to work; not for ever."""
    turn = session.turn
    if turn.stop_hook_blocks >= MAX_STOP_HOOK_BLOCKS:
        return TurnEnd("end_turn", metadata={"stop_hook": block.reason})
    session.append(
        NoticeItem(block.reason, kind="stop_hook", next_move="ask", data=block.data)
    )
    session.record_transition(
        "stop_hook", msgspec.structs.replace(turn, stop_hook_blocks=turn.stop_hook_blocks + 1)
    )
    return None


def _without_calls(reply: AssistantItem) -> AssistantItem:
    """Calls that nothing will answer: of a refusal, or though it was told to call for none."""
    kept = tuple(part for part in reply.content if not isinstance(part, ToolCall))
    return msgspec.structs.replace(reply, content=kept)


def _request_continuation(
    is_reply_empty: bool, session: SessionState, max_continuations: int
) -> TurnEnd | None:
    turn = session.turn
    if turn.continuations >= max_continuations:
        return TurnEnd("end_turn", metadata={"truncated": True})
    text = TRUNCATED_CALL_NOTICE if is_reply_empty else CONTINUE_NOTICE
    session.append(NoticeItem(text, kind="continue", next_move="ask"))
    session.record_transition(
        "max_tokens_recovery",
        msgspec.structs.replace(turn, continuations=turn.continuations + 1),
    )
    return None


def _retry_empty_reply(reply: AssistantItem, session: SessionState) -> TurnEnd | None:
    turn = session.turn
    if turn.had_empty_reply:
        who = reply.model or "the model"
        return TurnEnd(
            "error", EmptyReply(f"{who} gave an empty reply twice", provider=reply.model)
        )
    session.append(NoticeItem(EMPTY_REPLY_NOTICE, kind="nudge", next_move="ask"))
    session.record_transition("empty_reply", msgspec.structs.replace(turn, had_empty_reply=True))
    return None
