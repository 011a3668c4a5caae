"""An open session goes to the background. Used by /detach; lifecycle.py takes one from there."""

from __future__ import annotations

from pathlib import Path

from treadle.apps.conversation.session.lifecycle import SessionLifecycle, list_flag_rules
from treadle.sessions.detached import background

MovedSession = tuple[Path, background.BackgroundChoices]


async def move_to_background(session: SessionLifecycle) -> MovedSession:
    """Close the session for another program, which continues its turn: as soon as no call of it
    runs. The folder of its log, and what the user chose for it."""
    conversation = session.require_conversation()
    choices, earlier = session.choices, session.background
    conversation.is_pausing = True
    await conversation.wait_until(
        lambda: conversation.is_paused or conversation.is_idle or conversation.questions.hold_all
    )
    session.callbacks.start_switch()
    session.conversation = None  # no answer comes between
    mode, (allow, deny) = session.agent_session.policy.mode, list_flag_rules(session)
    stored = background.BackgroundChoices(
        {**earlier.flags, **choices.flags, "permission_mode": mode},
        (*allow, *choices.rules),
        deny,
        choices.goal,
    )
    session_dir = await session.flush()
    await session.children.freeze()
    await session.driver.log.freeze()
    await conversation.aclose()
    await session.aclose()
    return session_dir, stored
