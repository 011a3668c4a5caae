"""The batch interfaces of the loopback provider: Anthropic's Message Batches, OpenAI's Batch API.

    POST /v1/messages/batches          GET /v1/messages/batches[/ID[/results]]
    POST /v1/files, POST /v1/batches   GET /v1/batches[/ID], GET /v1/files/ID/content

Each item is answered as a request of its dialect is, by the script and with its faults. A batch
ends when it is asked for, unless the test holds it. No sockets: `server` uses this.
"""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import msgspec

from .dialects.request_checks import JsonObject, as_dict, as_list

ItemAnswer = tuple[int, bytes]
AnswerItem = Callable[[str, bytes], ItemAnswer]  # path and body -> status and body
BatchAnswer = tuple[int, bytes]

_CUSTOM_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ENDPOINTS: Final = ("/v1/chat/completions", "/v1/responses")
_NO_STREAM: Final = (
    b'{"error": {"type": "invalid_request_error", "message": "stream: not allowed"}}'
)


@dataclass
class FakeBatch:
    """One batch. `answers` are those of its items, by custom_id."""

    id: str
    is_openai: bool
    answers: dict[str, ItemAnswer]
    metadata: JsonObject = field(default_factory=dict)
    endpoint: str = ""
    created: float = field(default_factory=time.time)
    ending: str = ""  # empty: in progress; completed, expired, cancelled or failed
    errors: tuple[JsonObject, ...] = ()  # of an input file that was refused


class FakeBatches:
    """`batches` in the order in which they came. With `hold` they end by `end`, as the test says.

    `poll_faults`: each is the answer to one GET: a status, or 0 for a connection that is closed.
    `refuse_lines`: these lines of the next file of OpenAI are refused, with this message.
    """

    def __init__(self, answer_item: AnswerItem) -> None:
        self._answer_item = answer_item
        self._files: dict[str, bytes] = {}
        self.batches: list[FakeBatch] = []
        self.hold = False
        self.poll_faults: list[int] = []
        self.loses_answer = False  # the next batch is made, and its answer is lost
        self.refuse_lines: dict[int, str] = {}

    def end(self, ending: str = "completed", answered: int | None = None) -> None:
        """End the batches that are held; only the first `answered` items have an answer."""
        self.hold = False
        for batch in self.batches:
            if not batch.ending:
                batch.ending = ending
                for name in list(batch.answers)[answered:] if answered is not None else ():
                    if batch.is_openai and ending == "cancelled":
                        del batch.answers[name]
                    else:
                        batch.answers[name] = (
                            0,
                            b"expired" if ending == "expired" else b"canceled",
                        )

    def answer(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> BatchAnswer | None:
        """The answer of a path of these interfaces; None for another path. ConnectionError if the
        connection is to be closed instead."""
        if "/batches" not in path and "/files" not in path:
            return None
        if method == "GET":
            if self.poll_faults and (status := self.poll_faults.pop(0)) != 200:
                if not status:
                    raise ConnectionResetError
                return status, b'{"error": {"type": "api_error", "message": "not now"}}'
            return self._answer_get(path)
        if path.endswith("/files"):
            return self._add_file(headers, body)
        made = self._create(path, msgspec.json.decode(body, type=dict[str, object]))
        if self.loses_answer and made[0] == 200:
            self.loses_answer = False
            raise ConnectionResetError
        return made

    # --- reading -----------------------------------------------------------------------------

    def _answer_get(self, path: str) -> BatchAnswer:
        name = path.rpartition("/")[2]
        if path.endswith("/content"):
            content = self._files.get(path.split("/")[-2])
            return (200, content) if content is not None else _refuse(404, "no such file")
        is_openai = "/messages/" not in path
        mine = [batch for batch in self.batches if batch.is_openai is is_openai]
        if name == "batches":
            data = [self._describe(batch) for batch in reversed(mine)]
            return 200, msgspec.json.encode({"data": data, "has_more": False})
        batch_id = path.split("/")[-2] if name == "results" else name
        batch = next((one for one in mine if one.id == batch_id), None)
        if batch is None:
            return _refuse(404, f"no batch {batch_id}")
        if not batch.ending and not self.hold:
            batch.ending = "completed"
        if name != "results":
            return 200, msgspec.json.encode(self._describe(batch))
        if not batch.ending:
            return _refuse(404, "the batch has not ended")
        lines = [_render_result(*one) for one in batch.answers.items()]
        return 200, b"".join(reversed(lines))  # in any order

    def _describe(self, batch: FakeBatch) -> dict[str, object]:
        return _describe_openai(batch, self._files) if batch.is_openai else _describe_claude(batch)

    # --- making ------------------------------------------------------------------------------

    def _add_file(self, headers: Mapping[str, str], body: bytes) -> BatchAnswer:
        kind, _, boundary = headers.get("content-type", "").partition("boundary=")
        if not kind.startswith("multipart/form-data") or not boundary:
            return _refuse(400, "the content type must be multipart/form-data")
        purpose, content = b"", b""
        for part in body.split(b"--" + boundary.encode())[1:-1]:
            head, _, value = part.partition(b"\r\n\r\n")
            if b'name="purpose"' in head:
                purpose = value.removesuffix(b"\r\n")
            elif b'name="file"' in head and b"filename=" in head:
                content = value.removesuffix(b"\r\n")
        if purpose != b"batch" or not content:
            return _refuse(400, "a file and the purpose batch are needed")
        file_id = f"file-{len(self._files):04}"
        self._files[file_id] = content
        return 200, msgspec.json.encode({"id": file_id, "object": "file", "purpose": "batch"})

    def _create(self, path: str, request: JsonObject) -> BatchAnswer:
        is_openai = not path.endswith("/messages/batches")
        try:
            items = self._read_file(request) if is_openai else _read_requests(request)
        except ValueError as error:
            return _refuse(400, str(error))
        endpoint = str(request.get("endpoint", ""))
        batch = FakeBatch(
            f"{'batch' if is_openai else 'msgbatch'}_{len(self.batches):04}",
            is_openai,
            {},
            as_dict(request.get("metadata") or {}),
            endpoint,
        )
        refused, self.refuse_lines = self.refuse_lines, {}
        if refused:
            batch.ending = "failed"
            batch.errors = tuple(
                {"code": "invalid_json_line", "line": line, "message": text}
                for line, text in refused.items()
            )
        else:
            where = endpoint or "/v1/messages"
            batch.answers = {name: self._answer(where, body) for name, body in items.items()}
        self.batches.append(batch)
        return 200, msgspec.json.encode(self._describe(batch))

    def _answer(self, path: str, body: JsonObject) -> ItemAnswer:
        if "stream" in body or "stream_options" in body:
            return 400, _NO_STREAM
        return self._answer_item(path, msgspec.json.encode(body))

    def _read_file(self, request: JsonObject) -> dict[str, JsonObject]:
        endpoint = request.get("endpoint")
        if endpoint not in _ENDPOINTS or request.get("completion_window") != "24h":
            raise ValueError("the endpoint or the completion_window is wrong")
        content = self._files.get(str(request.get("input_file_id")))
        if content is None:
            raise ValueError("no such file")
        lines = [msgspec.json.decode(line, type=dict[str, object]) for line in content.splitlines()]
        if any(line.get("url") != endpoint or line.get("method") != "POST" for line in lines):
            raise ValueError("the url of a line is not that of the batch")
        items = {str(line["custom_id"]): as_dict(line["body"]) for line in lines}
        if len({str(body.get("model")) for body in items.values()}) != 1:
            raise ValueError("a file must have one model")
        return _check_ids(items, len(lines))


def _read_requests(request: JsonObject) -> dict[str, JsonObject]:
    rows = [as_dict(row) for row in as_list(request.get("requests"))]
    items = {str(row.get("custom_id")): as_dict(row.get("params")) for row in rows}
    return _check_ids(items, len(rows))


def _check_ids(items: dict[str, JsonObject], count: int) -> dict[str, JsonObject]:
    if len(items) != count or not items:
        raise ValueError("there are no requests, or two with one custom_id")
    for name in items:
        if not _CUSTOM_ID.fullmatch(name):
            raise ValueError(f"custom_id: {name!r} does not fit")
    return items


def _refuse(status: int, message: str) -> BatchAnswer:
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    return status, msgspec.json.encode(error)


def _describe_claude(batch: FakeBatch) -> dict[str, object]:
    count, has_ended = len(batch.answers), bool(batch.ending)
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": "ended" if has_ended else "in_progress",
        "request_counts": {
            "processing": 0 if has_ended else count,
            "succeeded": count if has_ended else 0,
            "errored": 0,
            "canceled": 0,
            "expired": 0,
        },
        "created_at": datetime.fromtimestamp(batch.created, UTC).isoformat(),
        "results_url": f"/v1/messages/batches/{batch.id}/results" if has_ended else None,
    }


