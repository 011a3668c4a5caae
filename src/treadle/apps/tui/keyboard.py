"""What comes from the terminal, in large pieces: a long paste is taken whole, not by letters.

Textual's own reader looks at each letter by itself, which takes seconds for a megabyte. Everything
but the inside of a paste is left to it. Bytes that are no text become replacement characters, and a
terminal that is gone ends the reading and nothing else.
"""

from __future__ import annotations

import os
import selectors
from codecs import getincrementaldecoder
from collections.abc import Iterable

from textual import events
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

PIECE = 1 << 16
LOOK = 0.1  # seconds after which a lone escape is one


class PasteParser(XTermParser):
    """Textual's parser, which does not see the inside of pastes."""

    def __init__(self) -> None:
        super().__init__()
        self._pasted: list[str] | None = None  # what has come of a paste that is not over

    def feed(self, data: str) -> Iterable[Message]:
        while data:
            if self._pasted is None:
                before, begins, data = data.partition(BRACKETED_PASTE_START)
                if before:
                    yield from super().feed(before)
                if begins:
                    self._pasted = []
                continue
            # The end may have come in two pieces.
            last = self._pasted.pop() if self._pasted else ""
            inside, ends, data = (last + data).partition(BRACKETED_PASTE_END)
            self._pasted.append(inside)
            if ends:
                text = "".join(self._pasted).replace("\x00", "")
                self._pasted = None
                yield events.Paste(text)
            else:
                kept = len(BRACKETED_PASTE_END)
                self._pasted[-1:] = [inside[:-kept], inside[-kept:]]


class KeyboardDriver(LinuxDriver):
    """Textual's terminal, read in another way."""

    def run_input_thread(self) -> None:
        parser = PasteParser()
        decode = getincrementaldecoder("utf-8")("replace").decode
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(LOOK):
                    data = self._read()
                    if not data:
                        self.exit_event.wait()
                        break
                    self._tell(parser.feed(decode(data)))
                self._tell(parser.tick())

    def _read(self) -> bytes:
        try:
            return os.read(self.fileno, PIECE)
        except OSError:
            return b""

    def _tell(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.process_message(message)
