"""The text of a headless run on a terminal, as the model writes it.

An observer, used by headless.py if stdout is a terminal and the format is text. Prints every reply
of the turn, without secrets and escape sequences. In a pipe only the answer is printed, at the end.
"""

from __future__ import annotations

from treadle.apps.assembly.redaction import find_environment_secrets, redact
from treadle.apps.cli.output import Stdout
from treadle.apps.console.console import DIM, print_error
from treadle.core import events
from treadle.core.events import Event
from treadle.core.transcript.items import AssistantItem, Item
from treadle.lib.text.sanitize import strip_escapes

MAX_HELD_CHARS = 4_000  # of a text without blanks
DISCARDED = "  (the reply above was cut off; it is written again)"


class TextStream:
    """Prints whole words: a secret or an escape sequence may come in pieces."""

    def __init__(self, stdout: Stdout) -> None:
        self._stdout = stdout
        self._secrets = find_environment_secrets()
        self._held = ""  # not printed yet
        self._text = ""  # of the current reply
        self._last_reply = ""

    def on_event(self, event: Event) -> None:
        match event:
            case events.TextDelta(text=text):
                self._text += text
                self._held += text
                self._print_ready()
            case events.ReplyDiscarded() if self._text:
                self._end_reply()
                print_error(DISCARDED, DIM)
            case events.ToolStarted() | events.TurnFinished() | events.RunFailed():
                self._end_reply()
            case _:
                pass

    def on_item(self, position: int, item: Item) -> None:
        if isinstance(item, AssistantItem):
            self._end_reply()

    def has_printed(self, answer: str) -> bool:
        """Whether the terminal shows this answer: it ends with the last reply that was printed."""
        last = redact(self._secrets, self._last_reply.strip())
        return bool(last) and answer.strip().endswith(last)

    def _print_ready(self) -> None:
        held = self._held
        end = max(held.rfind(" "), held.rfind("\n")) + 1
        if len(held) > MAX_HELD_CHARS:
            end = len(held)
        end = min([end, *(len(held) - _partial_length(held, secret) for secret in self._secrets)])
        if end > 0:
            self._write(held[:end])
            self._held = held[end:]

    def _end_reply(self) -> None:
        """Print what is held back, and end the line."""
        if self._text:
            self._write(self._held.rstrip() + "\n")
            self._last_reply = self._text
        self._held = self._text = ""

    def _write(self, text: str) -> None:
        self._stdout.write(strip_escapes(redact(self._secrets, text)).encode())
        self._stdout.flush()  # progress lines on stderr come after it


def _partial_length(text: str, secret: str) -> int:
    """How many characters at the end of the text may be the beginning of a secret."""
    for length in range(min(len(secret) - 1, len(text)), 0, -1):
        if text.endswith(secret[:length]):
            return length
    return 0
