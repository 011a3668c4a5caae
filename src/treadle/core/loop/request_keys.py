"""Idempotency keys of model requests: one key, one body.

Two requests with the same key have the same content, and a request that is sent again, also after
a crash, has its key again. The history is not read: its position stands for it. Used by
model_call.py; model_gateway.py gives the first part of a key.
"""

from __future__ import annotations

import zlib

from treadle.core.contracts.model import ModelRequest
from treadle.core.contracts.tool import ToolSpec


class RequestKeys:
    """Makes keys; the checksum of the system prompt and the tools is kept while they stay."""

    def __init__(self) -> None:
        self._system = ""
        self._tools: tuple[ToolSpec, ...] = ()
        self._head_checksum = 0

    def make_key(self, request: ModelRequest, model: str) -> str:
        """`request.idempotency_key` tells which reply of which session it asks for."""
        if request.system is not self._system or request.tools is not self._tools:
            self._system, self._tools = request.system, request.tools
            tools = [(tool.name, tool.description, tool.schema) for tool in request.tools]
            self._head_checksum = zlib.crc32(ascii((request.system, tools)).encode())
        rest = (model, sorted(request.quarantine), request.options, request.cache, request.metadata)
        checksum = zlib.crc32(ascii(rest).encode(), self._head_checksum)
        return f"{request.idempotency_key}/{checksum:08x}"
