"""The formats, for tests that hold for each of them."""

from __future__ import annotations

from treadle.models.anthropic import Anthropic
from treadle.models.gemini import Gemini
from treadle.models.openai_chat import OpenAIChat
from treadle.models.openai_responses import OpenAIResponses
from treadle.models.provider_base.http_model import HTTPModel

WIRES = ("messages", "chat", "responses", "gemini")


def connect(wire: str, url: str) -> HTTPModel:
    """A model of this format at a loopback server."""
    if wire == "messages":
        return Anthropic("claude-sonnet-4-5", base_url=url, api_key="k")
    if wire == "gemini":
        return Gemini("gemini-3.8-flash", base_url=url, api_key="k")
    kind = OpenAIChat if wire == "chat" else OpenAIResponses
    return kind("gpt-5", base_url=f"{url}/v1", api_key="k")
