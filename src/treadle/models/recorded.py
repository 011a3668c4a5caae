"""A model whose exchanges are written to a file, and played back from it without any network.

    Recorded(model, "talk.jsonl")                   asks the model, writes down what was said
    Recorded(None, "talk.jsonl", mode="replay")     answers from the file, asks nobody

A request is matched by what the model is shown: system text, tools, options, items; not by ids
of sessions or attempts. A request that was never recorded is an error that shows the first
difference. What looks like a secret is removed before anything is written (redaction.py). The
form of the file is tape.py's. Above: tests, examples, bug reports. Below: any model.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

from treadle.core.contracts.model import Model, ModelCard, ModelEvent, ModelRequest, Reply
from treadle.core.contracts.wrapping import streaming
from treadle.core.errors import ModelError
from treadle.models.tape import Exchange, Tape, Voice

Mode = Literal["record", "replay"]


class Recorded:
    """A model on tape. In replay the model may be None: the file knows its name and card."""

    def __init__(self, model: Model | None, path: str | Path, mode: Mode = "record") -> None:
        if mode == "replay":
            self._tape = Tape.read(Path(path))
            voices = self._tape.voices if model is None else _voices(model)
        elif mode == "record":
            if model is None:
                raise ValueError("to record, a model is needed: Recorded(model, path)")
            voices = _voices(model)
            self._tape = Tape.write(Path(path), voices)
        else:
            raise ValueError(f"mode is 'record' or 'replay', not {mode!r}")
        self._model = model if mode == "record" else None
        self._voices = voices

    @property
    def name(self) -> str:
        return self._voices[0].name

    @property
    def card(self) -> ModelCard:
        return self._voices[0].card

    @property
    def fallback(self) -> Model | None:
        """The next voice, on the same tape."""
        if len(self._voices) < 2:
            return None
        other = Recorded.__new__(Recorded)
        other._tape = self._tape
        other._voices = self._voices[1:]
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
            async with streaming(model, request) as stream:
                async for event in stream:
                    events.append(event)
                    if isinstance(event, Reply):
                        reply = event
                        break
                    yield event
        except ModelError as error:
            self._tape.append(self.name, request, Exchange(events, error))
            raise
        # Written before the reply is told: who has heard it need not come back.
        self._tape.append(self.name, request, Exchange(events))
        if reply is not None:
            yield reply

    async def _replay(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        exchange = self._tape.find(self.name, request)
        for event in exchange.events:
            yield event
        if exchange.error is not None:
            raise exchange.error


def _voices(model: Model) -> tuple[Voice, ...]:
    voices: list[Voice] = []
    one: Model | None = model
    while one is not None:
        voices.append(Voice(one.name, one.card))
        one = one.fallback
    return tuple(voices)
