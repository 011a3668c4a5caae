"""A provider on loopback for tests: scripted replies, faults by name, strict request checks.

    async with ProviderServer([FakeReply("Hello"), FakeReply(calls=(FakeCall("add", {"a": 1}),))],
                              faults=[ProviderFault("overloaded", times=3)]) as server:
        model = Anthropic("any", base_url=server.url, api_key="k")    # or server.url + "/v1"
        ...
        assert server.violations == []

It speaks Anthropic Messages, OpenAI chat completions and OpenAI Responses, Gemini, Converse, and
embeddings, whose vectors count the words of the texts. It runs alone as `python -m
treadle.testing.provider`. It imports nothing of the models it tests.
"""

from .answers import ProviderFault
from .dialects.request_checks import RequestViolation, ServerLimits
from .faults import BAD_ARGUMENTS, FAULTS, make_retry_after
from .http import ReceivedRequest
from .script import (
    FakeCall,
    FakePart,
    FakeRedactedThinking,
    FakeReply,
    FakeText,
    FakeThinking,
    FakeUsage,
    ReplyScript,
)
from .server import ProviderServer, unused_url

__all__ = [
    "ProviderServer",
    "FakeReply",
    "FakeCall",
    "FakeText",
    "FakeThinking",
    "FakeRedactedThinking",
    "FakePart",
    "FakeUsage",
    "ReplyScript",
    "ProviderFault",
    "FAULTS",
    "BAD_ARGUMENTS",
    "make_retry_after",
    "ServerLimits",
    "RequestViolation",
    "ReceivedRequest",
    "unused_url",
]
