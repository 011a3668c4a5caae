"""`/btw`: a question beside the conversation. The model sees the context; nothing of it is kept.

The engine's part is core/loop/side_question.py.
"""

from __future__ import annotations

from treadle.apps.conversation.commands.answers import CommandAnswer, ScreenChange
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.core.errors import ConfigError
from treadle.lib.text.text import format_count, format_dollars

USAGE = "usage: /btw QUESTION, answered from the context of this session without a trace in it"


async def run_btw(session: HostedSession, arguments: str) -> CommandAnswer:
    """Also while a turn runs."""
    if not arguments:
        raise ConfigError(USAGE)
    driver = session.driver
    if not len(driver.history):
        raise ConfigError("this session is empty: send the question as a message")
    session.callbacks.show_hint("asking the side question; esc stops it")
    try:
        reply = await driver.ask_aside(arguments)
    finally:
        session.callbacks.show_hint("")
    usage = reply.usage
    session.require_conversation().add_side_usage(usage)
    tokens = f"{format_count(usage.total_input)} tokens in, {format_count(usage.output)} out"
    cost = f"{format_dollars(usage.cost)}, " if usage.cost else ""
    if reply.stop == "aborted":
        known = f"{cost}{tokens}" if usage.total else "its cost is not known"
        return CommandAnswer(f"the side question is stopped: {known}", "faint")
    title, text = f"btw: {arguments}", reply.text.strip()
    note = f"{cost}{tokens}; not part of the conversation"
    panel = ScreenChange("panel", text, title=title, note=note)
    return CommandAnswer(f"{title}\n{text}\n{note}", screen=panel)
