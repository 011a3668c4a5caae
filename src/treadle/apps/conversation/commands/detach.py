"""`/detach`: the session goes on in the background, and the program ends.

session/lifecycle.py takes a session from there.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from treadle.apps.console.supervisor import start_run
from treadle.apps.conversation.block_text import describe_tasks
from treadle.apps.conversation.commands.answers import CommandAnswer, ScreenChange
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.conversation.session.lifecycle import list_flag_rules
from treadle.sessions.detached.background import BackgroundChoices

NOTHING_TO_DO = "nothing is left to do here; /quit ends the terminal, and the session stays"
NO_DRY_RUN = "a run in the background is no dry run: /dry-run off first, and what it does is done"
AFTER_ROUND = "it goes to the background after this round; no command is cut off"


async def run_detach(session: HostedSession, arguments: str) -> CommandAnswer:
    conversation = session.require_conversation()
    if session.choices.dry_run:
        return CommandAnswer(NO_DRY_RUN, "warning")
    if conversation.view.tasks:
        tasks = describe_tasks(conversation.view.tasks)
        return CommandAnswer(f"it would end {tasks}; /tasks ID stops one", "warning")
    state = session.driver.state
    if state.turn is None and not state.queued:
        return CommandAnswer(NOTHING_TO_DO, "warning")
    if not conversation.questions.waiting:
        session.callbacks.show_message(AFTER_ROUND, "faint")
    session_id, folder = session.driver.session_id, session.folder
    session_dir, choices = await _move_to_background(session)
    await asyncio.to_thread(start_run, session_dir, folder, os.environ, choices)
    note = f"it works in the background; treadle attach {session_id} brings it back"
    return CommandAnswer(screen=ScreenChange("quit", note=note))


async def _move_to_background(session: HostedSession) -> tuple[Path, BackgroundChoices]:
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
    stored = BackgroundChoices(
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
