"""What a driver is configured with: one object of each contract, and the limits.

Made by agents/, shared by every driver of one agent, never changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, cast

import msgspec

from treadle.core.contracts.gate import Gate
from treadle.core.contracts.hook import Hook
from treadle.core.contracts.model import CacheRequest, Model, ModelOptions
from treadle.core.contracts.mutator import Mutator
from treadle.core.contracts.observer import Observer
from treadle.core.contracts.policy import AllowAll, Policy
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.task_manager import MakeTaskManager
from treadle.core.contracts.tool import Tool, ToolSpec
from treadle.core.contracts.workspace import Workspace
from treadle.core.events import Caller
from treadle.core.retry import DEFAULT_RETRY, Retry
from treadle.core.transcript.items import Metadata
from treadle.core.transcript.usage import CallPurpose
from treadle.core.type_variables import ContextDepsT
from treadle.lib.clock import Clock, RealClock


class RunContext(msgspec.Struct, Generic[ContextDepsT], frozen=True):
    """What a function for the instructions may use: `deps` and `metadata` are the run's."""

    session_id: str
    turn_id: str
    deps: ContextDepsT = cast(ContextDepsT, None)
    metadata: Metadata = {}


MakeInstructions = Callable[[RunContext[Any]], str | Awaitable[str]]


class TurnSettings(msgspec.Struct, frozen=True):
    """What some turns of a driver change of its configuration: `options` replace those of the
    driver; tools, gates and observers are added to its own."""

    options: ModelOptions | None = None
    tools: tuple[Tool, ...] = ()
    gates: tuple[Gate, ...] = ()
    observers: tuple[Observer, ...] = ()
    continues: bool = False  # see TurnBegan


NO_CHANGES = TurnSettings()


class DriverConfig(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""  # of the agent: in events, logs, telemetry and sessions
    model: Model
    source: ToolSource
    instructions: str | MakeInstructions = ""
    options: ModelOptions = ModelOptions()
    cache: CacheRequest = CacheRequest()
    policy: Policy = msgspec.field(default_factory=AllowAll)
    hooks: tuple[Hook, ...] = ()
    mutators: tuple[Mutator, ...] = ()
    gates: tuple[Gate, ...] = ()
    observers: tuple[Observer, ...] = ()
    workspace: Workspace | None = None
    agent_type: str = ""  # the kind of a child agent
    parent_ids: tuple[str, ...] = ()  # of a child agent: its parent's session, then that one's, …
    purpose: CallPurpose = "turn"  # of the calls of its turns: sampling, for a server
    caller: Caller = "library"
    task_manager: MakeTaskManager | None = None  # None: tasks run in this process
    clock: Clock = msgspec.field(default_factory=RealClock)
    retry: Retry = DEFAULT_RETRY
    services: dict[str, Any] = {}
    save_output: Callable[[str, str], str] | None = None  # (call id, text) -> path
    max_result_chars: int = 100_000
    max_parallel: int = 16
    tool_timeout: float | None = 600.0
    raises_faults: bool = False  # of tools: they end the turn
    max_continuations: int = 3
    deps: Any = None  # what a run was given for its tools
    children: Any = None  # the child agents of the session: agents/child_agents.py

    def get_timeout(self, tool: ToolSpec) -> float | None:
        """The seconds that a piece of the tool's code may take."""
        return tool.timeout or self.tool_timeout
