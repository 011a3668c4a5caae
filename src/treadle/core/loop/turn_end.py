"""The end of a turn: decides after a model reply whether the loop continues or the turn ends.

refusal                  the turn ends `refused`; by the engine, a detail says that it is not done
calls beyond a limit     they are not run; the turn ends for the reason of the gate, after a closing
                         summary if it allows one
closing summary          the turn ends for the reason that asked for it
window reached           ContextTooLong, as if the provider had said so
cut at the output limit  the model is asked to continue, up to three times
empty, or only thinking  the model is asked once more
paused                   the model is called again, a bounded number of times
anything else            pending() says what comes next

Used by driver.py, which carries it out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from treadle.core.contracts.gate import Stop
from treadle.core.contracts.hook import Block, HookPoint
from treadle.core.contracts.mutator import MutationPoint
from treadle.core.errors import ContextTooLong, EmptyReply, ModelError, error_text
from treadle.core.events import TerminalReason
from treadle.core.loop.hooks import Hooks
from treadle.core.loop.loop_session import LoopSession
from treadle.core.transcript.content import ENGINE, RedactedThinking, Text, Thinking, ToolCall
from treadle.core.transcript.integrity import is_empty
from treadle.core.transcript.items import AssistantItem, Metadata, NoticeItem
from treadle.core.transcript.pending import Rest, pending
from treadle.core.transcript.recover import CLOSING

CONTINUE_NOTICE = "Your reply was cut off at the output limit. Go on exactly where it stopped."
TRUNCATED_CALL_NOTICE = (
    "Your reply was cut off inside a tool call, which was not run. Use smaller steps."
)
NOT_DONE_DETAIL = "what was asked is not done; the answer says why"
TRUNCATED_DETAIL = "the reply is cut off at the output limit of the model"
EMPTY_REPLY_NOTICE = "Your last reply has no text. Answer, or call a tool."
CLOSING_NOTICE = (
    "The budget is used up: {detail}. Without tools, sum up what is done and what is left."
)
CALLS_NOT_RUN_NOTICE = "The tool calls of your last reply were not run: {detail}."
# Kinds of notices; those of a turn are counted.
CONTINUE, NUDGE, STOP_HOOK = "continue", "nudge", "stop_hook"
ENDED_NOTICE = "The last turn ended here, because {detail}. In this one you have tools again."
MAX_PAUSES = 20
MAX_STOP_HOOK_BLOCKS = 100


class TurnEnd(msgspec.Struct, frozen=True):
    """The turn is over, and why. The user sees the warning."""

    reason: TerminalReason
    error: BaseException | None = None
    metadata: Metadata = {}
    warning: str = ""


def handle_reply(
    reply: AssistantItem,
    session: LoopSession,
    max_continuations: int,
    closing: Stop | None,
    call_stop: Stop | None,
) -> TurnEnd | None:
    """`closing`: why the reply is the last one; `call_stop`: why its calls may not be run."""
    if closing is None and call_stop is not None and reply.calls and reply.stop != "refusal":
        return _stop_at_calls(reply, session, call_stop)
    if closing is not None or reply.stop == "refusal":
        reply = _without_calls(reply)
    is_reply_empty = is_empty(reply)
    if not is_reply_empty:
        session.append(reply)
    if reply.stop == "refusal":
        detail = NOT_DONE_DETAIL if _is_by_engine(reply) else reply.refusal_reason
        return TurnEnd("refused", metadata={"detail": detail} if detail else {})
    if closing is not None:
        if closing.reason == "max_turns" and not is_reply_empty:
            # The next turn has rounds again: it can continue the work without a message.
            text = ENDED_NOTICE.format(detail=closing.detail)
            session.append(NoticeItem(text, kind="budget", next_move="ask"))
        return TurnEnd(closing.reason, metadata={"detail": closing.detail})
    if reply.stop == "context" and not reply.calls:
        raise ContextTooLong(f"{reply.model} reached the end of its window", provider=reply.model)
    if reply.stop == "max_tokens" and not reply.calls:
        return _request_continuation(is_reply_empty, session, max_continuations)
    if is_reply_empty or (not reply.calls and reply.stop != "pause" and _is_silent(reply)):
        return _retry_empty_reply(reply, session)
    if reply.stop == "pause" and not reply.calls:
        if _count_pauses(session) > MAX_PAUSES:
            return TurnEnd("end_turn", metadata={"paused": True})
        session.record_transition("pause")
    return None


def handle_stop(stop: Stop, session: LoopSession) -> TurnEnd | None:
    """A gate stopped the call: the turn ends, now or after one last reply without tools."""
    if (closing := session.closing_stop) is not None:  # that reply cannot be paid either
        stop = msgspec.structs.replace(closing, closing_tokens=0)
    if not stop.closing_tokens:
        if stop.reason == "end_turn":
            # In the transcript, so that a resumed session does not make the call after all.
            text = stop.detail or "The turn has ended."
            session.append(NoticeItem(text, kind="end_turn", next_move="rest"))
        return TurnEnd(stop.reason, metadata={"detail": stop.detail})
    text = CLOSING_NOTICE.format(detail=stop.detail)
    data = msgspec.to_builtins(stop)  # so that a later process closes the turn, too
    session.append(NoticeItem(text, kind=CLOSING, next_move="ask", data=data))
    session.record_transition("closing_summary")
    return None


async def handle_model_error(
    error: ModelError,
    session: LoopSession,
    run_mutators: Callable[[MutationPoint], Awaitable[bool]],
) -> TurnEnd | None:
    """A request that is too long is compacted, once a round; any other error ends the turn. Without
    its closing reply a turn ends for the reason that asked for it."""
    end, closing = await _shorten_request(error, session, run_mutators), session.closing_stop
    if end is None or closing is None:
        return end
    problem = f"there is no closing summary: {error_text(end.error or error)}"
    return TurnEnd(closing.reason, metadata={"detail": closing.detail}, warning=problem)


async def _shorten_request(
    error: ModelError,
    session: LoopSession,
    run_mutators: Callable[[MutationPoint], Awaitable[bool]],
) -> TurnEnd | None:
    may_shrink = isinstance(error, ContextTooLong) and not session.was_compacted
    try:
        if not may_shrink or not await run_mutators("context_too_long"):
            return TurnEnd("error", error)
    except ModelError as compaction_error:
        return TurnEnd("error", compaction_error)
    if isinstance(pending(session.state.transcript), Rest):
        session.append(NoticeItem(CONTINUE_NOTICE, kind=CONTINUE, next_move="ask"))
    session.was_compacted = True
    session.record_transition("reactive_compaction")
    return None


async def run_stop_hooks(
    reply: AssistantItem | None, session: LoopSession, hooks: Hooks, agent_type: str
) -> TurnEnd | None:
    """The model has finished. A stop hook may send it back to work, a bounded number of times."""
    point: HookPoint = "subagent_stop" if agent_type else "stop"
    if not hooks.has(point):
        return TurnEnd("end_turn")
    data: dict[str, object] = {
        "last_message": reply.text if reply else "",
        "rounds": session.turn.rounds,
    }
    if agent_type:
        data["agent_type"] = agent_type
    for answer in await hooks.run(point, data):
        if not isinstance(answer, Block):
            continue
        if _count_notices(session, STOP_HOOK) >= MAX_STOP_HOOK_BLOCKS:
            return TurnEnd("end_turn", metadata={"stop_hook": answer.reason})
        notice = NoticeItem(answer.reason, kind=STOP_HOOK, next_move="ask", data=answer.data)
        session.append(notice)
        session.record_transition("stop_hook")
        return None
    return TurnEnd("end_turn")


def _is_silent(reply: AssistantItem) -> bool:
    """Whether the reply says and calls nothing; thinking alone is no answer."""
    return all(
        isinstance(part, (Thinking, RedactedThinking))
        or (isinstance(part, Text) and not part.text.strip())
        for part in reply.content
    )


def _stop_at_calls(reply: AssistantItem, session: LoopSession, stop: Stop) -> TurnEnd | None:
    """The calls are not run. What the reply says was paid for and is kept; the turn can be
    continued after it."""
    kept = _without_calls(reply)
    is_kept = not _is_silent(kept)
    if is_kept:
        session.append(kept)
    else:
        session.discard_reply(reply)
    if stop.closing_tokens:
        return handle_stop(stop, session)
    if is_kept:
        text = CALLS_NOT_RUN_NOTICE.format(detail=stop.detail)
        session.append(NoticeItem(text, kind="budget", next_move="ask"))
    return TurnEnd(stop.reason, metadata={"detail": stop.detail})


def _is_by_engine(reply: AssistantItem) -> bool:
    """Whether the engine ended the reply of a small model, which did not do what it was asked."""
    return any(isinstance(part, Text) and part.by == ENGINE for part in reply.content)


def _without_calls(reply: AssistantItem) -> AssistantItem:
    """Drop calls that will not run: of a refusal, of a closing reply, or beyond a limit."""
    kept = tuple(part for part in reply.content if not isinstance(part, ToolCall))
    return msgspec.structs.replace(reply, content=kept)


def _request_continuation(
    is_reply_empty: bool, session: LoopSession, max_continuations: int
) -> TurnEnd | None:
    if _count_notices(session, CONTINUE) >= max_continuations:
        return TurnEnd(
            "end_turn",
            metadata={"truncated": True, "detail": TRUNCATED_DETAIL},
            warning=TRUNCATED_DETAIL,
        )
    text = TRUNCATED_CALL_NOTICE if is_reply_empty else CONTINUE_NOTICE
    session.append(NoticeItem(text, kind=CONTINUE, next_move="ask"))
    session.record_transition("max_tokens_recovery")
    return None


def _retry_empty_reply(reply: AssistantItem, session: LoopSession) -> TurnEnd | None:
    if _count_notices(session, NUDGE):
        who = reply.model or "the model"
        return TurnEnd(
            "error", EmptyReply(f"{who} gave an empty reply twice", provider=reply.model)
        )
    session.append(NoticeItem(EMPTY_REPLY_NOTICE, kind=NUDGE, next_move="ask"))
    session.record_transition("empty_reply")
    return None


def _count_notices(session: LoopSession, kind: str) -> int:
    """How many notices of a kind the turn has."""
    return sum(isinstance(one, NoticeItem) and one.kind == kind for one in session.turn_items)


def _count_pauses(session: LoopSession) -> int:
    replies = [item for item in session.turn_items if isinstance(item, AssistantItem)]
    return sum(reply.stop == "pause" and not reply.calls for reply in replies)
