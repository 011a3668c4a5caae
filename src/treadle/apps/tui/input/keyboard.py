"""Reads the terminal; a paste is taken as one piece.

Textual's parser handles each character by itself, which takes seconds for a megabyte; here it gets
everything except the inside of pastes. Invalid UTF-8 becomes replacement characters. When the
terminal is gone, only reading ends.
"""

from __future__ import annotations

import os
import re
import selectors
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable
from threading import Event

from textual import events
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from treadle.apps.tui.terminal.background import BackgroundReport
from treadle.apps.tui.terminal.status import TerminalStatus

READ_SIZE = 1 << 16
PASTE_GAP_SECONDS = 0.03  # between two parts of an unmarked paste
_PASTE_REPORT = re.compile(r"\x1b\[\?2004;[13]\$y")  # it does: the mode is set
_LINE_BREAK_INSIDE = re.compile(r"[^\r\n][\r\n]+[^\r\n]")
# As terminals without the newer key protocols send them; Textual reads other keys from these.
ALT_KEYS = {"\x1b\r": "alt+enter", **{f"\x1b{digit}": f"alt+{digit}" for digit in range(10)}}
SEQUENCE_STARTS = "[O]P_^X"  # after an escape byte: more may follow
POLL_SECONDS = 0.1  # after this an escape byte alone is the escape key


def make_paste_query() -> str:
    """Asks the terminal whether it marks pastes; "" if it would show the question."""
    return "" if os.environ.get("TERM_PROGRAM") == "Apple_Terminal" else "\x1b[?2004$p"


class PasteParser(XTermParser):
    """Textual's parser for everything except the inside of pastes.

    Some terminals do not mark a paste. Text that arrives at once with a line break inside is one,
    too: its line breaks must not send messages or answer dialogs. A terminal that says that it
    marks pastes, or has marked one, is believed: such text is then fast typing. While a dialog is
    open it is a paste in any case, so that it does not answer the dialog.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        splits_escape: Callable[[], bool] = lambda: False,
        has_dialog: Callable[[], bool] = lambda: False,
    ) -> None:
        """`splits_escape`: whether escape and a letter that arrive together are two keys, as in
        vim; else they are the letter with alt. `has_dialog`: whether one is open."""
        super().__init__()
        self._has_dialog = has_dialog
        self._marks_pastes = False  # the terminal is known to do it
        self._splits_escape = splits_escape
        self._paste_parts: list[str] | None = None  # of an unfinished paste
        self._clock = clock
        self._unmarked_at = float("-inf")  # the last part of an unmarked paste
        self._background = BackgroundReport()

    def feed(self, data: str) -> Iterable[Message]:
        if BRACKETED_PASTE_START in data or _PASTE_REPORT.search(data) is not None:
            self._marks_pastes = True
        if self._paste_parts is None and BRACKETED_PASTE_START not in data:
            data, report = self._background.take(data)
            if report is not None:
                yield report
        while data:
            if self._paste_parts is None:
                before, begins, data = data.partition(BRACKETED_PASTE_START)
                if before and self._is_unmarked_paste(before):
                    self._unmarked_at = self._clock()
                    yield events.Paste(before.replace("\r\n", "\n").replace("\r", "\n"))
                elif before:
                    yield from super().feed(before)
                if begins:
                    self._paste_parts = []
                continue
            # The end marker may be split over two reads.
            last = self._paste_parts.pop() if self._paste_parts else ""
            inside, ends, data = (last + data).partition(BRACKETED_PASTE_END)
            self._paste_parts.append(inside)
            if ends:
                text = "".join(self._paste_parts).replace("\x00", "")
                self._paste_parts = None
                yield events.Paste(text)
            else:
                size = len(BRACKETED_PASTE_END)
                self._paste_parts[-1:] = [inside[:-size], inside[-size:]]

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        letter = sequence if alt else sequence[1:] if sequence[:1] == "\x1b" else ""
        is_letter = len(letter) == 1 and letter.isprintable() and (alt or letter not in "[O")
        known = [] if alt else list(super()._sequence_to_key_events(sequence))
        if is_letter and self._splits_escape():
            yield events.Key("escape", "\x1b")
            yield from super()._sequence_to_key_events(letter)
        elif sequence in ALT_KEYS:
            yield events.Key(ALT_KEYS[sequence], None)
        elif is_letter and not known and (alt or letter not in SEQUENCE_STARTS):
            yield events.Key(f"alt+{letter}", None)  # without a character: it types nothing
        else:
            yield from known or super()._sequence_to_key_events(sequence, alt)

    def _is_unmarked_paste(self, data: str) -> bool:
        if self._marks_pastes and not self._has_dialog():
            return False
        if not all(char.isprintable() or char in "\r\n\t" for char in data):
            return False
        is_next_part = self._clock() - self._unmarked_at < PASTE_GAP_SECONDS
        return is_next_part or _LINE_BREAK_INSIDE.search(data) is not None


class KeyboardReader(Driver):
    """Before a terminal driver of Textual: it reads with the PasteParser. What is around the screen
    (a TerminalStatus of the app) is told when the screen is taken, and taken back when it is given
    back."""

    fileno: int
    exit_event: Event

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[safe-super]  # of the terminal driver
        if self._status is not None:
            self.write(self._status.begin_sequence)
        self.write(make_paste_query())

    def stop_application_mode(self) -> None:
        if self._status is not None:
            self.write(self._status.end_sequence)
        super().stop_application_mode()  # type: ignore[safe-super]

    @property
    def _status(self) -> TerminalStatus | None:
        return getattr(self._app, "terminal_status", None)

    def _has_vim_keys(self) -> bool:
        prompt = getattr(self._app, "prompt", None)
        return bool(getattr(prompt, "vim_mode", ""))

    def _has_dialog(self) -> bool:
        dialogs = getattr(self._app, "dialogs", None)
        return bool(getattr(dialogs, "is_open", True))

    def run_input_thread(self) -> None:
        parser = PasteParser(splits_escape=self._has_vim_keys, has_dialog=self._has_dialog)
        decode = getincrementaldecoder("utf-8")("replace").decode
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(POLL_SECONDS):
                    data = self._read_input()
                    if not data:
                        self.exit_event.wait()
                        break
                    self._dispatch(parser.feed(decode(data)))
                self._dispatch(parser.tick())

    def _read_input(self) -> bytes:
        try:
            return os.read(self.fileno, READ_SIZE)
        except OSError:
            return b""

    def _dispatch(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.process_message(message)


class KeyboardDriver(KeyboardReader, LinuxDriver):
    """The driver of the full screen."""
