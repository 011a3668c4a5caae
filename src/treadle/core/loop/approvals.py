"""The calls that wait for an approval, by call id.

Decisions are log entries, so that a restart does not ask again. A decision on a call that no longer
waits changes nothing. Calls that an earlier process left waiting can be decided before the loop
asks about them; no event tells of that, because no turn is running.
"""

from __future__ import annotations

import msgspec

from treadle.core.argument_checks import FLAG, TEXT, check
from treadle.core.events import ApprovalRequired, ApprovalResolved
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.loop_session import LoopSession
from treadle.core.steps import DECIDER, ApprovalCallbacks, ApprovalRequest, PendingApproval
from treadle.core.transcript.content import Arguments, parse_arguments, to_json_object
from treadle.core.transcript.entries import ApprovalDecision, DecidedBy
from treadle.lib.text.text import fix_surrogates


class Approvals:
    def __init__(self, session: LoopSession, emitter: Emitter) -> None:
        self._session = session
        self._emitter = emitter
        self._pending: dict[str, PendingApproval] = {}
        self._restored: dict[str, PendingApproval] = {}  # of an earlier process, not asked here yet

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        return (*self._pending.values(), *self._restored.values())

    @property
    def pending_ids(self) -> tuple[str, ...]:
        """Those that the host was asked about: the loop waits for them."""
        return tuple(self._pending)

    def restore(self, pending: list[PendingApproval]) -> None:
        """An earlier process left these waiting. The loop asks again if there is no decision."""
        self._restored = {approval.call.id: approval for approval in pending}

    def request(self, pending: list[PendingApproval]) -> ApprovalRequest:
        self._pending = {approval.call.id: approval for approval in pending}
        for approval in pending:
            self._emitter.emit(ApprovalRequired, approval.call, approval.summary, approval.reason)
        return ApprovalRequest(
            tuple(pending), ApprovalCallbacks(self.approve, self.deny, lambda: tuple(self._pending))
        )

    def approve(self, call_id: str, arguments: Arguments | None, always: bool) -> bool:
        check("always", always, FLAG)
        raw = None if arguments is None else _encode_arguments(arguments)
        pending = self._pending.get(call_id) or self._restored.get(call_id)
        if raw and pending is not None and parse_arguments(raw) == pending.call.arguments:
            raw = None  # nothing was edited
        return self._resolve(ApprovalDecision(call_id, "allow", "", raw, always, "user"))

    def deny(self, call_id: str, reason: str, decided_by: DecidedBy = "user") -> bool:
        check("reason", reason, TEXT)
        check("decided_by", decided_by, DECIDER)
        reason = fix_surrogates(reason)
        return self._resolve(ApprovalDecision(call_id, "deny", reason, decided_by=decided_by))

    def clear(self) -> None:
        self._pending.clear()
        self._restored.clear()

    def _resolve(self, decision: ApprovalDecision) -> bool:
        call_id = decision.call_id
        if self._restored.pop(call_id, None) is not None:
            self._session.write(decision)
            return True
        if self._pending.pop(call_id, None) is None:
            return False
        self._session.write(decision)
        self._emitter.emit(ApprovalResolved, call_id, decision.decision, decision.reason)
        return True


def _encode_arguments(arguments: Arguments) -> str:
    try:
        return msgspec.json.encode(to_json_object(arguments)).decode()
    except (TypeError, UnicodeEncodeError) as error:
        raise TypeError(f"the edited arguments of the call cannot be stored: {error}") from None
