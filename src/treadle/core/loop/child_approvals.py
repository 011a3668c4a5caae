"""Approval requests of child agents, which a host answers through the parent's driver.

A child waits here inside its tool call. `Driver.next()` returns each request once, and the round of
the call continues meanwhile. Used by driver.py; children ask through `ToolContext.ask_host`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import msgspec

from treadle.core.loop.background import wait_cancelled
from treadle.core.steps import ApprovalCallbacks, ApprovalRequest, PendingApproval
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.entries import DecidedBy
from treadle.core.transcript.items import ToolResultItem


class OpenRound(msgspec.Struct, frozen=True):
    """A round that continues while the host decides on a call of a child agent."""

    work: asyncio.Task[tuple[ToolResultItem, ...]]

    async def stop(self) -> None:
        """Wait until the round has ended; one that was cancelled before gets its time to end."""
        if not self.work.cancelling():
            self.work.cancel()
        await wait_cancelled([self.work])
        if self.work.done() and not self.work.cancelled():
            self.work.exception()  # retrieved, or asyncio would log it


class ChildApprovals:
    def __init__(self) -> None:
        self._waiting: list[_WaitingRequest] = []
        self._arrival: asyncio.Future[None] | None = None

    async def ask(self, call_id: str, request: ApprovalRequest) -> None:
        """Wait until the host has decided on every call of the request, which a child makes. The
        child runs in the call of this id."""
        waiting = _WaitingRequest(call_id, request)
        self._waiting.append(waiting)
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
        try:
            await waiting.resolved
        finally:
            self._forget(waiting)

    def restore(self, call_id: str, request: ApprovalRequest) -> None:
        """The child in this call, which an earlier process ran, waits for these. It asks again when
        it continues, if there is no decision."""
        self._waiting.append(_WaitingRequest(call_id, request, is_restored=True))

    def forget_restored(self) -> None:
        self._waiting = [one for one in self._waiting if not one.is_restored]

    def withdraw(self, call_ids: Collection[str]) -> None:
        """The children in these calls are being stopped: a decision comes too late."""
        for waiting in [one for one in self._waiting if one.call_id in call_ids]:
            waiting.is_withdrawn = True
            self._forget(waiting)

    def _forget(self, waiting: _WaitingRequest) -> None:
        if waiting in self._waiting:
            self._waiting.remove(waiting)

    def take_new(self) -> ApprovalRequest | None:
        """A request that the host has not got yet."""
        for waiting in self._waiting:
            if waiting.is_shown or waiting.is_restored:
                continue
            if waiting.request.unresolved:
                waiting.is_shown = True
                return waiting.request
        return None

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        requests = [waiting.request for waiting in self._waiting]
        return tuple(
            approval
            for request in requests
            for approval in request.pending
            if approval.call.id in request.unresolved
        )

    @property
    def shown_ids(self) -> tuple[str, ...]:
        """The calls that the host knows of and has not decided on."""
        if not self._waiting:
            return ()
        shown = [waiting.request.unresolved for waiting in self._waiting if waiting.is_shown]
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
            for waiting in self._waiting
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
        if not self._callbacks.pending_ids() and not self.resolved.done():
            self.resolved.set_result(None)
        return was_waiting
