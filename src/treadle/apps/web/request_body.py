"""Reads the body of a small request. Used by application.py and fleet_pages.py."""

from __future__ import annotations

from starlette.requests import Request

from treadle.core.errors import ConfigError


async def read_body(request: Request, limit: int = 4_096) -> bytes:
    """A small body; ConfigError if it is longer, before all of it is read."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > limit:
            raise ConfigError(f"the request is larger than {limit:,} bytes")
    return bytes(data)
