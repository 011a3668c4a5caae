"""The search in earlier messages, as ctrl+r does it in a shell.

Pure: the lines are given once. The prompt widget shows the match and gives it the keys.
"""

from __future__ import annotations

from collections.abc import Sequence


class HistorySearch:
    """Finds the newest line with the query first; `find_older` goes on from there. `draft` is what
    the prompt held before."""

    def __init__(self, lines: Sequence[str], draft: str) -> None:
        self.draft = draft
        self.query = ""
        self.is_failed = False  # no (other) line has the query
        self._lines = lines
        self._position = len(lines)

    @property
    def match(self) -> str | None:
        """The line that was found."""
        return self._lines[self._position] if self._position < len(self._lines) else None

    def extend(self, text: str) -> None:
        """Search for more text; a match that has it stays."""
        self.query += text
        self._search(self._position)

    def shorten(self) -> None:
        """Remove the last character of the query, and begin at the newest line again."""
        self.query = self.query[:-1]
        self._position = len(self._lines)
        if self.query:
            self._search(len(self._lines) - 1)
        else:
            self.is_failed = False

    def find_older(self) -> None:
        if self.query:
            self._search(self._position - 1, unlike=self.match)

    def _search(self, first: int, unlike: str | None = None) -> None:
        wanted = self.query.lower()
        for position in range(min(first, len(self._lines) - 1), -1, -1):
            line = self._lines[position]
            if wanted in line.lower() and line != unlike:
                self._position, self.is_failed = position, False
                return
        self.is_failed = True
