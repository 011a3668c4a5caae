"""How a session reaches the user: the base class of every host's front end.

A host overrides what it shows in its own way; the defaults are for one that shows nothing. Called
by lifecycle.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from treadle.apps.conversation.choices import ModelQuestion, PlanAnswer
from treadle.apps.conversation.conversation import Conversation
from treadle.apps.conversation.state.blocks import NoteBlock, Tone
from treadle.apps.conversation.state.from_transcript import build_view
from treadle.apps.conversation.state.view_state import ViewState
from treadle.core.loop.driver import Driver
from treadle.core.steps import Approval, Denial, PendingApproval
from treadle.core.transcript.items import UserItem

HostKind = Literal["screen", "plain", "page", "editor"]


class HostCallbacks:
    """`runs_turns`: the conversation runs the turns; otherwise the host does. `keeps_view`: what
    the user sees stays when the same session is opened again."""

    kind: HostKind = "plain"
    runs_turns = True
    keeps_view = True

    def show_message(self, text: str, tone: Tone = "plain") -> None:
        """Show lines to the user; they are not part of the session."""

    def show_mode(self) -> None:
        """An answer of the user has changed the permission mode."""

    def show_hint(self, text: str) -> None:
        """Show a line until something else happens; "" removes it."""

    def mark_changed(self) -> None:
        """The view has changed; must return quickly."""

    def return_messages(self, items: Sequence[UserItem]) -> None:
        """Messages that were queued are back in the hands of the user."""

    def start_switch(self) -> None:
        """No session is open until `attach_conversation`."""

    async def read_view(
        self, driver: Driver, notes: Sequence[str]
    ) -> tuple[ViewState, Sequence[str]]:
        """The view of the history, and the notes that it does not show yet."""
        if not len(driver.history):
            return ViewState(), notes
        return await asyncio.to_thread(build_view, driver.history), notes

    def prepare_conversation(self, conversation: Conversation, notes: Sequence[str]) -> None:
        """Add what the user should read first; the conversation is not the current one yet."""
        for note in notes:
            conversation.show_block(NoteBlock(note))

    def attach_conversation(self, conversation: Conversation, *, is_shown: bool) -> None:
        """Another conversation is open. `is_shown`: of the session before, whose view stays."""

    async def ask_approval(
        self, conversation: Conversation, approval: PendingApproval
    ) -> Approval | Denial | None:
        """The decision on a call: of a child, or of any agent if the host runs the turns."""
        return await conversation.questions.ask_approval(approval)

    async def ask_user(
        self, conversation: Conversation, question: ModelQuestion
    ) -> str | PlanAnswer | None:
        return await conversation.ask_user(question)
