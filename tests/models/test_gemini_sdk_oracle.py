"""The same chunks, read by our codec and by Google's own library, give the same reply."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.models.exchanges import Exchange, ExchangeReader, list_exchanges
from treadle.core.transcript import AssistantItem, Opaque, Text, Thinking
from treadle.models.provider_base.codec import CALL_EXTRA_LABEL, CITATIONS_LABEL

pytestmark = pytest.mark.xdist_group("sdks")  # one worker imports them

STREAMS = [one for one in list_exchanges("gemini") if one.path.suffix == ".sse"]
# They end with an error, which is no reply.
REPLIES = [one for one in STREAMS if one.name not in ("cut", "error_in_stream", "malformed_call")]


def read_by_sdk(stream: str) -> dict[str, Any]:
    from google.genai.types import GenerateContentResponse

    lines = [line for line in stream.splitlines() if line.startswith("data:")]
    chunks = [
        GenerateContentResponse._from_response(response=json.loads(line[5:]), kwargs={})
        for line in lines
    ]
    candidates = [chunk.candidates[0] for chunk in chunks if chunk.candidates]
    parts = [p for c in candidates if c.content for p in c.content.parts or ()]
    usage = chunks[-1].usage_metadata
    assert usage is not None
    signatures = [base64.b64encode(p.thought_signature) for p in parts if p.thought_signature]
    calls = [p.function_call for p in parts if p.function_call]
    return {
        "text": "".join([p.text for p in parts if p.text and not p.thought]),
        "thinking": "".join([p.text for p in parts if p.text and p.thought]),
        "calls": [(call.name, call.args or {}) for call in calls],
        "signatures": [signature.decode() for signature in signatures],
        "total": usage.total_token_count,
        "thoughts": usage.thoughts_token_count or 0,
    }


def describe(reply: AssistantItem) -> dict[str, Any]:
    signatures = []
    for part in reply.content:
        if isinstance(part, Thinking) and part.signature:
            signatures.append(part.signature)
        elif isinstance(part, Opaque) and part.label != CITATIONS_LABEL:
            value = json.loads(part.json)
            if part.label == CALL_EXTRA_LABEL:
                signatures.append(value["google"]["thought_signature"])
            elif "thoughtSignature" in value:
                signatures.append(value["thoughtSignature"])
    usage = reply.usage
    texts = [part.text for part in reply.content if isinstance(part, Text)]
    is_ours = reply.stop == "refusal" and "declined to answer" in texts[-1]
    return {
        "text": "".join(texts[:-1] if is_ours else texts),
        "thinking": "".join([p.text for p in reply.content if isinstance(p, Thinking)]),
        "calls": [(call.name, call.arguments) for call in reply.calls],
        "signatures": signatures,
        "total": usage.total_input + usage.output,
        "thoughts": usage.reasoning,
    }


@pytest.mark.parametrize("exchange", REPLIES, ids=lambda one: one.name)
async def test_google_reads_the_same_reply(exchange: Exchange):
    stream = exchange.path.read_bytes()
    outcome = await ExchangeReader("gemini").read([stream])
    assert outcome.reply is not None
    assert describe(outcome.reply) == read_by_sdk(stream.decode())
