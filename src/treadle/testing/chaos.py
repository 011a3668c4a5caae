"""A model that fails as providers do, by a random sequence from a seed.

It wraps another model and breaks some of its streams: refused before the first event, cut in the
middle, or ended without a reply. The same seed breaks the same streams.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from typing import Literal

from treadle.core.contracts.model import Model, ModelEvent, ModelRequest
from treadle.core.contracts.wrapped import WrappedModel
from treadle.core.errors import ModelError, Overloaded, RateLimited, StreamBroken, Unreachable

StreamFault = Literal["refused", "cut", "silent"]
STREAM_FAULTS: tuple[StreamFault, ...] = ("refused", "cut", "silent")
REFUSALS: Sequence[type[ModelError]] = (RateLimited, Overloaded, Unreachable)


class ChaosModel(WrappedModel):
    """A share of `rate` of the streams fail, at most `max_consecutive` in a row.

    Each request reaches the wrapped model once: the answer of a cut stream is kept for the next
    attempt, so that a script is not used up by faults. `faults` lists the faults so far.
    """

    def __init__(
        self, model: Model, *, seed: int, rate: float = 0.3, max_consecutive: int = 2
    ) -> None:
        super().__init__(model)
        self._random = random.Random(seed)
        self._rate = rate
        self._max_consecutive = max_consecutive
        self._consecutive = 0
        self._kept_answer: tuple[ModelRequest, list[ModelEvent]] | None = None
        self.faults: list[StreamFault] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        fault = self._next_fault()
        if fault == "silent":
            return
        if fault == "refused":
            raise self._random.choice(REFUSALS)("chaos: refused", provider=self.name)
        if fault == "cut":
            answer = await self._take_answer(request)
            self._kept_answer = (request, answer)
            for event in answer[: self._random.randrange(len(answer))]:  # never the Reply
                yield event
            raise StreamBroken("chaos: cut off", provider=self.name)
        for event in await self._take_answer(request):
            yield event

    async def _take_answer(self, request: ModelRequest) -> list[ModelEvent]:
        kept, self._kept_answer = self._kept_answer, None
        if kept is not None and kept[0] == request:
            return kept[1]
        return [event async for event in self._model.stream(request)]

    def _next_fault(self) -> StreamFault | None:
        if self._consecutive >= self._max_consecutive or self._random.random() >= self._rate:
            self._consecutive = 0
            return None
        self._consecutive += 1
        self.faults.append(self._random.choice(STREAM_FAULTS))
        return self.faults[-1]
