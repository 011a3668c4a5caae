"""What protocols of clients share (AG-UI, A2A): messages sent once, approvals, errors in words.

A client may send a message twice. Its id is kept in the metadata of the message, so the session
itself tells which it has, in every process. Approvals have an id that holds for one session and its
child agents. Used by agui.py and a2a.py.
"""

from __future__ import annotations

from typing import Any

import msgspec

from treadle.agents.session import Session
from treadle.core.errors import TreadleError, error_message
from treadle.core.steps import PendingApproval
from treadle.core.transcript.items import Item, Metadata, UserItem
from treadle.lib.logger import logger

# What a client sends to answer an approval.
ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "reason": {"type": "string", "description": "why not; the model reads it"},
        "arguments": {"type": "object", "description": "instead of all arguments of the call"},
    },
    "required": ["approved"],
}
MESSAGE_IDS = "message_ids"  # in the metadata of a message: a JSON list


def make_metadata(message_ids: list[str]) -> Metadata:
    return {MESSAGE_IDS: msgspec.json.encode(message_ids).decode()}


def read_message_ids(item: Item) -> list[str]:
    """The ids that the client gave to a message; none if it came another way."""
    stored = (item.metadata or {}).get(MESSAGE_IDS) if isinstance(item, UserItem) else None
    return msgspec.json.decode(stored, type=list[str]) if isinstance(stored, str) else []


def find_known_ids(session: Session[Any, Any]) -> set[str]:
    """The ids of the messages that a session has, also of those that wait for their turn."""
    items = [*session.history, *(one.item for one in session.queued_messages)]
    return {message_id for item in items for message_id in read_message_ids(item)}


def make_approval_id(session_id: str, approval: PendingApproval) -> str:
    """The id of the call; with that of its session if a child agent makes it."""
    is_own = approval.session_id in ("", session_id)
    return approval.call.id if is_own else f"{approval.session_id}/{approval.call.id}"


def answer_approval(session: Session[Any, Any], approval: PendingApproval, answer: object) -> None:
    """Give an answer of ANSWER_SCHEMA; what is not clearly a yes is a no."""
    call_id, child = approval.call.id, approval.session_id
    given = answer if isinstance(answer, dict) else {}
    if given.get("approved") is True:
        session.approve(call_id, arguments=given.get("arguments"), session_id=child)
    else:
        reason = str(given.get("reason") or "The user said no.")
        session.deny(call_id, reason, session_id=child)


def describe_failure(error: Exception) -> tuple[str, str]:
    """What a client reads, and its code: an error of the engine in its words, nothing of one in
    other code, which is logged."""
    if isinstance(error, TreadleError):
        return error_message(error), type(error).__name__
    logger.error("a run for a client failed", exc_info=error)
    return "the agent failed; its log says why", "internal"
