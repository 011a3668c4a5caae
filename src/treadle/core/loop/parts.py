"""What the parts of one driver share: the configuration, the session, the tools, the hooks, …

One value, made by driver.py and given to the tool round, the gateway, the mutators and the side
questions. It does nothing by itself.
"""

from __future__ import annotations

import inspect

import msgspec

from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.task_manager import TaskManager
from treadle.core.errors import ConfigError
from treadle.core.loop.calls.toolbox import Toolbox
from treadle.core.loop.config import DriverConfig, MakeInstructions, RunContext
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.hooks import Hooks
from treadle.core.loop.inbox import Inbox
from treadle.core.loop.interruption import Interruption
from treadle.core.loop.loop_session import LoopSession
from treadle.lib.contained import call_contained


class Instructions:
    """Reads the instructions, and those of the sources of tools, when a turn needs them first. A
    function is called once a turn: its requests begin with the same text, and the provider's cache
    holds."""

    def __init__(
        self, config: DriverConfig, emitter: Emitter, session: LoopSession, source: ToolSource
    ) -> None:
        self._given = config.instructions
        self._deps = config.deps
        self._emitter = emitter
        self._session = session
        self._source = source
        self._turn_id: str | None = None
        self._text = ""

    async def read(self) -> str:
        turn_id = self._emitter.turn_id
        if self._turn_id != turn_id:
            given = self._given
            text = given if isinstance(given, str) else await self._call(given, turn_id)
            about_tools = self._source.instructions()
            self._text = f"{text}\n\n{about_tools}".strip() if about_tools else text
            self._turn_id = turn_id
        return self._text

    async def _call(self, make: MakeInstructions, turn_id: str) -> str:
        turn = self._session.state.turn
        metadata = turn.metadata if turn is not None else {}
        context = RunContext(self._emitter.session_id, turn_id, self._deps, metadata)
        text: object = call_contained(make, context)
        if inspect.isawaitable(text):
            text = await self._emitter.await_contained(text, "the function of instructions")
        if not isinstance(text, str):
            raise ConfigError(f"instructions returned {type(text).__name__}; they must be a text")
        return text


class DriverParts(msgspec.Struct, frozen=True, eq=False):
    config: DriverConfig
    emitter: Emitter
    session: LoopSession
    inbox: Inbox
    toolbox: Toolbox
    hooks: Hooks
    tasks: TaskManager
    interruption: Interruption
    instructions: Instructions
