"""Requests for the loopback provider in each of its dialects, valid unless a test spoils them."""

from typing import Any

import msgspec

from treadle.lib.http.client import Client
from treadle.lib.http.sse import SSEReader
from treadle.testing.provider import ProviderServer

PATHS = {
    "anthropic": "/v1/messages",
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
}
HEADERS = {"content-type": "application/json", "anthropic-version": "2023-06-01"}


def request(dialect: str, **changes: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Hello"}]
    made: dict[str, Any] = {"model": "m", "stream": True}
    if dialect == "responses":
        made["input"] = messages
    else:
        made["messages"] = messages
    if dialect == "anthropic":
        made["max_tokens"] = 4096
    return {**made, **changes}


class Answer(msgspec.Struct):
    status: int
    headers: dict[str, str]
    body: bytes
    events: list[tuple[bytes, bytes]]

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def decoded(self) -> list[Any]:
        return [msgspec.json.decode(data) for _, data in self.events if data != b"[DONE]"]


async def ask(server: ProviderServer, dialect: str, **changes: Any) -> Answer:
    client = Client()
    body = msgspec.json.encode(request(dialect, **changes))
    async with client.post(server.url + PATHS[dialect], HEADERS, body) as response:
        received = await response.read(1 << 30)
        answer = Answer(response.status, dict(response.headers), received, [])
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        answer.events = SSEReader().feed(received)
    await client.aclose()
    return answer


def said(dialect: str, answer: Answer) -> str:
    """The text of a streamed answer."""
    if dialect == "anthropic":
        deltas = [e["delta"] for e in answer.decoded if e["type"] == "content_block_delta"]
        return "".join(delta.get("text", "") for delta in deltas)
    if dialect == "chat":
        choices = [choice for e in answer.decoded for choice in e["choices"]]
        return "".join(choice["delta"].get("content") or "" for choice in choices)
    deltas = [e for e in answer.decoded if e["type"] == "response.output_text.delta"]
    return "".join(event["delta"] for event in deltas)
