"""An order of models: the first is asked, the others stand in when it cannot answer.

It decides nothing: the loop walks `fallback` by the rules of recovery and tells the person; this
class only lines the models up. Above: core/loop/model_call.py. Below: any models, and making.
"""

from __future__ import annotations

from treadle.core.contracts.model import Model
from treadle.core.contracts.wrapped import WrappedModel


class Fallback(WrappedModel):
    """The first model, with all others behind it. A string names a model.

    What a model has as a fallback of its own comes before the next in line.
    """

    def __init__(self, first: Model | str, *others: Model | str) -> None:
        line = [model for given in (first, *others) for model in _resolve_models(given)]
        super().__init__(line[0])
        self._others = tuple(line[1:])

    @property
    def fallback(self) -> Model | None:
        own = self._model.fallback
        line = (own, *self._others) if own is not None else self._others
        if not line:
            return None
        return Fallback(*line) if len(line) > 1 else line[0]

    async def aclose(self) -> None:
        for model in (self._model, *self._others):
            await model.aclose()


def _resolve_models(model: Model | str) -> list[Model]:
    if not isinstance(model, str):
        return [model]
    from treadle.models.registry.create import create_models

    return create_models(model)