def _render_result(name: str, answer: ItemAnswer) -> bytes:
    status, body = answer
    if status == 200:
        result: dict[str, object] = {"type": "succeeded", "message": msgspec.Raw(body)}
    elif not status:
        result = {"type": body.decode()}  # expired or canceled
    else:
        result = {"type": "errored", "error": msgspec.Raw(body)}
    return msgspec.json.encode({"custom_id": name, "result": result}) + b"\n"


def _describe_openai(batch: FakeBatch, files: dict[str, bytes]) -> dict[str, object]:
    described: dict[str, object] = {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "status": batch.ending or "in_progress",
        "created_at": int(batch.created),
        "metadata": batch.metadata,
        "errors": {"object": "list", "data": list(batch.errors)} if batch.errors else None,
    }
    if not batch.ending:
        return described
    for kind, wanted in (("output", True), ("error", False)):
        lines = [
            _render_line(name, *answer)
            for name, answer in reversed(batch.answers.items())
            if (answer[0] == 200) is wanted
        ]
        if lines:
            files[f"{kind}-{batch.id}"] = b"".join(lines)
            described[f"{kind}_file_id"] = f"{kind}-{batch.id}"
    return described


def _render_line(name: str, status: int, body: bytes) -> bytes:
    line: dict[str, object] = {"id": f"batch_req_{name}", "custom_id": name, "error": None}
    if status:
        line["response"] = {"status_code": status, "request_id": "r", "body": msgspec.Raw(body)}
    else:
        line["response"] = None
        line["error"] = {"code": f"batch_{body.decode()}", "message": "it was not executed"}
    return msgspec.json.encode(line) + b"\n"
