"""Asks the terminal for its background colour (OSC 11), so that the theme fits.

Nothing waits for the answer: the screen is drawn with the theme that is guessed, and changes when
the answer comes. `BackgroundReport` takes the answer out of what the terminal sends, also when it
comes in two parts; it would be taken for typed text. Used by input/keyboard.py and screen.py.
"""

from __future__ import annotations

import re

from textual.message import Message

QUERY = "\x1b]11;?\x1b\\"
_START = "\x1b]11;"
_ANSWER = re.compile(
    r"\x1b\]11;rgba?:([0-9a-f]{1,4})/([0-9a-f]{1,4})/([0-9a-f]{1,4})(?:/[0-9a-f]{1,4})?"
    r"(?:\x07|\x1b\\)",
    re.IGNORECASE,
)
_BEGINNING = re.compile(r"(?:r?|rg|rgba?|rgba?:[0-9a-f/]{0,19})\x1b?", re.IGNORECASE)


class BackgroundReported(Message):
    """The terminal's background is light, or dark."""

    def __init__(self, is_light: bool) -> None:
        super().__init__()
        self.is_light = is_light


class BackgroundReport:
    """Finds the answer in the input."""

    def __init__(self) -> None:
        self._held = ""  # the beginning of an answer

    def take(self, data: str) -> tuple[str, BackgroundReported | None]:
        """The input without the answer, and the answer if it is complete."""
        if not self._held and _START not in data:
            return data, None
        data, self._held = self._held + data, ""
        match = _ANSWER.search(data)
        if match is not None:
            rest = data[: match.start()] + data[match.end() :]
            return rest, BackgroundReported(is_light(*match.group(1, 2, 3)))
        before, start, after = data.partition(_START)
        if _BEGINNING.fullmatch(after):
            self._held = start + after
            return before, None
        return data, None


def is_light(red: str, green: str, blue: str) -> bool:
    """Whether a colour, in hexadecimal digits as X11 writes it, is nearer to white than black."""
    parts = [int(part, 16) / int("f" * len(part), 16) for part in (red, green, blue)]
    return 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2] > 0.5
