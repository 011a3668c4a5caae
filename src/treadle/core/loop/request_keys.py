"""Idempotency keys of model requests: one key, one body.

Two requests with the same key have the same content, and a request that is sent again, also after
a crash, has its key again. The history is not read: its position stands for it. Used by
model_call.py; model_gateway.py gives the first part of a key.
"""

from __future__ import annotations

from binascii import crc32

from treadle.core.contracts.model import ModelRequest


class RequestKeys:
    """Makes keys. What is the same from request to request is read once, when it changes."""

    def __init__(self) -> None:
        self._last: tuple[object, ...] = ()
        self._checksum = 0

    def make_key(
        self, request: ModelRequest, quarantine: frozenset[tuple[int, int]], model: str
    ) -> str:
        """`request.idempotency_key` tells which reply of which session it asks for."""
        content = (
            request.system,
            request.tools,
            request.options,
            request.cache,
            request.metadata,
            quarantine,
            model,
        )
        if content != self._last:  # cheap while they are the same objects
            self._last = content
            tools = [(tool.name, tool.description, tool.schema) for tool in request.tools]
            self._checksum = crc32(ascii((*content[2:5], tools, sorted(quarantine))).encode())
            self._checksum = crc32(ascii((request.system, model)).encode(), self._checksum)
        return f"{request.idempotency_key}/{self._checksum:08x}"
