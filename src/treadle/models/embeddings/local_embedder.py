"""`LocalEmbedder`: vectors by a model on this machine, through the embedded engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from treadle.core.transcript.usage import Usage
from treadle.models.embedded.model import select_weights
from treadle.models.embedded.server import LlamaServer, Pooling
from treadle.models.embeddings.contract import (
    EmbeddingPurpose,
    Embeddings,
    check_texts,
    normalize,
)

WINDOW = 2_048


class LocalEmbedder:
    """An Embedder. `path` is a GGUF file, best of an embedding model; else the weights of the
    embedded model of that name are used, whose vectors are coarse."""

    def __init__(
        self, name: str | None = None, *, path: str | Path | None = None, threads: int | None = None
    ) -> None:
        weights, file = select_weights(name, path)
        self.name = f"embedded/{weights.name}"
        # An embedding model says itself how the vectors of its tokens become one.
        pooling: Pooling = "mean" if path is None else "model"
        self.server = LlamaServer(
            file, window=WINDOW, threads=threads, batch=WINDOW, pooling=pooling
        )

    async def embed(
        self, texts: Sequence[str], *, purpose: EmbeddingPurpose = "document"
    ) -> Embeddings:
        check_texts(texts, purpose)
        if not texts:
            return Embeddings([], Usage())
        vectors, tokens = await self.server.embed(texts)
        return Embeddings([*map(normalize, vectors)], Usage(input=tokens, requests=1))

    async def aclose(self) -> None:
        """End the process with the weights."""
        await self.server.aclose()
