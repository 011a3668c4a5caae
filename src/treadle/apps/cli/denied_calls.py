"""The calls that were denied in a run without a user, for its report: those that needed an
approval, and those that a rule, the mode or a hook denied. Used by headless.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.core.contracts.hook import HookInput, HookPoint
from treadle.core.steps import Denial, PendingApproval

if TYPE_CHECKING:
    from treadle.core.contracts.hook_data import PermissionDeniedData

HEADLESS_DENIAL = (
    "This call needs the user's approval, and the user cannot be asked in this run ({reason}). "
    "Do it in another way, or say in your answer what was left undone."
)


class DeniedCalls:
    """A hook of the run. `approvals` are the calls that the user could have approved."""

    points = frozenset[HookPoint]({"permission_denied"})

    def __init__(self) -> None:
        self.approvals: list[PendingApproval] = []
        self._summaries: dict[tuple[str, str], str] = {}  # by session and call

    def deny(self, approval: PendingApproval) -> Denial:
        self.approvals.append(approval)
        self._summaries[approval.session_id, approval.call.id] = approval.summary
        return Denial(HEADLESS_DENIAL.format(reason=approval.reason), "headless")

    async def run(self, hook_input: HookInput[PermissionDeniedData]) -> None:
        data = hook_input.data
        self._summaries.setdefault((hook_input.session_id, data["call_id"]), data["summary"])

    def list_all(self) -> tuple[str, ...]:
        return tuple(self._summaries.values())

    def list_needing_approval(self) -> tuple[str, ...]:
        return tuple(one.summary for one in self.approvals)

    def list_missing_rules(self) -> tuple[str, ...]:
        """Those that would have allowed the calls; none allows what the mode or a rule denies."""
        return tuple(dict.fromkeys(rule for one in self.approvals for rule in one.rules))
