"""The text in the prompt that is not sent: saved while it is typed, restored at the next start.

The files are those of input/drafts.py. Used by prompt_screen.py.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from treadle.apps.conversation.conversation import Conversation
from treadle.apps.tui.input.drafts import Draft, Drafts, make_draft
from treadle.apps.tui.screen import FullScreen

DRAFT_PROBLEM = "what you type is not kept if the program ends before you send it: {problem}"
DRAFT_LOST = "the message that you had not sent is not kept: {problem}"
DRAFT_HINT = "the message that you had not sent is back; esc clears it"


class PromptDraft:
    def __init__(self, screen: FullScreen) -> None:
        self._screen = screen
        self._drafts = Drafts(screen.options.drafts_dir, screen.session.folder)
        self._saved = ""
        self._is_problem_told = False

    def restore(self, conversation: Conversation) -> None:
        driver, screen = conversation.driver, self._screen
        draft = self._drafts.take(driver.session_id, is_new=not len(driver.history))
        if draft is not None:
            files = {number: Path(name) for number, name in draft.files.items()}
            text, lost = screen.attachments.put_back(draft.text, {**draft.pastes, **files})
            screen.prompt.set_text(text)
            removed = f"; not kept: {', '.join(lost)}" if lost else ""
            screen.status_area.hint = DRAFT_HINT + removed

    async def save(self) -> None:
        if self._screen.session.conversation is None or not self._screen.screen_stack:
            return
        text = self._screen.prompt.find_draft()
        if text == self._saved:
            return
        self._saved = text
        if text.strip():
            problem = await asyncio.to_thread(self._drafts.save, self._make_draft(text))
            if problem and not self._is_problem_told:
                self._is_problem_told = True
                self._screen.show_message(DRAFT_PROBLEM.format(problem=problem), "warning")
            if not self._saved:  # sent meanwhile
                self._drafts.remove()
        else:
            self._drafts.remove()

    def _make_draft(self, text: str) -> Draft:
        conversation = self._screen.session.conversation
        session_id = conversation.driver.session_id if conversation is not None else ""
        return make_draft(session_id, text, self._screen.attachments.find_contents(text))

    def forget(self) -> None:
        """It was sent."""
        self._saved = ""
        self._drafts.remove()

    def close(self) -> None:
        text = self._screen.prompt.find_draft()
        if text.strip():
            problem = self._drafts.save(self._make_draft(text))
            if problem:
                self._screen.unshown_messages.append(DRAFT_LOST.format(problem=problem))
        else:  # cleared since it was saved
            self._drafts.remove()
        self._drafts.close()
