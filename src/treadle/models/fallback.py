"""Models in order: the first is used, the others are its fallbacks.

It decides nothing: the loop (core/loop/model_call.py) uses `fallback` when a model fails, and
tells the user.
"""

from __future__ import annotations

from treadle.core.contracts.model import Model
from treadle.core.contracts.wrapped import WrappedModel
from treadle.core.errors import ConfigError


class Fallback(WrappedModel):
    """The first model, with the others as fallbacks. A string is the name of a model.

    A fallback of the first model's own comes before the others.
    """

    def __init__(self, first: Model | str, *others: Model | str) -> None:
        models = [model for entry in (first, *others) for model in _resolve_models(entry)]
        super().__init__(models[0])
        self._others = tuple(models[1:])

    @property
    def first(self) -> Model:
        return self._model

    @property
    def fallback(self) -> Model | None:
        own = self._model.fallback
        models = (own, *self._others) if own is not None else self._others
        if not models:
            return None
        return Fallback(*models) if len(models) > 1 else models[0]

    async def aclose(self) -> None:
        for model in (self._model, *self._others):
            await model.aclose()


def _resolve_models(model: Model | str) -> list[Model]:
    if not isinstance(model, str):
        if not hasattr(model, "stream"):
            expected = 'one name or model after the other: Fallback("sonnet", "openai/gpt-5")'
            raise ConfigError(f"Fallback got {model!r:.80}; expected {expected}")
        return [model]
    from treadle.models.registry.create import create_models

    return create_models(model)
