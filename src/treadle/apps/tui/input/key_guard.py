"""Decides whether a key belongs to the open dialog or to what the user was typing before.

A dialog that opens by itself must not take a key that was already on its way. The caller (app.py)
gives the time, and moves the focus.
"""

from __future__ import annotations

from typing import Literal

PAUSE_SECONDS = 0.5  # in less time a person cannot have read the dialog

KeyTarget = Literal["dialog", "prompt", "dropped"]


class KeyGuard:
    """`has_draft`: the prompt has text that is not sent yet.

    A dialog that the user opened takes keys at once. Any other takes them when the prompt is empty
    and no key came for PAUSE_SECONDS; with a draft only an arrow key selects it. Text that is no
    answer goes to the prompt. Enter counts only after PAUSE_SECONDS, or after a key that marks.
    """

    def __init__(self) -> None:
        self._drawn_at = float("-inf")
        self._typed_at = float("-inf")  # the last key that was not for a dialog
        self._is_by_user = True
        self._is_touched = False
        self._was_for_dialog = False  # the last key

    def open_dialog(self, *, by_user: bool, is_touched: bool = False) -> None:
        """A dialog opens. `by_user`: the user opened it."""
        self._drawn_at, self._is_by_user, self._is_touched = float("inf"), by_user, is_touched

    def set_drawn(self, now: float) -> None:
        """The dialog is on the screen; only from now on can it be read."""
        self._drawn_at = now

    @property
    def is_drawn(self) -> bool:
        return self._drawn_at != float("inf")

    def is_read(self, now: float) -> bool:
        """Whether a person can have read the dialog."""
        return now - self._drawn_at >= PAUSE_SECONDS

    def touch(self) -> None:
        """The user selects the dialog, with an arrow key or the mouse."""
        self._is_touched = True

    def note_typing(self, now: float) -> None:
        """A key goes to the prompt or to the transcript."""
        self._typed_at, self._was_for_dialog = now, False

    def is_typing(self, now: float) -> bool:
        """Whether the user has just typed something that was not for a dialog."""
        return now - self._typed_at < PAUSE_SECONDS

    def is_ready(self, now: float, *, has_draft: bool) -> bool:
        """Whether the dialog takes keys."""
        return self._is_by_user or self._is_touched or (self._is_quiet(now) and not has_draft)

    def _is_quiet(self, now: float) -> bool:
        return now - max(self._drawn_at, self._typed_at) >= PAUSE_SECONDS

    def route(self, key: str, now: float, *, has_draft: bool, is_answer: bool = True) -> KeyTarget:
        """Where a key goes while a dialog is open. `is_answer`: the dialog has a use for it."""
        if key in ("up", "down") and (self._is_by_user or self._is_quiet(now)):
            self._is_touched = True
        is_refusal = key == "escape" and not has_draft  # closing a dialog is always safe
        if is_refusal or (self._is_touched and is_answer):
            self._was_for_dialog = True
            return "dialog"
        is_new = not self.is_read(now)
        if not (is_answer and self.is_ready(now, has_draft=has_draft)):
            if self._was_for_dialog and is_new:
                return "dropped"  # meant for the dialog before this one
            self.note_typing(now)
            self._is_touched = False
            return "prompt"
        self._was_for_dialog = True
        if key == "enter":
            return "dropped" if is_new else "dialog"
        self._is_touched = True
        return "dialog"
