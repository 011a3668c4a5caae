"""A model server that keeps what programs send, and the sizes of the parts of a request.

It is the server of the comparison (`../server.py`) in this process; a function may answer the
requests. Used by first_requests.py and session_cost.py.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from benchmarks.peers.server import FORMATS, STREAM_HEAD, Connection, answer, respond
from treadle.testing.provider import FakeReply
from treadle.testing.provider.answers import encode_event


class Recorded(NamedTuple):
    path: str
    size: int
    body: dict[str, Any]


# The reply to a request, or None for the one that the path asks for.
AnswerRequest = Callable[[Recorded], FakeReply | None]


class Recorder:
    def __init__(self, answer_request: AnswerRequest = lambda _: None) -> None:
        self.requests: list[Recorded] = []
        self.url = ""
        self._answer_request = answer_request

    def answer(self, path: str, body: bytes) -> bytes:
        ending = next((one for one in FORMATS if path.endswith(one)), None)
        if ending is None:
            return answer(path, body)
        recorded = Recorded(path, len(body), json.loads(body))
        self.requests.append(recorded)
        reply = self._answer_request(recorded)
        return answer(path, body) if reply is None else self._render(ending, recorded.body, reply)

    def _render(self, ending: str, body: dict[str, Any], reply: FakeReply) -> bytes:
        dialect, model, serial = FORMATS[ending].dialect, str(body["model"]), len(self.requests)
        if not body.get("stream"):
            return respond(dialect.render_response(reply, model, serial))
        events = [encode_event(event) for event in dialect.render_stream(reply, model, serial)]
        # Codex has the tools of its child agents in a namespace.
        name = b'"name":"spawn_agent"'
        events = [one.replace(name, name + b',"namespace":"collaboration"') for one in events]
        chunks = [b"%x\r\n%s\r\n" % (len(event), event) for event in events]
        return STREAM_HEAD + b"".join(chunks) + b"0\r\n\r\n"


class _RecordedConnection(Connection):
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def on_message_complete(self) -> None:
        path = self._url.decode().partition("?")[0]
        self._transport.write(self._recorder.answer(path, b"".join(self._body)))


@asynccontextmanager
async def serve(recorder: Recorder) -> AsyncIterator[Recorder]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _RecordedConnection(recorder), "127.0.0.1", 0)
    recorder.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield recorder
    finally:
        server.close()


class RequestParts(NamedTuple):
    """Bytes of a request: what the model reads as system prompt, tools and messages, and all."""

    system: int
    tools: int
    messages: int
    all: int


def split_sizes(recorded: Recorded) -> RequestParts:
    body = recorded.body
    tools, messages = body.get("tools") or [], body.get("messages") or body.get("input") or []
    tools = [*tools, *(one for one in messages if one.get("type") == "additional_tools")]
    system = [one for one in (body.get("system"), body.get("instructions")) if one]
    system += [one for one in messages if one.get("role") in ("system", "developer")]
    system = [one for one in system if one not in tools]
    messages = [one for one in messages if one not in system and one not in tools]
    return RequestParts(_measure(system), _measure(tools), _measure(messages), recorded.size)


def _measure(value: list[Any]) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
