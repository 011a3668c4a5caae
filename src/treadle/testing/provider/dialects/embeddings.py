"""Embeddings in the loopback provider: OpenAI's format, Voyage's, Gemini's, and of the clouds.

A vector counts the words of its text, so that texts with the same words are near each other.
"""

import zlib
from collections.abc import Iterator
from typing import Final

from .bedrock_converse import FakeConverse
from .gemini import FakeGemini
from .openai_chat import FakeOpenAIChat
from .request_checks import (
    JsonObject,
    RequestViolation,
    ServerLimits,
    Violations,
    as_dict,
    as_list,
    check_unknown_keys,
    split_words,
)

DIMENSIONS: Final = 64
_OPENAI_FIELDS: Final = split_words("model input encoding_format dimensions user")
_VOYAGE_FIELDS: Final = split_words(
    "model input input_type truncation output_dimension output_dtype encoding_format"
)
_GEMINI_FIELDS: Final = split_words("model content taskType title outputDimensionality")


def embed_text(text: str, dimensions: int) -> list[float]:
    """How often the words of each group occur in the text."""
    vector = [0.0] * dimensions
    for word in text.lower().split():
        vector[zlib.crc32(word.strip(".,:;?!").encode()) % dimensions] += 1.0
    return vector


class FakeOpenAIEmbeddings(FakeOpenAIChat):
    """A FakeDialect; a request of Voyage is known by its fields."""

    def check_request(self, request: JsonObject, limits: ServerLimits) -> list[RequestViolation]:
        is_voyage = "input_type" in request or "output_dimension" in request
        fields = _VOYAGE_FIELDS if is_voyage else _OPENAI_FIELDS
        texts = as_list(request.get("input"))
        problems = [*check_unknown_keys("", request, fields, limits.extra_keys)]
        return [*problems, *_check_texts("input", texts, 1_000 if is_voyage else 2_048)]

    def render_vectors(self, request: JsonObject) -> dict[str, object]:
        size = request.get("dimensions") or request.get("output_dimension") or DIMENSIONS
        assert isinstance(size, int)
        texts = [str(text) for text in as_list(request.get("input"))]
        data = [
            {"object": "embedding", "index": index, "embedding": embed_text(text, size)}
            for index, text in enumerate(texts)
        ]
        tokens = sum(len(text.split()) for text in texts)
        usage = {"total_tokens": tokens}
        if "input_type" not in request:
            usage["prompt_tokens"] = tokens
        data.reverse()  # the order is that of `index`
        return {"object": "list", "data": data, "model": request.get("model"), "usage": usage}


class FakeGeminiEmbeddings(FakeGemini):
    """A FakeDialect."""

    def check_request(self, request: JsonObject, limits: ServerLimits) -> list[RequestViolation]:
        return list(self._check(request, limits))

    def _check(self, request: JsonObject, limits: ServerLimits) -> Violations:
        yield from check_unknown_keys("", request, split_words("requests"), limits.extra_keys)
        requests = [as_dict(one) for one in as_list(request.get("requests"))]
        for index, one in enumerate(requests):
            path = f"requests[{index}]"
            yield from check_unknown_keys(path, one, _GEMINI_FIELDS, limits.extra_keys)
        yield from _check_texts("requests", [_join_parts(one) for one in requests], 100)

    def render_vectors(self, request: JsonObject) -> dict[str, object]:
        vectors: list[object] = []
        for one in map(as_dict, as_list(request.get("requests"))):
            size = one.get("outputDimensionality") or DIMENSIONS
            assert isinstance(size, int)
            vectors.append({"values": embed_text(_join_parts(one), size)})
        return {"embeddings": vectors}


class FakeVertexEmbeddings(FakeGemini):
    """A FakeDialect: the models of Google in its cloud."""

    def check_request(self, request: JsonObject, limits: ServerLimits) -> list[RequestViolation]:
        fields = split_words("instances parameters")
        problems = [*check_unknown_keys("", request, fields, limits.extra_keys)]
        return [*problems, *_check_texts("instances", self._list_texts(request), 1)]

    def _list_texts(self, request: JsonObject) -> list[object]:
        return [as_dict(one).get("content") for one in as_list(request.get("instances"))]

    def render_vectors(self, request: JsonObject) -> dict[str, object]:
        size = as_dict(request.get("parameters")).get("outputDimensionality") or DIMENSIONS
        assert isinstance(size, int)
        texts = [str(text) for text in self._list_texts(request)]
        made: list[object] = [
            {
                "embeddings": {
                    "values": embed_text(text, size),
                    "statistics": {"token_count": len(text.split()), "truncated": False},
                }
            }
            for text in texts
        ]
        return {"predictions": made}


class FakeBedrockEmbeddings(FakeConverse):
    """A FakeDialect: Titan, and Cohere, which is known by its fields."""

    def check_request(self, request: JsonObject, limits: ServerLimits) -> list[RequestViolation]:
        is_cohere = "texts" in request
        known = "texts input_type embedding_types output_dimension truncate"
        fields = split_words(known if is_cohere else "inputText dimensions normalize")
        problems = [*check_unknown_keys("", request, fields, limits.extra_keys)]
        if is_cohere and request.get("input_type") not in ("search_document", "search_query"):
            problems.append(RequestViolation("input_type", "invalid input_type"))
        texts = as_list(request.get("texts")) if is_cohere else [request.get("inputText")]
        return [*problems, *_check_texts("texts", texts, 96)]

    def render_vectors(self, request: JsonObject) -> dict[str, object]:
        size = request.get("dimensions") or request.get("output_dimension") or DIMENSIONS
        assert isinstance(size, int)
        if "texts" in request:
            texts = [str(text) for text in as_list(request.get("texts"))]
            return {"embeddings": {"float": [embed_text(text, size) for text in texts]}}
        text = str(request.get("inputText"))
        return {"embedding": embed_text(text, size), "inputTextTokenCount": len(text.split())}


FakeEmbeddings = (
    FakeOpenAIEmbeddings | FakeGeminiEmbeddings | FakeVertexEmbeddings | FakeBedrockEmbeddings
)


def _join_parts(request: JsonObject) -> str:
    parts = as_list(as_dict(request.get("content")).get("parts"))
    return " ".join(str(as_dict(part).get("text") or "") for part in parts)


def _check_texts(
    path: str, texts: list[object] | list[str], most: int
) -> Iterator[RequestViolation]:
    if not 1 <= len(texts) <= most:
        yield RequestViolation(path, f"there must be 1 to {most} texts")
    for index, text in enumerate(texts):
        if not isinstance(text, str) or not text:
            yield RequestViolation(f"{path}[{index}]", "the text must not be empty")
