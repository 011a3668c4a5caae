"""Wrapping: new behaviour as a small object of the same shape around the old one.

Here is what every wrapper of a model shares, so that each says only what it changes. It is no
contract of its own: what is wrapped, and what comes out, is a Model. Below: model.py.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import cast

from treadle.core.contracts.model import Model, ModelCard, ModelEvent, ModelRequest


class WrappedModel:
    """The wrapped model in everything. A wrapper overrides what it changes."""

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
    """The model's stream, closed at the end: who leaves early leaves no connection open behind.

    The contract promises no more than an iterator; all that hold a connection can be closed.
    """
    stream = model.stream(request)
    if not hasattr(stream, "aclose"):
        return nullcontext(stream)
    return aclosing(cast("AsyncGenerator[ModelEvent, None]", stream))
