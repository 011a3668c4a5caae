"""The coding agent as an object, and the parts that it consists of besides its Agent.

    GivenParts, HostSession   what a program, and a host with its session, give to it
    AgentParts                the one value that the stages (stages.py) work on, each with what the
                              earlier ones made; it belongs to the agent and is closed with it
    CodingAgent               the Agent with its parts

The hosts use the parts through AgentSession (assemble.py).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

import msgspec

from treadle.agents.agent import Agent
from treadle.agents.agent_settings import Approver
from treadle.apps.assembly.lazy import (
    Containers,
    Lazy,
    LazyPolicy,
    LazyWorkspace,
    PolicyOptions,
)
from treadle.apps.assembly.model_choice import create_model, is_small_model, wrap_model
from treadle.apps.assembly.redaction import find_environment_secrets
from treadle.apps.assembly.sessions import LazyCheckpoints, get_outputs_dir
from treadle.apps.settings.folder_rules import FolderTrust, LoadedRules
from treadle.apps.settings.managed_policy import read_policy
from treadle.apps.settings.settings import Settings
from treadle.context.prompt import SystemPrompt
from treadle.core.contracts.gate import Gate
from treadle.core.contracts.hook import Hook
from treadle.core.contracts.model import Model
from treadle.core.contracts.mutator import Mutator
from treadle.core.contracts.observer import BaseObserver, Observer
from treadle.core.contracts.store import Store
from treadle.core.contracts.workspace import Workspace
from treadle.core.errors import ConfigError
from treadle.core.events import Caller, ChildEvent, Event, RunFailed, TurnFinished, unwrap
from treadle.core.loop.driver import Driver
from treadle.core.retry import Retry
from treadle.core.transcript.state import SessionState
from treadle.lib.files.private_files import find_state_dir
from treadle.lib.logger import logger

if TYPE_CHECKING:
    from typing import Self

    from opentelemetry.sdk.trace import TracerProvider

    from treadle.agents.agent_settings import ToolLike
    from treadle.agents.structured_output import StructuredOutput
    from treadle.apps.assembly.dry_run.dry_run import DryRun
    from treadle.apps.assembly.kept_branches import KeptBranches
    from treadle.apps.settings.extensions import Extensions
    from treadle.context.memory import Memory
    from treadle.permissions.modes import PermissionMode
    from treadle.permissions.ruleset.rules import RuleSet
    from treadle.sessions.open_store import StoreLocation
    from treadle.tools.builtin import BuiltinSource
    from treadle.tools.language_servers.code_servers import CodeServers
    from treadle.tools.mcp.server import McpServer
    from treadle.workspace.container import ContainerOptions
    from treadle.workspace.worktrees.worktrees import Worktrees

McpDefinitions = Mapping[str, Mapping[str, Any]]
WORKTREES_DIR = "worktrees"


class HostWorkspace(Workspace, Protocol):
    """The workspace of a host that may have newer texts than the disk, such as an editor."""

    def find_seen_digest(self, digest: str) -> str:
        """What the tools saw of a file whose content on disk has this digest: the digest of the
        unsaved text, or the same."""


class SessionOptions(msgspec.Struct, frozen=True):
    """What a host wants of a session, in addition to the settings.

    `resume` is a session id, "" for the last session of the folder, None for a new one. `until`
    is a command that has to succeed before a turn may end. The final answer has to match
    `output_schema`. `prompt_chars` is the length of the prompt; one too long for the model raises.
    With `dry_run` nothing is changed (dry_run/). With `suspend`, a wait that is too long raises
    TurnSuspended (suspend.py). `checkpoints` records the files before and after turns; None means
    only for a host that is not interactive.
    `servers` are MCP servers that the host brings as the user's own. `model` is used instead of the
    one that the settings name. `wrap_workspace` puts the host between the tools and the workspace,
    if it wants to. `origin` is that of a new session of a host that is not interactive.
    """

    interactive: bool = False
    origin: str = "print"
    resume: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    until: str = ""
    output_schema: dict[str, Any] | None = None
    prompt_chars: int = 0
    suspend: bool = False
    dry_run: bool = False
    checkpoints: bool | None = None
    servers: Mapping[str, Mapping[str, Any]] = {}
    model: Model | None = None
    wrap_workspace: Callable[[LazyWorkspace], HostWorkspace | None] | None = None


class HostSession(msgspec.Struct, frozen=True):
    """The open session of a host. `notes` are lines about it and about the model, for the user.

    `notify` receives lines for the user that are known only later; `warn` those that the user has
    to see in any case, such as a missing sandbox.
    """

    store: Store
    state: SessionState | None
    options: SessionOptions
    notes: tuple[str, ...] = ()
    notify: Callable[[str], None] | None = None
    warn: Callable[[str], None] | None = None


class GivenParts(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `coding_agent` that are no settings."""

    model: Model | None
    approve: Approver | None
    tools: tuple[ToolLike[Any], ...]
    servers: McpDefinitions
    instructions: str
    hooks: tuple[Hook, ...]
    observers: tuple[Observer, ...]
    retry: Retry | None
    store: StoreLocation | None
    name: str
    container: ContainerOptions | None


