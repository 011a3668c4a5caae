"""Who thinks: every model that can be asked, under one contract.

    Anthropic · OpenAIResponses · OpenAIChat    providers over HTTP
    Embedded                                    a model on this machine, without any key
    Scripted · Recorded · Fallback              a script, a recording, an order of models

The names load when they are used: importing this package costs nothing. A model is also named
by a string: `treadle.models.names.model("anthropic/claude-sonnet-4-5")`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.models.anthropic import Anthropic
    from treadle.models.embedded import Embedded
    from treadle.models.fallback import Fallback
    from treadle.models.names import model
    from treadle.models.openai_chat import OpenAIChat
    from treadle.models.openai_responses import OpenAIResponses
    from treadle.models.recorded import Recorded
    from treadle.models.scripted import Pause, Say, Scripted

_EXPORTS = {
    "Anthropic": "anthropic",
    "Embedded": "embedded",
    "Fallback": "fallback",
    "OpenAIChat": "openai_chat",
    "OpenAIResponses": "openai_responses",
    "Pause": "scripted",
    "Recorded": "recorded",
    "Say": "scripted",
    "Scripted": "scripted",
    "model": "names",
}

__all__ = [
    "Anthropic",
    "Embedded",
    "Fallback",
    "OpenAIChat",
    "OpenAIResponses",
    "Pause",
    "Recorded",
    "Say",
    "Scripted",
    "model",
]


def __getattr__(name: str) -> object:
    home = _EXPORTS.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
