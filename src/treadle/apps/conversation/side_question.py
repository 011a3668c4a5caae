"""`/btw`: a question beside the conversation. The model sees the context; nothing of it is kept.

The engine's part is core/loop/side_question.py. Used by the terminal and the page.
"""

from __future__ import annotations

import msgspec

from treadle.apps.conversation.conversation import Conversation
from treadle.core.errors import ConfigError
from treadle.lib.text.text import format_count, format_dollars

USAGE = "usage: /btw QUESTION, answered from the context of this session without a trace in it"


class SideAnswer(msgspec.Struct, frozen=True):
    """`text` is Markdown; `note` says what it cost and that it is not kept. `is_stopped`: the user
    stopped it, and there is no text."""

    text: str
    note: str
    is_stopped: bool = False


async def ask_aside(conversation: Conversation, question: str) -> SideAnswer:
    """Ask; also while a turn runs. Raises TreadleErrors with a message for the user."""
    if not question:
        raise ConfigError(USAGE)
    driver = conversation.driver
    if not len(driver.history):
        raise ConfigError("this session is empty: send the question as a message")
    reply = await driver.ask_aside(question)
    conversation.add_side_usage(reply.usage)
    usage = reply.usage
    tokens = f"{format_count(usage.total_input)} tokens in, {format_count(usage.output)} out"
    cost = f"{format_dollars(usage.cost)}, " if usage.cost else ""
    if reply.stop == "aborted":
        cost_known = f"{cost}{tokens}" if usage.total else "its cost is not known"
        return SideAnswer("", f"the side question is stopped: {cost_known}", is_stopped=True)
    note = f"{cost}{tokens}; not part of the conversation"
    return SideAnswer(reply.text.strip(), note)
