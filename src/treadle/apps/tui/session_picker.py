"""The list of sessions to resume, with a preview. Used by `/resume` and `treadle --resume`."""

from __future__ import annotations

import time
from collections.abc import Sequence

from treadle.apps.conversation.choice_option import ChoiceOption
from treadle.apps.conversation.host import Host
from treadle.apps.tui.frontend import Frontend
from treadle.core.errors import TreadleError
from treadle.lib.text.text import format_age, plural

NO_SESSION = "there is no session in this folder yet; this is a new one"


def list_session_options(host: Host, *, without: str = "") -> list[ChoiceOption]:
    """The sessions of the folder, last used first."""
    now, options = time.time(), list[ChoiceOption]()
    for one in host.list_sessions():
        if one.id != without:
            age, turns = format_age(now - one.updated), plural(one.turns, "turn")
            description = f"{age} · {turns} · {one.state} · {one.id}"
            options.append(ChoiceOption(one.id, one.title or "(no messages)", description))
    return options


async def pick_session(ui: Frontend, options: Sequence[ChoiceOption], title: str) -> str | None:
    """The id of the chosen session; None if the user closes the list."""

    async def preview(session_id: str) -> list[str]:
        try:
            return await ui.host.preview_session(session_id)
        except (TreadleError, OSError) as error:
            return [f"no preview: {error}"]

    return await ui.choose_with_preview(title, options, preview)
