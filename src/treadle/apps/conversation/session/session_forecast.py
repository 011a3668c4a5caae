"""What the first message of a session will probably cost, while the user writes it.

The hosts call `update` when the user pauses, and show `text` where the cost of the session will be.
The work is done in a thread; sessions/forecast.py knows how.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from treadle.apps.conversation.session.lifecycle import SessionLifecycle

if TYPE_CHECKING:
    from treadle.sessions.forecast import PastTasks


class SessionForecast:
    """`text` is "" before and after the first message, and if too little is known."""

    def __init__(self, session: SessionLifecycle) -> None:
        self._session = session
        self._past: tuple[str, PastTasks] | None = None  # of a model
        self._message = ""
        self.text = ""

    async def update(self, message: str) -> bool:
        """Whether the text is another one now."""
        before, session = self.text, self._session
        is_command = message.startswith(("/", "!"))
        if not session.is_open or len(session.driver.history) or is_command or not message.strip():
            self.text = self._message = ""
        elif message != self._message:
            self._message = message
            self.text = await asyncio.to_thread(self._make, session.agent_session.model.name)
        return self.text != before

    def _make(self, model: str) -> str:
        from treadle.sessions.forecast import PastTasks

        if self._past is None or self._past[0] != model:
            self._past = model, PastTasks(self._session.library, self._session.folder, model)
        return self._past[1].forecast(self._message).short
