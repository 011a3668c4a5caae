"""A provider on loopback: real sockets, scripted replies, faults by name, strict request checks.

Raw HTTP/1.1 over asyncio streams, so that a fault can be at any byte. It imports nothing of the
models that it tests. `script` holds the replies, `faults` the faults, `dialects` the formats.
"""

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final, Self

import msgspec

from .answers import PlannedAnswer, ProviderFault
from .batches import FakeBatches, ItemAnswer
from .dialects import FakeDialect
from .dialects.anthropic import FakeAnthropic
from .dialects.bedrock_converse import FRAME_TYPE, FakeConverse, encode_frame
from .dialects.embeddings import (
    FakeBedrockEmbeddings,
    FakeEmbeddings,
    FakeGeminiEmbeddings,
    FakeOpenAIEmbeddings,
    FakeVertexEmbeddings,
)
from .dialects.gemini import FakeGemini
from .dialects.openai_chat import FakeOpenAIChat
from .dialects.openai_responses import FakeOpenAIResponses
from .dialects.request_checks import JsonObject, RequestViolation, ServerLimits
from .faults import FAULTS
from .http import ReceivedRequest, format_response, read_request, send_answer
from .script import FakeReply, ReplyScript

_SSE: Final = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


PickReply = Callable[[ReceivedRequest], FakeReply]


