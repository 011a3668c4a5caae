"""The status line of the user: the output of a command, which runs beside the screen.

It runs again when what it reads has changed, at most once a second; the screen never waits for it.
If it fails, or prints nothing, the line of the program is shown (status_area.py). Colours of
the output are kept, every other escape sequence is removed. Used by screen.py.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Coroutine
from typing import Any

from rich.text import Text

from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.conversation.session.status_line import make_status_input, run_status_line
from treadle.core.errors import TreadleError
from treadle.lib.text.sanitize import strip_escapes

MIN_SECONDS = 1.0
_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")


class StatusCommand:
    """`lines` are the last output. `show` gets a problem, once."""

    def __init__(
        self,
        session: HostedSession,
        start: Callable[[Coroutine[Any, Any, None]], None],
        draw: Callable[[], None],
        show: Callable[[str], None],
    ) -> None:
        self._session = session
        self._start = start
        self._draw = draw
        self._show = show
        self.lines: tuple[Text, ...] = ()
        self._shown_input: dict[str, Any] | None = None
        self._shown_parts: object = None
        self._is_running = False
        self._begun = 0.0
        self._problem = ""

    def update(self) -> None:
        """Run the command if something has changed since; returns at once."""
        session, now = self._session, time.monotonic()
        if self._is_running or now - self._begun < MIN_SECONDS or session.conversation is None:
            return
        parts, status = session.agent_session.parts, make_status_input(session)
        if status == self._shown_input and parts is self._shown_parts:
            return
        self._shown_input, self._shown_parts = status, parts
        self._is_running, self._begun = True, now
        self._start(self._run(status))

    async def _run(self, status: dict[str, Any]) -> None:
        problem, lines = "", list[str]()
        try:
            lines = await run_status_line(self._session, status)
        except (TreadleError, OSError) as error:
            problem = str(error)
        finally:
            self._is_running = False
        if problem and problem != self._problem:
            self._show(f"the status line: {problem}")
        self._problem = problem
        self.lines = tuple(map(parse_colours, lines))
        self._draw()


def parse_colours(line: str) -> Text:
    """A line with its colours, and without any other command to the terminal."""
    pieces = _COLOUR.split(line)
    safe = [
        piece if number % 2 else strip_escapes(piece).replace("\t", " ")
        for number, piece in enumerate(pieces)
    ]
    return Text.from_ansi("".join(safe))