class RunningDrivers(BaseObserver):
    """The drivers of an agent by their sessions, so that a hook can end the turn that it is in.

    A hook of a child agent ends the turn of the parent. It observes which child has which parent.
    """

    kinds = frozenset({ChildEvent, TurnFinished, RunFailed})

    def __init__(self) -> None:
        self._drivers: WeakValueDictionary[str, Driver] = WeakValueDictionary()
        self._parents: dict[str, str] = {}  # session of a child -> that of the first parent

    def add(self, driver: Driver) -> None:
        self._drivers[driver.session_id] = driver

    def on_event(self, event: Event) -> None:
        if type(event) is ChildEvent:
            self._parents[unwrap(event).session_id] = event.session_id
        elif self._parents and type(event) in (TurnFinished, RunFailed):
            ended, parents = event.session_id, self._parents.items()
            self._parents = {child: parent for child, parent in parents if parent != ended}

    def interrupt(self, session_id: str, reason: str) -> None:
        driver = self._drivers.get(self._parents.get(session_id, session_id))
        if driver is not None:
            driver.interrupt(reason)


class AgentParts:
    """What is given, then what the stages make of it, in their order.

    `notes` are lines for the user: the model, what waits for approval, what is ignored; `warnings`
    those of them that every host shows. Lists are filled by several stages.
    """

    model: Model
    small_model: Model | None
    extensions: Extensions
    telemetry: TracerProvider | None = None
    workspace: LazyWorkspace
    host_workspace: HostWorkspace | None = None
    containers: Containers | None = None
    tool_workspace: Workspace  # that of the host, or of containers
    policy: LazyPolicy
    policy_options: PolicyOptions
    builtin: BuiltinSource
    code_servers: CodeServers
    skills_section: str = ""
    servers: tuple[McpServer, ...] = ()  # their state changes while they start and stop
    commands: str  # what commands can write and reach
    check_read: Callable[[Path], str]
    prompt: SystemPrompt
    memory: Memory | None
    structured_output: StructuredOutput | None = None
    worktrees: Lazy[Worktrees] | None = None  # of child agents
    kept_branches: KeptBranches | None = None  # of the same
    dry_run: DryRun | None = None
    child_model: Model | None = None  # for child agents that want a small one

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        given: GivenParts,
        loaded_rules: LoadedRules,
        trust: FolderTrust,
        host: HostSession | None,
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.given = given
        self.loaded_rules = loaded_rules
        self.trust = trust
        self.managed_policy = read_policy()
        self.host = host
        self.options = host.options if host is not None else None
        self.store = host.store if host is not None else None
        self.state = host.state if host is not None else None
        self.is_interactive = host is not None and host.options.interactive
        self.caller: Caller = "library"
        if host is not None:
            self.caller = "terminal" if self.is_interactive else "headless"
        self.suspend = host is not None and host.options.suspend
        told = host.notify if host is not None else None
        self.notify: Callable[[str], None] = told or logger.info
        self.warn: Callable[[str], None] = (host and host.warn) or told or logger.warning
        self.secrets = find_environment_secrets()
        self.outputs_dir = get_outputs_dir(self.store)
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.tools: list[ToolLike[Any]] = []
        self.gates: list[Gate] = []
        self.hooks: list[Hook] = list(given.hooks)
        self.mutators: list[Mutator] = []
        self.observers: list[Observer] = []
        self.drivers = RunningDrivers()
        self.child_options: dict[str, Any] = {}
        self.checkpoints: LazyCheckpoints | None = None
        # Around the merge of a child's worktree, for undo.
        self.record_merge: Callable[[str], AbstractAsyncContextManager[object]] = nullcontext

    @property
    def is_small(self) -> bool:
        """Whether the model can handle only a short prompt and a few tools."""
        return is_small_model(self.model)

    def rules(self) -> RuleSet:
        """The permission rules, which hold in the added folders, too."""
        roots = [os.path.realpath(added) for added in self.list_added_folders()]
        return self.loaded_rules.get_rules().add_roots(roots)

    def list_added_folders(self) -> tuple[Path, ...]:
        return tuple(Path(self.folder, one).expanduser() for one in self.settings.add_dir)

    def make_model(self, name: str) -> Model:
        """Another model, for a child or a hook."""
        return self.wrap_model(create_model(name, self.settings))

    def wrap_model(self, model: Model) -> Model:
        return wrap_model(model, self.secrets, None, suspend=False)

    async def open_required_sandbox(self) -> None:
        """A sandbox that is required and cannot be had fails now, not at the first command."""
        if self.settings.sandbox == "required":
            await self.workspace.open()

    async def release(self) -> None:
        """Close what is open; it opens again when it is used."""
        try:
            await self._close_worktrees()
            if self.small_model is not None:
                await self.small_model.aclose()
        finally:
            if self.checkpoints is not None:
                self.checkpoints.close()
            await self.workspace.release()
            if self.containers is not None:
                await self.containers.release()
            if self.store is None and self.outputs_dir.exists():
                import shutil

                shutil.rmtree(self.outputs_dir, ignore_errors=True)
            if self.telemetry is not None:
                await asyncio.to_thread(self.telemetry.shutdown)  # sends what is not sent yet

    async def _close_worktrees(self) -> None:
        """Keep as branches what interrupted agents, also of killed processes, changed."""
        lazy = self.worktrees
        if lazy is not None and (lazy.is_made or (find_state_dir() / WORKTREES_DIR).is_dir()):
            await lazy.get().aclose()

    async def aclose(self) -> None:
        try:
            await self.release()
        finally:
            await self.workspace.aclose()


