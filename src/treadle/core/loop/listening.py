"""Taking in what was said: from the inbox, past the hooks, into the transcript.

A message leaves the inbox only when it is in the transcript or a hook refused it, so an
interruption loses none.
"""

from __future__ import annotations

from treadle.core.contracts.hook import AddContext, Block
from treadle.core.events import InputAccepted, WarningRaised
from treadle.core.loop.consulting import Hooks
from treadle.core.loop.inbox import Inbox
from treadle.core.loop.ledger import SessionState
from treadle.core.loop.telling import Emitter
from treadle.core.transcript.items import NoticeItem, UserItem


class InputAcceptor:
    def __init__(self, inbox: Inbox, hooks: Hooks, session: SessionState, emitter: Emitter) -> None:
        self._inbox = inbox
        self._hooks = hooks
        self._session = session
        self._emitter = emitter

    async def accept_queued(self) -> bool:
        """Everything that waits, in order; whether some of it was refused."""
        has_refused = False
        while (item := self._inbox.first) is not None:
            refusal: str | None = None
            added: list[str] = []
            if isinstance(item, UserItem) and self._hooks.has("user_prompt_submit"):
                refusal, added = await self._run_prompt_hooks(item)
            if refusal is not None:
                self._inbox.drop_first()
                has_refused = True
                self._emitter.emit(WarningRaised, f"the message was not taken: {refusal}")
                continue
            self._session.append(item)
            self._inbox.accept_first()
            if isinstance(item, UserItem):
                self._emitter.emit(InputAccepted, item)
            for text in added:
                self._session.append(NoticeItem(text, kind="hook"))
        return has_refused

    async def _run_prompt_hooks(self, item: UserItem) -> tuple[str | None, list[str]]:
        added: list[str] = []
        for answer in await self._hooks.run("user_prompt_submit", {"prompt": item.text}):
            if isinstance(answer, Block):
                return answer.reason, []
            if isinstance(answer, AddContext):
                added.append(answer.text)
        return None, added
