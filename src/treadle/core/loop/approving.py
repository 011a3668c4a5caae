"""The calls that wait for somebody's decision, by call id.

Decisions are written down as rulings, so that a restart does not ask again. An answer that
comes after its question is gone changes nothing.
"""

from __future__ import annotations

import msgspec

from treadle.core.events import ApprovalRequired, ApprovalResolved
from treadle.core.loop.ledger import Ledger
from treadle.core.loop.steps import ApprovalRequest, Decisions, PendingApproval
from treadle.core.loop.telling import Teller
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.entries import Ruling


class Approvals:
    def __init__(self, ledger: Ledger, teller: Teller) -> None:
        self._ledger = ledger
        self._teller = teller
        self._waiting: dict[str, PendingApproval] = {}

    @property
    def waiting(self) -> tuple[PendingApproval, ...]:
        return tuple(self._waiting.values())

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._waiting)

    def request(self, asked: list[PendingApproval]) -> ApprovalRequest:
        self._waiting = {approval.call.id: approval for approval in asked}
        for approval in asked:
            self._teller.tell(ApprovalRequired, approval.call, approval.summary, approval.reason)
        return ApprovalRequest(
            tuple(asked), Decisions(self.approve, self.deny, lambda: tuple(self._waiting))
        )

    def approve(self, call_id: str, arguments: Arguments | None, always: bool) -> bool:
        raw = None if arguments is None else msgspec.json.encode(arguments).decode()
        return self._resolve(Ruling(call_id, "allow", "", raw, always))

    def deny(self, call_id: str, reason: str) -> bool:
        return self._resolve(Ruling(call_id, "deny", reason))

    def forget(self) -> None:
        self._waiting.clear()

    def _resolve(self, ruling: Ruling) -> bool:
        if self._waiting.pop(ruling.call_id, None) is None:
            return False
        self._ledger.rule(ruling)
        self._teller.tell(ApprovalResolved, ruling.call_id, ruling.decision, ruling.reason)
        return True
