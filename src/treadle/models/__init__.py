"""Who thinks: every model that can be asked, under one contract.

    Anthropic · OpenAIResponses · OpenAIChat    providers over HTTP
    Embedded                                    a model on this machine, without any key
    Scripted · Recorded · Fallback              a script, a recording, an order of models

The names load when they are used: importing this package costs nothing. A model is also named
by a string: `treadle.models.registry.model("anthropic/claude-sonnet-4-5")`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle._lazy_exports import lazy_exports

if TYPE_CHECKING:
    from treadle.models.anthropic import Anthropic
    from treadle.models.embedded import Embedded
    from treadle.models.fallback import Fallback
    from treadle.models.openai_chat.model import OpenAIChat
    from treadle.models.openai_responses.model import OpenAIResponses
    from treadle.models.recorded import Recorded
    from treadle.models.registry import model
    from treadle.models.scripted import Pause, Say, Scripted


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

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Anthropic": "anthropic.model",
        "Embedded": "embedded.model",
        "Fallback": "fallback",
        "OpenAIChat": "openai_chat.model",
        "OpenAIResponses": "openai_responses.model",
        "Pause": "scripted",
        "Recorded": "recorded",
        "Say": "scripted",
        "Scripted": "scripted",
        "model": "registry",
    },
)
