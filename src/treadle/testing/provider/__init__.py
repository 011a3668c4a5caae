"""A provider on loopback for tests: scripted replies, every fault by name, strict judgement.

    async with ProviderServer([Reply("Hello"), Reply(calls=(Call("add", {"a": 1}),))],
                              faults=[Fault("overloaded", times=3)]) as server:
        model = Anthropic("any", base_url=server.url, api_key="k")    # or server.url + "/v1"
        ...
        assert server.violations == []

It speaks Anthropic Messages, OpenAI chat completions and OpenAI Responses, streaming or not, and
runs alone as `python -m treadle.testing.provider`. It knows nothing of the models it tests.
"""

from .dialects.judging import Problem, Rules
from .faults import BAD_ARGUMENTS, FAULTS, retry_after
from .plans import Fault
from .playing import Request
from .script import Call, Part, Redacted, Reply, Script, Text, Thinking, Usage
from .server import ProviderServer, unused_url

__all__ = [
    "ProviderServer",
    "Reply",
    "Call",
    "Text",
    "Thinking",
    "Redacted",
    "Part",
    "Usage",
    "Script",
    "Fault",
    "FAULTS",
    "BAD_ARGUMENTS",
    "retry_after",
    "Rules",
    "Problem",
    "Request",
    "unused_url",
]
