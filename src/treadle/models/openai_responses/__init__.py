"""OpenAI Responses: the model, its encoding and its decoding."""

from treadle.models.openai_responses.model import OpenAIResponses

__all__ = ["OpenAIResponses"]
