"""A session as hosts see it: its life (lifecycle.py) and its parts.

The terminal, the page and the editors each have one for every session that they show, and the slash
commands (commands/table.py) work on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.assembly import SessionOptions
from treadle.apps.conversation import plans
from treadle.apps.conversation.choices import ModelQuestion, PlanAnswer
from treadle.apps.conversation.conversation import Conversation
from treadle.apps.conversation.session.file_undo import FileUndo
from treadle.apps.conversation.session.lifecycle import SessionLifecycle
from treadle.apps.conversation.session.saved_sessions import SavedSessions
from treadle.apps.conversation.session.session_limits import LimitReport, SessionLimits
from treadle.apps.conversation.session.session_model import SessionModel
from treadle.apps.conversation.session.session_permissions import SessionPermissions
from treadle.apps.conversation.session.session_servers import SessionServers
from treadle.apps.conversation.session.session_settings import SessionSettings
from treadle.apps.conversation.session.session_trust import SessionTrust
from treadle.apps.conversation.state.view_state import ViewState
from treadle.core.loop.driver import Driver

if TYPE_CHECKING:
    from treadle.tools.builtin import UserQuestion


class HostedSession(SessionLifecycle):
    """A folder, the session that is open in it, and what the user can do with it."""

    def __init__(
        self,
        folder: Path,
        flags: Mapping[str, object] | None = None,
        options: SessionOptions | None = None,
    ) -> None:
        super().__init__(folder, flags, options)
        self.trust = SessionTrust(self.folder)
        self.model = SessionModel(self)
        self.permissions = SessionPermissions(self)
        self.limits = SessionLimits(self)
        self.settings = SessionSettings(self)
        self.servers = SessionServers(self)
        self.saved = SavedSessions(self)
        self.undo = FileUndo(self)

    def _make_conversation(self, driver: Driver, view: ViewState) -> Conversation:
        callbacks = self.callbacks
        conversation = Conversation(
            driver,
            callbacks.mark_changed,
            callbacks.return_messages,
            view,
            self.permissions.allow_for_session,
            may_wake=lambda: self.load_settings().wake,
        )
        driver.watch(LimitReport(self.limits.list_limits, conversation.show_note))
        return conversation

    def _make_services(self) -> dict[str, object]:
        return {"ask": self._ask, "present_plan": self._present_plan}

    async def _ask(self, question: UserQuestion) -> str | None:
        choices = tuple((choice.label, choice.description) for choice in question.choices)
        asked = ModelQuestion(question.question, choices, question.multiple)
        answer = await self._ask_user(asked)
        return answer if isinstance(answer, str) else None

    async def _present_plan(self, session_id: str, plan: str) -> PlanAnswer | None:
        if self.permissions.mode != "plan" or session_id != self.driver.session_id:
            return None
        given = await self._ask_user(plans.make_plan_question(plan))
        answer = plans.parse_plan_answer(plan, given)
        if answer.mode:
            self.permissions.change_mode(answer.mode)
        return answer

    async def _ask_user(self, question: ModelQuestion) -> str | PlanAnswer | None:
        if self.conversation is None:
            return None
        return await self.callbacks.ask_user(self.conversation, question)
