"""The system prompt of a turn: a text, or what the agent's function returns for it.

The function is called once a turn, so that the requests of a turn begin with the same text and the
provider's cache holds. Used by driver.py.
"""

from __future__ import annotations

import inspect

from treadle.core.errors import ConfigError
from treadle.core.loop.config import DriverConfig, MakeInstructions, RunContext
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.loop_session import LoopSession


class Instructions:
    """Reads the instructions when a turn needs them first."""

    def __init__(self, config: DriverConfig, emitter: Emitter, session: LoopSession) -> None:
        self._given = config.instructions
        self._deps = config.deps
        self._emitter = emitter
        self._session = session
        self._turn_id: str | None = None
        self._text = self._given if isinstance(self._given, str) else ""

    async def read(self) -> str:
        if not isinstance(self._given, str) and self._turn_id != self._emitter.turn_id:
            self._text = await self._call(self._given)
            self._turn_id = self._emitter.turn_id
        return self._text

    async def _call(self, make: MakeInstructions) -> str:
        turn = self._session.state.turn
        metadata = turn.metadata if turn is not None else {}
        emitter = self._emitter
        made: object = make(RunContext(emitter.session_id, emitter.turn_id, self._deps, metadata))
        text = await made if inspect.isawaitable(made) else made
        if not isinstance(text, str):
            raise ConfigError(f"instructions returned {type(text).__name__}; they must be a text")
        return text
