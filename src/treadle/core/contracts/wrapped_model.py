"""The base class of wrappers around a model, and a helper that closes streams.

A wrapper overrides only what it changes. This is not a contract: a wrapper is a Model (model.py).
Used by the wrappers in models/, context/, testing/ and apps/assembly/.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import cast

from treadle.core.contracts.model import Model, ModelCard, ModelEvent, ModelRequest


class WrappedModel:
    """Forwards everything to the wrapped model. A wrapper overrides what it changes."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def card(self) -> ModelCard:
        return self._model.card

    @property
    def fallback(self) -> Model | None:
        return self._model.fallback

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        return self._model.stream(request)

    async def aclose(self) -> None:
        await self._model.aclose()


def open_stream(
    model: Model, request: ModelRequest
) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
    """The stream of the model, closed at the end, also when the consumer stops early.

    The contract promises only an iterator; every stream that holds a connection has `aclose`.
    """
    stream = model.stream(request)
    if not hasattr(stream, "aclose"):
        return nullcontext(stream)
    return aclosing(cast("AsyncGenerator[ModelEvent, None]", stream))
