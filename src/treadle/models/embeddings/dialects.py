"""How providers take texts and send vectors. Sans-IO; used by http_embedder.py.

OpenAI      POST /embeddings                           most servers with OpenAI's format
Voyage      the same, with the purpose and another name for the dimensions
Gemini      POST /models/NAME:batchEmbedContents
Vertex      POST /models/NAME:predict                  one text a request
Bedrock     POST /model/NAME/invoke                    Titan: one text a request; Cohere: many
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from treadle.models.embeddings.contract import EmbeddingPurpose
from treadle.models.provider_base.codec import EncodedRequest
from treadle.models.provider_base.encoding import encode_json
from treadle.models.provider_base.openai_common import build_path


class DecodedVectors(msgspec.Struct, frozen=True):
    """`tokens`: None if the provider does not say how many it read."""

    vectors: list[list[float]]
    tokens: int | None


class EmbeddingDialect(Protocol):
    """One format. `decode` raises msgspec.DecodeError for another body. `max_texts` are those of a
    request."""

    max_texts: int

    def encode(
        self, model: str, texts: Sequence[str], purpose: EmbeddingPurpose, dimensions: int | None
    ) -> EncodedRequest: ...

    def decode(self, body: bytes) -> DecodedVectors: ...


MAX_TEXTS = 96  # the smallest limit of the services that take many: Cohere's


class _Vector(msgspec.Struct):
    embedding: list[float]
    index: int = 0


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    total_tokens: int | None = None


class _VectorList(msgspec.Struct):
    data: list[_Vector]
    usage: _Usage | None = None


class OpenAIEmbeddings:
    """`url` is the address of the server: some of Azure need a version in the path."""

    dimensions_field = "dimensions"
    max_texts = MAX_TEXTS

    def __init__(self, url: str = "") -> None:
        self._path = build_path(url, "/embeddings")

    def encode(
        self, model: str, texts: Sequence[str], purpose: EmbeddingPurpose, dimensions: int | None
    ) -> EncodedRequest:
        body: dict[str, Any] = {"model": model, "input": list(texts), **self._options(purpose)}
        if dimensions is not None:
            body[self.dimensions_field] = dimensions
        return _build_request(self._path, body)

    def _options(self, purpose: EmbeddingPurpose) -> dict[str, str]:
        return {"encoding_format": "float"}

    def decode(self, body: bytes) -> DecodedVectors:
        reply = msgspec.json.decode(body, type=_VectorList)
        usage = reply.usage or _Usage()
        ordered = sorted(reply.data, key=lambda vector: vector.index)
        tokens = usage.prompt_tokens if usage.prompt_tokens is not None else usage.total_tokens
        return DecodedVectors([vector.embedding for vector in ordered], tokens)


class VoyageEmbeddings(OpenAIEmbeddings):
    dimensions_field = "output_dimension"

    def _options(self, purpose: EmbeddingPurpose) -> dict[str, str]:
        return {"input_type": purpose}


class _GeminiVector(msgspec.Struct):
    values: list[float]


class _GeminiUsage(msgspec.Struct, rename="camel"):
    prompt_token_count: int | None = None


class _GeminiVectors(msgspec.Struct, rename="camel"):
    embeddings: list[_GeminiVector]
    usage_metadata: _GeminiUsage | None = None


class GeminiEmbeddings:
    max_texts = MAX_TEXTS

    def encode(
        self, model: str, texts: Sequence[str], purpose: EmbeddingPurpose, dimensions: int | None
    ) -> EncodedRequest:
        name = model.removeprefix("models/")
        common: dict[str, Any] = {
            "model": f"models/{name}",
            "taskType": f"RETRIEVAL_{purpose.upper()}",
        }
        if dimensions is not None:
            common["outputDimensionality"] = dimensions
        requests = [{**common, "content": {"parts": [{"text": text}]}} for text in texts]
        path = f"/models/{quote(name, safe='')}:batchEmbedContents"
        return _build_request(path, {"requests": requests})

    def decode(self, body: bytes) -> DecodedVectors:
        reply = msgspec.json.decode(body, type=_GeminiVectors)
        tokens = reply.usage_metadata.prompt_token_count if reply.usage_metadata else None
        return DecodedVectors([vector.values for vector in reply.embeddings], tokens)


class _VertexStatistics(msgspec.Struct):
    token_count: float | None = None


class _VertexEmbedding(msgspec.Struct):
    values: list[float]
    statistics: _VertexStatistics | None = None


class _VertexPrediction(msgspec.Struct):
    embeddings: _VertexEmbedding


class _VertexPredictions(msgspec.Struct):
    predictions: list[_VertexPrediction]


class VertexEmbeddings:
    max_texts = 1  # gemini-embedding-001 takes no more

    def encode(
        self, model: str, texts: Sequence[str], purpose: EmbeddingPurpose, dimensions: int | None
    ) -> EncodedRequest:
        task = f"RETRIEVAL_{purpose.upper()}"
        body: dict[str, Any] = {"instances": [{"content": t, "task_type": task} for t in texts]}
        if dimensions is not None:
            body["parameters"] = {"outputDimensionality": dimensions}
        return _build_request(f"/models/{quote(model, safe='@')}:predict", body)

    def decode(self, body: bytes) -> DecodedVectors:
        reply = msgspec.json.decode(body, type=_VertexPredictions)
        made = [prediction.embeddings for prediction in reply.predictions]
        counts = [one.statistics.token_count for one in made if one.statistics]
        tokens = sum(int(count) for count in counts if count is not None) if counts else None
        return DecodedVectors([one.values for one in made], tokens)


class _TitanVector(msgspec.Struct):
    embedding: list[float]
    token_count: int | None = msgspec.field(default=None, name="inputTextTokenCount")


class TitanEmbeddings:
    max_texts = 1

    def encode(
        self, model: str, texts: Sequence[str], purpose: EmbeddingPurpose, dimensions: int | None
    ) -> EncodedRequest:
        size = {} if dimensions is None else {"dimensions": dimensions}
        return _build_request(_invoke_path(model), {"inputText": texts[0], **size})

    def decode(self, body: bytes) -> DecodedVectors:
        reply = msgspec.json.decode(body, type=_TitanVector)
        return DecodedVectors([reply.embedding], reply.token_count)


class _CohereVectors(msgspec.Struct):
    embeddings: dict[str, list[list[float]]]


class CohereEmbeddings:
    """Of Bedrock; Cohere itself has OpenAI's format."""

    max_texts = MAX_TEXTS

    def encode(
        self, model: str, texts: Sequence[str], purpose: EmbeddingPurpose, dimensions: int | None
    ) -> EncodedRequest:
        body: dict[str, Any] = {"texts": list(texts), "input_type": f"search_{purpose}"}
        body["embedding_types"] = ["float"]
        if dimensions is not None:
            body["output_dimension"] = dimensions
        return _build_request(_invoke_path(model), body)

    def decode(self, body: bytes) -> DecodedVectors:
        reply = msgspec.json.decode(body, type=_CohereVectors)
        return DecodedVectors(reply.embeddings["float"], None)


def _invoke_path(model: str) -> str:
    return f"/model/{quote(model, safe='')}/invoke"


def _build_request(path: str, body: dict[str, Any]) -> EncodedRequest:
    return EncodedRequest(path, {"content-type": "application/json"}, [encode_json(body)])
