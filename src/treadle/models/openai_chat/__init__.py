"""OpenAI Chat Completions and compatible servers: the model, its encoding and its decoding."""

from treadle.models.openai_chat.model import OpenAIChat

__all__ = ["OpenAIChat"]
