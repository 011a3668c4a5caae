"""The calls that wait for an approval: those of the agent, and those of its child agents.

Decisions are log entries, so that a restart does not ask again. A decision on a call that no longer
waits changes nothing. Calls that an earlier process left waiting can be decided before the loop
asks about them; no event tells of that, because no turn is running.

A child waits inside its tool call. `Driver.next()` returns each request once, and the round of
the call continues meanwhile. Used by driver.py; children ask through `ToolContext.ask_host`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import msgspec

from treadle.core.argument_checks import FLAG, TEXT, check
from treadle.core.events import ApprovalRequired, ApprovalResolved
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.loop_session import LoopSession
from treadle.core.steps import DECIDER, ApprovalCallbacks, ApprovalRequest, PendingApproval
from treadle.core.transcript.content import Arguments, parse_arguments
from treadle.core.transcript.entries import ApprovalDecision, DecidedBy
from treadle.lib.json.strict_json import to_json_object
from treadle.lib.tasks import mark_done
from treadle.lib.text.text import fix_surrogates


class Approvals:
    """The calls of the agent itself, by their ids."""

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


class ChildApprovals:
    def __init__(self) -> None:
        self.waiting: list[_WaitingRequest] = []  # of children
        self._arrival: asyncio.Future[None] | None = None

    async def ask(self, call_id: str, request: ApprovalRequest) -> None:
        """Wait until the host has decided on every call of the request, which a child makes. The
        child runs in the call of this id."""
        waiting = _WaitingRequest(call_id, request)
        self.waiting.append(waiting)
        if self._arrival is not None:
            mark_done(self._arrival)
        try:
            await waiting.resolved
        finally:
            self._forget(waiting)

    def restore(self, call_id: str, request: ApprovalRequest) -> None:
        """The child in this call, which an earlier process ran, waits for these. It asks again when
        it continues, if there is no decision."""
        self.waiting.append(_WaitingRequest(call_id, request, is_restored=True))

    def forget_restored(self) -> None:
        self.waiting = [one for one in self.waiting if not one.is_restored]

    def withdraw(self, call_ids: Collection[str]) -> None:
        """The children in these calls are being stopped: a decision comes too late."""
        for waiting in [one for one in self.waiting if one.call_id in call_ids]:
            waiting.is_withdrawn = True
            self._forget(waiting)

    def _forget(self, waiting: _WaitingRequest) -> None:
        if waiting in self.waiting:
            self.waiting.remove(waiting)

    def take_new(self) -> ApprovalRequest | None:
        """A request that the host has not got yet."""
        for waiting in self.waiting:
            if waiting.is_shown or waiting.is_restored:
                continue
            if waiting.request.unresolved:
                waiting.is_shown = True
                return waiting.request
        return None

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        requests = [waiting.request for waiting in self.waiting]
        return tuple(
            approval
            for request in requests
            for approval in request.pending
            if approval.call.id in request.unresolved
        )

    @property
    def shown_ids(self) -> tuple[str, ...]:
        """The calls that the host knows of and has not decided on."""
        if not self.waiting:
            return ()
        shown = [waiting.request.unresolved for waiting in self.waiting if waiting.is_shown]
        return tuple(call_id for ids in shown for call_id in ids)

    async def take_new_before(self, work: asyncio.Task[Any]) -> ApprovalRequest | None:
        """The next request; None if the work ends first."""
        while (request := self.take_new()) is None and not work.done():
            self._arrival = asyncio.get_running_loop().create_future()
            try:
                await asyncio.wait([work, self._arrival], return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._arrival = None
        return request

    def find(self, call_id: str, session_id: str = "") -> ApprovalRequest | None:
        """The request that this call waits in. Without a session the call id must be the only one:
        two children may use the same ids."""
        found = [
            waiting.request
            for waiting in self.waiting
            for approval in waiting.request.pending
            if approval.call.id == call_id
            and session_id in ("", approval.session_id)
            and call_id in waiting.request.unresolved
        ]
        return found[0] if len(found) == 1 else None


class _WaitingRequest:
    """A child's request, with callbacks that notice when it is resolved."""

    def __init__(
        self, call_id: str, request: ApprovalRequest, *, is_restored: bool = False
    ) -> None:
        self.call_id = call_id
        self.is_restored = is_restored
        self._callbacks = request.callbacks
        self.resolved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_shown = self.is_withdrawn = False
        self.request = ApprovalRequest(
            request.pending, ApprovalCallbacks(self._approve, self._deny, self._pending_ids)
        )

    def _pending_ids(self) -> tuple[str, ...]:
        return () if self.is_withdrawn else self._callbacks.pending_ids()

    def _approve(self, call_id: str, arguments: Arguments | None, always: bool) -> bool:
        if self.is_withdrawn:
            return False
        return self._check(self._callbacks.approve(call_id, arguments, always))

    def _deny(self, call_id: str, reason: str, decided_by: DecidedBy) -> bool:
        if self.is_withdrawn:
            return False
        return self._check(self._callbacks.deny(call_id, reason, decided_by))

    def _check(self, was_waiting: bool) -> bool:
        if not self._callbacks.pending_ids():
            mark_done(self.resolved)
        return was_waiting
