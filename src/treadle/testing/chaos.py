"""A model that fails as providers do, on a schedule from a seed.

It wraps another model and breaks some of its streams: refused before the first piece, cut in
the middle, ended without a reply. The same seed breaks the same streams.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence

from treadle.core.contracts.model import Model, ModelEvent, ModelRequest, Reply
from treadle.core.contracts.wrapping import WrappedModel
from treadle.core.errors import ModelError, Overloaded, RateLimited, StreamBroken, Unreachable

BEFORE: Sequence[type[ModelError]] = (RateLimited, Overloaded, Unreachable)


class ChaosModel(WrappedModel):
    """`rate` of the streams fail, never more than `in_a_row` one after the other."""

    def __init__(self, model: Model, *, seed: int, rate: float = 0.3, in_a_row: int = 2) -> None:
        super().__init__(model)
        self._chance = random.Random(seed)
        self._rate = rate
        self._most = in_a_row
        self._failed = 0
        self.faults: list[str] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        fault = self._next_fault()
        if fault == "refused":
            raise self._chance.choice(BEFORE)("chaos: refused", provider=self.name)
        # The wrapped model is asked only when its answer will arrive, so that a script keeps
        # its place; a stream that breaks is played from what it would have said.
        if fault is None:
            async for event in self._model.stream(request):
                yield event
            return
        if fault == "silent":
            return
        raise StreamBroken("chaos: cut off", provider=self.name)

    def _next_fault(self) -> str | None:
        if self._failed >= self._most or self._chance.random() >= self._rate:
            self._failed = 0
            return None
        self._failed += 1
        fault = self._chance.choice(("refused", "cut", "silent"))
        self.faults.append(fault)
        return fault


class CutShort(WrappedModel):
    """A model whose first `times` streams stop after `events` events, then break."""

    def __init__(self, model: Model, *, events: int, times: int = 1) -> None:
        super().__init__(model)
        self._events = events
        self._times = times
        self._kept: list[ModelEvent] | None = None

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        if self._kept is None:
            self._kept = [event async for event in self._model.stream(request)]
        kept = self._kept
        if self._times > 0:
            self._times -= 1
            for event in kept[: self._events]:
                if not isinstance(event, Reply):
                    yield event
            raise StreamBroken(f"cut off after {self._events} events", provider=self.name)
        self._kept = None
        for event in kept:
            yield event