class CodingAgent(Agent):
    """The agent of a folder, as `treadle.coding_agent` makes it.

    It is used like any Agent. `async with`, or `aclose`, closes its workspace, its MCP servers and
    its model. A copy made with `replace` shares them and does not close the workspace.
    """

    parts: AgentParts | None = None

    @property
    def folder(self) -> Path:
        return self._get_parts().workspace.root

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for the user: which model runs, what of the folder is ignored until it is trusted,
        which settings have no effect."""
        return tuple(self._get_parts().notes)

    @property
    def permission_mode(self) -> PermissionMode:
        return self._get_parts().policy.mode

    def change_permission_mode(self, mode: PermissionMode) -> None:
        """Use another mode from the next call on."""
        from typing import get_args

        from treadle.permissions.modes import PermissionMode

        if mode not in get_args(PermissionMode):
            known = ", ".join(get_args(PermissionMode))
            raise ConfigError(f"permission_mode is {mode!r}; expected one of {known}")
        self._get_parts().policy.change_mode(mode)

    def _get_parts(self) -> AgentParts:
        assert self.parts is not None, "coding_agent gives the agent its parts"
        return self.parts

    async def __aenter__(self) -> Self:
        await self._get_parts().open_required_sandbox()
        return self

    async def _disconnect(self) -> None:
        """Close the model, the MCP servers and the workspace."""
        try:
            await super()._disconnect()
        finally:
            if self.parts is not None:
                await self.parts.release()
