"""One model call: ask, stream, try again, and give one whole reply.

A failed attempt leaves nothing behind but an event: what it streamed is void, one paid answer
is one assistant item. Where the next attempt may cost other than what was reserved, the driver has
to ask anew. Below stands the Model contract; what a failure means is recovery.py's table.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Literal

import msgspec

from treadle.core.contracts.model import (
    Announced,
    CallBegun,
    CallPiece,
    CallReady,
    Model,
    ModelRequest,
    PartQuarantined,
    Reply,
    TextPiece,
    ThinkingPiece,
    UsageSeen,
)
from treadle.core.errors import ModelError, StreamBroken
from treadle.core.events import (
    ModelChanged,
    Notified,
    ReplyDiscarded,
    RequestStarted,
    RetryScheduled,
    TextDelta,
    ThinkingDelta,
    ToolCallBegan,
    ToolCallDelta,
    ToolCallRequested,
)
from treadle.core.loop.clock import Clock
from treadle.core.loop.recovery import NextModel, Retry, verdict
from treadle.core.loop.telling import Teller
from treadle.core.transcript.content import Text, ToolCall
from treadle.core.transcript.integrity import with_unique_ids
from treadle.core.transcript.items import AssistantItem
from treadle.core.transcript.usage import NOTHING, Usage


class Again(msgspec.Struct, frozen=True):
    """No reply, but another attempt is worth it, once the gates have seen what it may cost: the
    last one was paid for, or a fallback has other prices and another window."""

    why: Literal["retry", "fallback"]


class Asking:
    """Asks the model of the moment; a fallback that took over stays for later calls."""

    def __init__(
        self,
        model: Model,
        teller: Teller,
        clock: Clock,
        *,
        on_call: Callable[[ToolCall], None],
        on_quarantine: Callable[[PartQuarantined], None],
        is_stopped: Callable[[], bool],
    ) -> None:
        self.model = model
        self.asked = model.name  # who used what was lost
        self._teller = teller
        self._clock = clock
        self._on_call = on_call
        self._on_quarantine = on_quarantine
        self._is_stopped = is_stopped
        self._said: list[str] = []  # the text of the running attempt
        self._spent = NOTHING  # what the running attempt is known to have used
        self._lost = NOTHING  # what attempts used that gave no reply
        self._refused: frozenset[tuple[int, int]] = frozenset()
        self._key = ""  # of the reply that is wanted
        self._attempts = 0
        self._failures: Counter[type[ModelError]] = Counter()

    async def ask(self, request: ModelRequest) -> AssistantItem | Again:
        """The whole reply, its call ids unique in this transcript; or a ModelError."""
        if request.key != self._key:
            self._key, self._attempts = request.key, 0
            self._failures.clear()
        self._refused = request.quarantine
        while True:
            self._attempts += 1
            self.asked = self.model.name
            self._teller.tell(RequestStarted, self.asked, self._attempts)
            if self._refused != request.quarantine:
                # What an earlier attempt found out need not be found out again.
                request = msgspec.structs.replace(request, quarantine=self._refused)
            try:
                return await self._attempt(request)
            except ModelError as error:
                self._discard()
                again = await self._recover(error)
                self._lost = self.lost()
                if again.why == "fallback" or self._lost is not NOTHING:
                    return again

    async def _recover(self, error: ModelError) -> Again:
        """Wait, or let the fallback take over; what is hopeless surfaces."""
        answer = verdict(
            error,
            self._failures,
            chance=self._clock.chance(),
            has_fallback=self.model.fallback is not None,
        )
        self._failures[type(error)] += 1
        match answer:
            case Retry(delay=delay):
                self._teller.tell(RetryScheduled, self._attempts, delay, str(error))
                await self._clock.sleep(delay)
                return Again("retry")
            case NextModel():
                self._change_model(error)
                self._failures.clear()
                return Again("fallback")
            case _:
                raise error

    def partial(self) -> AssistantItem | None:
        """What the model had said when it was interrupted; no calls."""
        text = "".join(self._said)
        self._said.clear()
        if not text.strip():
            return None
        return AssistantItem((Text(text),), "aborted", self.model.name, self._spent)

    def lost(self) -> Usage:
        """What was used since the last time and came to nothing."""
        used = self._lost if self._spent is NOTHING else self._lost + self._spent
        self._lost = self._spent = NOTHING
        return used

    async def _attempt(self, request: ModelRequest) -> AssistantItem:
        tell, said, ready = self._teller.tell, self._said, _Ready(request)
        said.clear()
        reply: AssistantItem | None = None
        stream = self.model.stream(request)
        try:
            async for event in stream:
                kind = type(event)
                if kind is TextPiece:
                    said.append(event.text)  # type: ignore[union-attr]
                    tell(TextDelta, event.text)  # type: ignore[union-attr]
                elif kind is ThinkingPiece:
                    tell(ThinkingDelta, event.text)  # type: ignore[union-attr]
                elif isinstance(event, Reply):
                    reply = event.item
                    break
                else:
                    self._tell_other(event, ready)
                if self._is_stopped():
                    raise asyncio.CancelledError
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        if reply is None:
            raise StreamBroken(
                f"{self.model.name} ended its stream without a reply", provider=self.model.name
            )
        said.clear()
        self._spent = NOTHING  # the reply says it better
        return ready.settle(reply)

    def _tell_other(self, event: object, ready: _Ready) -> None:
        tell = self._teller.tell
        match event:
            case CallBegun():
                tell(ToolCallBegan, event.id, event.name)
            case CallPiece():
                tell(ToolCallDelta, event.id, event.text)
            case CallReady(call=call):
                call = ready.add(call)
                tell(ToolCallRequested, call)
                self._on_call(call)
            case PartQuarantined():
                self._refused |= {(event.position, event.part)}
                self._on_quarantine(event)
            case Announced(text=text):
                tell(Notified, text)
            case UsageSeen(usage=usage):
                self._spent = usage
            case _:
                pass

    def _discard(self) -> None:
        if self._said:
            self._teller.tell(ReplyDiscarded, sum(map(len, self._said)))
            self._said.clear()

    def _change_model(self, error: ModelError) -> None:
        fallback = self.model.fallback
        assert fallback is not None, "recovery chose a fallback that is not there"
        self._teller.tell(ModelChanged, self.model.name, fallback.name, str(error))
        self.model = fallback


class _Ready:
    """The calls announced so far, with the ids they will have in the transcript."""

    def __init__(self, request: ModelRequest) -> None:
        self._knows = request.transcript.knows_call
        self._own: set[str] = set()
        self._renamed: list[tuple[ToolCall, ToolCall]] = []

    def add(self, call: ToolCall) -> ToolCall:
        holder = with_unique_ids(AssistantItem((call,)), self._is_taken)
        unique = holder.calls[0]
        self._own.add(unique.id)
        self._renamed.append((call, unique))
        return unique

    def settle(self, reply: AssistantItem) -> AssistantItem:
        """The reply with the ids that were told; calls never announced get theirs now."""
        if not self._renamed:
            return with_unique_ids(reply, self._is_taken)
        left = list(self._renamed)
        content = []
        changed = False
        for part in reply.content:
            if type(part) is ToolCall:
                told = next((pair for pair in left if pair[0] == part), None)
                if told is not None:
                    left.remove(told)
                fresh = told[1] if told is not None else self.add(part)
                changed = changed or fresh is not part
                part = fresh
            content.append(part)
        return msgspec.structs.replace(reply, content=tuple(content)) if changed else reply

    def _is_taken(self, call_id: str) -> bool:
        return call_id in self._own or self._knows(call_id)
