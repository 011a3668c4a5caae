"""A model whose exchanges are recorded in a file, and replayed from it without any network.

    Recorded(model, "talk.jsonl")                   uses the model and records the exchanges; an
                                                    earlier recording is replaced, no other file
    Recorded(None, "talk.jsonl", mode="replay")     answers from the file

A request is matched by what the model sees: system text, tools, options, items; not by the ids
of sessions or attempts. A request that was not recorded is an error that shows the first
difference. Secrets are removed before writing (secret_redactor.py). cassette.py has the format of
the file. Used by tests, examples and bug reports.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal, get_args

from treadle.core.argument_checks import check, one_of
from treadle.core.contracts.model import Model, ModelCard, ModelEvent, ModelRequest, Reply
from treadle.core.contracts.wrapped import open_stream
from treadle.core.errors import ConfigError, ModelError
from treadle.models.cassette import Cassette, CassetteModel, RecordedExchange

RecordingMode = Literal["record", "replay"]


class Recorded:
    """A recorded model. For a replay it may be None: the file has its name and card."""

    def __init__(
        self, model: Model | None, path: str | Path, mode: RecordingMode = "record"
    ) -> None:
        check("mode", mode, one_of(*get_args(RecordingMode)))
        if mode == "replay":
            self._cassette = Cassette.load(Path(path))
            models = self._cassette.models if model is None else _list_models(model)
        elif model is None:
            raise ConfigError("recording needs a model: Recorded(model, path)")
        else:
            models = _list_models(model)
            self._cassette = Cassette.create(Path(path), models)
        self._model = model if mode == "record" else None
        self._models = models

    @property
    def name(self) -> str:
        return self._models[0].name

    @property
    def card(self) -> ModelCard:
        return self._models[0].card

    @property
    def fallback(self) -> Model | None:
        """The next model, in the same recording."""
        if len(self._models) < 2:
            return None
        other = Recorded.__new__(Recorded)
        other._cassette = self._cassette
        other._models = self._models[1:]
        other._model = self._model.fallback if self._model is not None else None
        return other

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        return self._replay(request) if self._model is None else self._record(self._model, request)

    async def aclose(self) -> None:
        if self._model is not None:
            await self._model.aclose()

    async def _record(self, model: Model, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        events: list[ModelEvent] = []
        reply: Reply | None = None
        try:
            async with open_stream(model, request) as stream:
                async for event in stream:
                    events.append(event)
                    if isinstance(event, Reply):
                        reply = event
                        break
                    yield event
        except ModelError as error:
            self._cassette.append(self.name, request, RecordedExchange(events, error))
            raise
        # Written before the reply is emitted: the consumer may stop there.
        self._cassette.append(self.name, request, RecordedExchange(events))
        if reply is not None:
            yield reply

    async def _replay(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        exchange = self._cassette.take_exchange(self.name, request)
        for event in exchange.events:
            yield event
        if exchange.error is not None:
            raise exchange.error


def _list_models(model: Model) -> tuple[CassetteModel, ...]:
    models: list[CassetteModel] = []
    current: Model | None = model
    while current is not None:
        models.append(CassetteModel(current.name, current.card))
        current = current.fallback
    return tuple(models)
