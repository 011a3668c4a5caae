"""The panes of the work page, which take the place of the conversation: the review of changes.

A tab asks for one by its name; what it shows is made by the modules of render/.
"""

from __future__ import annotations

from treadle.apps.conversation.commands.change_review import (
    LAST_TURN,
    SCOPES,
    build_review,
    drop_hunk,
    find_review,
)
from treadle.apps.web.live_session import LiveSession
from treadle.apps.web.messages import DropHunk, PaneName, ShowPane
from treadle.apps.web.render.review import render_review


async def show_pane(session: LiveSession, name: PaneName, part: str, note: str = "") -> ShowPane:
    scope_name, _, turn = part.partition("-")
    scope = next((one for one in SCOPES if one == scope_name), None)
    if scope is None:
        review = await find_review(session.opened)
    else:
        review = await build_review(session.opened, scope, _read_turn(turn))
    return ShowPane(name, part or review.scope, render_review(review), note)


def _read_turn(text: str) -> int:
    return int(text) if text.isdecimal() else LAST_TURN


async def drop_review_hunk(session: LiveSession, request: DropHunk) -> ShowPane:
    scope = request.scope
    review = await build_review(session.opened, scope, request.turn)
    file, number = review.find_hunk(request.key, request.number)
    note = await drop_hunk(session.opened, file, number)
    session.refresh_changed_files()
    part = f"{scope}-{request.turn}" if request.turn != LAST_TURN else scope
    return await show_pane(session, "review", part, note)
