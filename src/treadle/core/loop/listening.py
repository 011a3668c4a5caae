"""Taking in what was said: from the inbox, past the hooks, into the transcript.

A message leaves the inbox only when it is in the transcript or a hook refused it, so an
interruption loses none.
"""

from __future__ import annotations

from treadle.core.contracts.hook import Add, Block
from treadle.core.events import InputAccepted, Warning
from treadle.core.loop.consulting import Hooks
from treadle.core.loop.inbox import Inbox
from treadle.core.loop.ledger import Ledger
from treadle.core.loop.telling import Teller
from treadle.core.transcript.items import NoticeItem, UserItem


class Listening:
    def __init__(self, inbox: Inbox, hooks: Hooks, ledger: Ledger, teller: Teller) -> None:
        self._inbox = inbox
        self._hooks = hooks
        self._ledger = ledger
        self._teller = teller

    async def accept(self) -> bool:
        """Everything that waits, in order; whether some of it was refused."""
        has_refused = False
        while (item := self._inbox.first) is not None:
            refusal: str | None = None
            added: list[str] = []
            if isinstance(item, UserItem) and self._hooks.has("user_prompt_submit"):
                refusal, added = await self._consult(item)
            if refusal is not None:
                self._inbox.refuse()
                has_refused = True
                self._teller.tell(Warning, f"the message was not taken: {refusal}")
                continue
            self._ledger.append(item)
            self._inbox.take()
            if isinstance(item, UserItem):
                self._teller.tell(InputAccepted, item)
            for text in added:
                self._ledger.append(NoticeItem(text, kind="hook"))
        return has_refused

    async def _consult(self, item: UserItem) -> tuple[str | None, list[str]]:
        added: list[str] = []
        for answer in await self._hooks.ask("user_prompt_submit", {"prompt": item.text}):
            if isinstance(answer, Block):
                return answer.reason, []
            if isinstance(answer, Add):
                added.append(answer.text)
        return None, added
