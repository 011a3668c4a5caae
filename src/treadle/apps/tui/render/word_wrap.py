"""Breaks lines between words, for the plain mode at a terminal, which would break inside of them.

Takes a text in pieces, as it arrives; a piece ends between words. Code is not given to it.
"""

from __future__ import annotations

import re

_PIECES = re.compile(r"\n| +|[^ \n]+")


class WordWrap:
    """Knows in which column the last piece ended."""

    def __init__(self) -> None:
        self._column = 0
        self._indent = ""
        self._spaces = ""  # that the next word may replace by a line break

    def feed(self, text: str, width: int) -> str:
        """The text with line breaks; as it is if the width is not known (0)."""
        if width <= 0:
            return text
        done: list[str] = []
        for piece in _PIECES.findall(text):
            if piece == "\n":
                done.append(self._spaces + piece)
                self._column, self._indent, self._spaces = 0, "", ""
            elif piece[0] == " ":
                self._spaces += piece
                if not self._column:
                    self._indent = self._spaces if len(self._spaces) < width // 2 else ""
            else:
                done.append(self._place(piece, width))
        return "".join(done)

    def flush(self) -> str:
        """The spaces at the end, which no word followed."""
        spaces, self._spaces, self._column = self._spaces, "", 0
        return spaces

    def _place(self, word: str, width: int) -> str:
        before, self._spaces = self._spaces, ""
        if self._column and self._column + len(before) + len(word) > width:
            before = "\n" + self._indent
            self._column = len(self._indent)
        else:
            self._column += len(before)
        self._column += len(word)
        return before + word


def wrap_words(text: str, width: int) -> str:
    wrap = WordWrap()
    return wrap.feed(text, width) + wrap.flush()
