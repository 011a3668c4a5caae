"""What wrappers of a model share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Self

from treadle.core.contracts.model import Model, ModelEvent, ModelRequest, ModelTextDelta, Reply
from treadle.core.contracts.wrapped import WrappedModel, open_stream
from treadle.core.transcript import AssistantItem, Text, Transcript, to_user_item
from treadle.models import Fallback, Scripted

REQUEST = ModelRequest(Transcript([to_user_item("hello")]))


class Hearing(WrappedModel):
    """A model that tells when it is closed, and when its stream is."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.closed: list[str] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        try:
            yield ModelTextDelta("one")
            yield ModelTextDelta("two")
        finally:
            self.closed.append("stream")

    async def aclose(self) -> None:
        self.closed.append("model")


async def test_a_wrapper_that_changes_nothing_is_the_wrapped_model() -> None:
    inner = Hearing(Fallback(Scripted(["hello"], name="first"), Scripted([], name="second")))
    wrapper = WrappedModel(inner)
    assert wrapper.name == inner.name == "first"
    assert wrapper.card == inner.card
    assert wrapper.fallback is not None
    assert wrapper.fallback.name == "second"
    said = [event async for event in wrapper.stream(REQUEST)]
    assert said == [ModelTextDelta("one"), ModelTextDelta("two")]
    await wrapper.aclose()
    assert inner.closed == ["stream", "model"]


async def test_who_leaves_a_stream_early_leaves_it_closed() -> None:
    model = Hearing(Scripted([]))
    async with open_stream(model, REQUEST) as events:
        async for _ in events:
            break
        assert model.closed == []
    assert model.closed == ["stream"]


async def test_a_stream_that_cannot_be_closed_is_read_all_the_same() -> None:
    reply = Reply(AssistantItem((Text("hello"),)))

    class Bare:
        left = 1

        def __aiter__(self) -> Self:
            return self

        async def __anext__(self) -> ModelEvent:
            self.left -= 1
            if self.left < 0:
                raise StopAsyncIteration
            return reply

    class Plain(WrappedModel):
        def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            return Bare()

    async with open_stream(Plain(Scripted([])), REQUEST) as events:
        assert [event async for event in events] == [reply]
