"""The requests of a turn: what they consist of, and their keys.

Nothing is sent here: model_gateway.py admits a request, and model_call.py streams the reply.
"""

from __future__ import annotations

from binascii import crc32

import msgspec

from treadle.core.contracts.gate import Stop
from treadle.core.contracts.model import CacheRequest, ModelRequest
from treadle.core.loop.loop_session import LoopSession
from treadle.core.loop.parts import DriverParts
from treadle.core.transcript.usage import CallPurpose


def build_request(
    parts: DriverParts, system: str, cache: CacheRequest, closing: Stop | None
) -> ModelRequest:
    """The request for the next reply, from the view as it is; `closing`: it is the last one."""
    config, session = parts.config, parts.session
    state, turn, options = session.state, session.turn, session.settings.options or config.options
    purpose: CallPurpose = config.purpose
    if closing is not None:
        # The tools stay in the request, so that its cached prefix stays valid.
        options = msgspec.structs.replace(
            options, max_tokens=closing.closing_tokens, tool_choice="none"
        )
        purpose = "closing"
    return ModelRequest(
        state.transcript,
        system,
        parts.toolbox.specs,
        options,
        cache,
        state.quarantine,
        session.id,
        turn.id,
        make_turn_key(session),
        caller=config.caller,
        metadata=turn.metadata,
        purpose=purpose,
    )


def make_turn_key(session: LoopSession) -> str:
    """Which reply the next request asks for: the same after a crash."""
    state = session.state
    return f"{session.id}/{session.turn.id}/{len(state.transcript)}.{state.view_changes}"


class RequestKeys:
    """Makes idempotency keys: one key, one body.

    Two requests with the same key have the same content, and a request that is sent again, also
    after a crash, has its key again. The history is not read: its position stands for it. What is
    the same from request to request is read once, when it changes.
    """

    def __init__(self) -> None:
        self._last: tuple[object, ...] = ()
        self._checksum = ""

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
            checksum = crc32(ascii((*content[2:5], tools, sorted(quarantine))).encode())
            checksum = crc32(ascii((request.system, model)).encode(), checksum)
            self._checksum = f"{checksum:08x}"
        return f"{request.idempotency_key}/{self._checksum}"
