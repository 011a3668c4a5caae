"""Every model, under one contract (core/contracts/model.py).

    Anthropic · OpenAIResponses · OpenAIChat · Gemini   providers over HTTP
    Embedded                                            a model on this machine, without a key
    Scripted · Recorded · Fallback                      a script, a recording, models in order
    Batched                                             replies by a batch interface: batches/
    embedder(name)                                      vectors of texts: embeddings/

The names load at first use: importing this package costs nothing. `model(name)` creates a model
from a string, such as `model("anthropic/claude-sonnet-5-5")`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.lib.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from treadle.lib.http.timeouts import Timeouts
    from treadle.models.anthropic import Anthropic
    from treadle.models.batches.batch_queue import BatchQueue
    from treadle.models.batches.batched import Batched
    from treadle.models.embedded import Embedded
    from treadle.models.embeddings.contract import Embedder, Embeddings
    from treadle.models.embeddings.create import embedder
    from treadle.models.embeddings.local_embedder import LocalEmbedder
    from treadle.models.fallback import Fallback
    from treadle.models.gemini import Gemini
    from treadle.models.openai_chat import OpenAIChat
    from treadle.models.openai_responses import OpenAIResponses
    from treadle.models.recorded import Recorded
    from treadle.models.registry import model
    from treadle.models.scripted import Pause, Say, Scripted


__all__ = [
    "Anthropic",
    "BatchQueue",
    "Batched",
    "Embedded",
    "Embedder",
    "Embeddings",
    "Fallback",
    "Gemini",
    "LocalEmbedder",
    "OpenAIChat",
    "OpenAIResponses",
    "Pause",
    "Recorded",
    "Say",
    "Scripted",
    "Timeouts",
    "embedder",
    "model",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Anthropic": "anthropic.model",
        "BatchQueue": "batches.batch_queue",
        "Batched": "batches.batched",
        "Embedded": "embedded.model",
        "Embedder": "embeddings.contract",
        "Embeddings": "embeddings.contract",
        "Fallback": "fallback",
        "Gemini": "gemini.model",
        "LocalEmbedder": "embeddings.local_embedder",
        "OpenAIChat": "openai_chat.model",
        "OpenAIResponses": "openai_responses.model",
        "Pause": "scripted",
        "Recorded": "recorded",
        "Say": "scripted",
        "Scripted": "scripted",
        "Timeouts": "treadle.lib.http.timeouts",
        "embedder": "embeddings.create",
        "model": "registry",
    },
)
