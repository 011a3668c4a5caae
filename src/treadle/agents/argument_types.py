"""The types of the settings of an agent and of the arguments of a run, for type checkers.

Imported by no program: the constructor and the methods have the same names (a test compares them).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from treadle.agents.agent_definition import AgentDefinition
from treadle.agents.agent_runs import History
from treadle.agents.agent_settings import Approver, InstructionsLike, ToolLike
from treadle.agents.structured_output import StructuredOutput
from treadle.agents.subagents import OpenStore, PrepareChild
from treadle.core.contracts.gate import Gate
from treadle.core.contracts.hook import Hook
from treadle.core.contracts.model import CacheRequest, Model, ModelOptions
from treadle.core.contracts.mutator import Mutator
from treadle.core.contracts.observer import Observer
from treadle.core.contracts.policy import Policy
from treadle.core.contracts.store import Store
from treadle.core.contracts.task_manager import MakeTaskManager
from treadle.core.contracts.workspace import Workspace
from treadle.core.events import Caller
from treadle.core.loop.driver import Driver
from treadle.core.loop.retry import Retry
from treadle.core.transcript.items import Metadata
from treadle.lib.clock import Clock
from treadle.sessions.open_store import StoreLocation
from treadle.tools.federation import CollisionPolicy


class AgentSettings(TypedDict, total=False):
    """The settings of an agent that are given by name; docs/library.md describes each."""

    name: str
    instructions: InstructionsLike
    max_turns: int
    policy: Policy | None
    approve: Approver | None
    hooks: Sequence[Hook]
    mutators: Sequence[Mutator]
    gates: Sequence[Gate]
    observers: Sequence[Observer]
    workspace: Workspace | None
    options: ModelOptions | None
    cache: CacheRequest | None
    retry: Retry | None
    collision: CollisionPolicy
    store: StoreLocation | None
    services: dict[str, Any] | None
    max_result_chars: int
    max_parallel: int
    tool_timeout: float | None
    keep_output: Callable[[str, str], str] | None
    clock: Clock | None
    subagents: Sequence[AgentDefinition] | None
    open_store: OpenStore | None
    prepare_child: PrepareChild | None
    worktrees: bool
    depth: int
    role: str
    caller: Caller
    parent_ids: tuple[str, ...]
    task_manager: MakeTaskManager | None
    structured_output: StructuredOutput | None
    on_start: Callable[[Driver], None] | None  # called with each driver that the agent starts


class AgentChanges(AgentSettings, total=False):
    """What `replace` can change besides the two types: the settings, and what is given first."""

    model: str | Model
    tools: Sequence[ToolLike]


class RunOptions(TypedDict, total=False):
    """The arguments of a run besides the prompt, `deps` and `output`."""

    output_retries: int
    history: History | None
    session: str | Store | None
    metadata: Metadata | None
    background_wait: float
