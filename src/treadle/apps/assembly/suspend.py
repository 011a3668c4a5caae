"""When a turn has to wait for longer than a process should: it is put off, and kept on disk.

    Patient        a model that does not sit out a long rate limit
    Unhurried      a gate that does not end a turn for want of money
    Inquiring      a policy that lets no question be asked while nobody is there
    Postponed      what they raise; the turn stays open, and whoever resumes it goes on there

Only the session itself is put off; its children wait, or end, as they always do. Writing it down
is sessions/parking's business, deciding to do so the host's.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Literal

from treadle.core.contracts.gate import Admit, Gate, RequestEstimate, Stop
from treadle.core.contracts.model import Model, ModelEvent, ModelRequest
from treadle.core.contracts.policy import Ask, Deny, PermissionRequest, Policy, Verdict
from treadle.core.contracts.wrapped import WrappedModel, open_stream
from treadle.core.errors import Overloaded, RateLimited, TreadleError
from treadle.core.transcript.entries import WakeCondition
from treadle.core.transcript.usage import Usage

MAX_WAIT_SECONDS = 60.0  # seconds that a run which may be parked waits for a provider
QUESTION_REASON = "it is a question to the user"

SuspendReason = Literal["rate_limit", "approval", "question", "budget"]


class TurnSuspended(TreadleError):
    """The turn cannot go on now. `wake` says what it waits for."""

    def __init__(self, reason: SuspendReason, wake: WakeCondition, detail: str) -> None:
        super().__init__(detail)
        self.reason: SuspendReason = reason
        self.wake = wake
        self.detail = detail


class SuspendOnRateLimit(WrappedModel):
    """Everything is the wrapped model's, but a wait that is too long puts the turn off."""

    def __init__(self, model: Model, session_id: str, max_wait: float = MAX_WAIT_SECONDS) -> None:
        super().__init__(model)
        self._session_id = session_id
        self._max_wait = max_wait

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        try:
            async with open_stream(self._model, request) as events:
                async for event in events:
                    yield event
        except (RateLimited, Overloaded) as error:
            wait = error.retry_after or 0.0
            is_ours = request.session_id == self._session_id and self.fallback is None
            if not is_ours or wait <= self._max_wait:
                raise
            wake = WakeCondition("time", at=time.time() + wait)
            raise TurnSuspended("rate_limit", wake, f"{error}; again in {wait:.0f} s") from error


class SuspendOnBudget:
    """Everything is the wrapped gate's, but the end of a budget puts the turn off."""

    def __init__(self, gate: Gate, session_id: str) -> None:
        self._gate = gate
        self._session_id = session_id

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        answer = self._gate.admit(estimate)
        is_over = isinstance(answer, Stop) and answer.reason == "budget_exceeded"
        if is_over and estimate.session_id == self._session_id:
            assert isinstance(answer, Stop), "only a Stop has a reason"
            raise TurnSuspended("budget", WakeCondition("money"), answer.detail)
        return answer

    def settle(self, estimate: RequestEstimate, used: Usage) -> None:
        self._gate.settle(estimate, used)


class SuspendOnQuestion:
    """Everything is the wrapped policy's, but a question of the session waits for a person.

    It is held back like a call that needs an approval, before anything of its round happens.
    """

    def __init__(self, policy: Policy, session_id: str) -> None:
        self._policy = policy
        self._session_id = session_id

    async def decide(self, request: PermissionRequest) -> Verdict:
        verdict = await self._policy.decide(request)
        is_ours = request.tool.name == "ask" and request.session_id == self._session_id
        return Ask(QUESTION_REASON) if is_ours and not isinstance(verdict, Deny) else verdict

    async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
        await self._policy.save_rules(request, rules)
