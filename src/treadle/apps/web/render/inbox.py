"""The open questions of all sessions in one dialog. The cards are those of questions.py."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from treadle.apps.conversation.open_questions import PendingQuestion
from treadle.apps.pages.elements import escape_html
from treadle.apps.web.render.questions import render_question


class WaitingSession(msgspec.Struct, frozen=True):
    """A session that waits for the user. Without `questions` it is not open: it asks when it is
    continued."""

    id: str
    title: str
    folder: str
    questions: tuple[tuple[int, PendingQuestion], ...] = ()


def render_inbox(sessions: Sequence[WaitingSession]) -> str:
    parts = [_render_session(one) for one in sessions]
    body = "".join(parts) or "<p>No session waits for you.</p>"
    close = '<button class="btn" type="button" data-close>Close <kbd>Esc</kbd></button>'
    return (
        f'<h2 id="dialog-title">Waits for you</h2><div data-inbox>{body}</div>'
        f'<div class="row">{close}</div>'
    )


def _render_session(session: WaitingSession) -> str:
    name = escape_html(session.id)
    where = f'<span class="soft">{escape_html(session.folder)}</span>'
    cards = "".join(render_question(number, one, name) for number, one in session.questions)
    asks = cards or '<p class="soft">It asks again when its turn is continued.</p>'
    return (
        f'<section data-of="{name}"><p><a href="/session/{name}">{escape_html(session.title)}</a> '
        f"{where}</p>{asks}</section>"
    )
