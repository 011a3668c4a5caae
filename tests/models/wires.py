"""The formats, for tests that hold for each of them."""

from __future__ import annotations

from treadle.models.anthropic import Anthropic
from treadle.models.bedrock_converse import BedrockConverse
from treadle.models.cloud.aws import AWSAccess
from treadle.models.cloud.transport import CloudTransport
from treadle.models.gemini import Gemini
from treadle.models.openai_chat import OpenAIChat
from treadle.models.openai_responses import OpenAIResponses
from treadle.models.provider_base.http_model import HTTPModel

WIRES = ("messages", "chat", "responses", "gemini", "converse")
AWS_KEYS = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret"}


def connect(wire: str, url: str) -> HTTPModel:
    """A model of this format at a loopback server."""
    if wire == "messages":
        return Anthropic("claude-sonnet-4-5", base_url=url, api_key="k")
    if wire == "gemini":
        return Gemini("gemini-3.8-flash", base_url=url, api_key="k")
    if wire == "converse":
        client = CloudTransport(url, AWSAccess(AWS_KEYS, "us-east-1"))
        return BedrockConverse("amazon.nova-pro-v1:0", client=client)
    kind = OpenAIChat if wire == "chat" else OpenAIResponses
    return kind("gpt-5", base_url=f"{url}/v1", api_key="k")
