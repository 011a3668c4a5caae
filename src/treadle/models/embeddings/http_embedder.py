"""An Embedder over HTTP: the address, key, client and errors of a model, and another format.

Texts are sent in batches, one after the other; what may pass is sent again (core/retry.py).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence

from treadle.core.errors import ModelError
from treadle.core.retry import Retry, RetryAfter, choose_recovery
from treadle.core.transcript.usage import NO_USAGE
from treadle.models.catalog import split_name
from treadle.models.embeddings.contract import (
    EmbeddingPurpose,
    Embeddings,
    check_texts,
    normalize,
)
from treadle.models.embeddings.dialects import DecodedVectors, EmbeddingDialect
from treadle.models.provider_base.codec import EncodedRequest, build_usage
from treadle.models.provider_base.error_map import UNREADABLE, has_field, map_stream_error
from treadle.models.provider_base.http_model import HTTPModel, make_not_a_reply_error

BATCH_CHARS = 120_000  # the smallest limit of the services: 120,000 tokens (Voyage)


class HTTPEmbedder:
    """An Embedder. `model` has the account of the provider; it is never asked for a reply."""

    def __init__(
        self, model: HTTPModel, dialect: EmbeddingDialect, dimensions: int | None, retry: Retry
    ) -> None:
        self.name = model.name
        self._model = model
        self._dialect = dialect
        self._dimensions = dimensions
        self._retry = retry

    async def embed(
        self, texts: Sequence[str], *, purpose: EmbeddingPurpose = "document"
    ) -> Embeddings:
        check_texts(texts, purpose)
        vectors: list[list[float]] = []
        usage = NO_USAGE
        model = split_name(self.name)[1]
        for batch in split_batches(texts, self._dialect.max_texts):
            request = self._dialect.encode(model, batch, purpose, self._dimensions)
            reply = self._decode(await self._send(request), len(batch))
            vectors += map(normalize, reply.vectors)
            usage += build_usage(self._model.card, input=reply.tokens, output=0)
        return Embeddings(vectors, usage)

    async def aclose(self) -> None:
        await self._model.aclose()

    async def _send(self, request: EncodedRequest) -> bytes:
        failures: Counter[type[ModelError]] = Counter()
        while True:
            try:
                return await self._model.send_request(request)
            except ModelError as error:
                action = choose_recovery(
                    error,
                    failures,
                    jitter=random.random(),
                    has_fallback=False,
                    retry=self._retry,
                )
                if not isinstance(action, RetryAfter):
                    raise
                failures[type(error)] += 1
            await asyncio.sleep(action.delay)

    def _decode(self, body: bytes, count: int) -> DecodedVectors:
        provider = self._model.codec.provider
        try:
            reply = self._dialect.decode(body)
        except UNREADABLE as error:
            if has_field(body, "error"):
                raise map_stream_error(provider, body) from None
            raise make_not_a_reply_error(provider) from error
        if len(reply.vectors) != count:
            raise make_not_a_reply_error(provider)
        return reply


def split_batches(texts: Sequence[str], max_texts: int) -> Iterator[Sequence[str]]:
    """The texts in order, as many in a batch as the service accepts."""
    batch: list[str] = []
    chars = 0
    for text in texts:
        if batch and (len(batch) == max_texts or chars + len(text) > BATCH_CHARS):
            yield batch
            batch, chars = [], 0
        batch.append(text)
        chars += len(text)
    if batch:
        yield batch
