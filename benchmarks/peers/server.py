"""The model server of the comparison: one process that every contender talks to.

    python benchmarks/peers/server.py        prints its port, serves until its stdin ends

It speaks the three formats of `treadle.testing.provider`, whose renderers it uses; only the HTTP
part is its own, because here the server must never be what is waited for: no request is decoded
that need not be, and a reply that was rendered once is kept. What to answer is in the path, so
that every client with a base URL can be used: `http://127.0.0.1:PORT/turns-20_tool-bash/v1/…`.

    turns-N     tool turns before the last reply            calls-N    calls a turn
    deltas-N    text deltas of the last reply               tool-NAME  add, nap or bash
    fails-CODExN  the first N requests get this status      id-TEXT    makes a path unique
    marker-TEXT   counts tool results by this text, not by the format's own

GET /statistics reports connections, requests and bytes; POST /reset clears them.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, cast

import httptools

from treadle.testing.provider import FakeCall, FakeReply
from treadle.testing.provider.answers import encode_event
from treadle.testing.provider.dialects import FakeDialect
from treadle.testing.provider.dialects.anthropic import FakeAnthropic
from treadle.testing.provider.dialects.openai_chat import FakeOpenAIChat
from treadle.testing.provider.dialects.openai_responses import FakeOpenAIResponses
from treadle.testing.provider.http import format_response

TURN_DELTAS: Final = ("word ",) * 4
SHELL_TOOLS: Final = re.compile(r"(?i)bash|shell|exec_command|shell_command|run_shell_command")
STREAM_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"request-id: req_1\r\nx-request-id: req_1\r\ntransfer-encoding: chunked\r\n\r\n"
)
IS_STREAM: Final = re.compile(rb'"stream":\s?true')
MODELS: Final = {"object": "list", "data": [{"id": "loopback", "object": "model"}]}


@dataclass(frozen=True)
class Format:
    """One of the three formats, and how a tool result looks in its requests."""

    dialect: FakeDialect
    result: re.Pattern[bytes]


FORMATS: Final = {
    "/messages": Format(FakeAnthropic(), re.compile(rb'"tool_result"')),
    "/chat/completions": Format(FakeOpenAIChat(), re.compile(rb'"role":\s?"tool"')),
    "/responses": Format(
        FakeOpenAIResponses(),
        re.compile(rb'"(?:function_call|custom_tool_call|local_shell_call)_output"'),
    ),
}


@dataclass(frozen=True)
class Job:
    """What the path of a request asks for."""

    turns: int = 0
    calls: int = 1
    deltas: int = 8
    tool: str = "add"
    fails: str = ""
    marker: str = ""
    id: str = ""

    @classmethod
    @functools.cache
    def parse(cls, text: str) -> Job:
        fields: dict[str, Any] = {}
        for part in text.split("_"):
            name, _, value = part.partition("-")
            if name in cls.__dataclass_fields__:
                fields[name] = int(value) if name in ("turns", "calls", "deltas") else value
        return cls(**fields)


@dataclass
class Statistics:
    connections: int = 0
    requests: int = 0
    first_bytes: int = 0
    bytes: int = 0
    largest_bytes: int = 0

    def count(self, size: int) -> None:
        self.requests += 1
        self.bytes += size
        self.first_bytes = self.first_bytes or size
        self.largest_bytes = max(self.largest_bytes, size)

    def as_json(self) -> dict[str, int]:
        names = ("connections", "requests", "first_bytes", "bytes", "largest_bytes")
        return {name: getattr(self, name) for name in names}


FAILURES: Final[Counter[Job]] = Counter()  # of each job, which has an id of its own


class Connection(asyncio.Protocol):
    statistics = Statistics()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpRequestParser(self)
        Connection.statistics.connections += 1

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._transport.close()

    # -- called by the parser

    def on_message_begin(self) -> None:
        self._body: list[bytes] = []
        self._url = b""

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"expect":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        path = self._url.decode().partition("?")[0]
        self._transport.write(answer(path, b"".join(self._body)))


def answer(path: str, body: bytes) -> bytes:
    if path == "/statistics":
        return respond(Connection.statistics.as_json())
    if path == "/reset":
        Connection.statistics = Statistics()
        return respond({})
    if path.endswith("/count_tokens"):
        return respond({"input_tokens": len(body) // 4})
    ending = next((end for end in FORMATS if path.endswith(end)), None)
    if ending is None:
        return respond(MODELS if path.rstrip("/").endswith("/models") else {})
    return generate(ending, Job.parse(path.split("/", 2)[1]), body)


def generate(ending: str, job: Job, body: bytes) -> bytes:
    statistics = Connection.statistics
    statistics.count(len(body))
    if job.fails:
        code, _, times = job.fails.partition("x")
        FAILURES[job] += 1
        if FAILURES[job] <= int(times):
            error = FORMATS[ending].dialect.render_error(int(code), "overloaded_error", "scripted")
            return respond(error, int(code))
    if job.marker:
        results = body.count(job.marker.encode())
    else:
        results = len(FORMATS[ending].result.findall(body))
    turn = results // job.calls
    is_stream = IS_STREAM.search(body) is not None
    if turn < job.turns and (tool := find_tool(job.tool, body)):
        return render(ending, turn, make_calls(job, turn, *tool), TURN_DELTAS, is_stream)
    text = ("word ",) * job.deltas
    if b'"final_answer"' in body:  # smolagents ends with a call of this tool
        last = (FakeCall("final_answer", '{"answer": "done"}'),)
        return render(ending, turn, last, text, is_stream)
    return render(ending, turn, (), text, is_stream)


@functools.lru_cache(maxsize=20_000)
def render(
    ending: str, turn: int, calls: tuple[FakeCall, ...], deltas: tuple[str, ...], is_stream: bool
) -> bytes:
    reply = FakeReply(text=deltas, calls=calls)
    dialect = FORMATS[ending].dialect
    if not is_stream:
        return respond(dialect.render_response(reply, "loopback", turn))
    events = [encode_event(event) for event in dialect.render_stream(reply, "loopback", turn)]
    chunks = [b"%x\r\n%s\r\n" % (len(event), event) for event in events]
    return STREAM_HEAD + b"".join(chunks) + b"0\r\n\r\n"


def find_tool(wanted: str, body: bytes) -> tuple[str, str] | None:
    """Name and JSON Schema of the tool that the job is about, as this client offers it."""
    if wanted != "bash":
        return (wanted, "") if b'"%s"' % wanted.encode() in body else None
    for tool in json.loads(body).get("tools") or []:
        function = tool.get("function") if isinstance(tool.get("function"), dict) else tool
        name = str(function.get("name") or "")
        if SHELL_TOOLS.fullmatch(name):
            schema = function.get("input_schema") or function.get("parameters") or {}
            return name, json.dumps(schema)
    return None


@functools.lru_cache(maxsize=20_000)
def make_calls(job: Job, turn: int, name: str, schema: str) -> tuple[FakeCall, ...]:
    if job.tool == "bash":
        return (FakeCall(name, json.dumps(fill_schema(json.loads(schema), f"echo hello {turn}"))),)
    return tuple(
        FakeCall(name, json.dumps({"a": turn, "b": number})) for number in range(job.calls)
    )


def fill_schema(schema: dict[str, Any], command: str) -> dict[str, Any]:
    """Arguments for a shell tool of any program, made after its schema."""
    fields = schema.get("properties") or {}
    required = schema.get("required") or list(fields)
    arguments: dict[str, Any] = {}
    for name, kind in fields.items():
        if name in ("command", "cmd"):
            is_list = kind.get("type") == "array"
            arguments[name] = ["bash", "-lc", command] if is_list else command
        elif name in required:
            arguments[name] = fill_field(name, kind)
    return arguments


def fill_field(name: str, kind: dict[str, Any]) -> Any:
    if kind.get("enum"):
        return kind["enum"][0]
    number = 10_000 if "time" in name else 1
    values = {"integer": number, "number": number, "boolean": False, "array": []}
    return values.get(str(kind.get("type")), "run it")


def respond(body: dict[str, Any], status: int = 200) -> bytes:
    return format_response(status, json.dumps(body).encode(), {"request-id": "req_1"})


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
