"""Messages of a client that may send them twice: what a session has of them already.

Protocols that send ids of messages (AG-UI, A2A) keep them in the metadata of the message, so the
session itself tells which it has, in every process. Approvals have an id that holds for one session
and its child agents. Used by agui.py.
"""

from __future__ import annotations

from typing import Any

import msgspec

from treadle.agents.session import Session
from treadle.core.steps import PendingApproval
from treadle.core.transcript.items import Item, Metadata, UserItem

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
