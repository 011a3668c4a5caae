"""The calls that wait for an approval, by call id.

Decisions are log entries, so that a restart does not ask again. A decision on a call that no longer
waits changes nothing.
"""

from __future__ import annotations

import msgspec

from treadle.core.events import ApprovalRequired, ApprovalResolved
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.session_state import SessionState
from treadle.core.steps import ApprovalCallbacks, ApprovalRequest, PendingApproval
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.entries import ApprovalDecision


class Approvals:
    def __init__(self, session: SessionState, emitter: Emitter) -> None:
        self._session = session
        self._emitter = emitter
        self._pending: dict[str, PendingApproval] = {}

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        return tuple(self._pending.values())

    @property
    def pending_ids(self) -> tuple[str, ...]:
        return tuple(self._pending)

    def request(self, pending: list[PendingApproval]) -> ApprovalRequest:
        self._pending = {approval.call.id: approval for approval in pending}
        for approval in pending:
            self._emitter.emit(ApprovalRequired, approval.call, approval.summary, approval.reason)
        return ApprovalRequest(
            tuple(pending), ApprovalCallbacks(self.approve, self.deny, lambda: tuple(self._pending))
        )

    def approve(self, call_id: str, arguments: Arguments | None, always: bool) -> bool:
        raw = None if arguments is None else msgspec.json.encode(arguments).decode()
        return self._resolve(ApprovalDecision(call_id, "allow", "", raw, always))

    def deny(self, call_id: str, reason: str) -> bool:
        return self._resolve(ApprovalDecision(call_id, "deny", reason))

    def clear(self) -> None:
        self._pending.clear()

    def _resolve(self, decision: ApprovalDecision) -> bool:
        if self._pending.pop(decision.call_id, None) is None:
            return False
        self._session.record_decision(decision)
        self._emitter.emit(ApprovalResolved, decision.call_id, decision.decision, decision.reason)
        return True
