"""The contract of an embedder: texts in, vectors and usage out. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, get_args

import msgspec

from treadle.core.argument_checks import TEXT, check, list_of, one_of
from treadle.core.transcript.usage import Usage

# A text that is searched, or a text to search with: some models make different vectors of them.
EmbeddingPurpose = Literal["document", "query"]


class Embeddings(msgspec.Struct, frozen=True):
    """One vector for each text, in their order; each has the length 1, so that the sum of the
    products of two vectors is their similarity."""

    vectors: list[list[float]]
    usage: Usage


class Embedder(Protocol):
    """Makes vectors of texts.

    Vectors of two embedders cannot be compared. It retries what may pass, and raises the errors of
    the models: BadRequest if a text is too long or empty, AccessDenied without a key.
    """

    @property
    def name(self) -> str: ...

    async def embed(
        self, texts: Sequence[str], *, purpose: EmbeddingPurpose = "document"
    ) -> Embeddings: ...

    async def aclose(self) -> None: ...


def check_texts(texts: Sequence[str], purpose: EmbeddingPurpose) -> None:
    """A single text in place of a list is a frequent mistake."""
    check("the texts to embed", texts, list_of(TEXT, "texts"))
    check("purpose", purpose, one_of(*get_args(EmbeddingPurpose)))


def normalize(vector: Sequence[float]) -> list[float]:
    """The vector with the length 1; zeros stay zeros."""
    length = sum(value * value for value in vector) ** 0.5 or 1.0
    return [value / length for value in vector]