class ProviderServer:
    """Answers requests by a script; `requests` and `violations` record them.

    The script is replies in order (a text is one, too), a ReplyScript, or a function from request
    to reply. With `strict` a request that the real service would refuse is a violation, and gets a
    400. With `api_key` any other key gets a 401. `batches` are those of the batch interfaces.
    """

    def __init__(
        self,
        script: Sequence[FakeReply | str] | ReplyScript | PickReply,
        *,
        faults: Sequence[ProviderFault | str] = (),
        strict: bool = True,
        limits: ServerLimits | None = None,
        api_key: str | None = None,
        port: int = 0,
    ) -> None:
        if not callable(script) and not isinstance(script, ReplyScript):
            script = ReplyScript(tuple(_read_reply(reply) for reply in script))
        self._script: ReplyScript | PickReply = script
        self.faults = [ProviderFault(f) if isinstance(f, str) else f for f in faults]
        for fault in self.faults:
            if fault.name not in FAULTS:
                raise ValueError(f"no fault {fault.name!r}; there are: {', '.join(FAULTS)}")
        self._strict = strict
        self._limits = limits or ServerLimits()
        self._api_key = api_key
        self._port = port
        self._dialects: dict[str, FakeDialect] = {
            "/messages": FakeAnthropic(),
            "/chat/completions": FakeOpenAIChat(),
            "/responses": FakeOpenAIResponses(),
            "enerateContent": FakeGemini(),  # and streamGenerateContent
            "/converse-stream": FakeConverse(),
            "/embeddings": FakeOpenAIEmbeddings(),
            ":batchEmbedContents": FakeGeminiEmbeddings(),
            ":predict": FakeVertexEmbeddings(),
            "/invoke": FakeBedrockEmbeddings(),
        }
        self.batches = FakeBatches(self._answer_item)
        self._server: asyncio.Server | None = None
        self._connection_tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._used_replies = 0
        self.connections = 0
        self.open_connections = 0
        self.requests: list[ReceivedRequest] = []
        self.violations: list[RequestViolation] = []

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_listening()
        for task in self._connection_tasks:
            task.cancel()
        await asyncio.gather(*self._connection_tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """Without a path: the base URL of an Anthropic client. OpenAI clients add /v1."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def generation_requests(self) -> list[ReceivedRequest]:
        """The requests that asked for a reply."""
        return [request for request in self.requests if request.number >= 0]

    async def listen(self) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", self._port, backlog=1024)
        self._port = server.sockets[0].getsockname()[1]
        self._server = server

    async def stop_listening(self) -> None:
        """Refuse new connections; open ones stay. `listen` accepts again."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition on this server's counters is true."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    # -- one connection

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connection_tasks.add(task)
        self.connections += 1
        self.open_connections += 1
        self._changed.set()
        try:
            await self._serve_connection(reader, writer, self.connections)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._connection_tasks.discard(task)
            self.open_connections -= 1
            self._changed.set()

    async def _serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
    ) -> None:
        while True:
            request = await read_request(reader, connection)
            if request is None:
                return
            dialect = self._find_dialect(request.path)
            if dialect is not None and request.method == "POST":
                number = len(self.generation_requests)
                request = msgspec.structs.replace(request, number=number)
            self.requests.append(request)
            self._changed.set()
            if dialect is None or request.number < 0:
                writer.write(self._answer_other(request))
                await writer.drain()
                continue
            if not await send_answer(self._plan_answer(request, dialect), reader, writer):
                return

    def _find_dialect(self, path: str) -> FakeDialect | None:
        endings = self._dialects.items()
        return next((dialect for end, dialect in endings if path.endswith(end)), None)

    def _answer_item(self, path: str, body: bytes) -> ItemAnswer:
        """The answer to one request of a batch, by the script and with its faults."""
        headers = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
        if self._api_key is not None:
            headers["x-api-key"] = self._api_key
        number = len(self.generation_requests)
        request = ReceivedRequest("POST", path, headers, body, time.time(), 0, number)
        self.requests.append(request)
        dialect = self._find_dialect(path)
        assert dialect is not None, "the path is one of a dialect"
        plan = self._plan_answer(request, dialect)
        return plan.status, plan.body or b""

    def _answer_other(self, request: ReceivedRequest) -> bytes:
        answer = self.batches.answer(request.method, request.path, request.headers, request.body)
        if answer is not None and not self._has_key(request):
            return format_response(401, b'{"error": {"type": "authentication_error"}}', {})
        if answer is not None:
            self._changed.set()
            return format_response(answer[0], answer[1], {})
        if request.path.endswith("/count_tokens"):
            count = {"input_tokens": len(request.body) // 4}
            return format_response(200, msgspec.json.encode(count), {})
        if request.path.rstrip("/").endswith("/models"):
            model = {"id": "loopback", "object": "model", "type": "model", "owned_by": "loopback"}
            listing = {"object": "list", "data": [model], "has_more": False}
            return format_response(200, msgspec.json.encode(listing), {})
        return format_response(404, b'{"error": {"message": "no such path"}}', {})

    # -- one answer

    def _plan_answer(self, request: ReceivedRequest, dialect: FakeDialect) -> PlannedAnswer:
        try:
            payload = request.json
        except (msgspec.DecodeError, UnicodeError):
            payload = {}
        is_streaming = bool(payload.get("stream")) or "stream" in request.path
        plan = PlannedAnswer(dialect, FakeReply(), is_streaming)
        plan.headers["request-id"] = plan.headers["x-request-id"] = f"req_{request.number:04}"
        faults = [fault for fault in self.faults if fault.applies_to(request.number)]
        problems = self._check_request(request, payload, dialect)
        if problems:
            first = problems[0]
            plan.refuse(first.status, first.kind, str(first))
            return plan
        # A failed attempt uses up no reply: the next one gets it.
        fails_attempt = any(FAULTS[fault.name].fails_attempt for fault in faults)
        reply = self._pick_reply(request, payload, dialect, fails_attempt)
        if reply is None and fails_attempt:
            reply = FakeReply("never read to its end")
        elif reply is None:
            plan.refuse(400, "invalid_request_error", "the script is over")
            return plan
        plan.reply = reply
        _apply_faults(plan, faults, "reply")
        self._render(plan, request, payload)
        _apply_faults(plan, faults, "answer")
        return plan

    def _check_request(
        self, request: ReceivedRequest, payload: JsonObject, dialect: FakeDialect
    ) -> list[RequestViolation]:
        if not self._has_key(request):
            return [RequestViolation("", "invalid x-api-key", 401, "authentication_error")]
        size, window = len(request.body), self._limits.context_window
        if size > self._limits.max_body:
            wrong = "Request exceeds the maximum size"
            return [RequestViolation("", wrong, 413, "request_too_large")]
        if window is not None and size // 4 > window:
            return [dialect.context_violation(size // 4, window)]
        if not self._strict:
            return []
        problems = dialect.check_request(payload, self._limits)
        if isinstance(dialect, FakeAnthropic) and "anthropic-version" not in request.headers:
            problems.append(RequestViolation("", "anthropic-version: header is required"))
        if not request.headers.get("content-type", "").startswith("application/json"):
            problems.append(RequestViolation("", "content-type must be application/json"))
        self.violations += problems
        return problems

    def _has_key(self, request: ReceivedRequest) -> bool:
        names = ("x-api-key", "x-goog-api-key", "authorization")
        key = next((request.headers[name] for name in names if name in request.headers), "")
        return self._api_key is None or key.removeprefix("Bearer ") == self._api_key

    def _pick_reply(
        self,
        request: ReceivedRequest,
        payload: JsonObject,
        dialect: FakeDialect,
        fails_attempt: bool,
    ) -> FakeReply | None:
        if isinstance(dialect, FakeEmbeddings):  # the texts decide the answer
            return FakeReply()
        if not isinstance(self._script, ReplyScript):
            return self._script(request)
        by_turn = self._script.by == "turn"
        index = dialect.count_assistant_turns(payload) if by_turn else self._used_replies
        self._used_replies += not fails_attempt
        return self._script.replies[index] if index < len(self._script.replies) else None

    def _render(self, plan: PlannedAnswer, request: ReceivedRequest, payload: JsonObject) -> None:
        model, serial = str(payload.get("model")), request.number
        if isinstance(plan.dialect, FakeOpenAIResponses):
            plan.dialect.store_response(payload, plan.reply, serial)
        if isinstance(plan.dialect, FakeEmbeddings):
            plan.body = msgspec.json.encode(plan.dialect.render_vectors(payload))
            plan.headers["content-type"] = "application/json"
        elif plan.is_streaming:
            plan.events = plan.dialect.render_stream(plan.reply, model, serial)
            plan.headers.update(_SSE)
            if isinstance(plan.dialect, FakeConverse):
                plan.encode = encode_frame
                plan.headers["content-type"] = FRAME_TYPE
        else:
            plan.body = msgspec.json.encode(plan.dialect.render_response(plan.reply, model, serial))
            plan.headers["content-type"] = "application/json"


def _read_reply(reply: object) -> FakeReply:
    if isinstance(reply, FakeReply):
        return reply
    if isinstance(reply, str):
        return FakeReply(reply)
    kind = type(reply).__name__
    raise TypeError(f"the script has a {kind}: each of its replies is a FakeReply or a text")


def _apply_faults(plan: PlannedAnswer, faults: Sequence[ProviderFault], stage: str) -> None:
    for fault in faults:
        if FAULTS[fault.name].stage == stage:
            FAULTS[fault.name].apply(plan, fault)


def unused_url() -> str:
    """A loopback URL at which nothing listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{sock.getsockname()[1]}"
