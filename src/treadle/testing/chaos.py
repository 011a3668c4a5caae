"""A model that fails as providers do, on a schedule from a seed.

It wraps another model and breaks some of its streams: refused before the first piece, cut in
the middle, ended without a reply. The same seed breaks the same streams.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence

from treadle.core.contracts.model import Model, ModelEvent, ModelRequest, Reply
from treadle.core.contracts.wrapped import WrappedModel
from treadle.core.errors import ModelError, Overloaded, RateLimited, StreamBroken, Unreachable

REFUSALS: Sequence[type[ModelError]] = (RateLimited, Overloaded, Unreachable)


class ChaosModel(WrappedModel):
    """`rate` of the streams fail, never more than `in_a_row` one after the other."""

    def __init__(
        self, model: Model, *, seed: int, rate: float = 0.3, max_consecutive: int = 2
    ) -> None:
        super().__init__(model)
        self._random = random.Random(seed)
        self._rate = rate
        self._max_consecutive = max_consecutive
        self._consecutive_faults = 0
        self.faults: list[str] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        fault = self._next_fault()
        if fault == "refused":
            raise self._random.choice(REFUSALS)("chaos: refused", provider=self.name)
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
        if self._consecutive_faults >= self._max_consecutive or self._random.random() >= self._rate:
            self._consecutive_faults = 0
            return None
        self._consecutive_faults += 1
        fault = self._random.choice(("refused", "cut", "silent"))
        self.faults.append(fault)
        return fault


class TruncatedModel(WrappedModel):
    """A model whose first `times` streams stop after `events` events, then break."""

    def __init__(self, model: Model, *, event_count: int, times: int = 1) -> None:
        super().__init__(model)
        self._event_count = event_count
        self._times = times
        self._buffered: list[ModelEvent] | None = None

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        if self._buffered is None:
            self._buffered = [event async for event in self._model.stream(request)]
        kept = self._buffered
        if self._times > 0:
            self._times -= 1
            for event in kept[: self._event_count]:
                if not isinstance(event, Reply):
                    yield event
            raise StreamBroken(f"cut off after {self._event_count} events", provider=self.name)
        self._buffered = None
        for event in kept:
            yield event
