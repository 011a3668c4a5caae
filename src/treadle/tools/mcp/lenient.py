"""Reads the messages of a server as far as they can be read: a bad part does not spoil the rest.

A half of a surrogate pair is replaced, a tool, prompt or resource that cannot be used is left out
and named, a block of an unknown type is named in the result, and of a flood of log lines only a
part is read. Used by connection.py, between the transports and the SDK.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple

import anyio
import mcp_types as types
import msgspec
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from pydantic import BaseModel, TypeAdapter

from treadle.lib.text.text import fix_surrogates

MAX_LOGS_PER_SECOND = 200
MAX_PROBLEM_CHARS = 200
MAX_LEVELS = 200  # of nested lists and objects: more than pydantic reads from JSON
_HEAD_BYTES = 120  # of a message, in which its method is
_LOG_METHOD = b'"notifications/message"'
_BLOCK: TypeAdapter[types.ContentBlock] = TypeAdapter(types.ContentBlock)
# An escape in JSON; the group is half of a pair.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F]"
    rb"[0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


class _EntryKind(NamedTuple):
    """The entries of one list of a server. `plain_fields` are enough to use one."""

    noun: str
    model: type[BaseModel]
    plain_fields: tuple[str, ...]


_ENTRY_KINDS = {
    "tools": _EntryKind("tool", types.Tool, ("name", "description", "inputSchema")),
    "prompts": _EntryKind("prompt", types.Prompt, ("name", "description", "arguments")),
    "resources": _EntryKind("resource", types.Resource, ("name", "uri", "description", "mimeType")),
    "resourceTemplates": _EntryKind(
        "resource template",
        types.ResourceTemplate,
        ("name", "uriTemplate", "description", "mimeType"),
    ),
}


class LenientReader:
    """The reader of one connection; `note` gets a line about what is left out."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._second = 0
        self._logs = self._unread_logs = 0
        self._noted: set[str] = set()

    def is_excess_log(self, line: bytes) -> bool:
        """Whether this is a log line after too many others in this second."""
        if _LOG_METHOD not in line[:_HEAD_BYTES]:
            return False
        second = int(time.monotonic())
        if second != self._second:
            if self._unread_logs:
                self._note(f"{self._unread_logs:,} log lines of the server were not read")
            self._second, self._logs, self._unread_logs = second, 0, 0
        self._logs += 1
        self._unread_logs += self._logs > MAX_LOGS_PER_SECOND
        return self._logs > MAX_LOGS_PER_SECOND

    def mend_lines(self, data: bytes) -> bytes:
        """Whole lines of a response over HTTP, without halves of surrogate pairs, which the SDK
        refuses, and without the log lines of a flood, which it reads slowly."""
        if _LOG_METHOD in data:
            lines = data.splitlines(keepends=True)
            data = b"".join([line for line in lines if not self._is_excess_event(line)])
        if b"\\ud" in data or b"\\uD" in data:
            return _ESCAPE.sub(lambda match: b"\\ufffd" if match[1] else match[0], data)
        return data

    def _is_excess_event(self, line: bytes) -> bool:
        text = line.strip()
        is_whole = text.startswith((b"data: {", b"data:{")) and text.endswith(b"}")
        return is_whole and self.is_excess_log(text)

    def parse(self, text: bytes) -> types.JSONRPCMessage:
        """The message of a line; ValueError if there is none."""
        try:
            message = types.jsonrpc_message_adapter.validate_json(text, by_name=False)
        except ValueError:
            value = _replace_in(_load(text))
            message = types.jsonrpc_message_adapter.validate_python(value, by_name=False)
        return self.mend(message)

    @asynccontextmanager
    async def mend_all(
        self, opening: AbstractAsyncContextManager[TransportStreams]
    ) -> AsyncIterator[TransportStreams]:
        """A transport whose messages are mended."""
        send, receive = anyio.create_memory_object_stream[SessionMessage | Exception](16)
        async with opening as (incoming, outgoing):

            async def forward() -> None:
                async with send:
                    async for one in incoming:
                        if isinstance(one, SessionMessage):
                            self.mend(one.message)
                        await send.send(one)

            forwarding = asyncio.create_task(forward())
            try:
                yield receive, outgoing
            finally:
                forwarding.cancel()
                await asyncio.gather(forwarding, return_exceptions=True)
                receive.close()

    def mend(self, message: types.JSONRPCMessage) -> types.JSONRPCMessage:
        """The message with what can be used of a list and of the blocks of a result."""
        if not isinstance(message, types.JSONRPCResponse):
            return message
        for field, kind in _ENTRY_KINDS.items():
            entries = message.result.get(field)
            if isinstance(entries, list):
                mended = [self._mend_entry(entry, kind) for entry in entries]
                message.result[field] = [entry for entry in mended if entry is not None]
        content = message.result.get("content")
        if isinstance(content, list):
            message.result["content"] = [_mend_block(block) for block in content]
        return message

    def _mend_entry(self, entry: Any, kind: _EntryKind) -> dict[str, Any] | None:
        """The entry of a list, without the fields that are wrong; None if it cannot be used."""
        problem = _find_problem(entry, kind)
        if problem is None:
            return dict(entry)
        known = entry if isinstance(entry, dict) else {}
        smaller = {key: known[key] for key in kind.plain_fields if key in known}
        is_usable = _find_problem(smaller, kind) is None
        done = "read without some of its fields" if is_usable else "left out"
        name = known.get("name", "?")
        line = f"the {kind.noun} {name} is {done}: {problem[:MAX_PROBLEM_CHARS]}"
        if line not in self._noted:
            self._noted.add(line)
            self._note(line)
        return smaller if is_usable else None


def _find_problem(entry: Any, kind: _EntryKind) -> str | None:
    try:
        kind.model.model_validate(entry)
    except ValueError as error:
        return " ".join(str(error).split("\n", 3)[1:3])
    return None


def _mend_block(block: Any) -> Any:
    try:
        _BLOCK.validate_python(block)
    except ValueError:
        kind = block.get("type") if isinstance(block, dict) else None
        about = f"of the unknown type {kind!r}" if isinstance(kind, str) else "without a type"
        shown = msgspec.json.encode(block).decode(errors="replace")[:MAX_PROBLEM_CHARS]
        return {"type": "text", "text": f"[content {about}, not shown: {shown}]"}
    return block


def _load(text: bytes) -> Any:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _replace_in(value: Any, level: int = 0) -> Any:
    """The value with a sign in place of each half of a surrogate pair."""
    if level > MAX_LEVELS:
        raise ValueError("nested too deep")
    if isinstance(value, str):
        return fix_surrogates(value)
    if isinstance(value, list):
        return [_replace_in(one, level + 1) for one in value]
    if isinstance(value, dict):
        return {fix_surrogates(key): _replace_in(one, level + 1) for key, one in value.items()}
    return value
