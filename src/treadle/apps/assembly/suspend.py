"""Suspends a turn that has to wait for long: it stays open on disk, and the process can end.

    SuspendOnRateLimit   a model that suspends instead of waiting for a long rate limit
    SuspendOnBudget      a gate that suspends instead of ending the turn at a limit
    SuspendOnQuestion    a policy that holds back questions to the user
    SuspendOnRequest     a gate that suspends when another program wants to continue the session
    TurnSuspended        what they raise; resuming the session continues the turn

Only the main session is suspended; its subagents wait or end as usual. The host decides whether
to suspend; sessions/detached/suspend.py writes it to the log.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Literal

from treadle.core.contracts.gate import Admit, Gate, RequestEstimate, Stop, Wait
from treadle.core.contracts.model import Model, ModelEvent, ModelRequest
from treadle.core.contracts.policy import Ask, Deny, PermissionRequest, Policy, Verdict
from treadle.core.contracts.wrapped import WrappedModel, open_stream
from treadle.core.errors import Overloaded, RateLimited, TreadleError
from treadle.core.transcript.entries import WakeCondition
from treadle.core.transcript.usage import Usage

MAX_WAIT_SECONDS = 60.0  # for a provider; a longer wait suspends the turn

SuspendReason = Literal["rate_limit", "approval", "question", "budget", "other"]


class TurnSuspended(TreadleError):
    """The turn cannot continue now. `wake` is what it waits for."""

    def __init__(self, reason: SuspendReason, wake: WakeCondition, detail: str) -> None:
        super().__init__(detail)
        self.reason: SuspendReason = reason
        self.wake = wake
        self.detail = detail


class SuspendOnRateLimit(WrappedModel):
    """The wrapped model; a rate limit of more than `max_wait` seconds suspends the turn."""

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
            raise TurnSuspended("rate_limit", wake, f"{error}; retry in {wait:.0f} s") from error


class SuspendOnBudget:
    """The wrapped gate; an exceeded budget suspends the turn."""

    def __init__(self, gate: Gate, session_id: str) -> None:
        self._gate = gate
        self._session_id = session_id

    def admit(self, estimate: RequestEstimate) -> Admit | Stop | Wait:
        answer = self._gate.admit(estimate)
        is_ours = estimate.session_id == self._session_id
        if is_ours and isinstance(answer, Stop) and answer.reason == "budget_exceeded":
            raise TurnSuspended("budget", WakeCondition("money"), answer.detail)
        return answer

    def settle(self, estimate: RequestEstimate, used: Usage) -> None:
        self._gate.settle(estimate, used)


class SuspendOnRequest:
    """Before the next model call of the session: no call of it runs then, and all is in the log."""

    def __init__(self, session_id: str, is_requested: Callable[[], bool]) -> None:
        self._session_id = session_id
        self._is_requested = is_requested

    def admit(self, estimate: RequestEstimate) -> Admit | Stop | Wait:
        if estimate.session_id == self._session_id and self._is_requested():
            raise TurnSuspended("other", WakeCondition("time"), "it left for another program")
        return Admit()

    def settle(self, estimate: RequestEstimate, used: Usage) -> None:
        pass


class SuspendOnQuestion:
    """The wrapped policy; a question of the session waits for the user.

    It is held back like a call that needs approval, before any call of its round runs.
    """

    def __init__(self, policy: Policy, session_id: str) -> None:
        self._policy = policy
        self._session_id = session_id

    async def decide(self, request: PermissionRequest) -> Verdict:
        verdict = await self._policy.decide(request)
        is_ours = request.tool.name == "ask" and request.session_id == self._session_id
        if is_ours and not isinstance(verdict, Deny):
            return Ask("it is a question to the user", kind="question")
        return verdict

    async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
        await self._policy.save_rules(request, rules)
