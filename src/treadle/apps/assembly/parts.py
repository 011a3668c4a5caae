"""The coding agent as an object: an Agent that also owns a workspace, MCP servers and rules.

`CodingAgent` is an Agent; `AgentParts` is what belongs to it besides, and is closed with it. Made
by coding_agent.py; the hosts use the parts through AgentSession (assemble.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import msgspec

from treadle.agents.agent import Agent
from treadle.apps.assembly.children import close_worktrees
from treadle.apps.assembly.kept_branches import KeptBranches
from treadle.apps.assembly.lazy import Lazy, LazyPolicy, LazyWorkspace
from treadle.context.prompt import SystemPrompt
from treadle.core.contracts.model import Model
from treadle.core.contracts.observer import BaseObserver
from treadle.core.errors import ConfigError
from treadle.core.events import ChildEvent, Event, RunFailed, TurnFinished
from treadle.core.loop.driver import Driver

if TYPE_CHECKING:
    from typing import Self

    from treadle.agents.structured_output import StructuredOutput
    from treadle.apps.assembly.containers import Containers
    from treadle.apps.assembly.telemetry import TelemetryExport
    from treadle.permissions.modes import PermissionMode
    from treadle.tools.mcp.server import McpServer
    from treadle.workspace.worktrees.worktrees import Worktrees


class GrantEnd(BaseObserver):
    """Ends with the turn what a custom command allowed."""

    def __init__(self, policy: LazyPolicy) -> None:
        self._policy = policy

    def on_event(self, event: Event) -> None:
        if type(event) in (TurnFinished, RunFailed):
            self._policy.grant(())


class RunningDrivers(BaseObserver):
    """The drivers of an agent by their sessions, so that a hook can end the turn that it is in.

    A hook of a child agent ends the turn of the parent. It observes which child has which parent.
    """

    def __init__(self) -> None:
        self._drivers: WeakValueDictionary[str, Driver] = WeakValueDictionary()
        self._parents: dict[str, str] = {}  # session of a child -> that of the first parent

    def add(self, driver: Driver) -> None:
        self._drivers[driver.session_id] = driver

    def on_event(self, event: Event) -> None:
        if type(event) is ChildEvent:
            child: Event = event
            while isinstance(child, ChildEvent):
                child = child.child
            self._parents[child.session_id] = event.session_id
        elif self._parents and type(event) in (TurnFinished, RunFailed):
            ended, parents = event.session_id, self._parents.items()
            self._parents = {child: parent for child, parent in parents if parent != ended}

    def interrupt(self, session_id: str, reason: str) -> None:
        driver = self._drivers.get(self._parents.get(session_id, session_id))
        if driver is not None:
            driver.interrupt(reason)


class AgentParts(msgspec.Struct, frozen=True):
    """What the coding agent consists of besides its Agent.

    `notes` are lines for the user: the model, what waits for approval, what is ignored; `warnings`
    those of them that every host shows. The state of `servers` changes while they start and stop.
    """

    workspace: LazyWorkspace
    policy: LazyPolicy
    outputs_dir: Path
    prompt: SystemPrompt
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    needs_sandbox: bool = False
    is_temporary: bool = False  # outputs_dir
    structured_output: StructuredOutput | None = None
    servers: tuple[McpServer, ...] = ()
    small_model: Model | None = None
    telemetry: TelemetryExport | None = None
    worktrees: Lazy[Worktrees] | None = None  # of child agents
    kept_branches: KeptBranches | None = None  # of the same
    containers: Containers | None = None

    async def release(self) -> None:
        """Close what is open; it opens again when it is used."""
        try:
            if self.worktrees is not None:
                await close_worktrees(self.worktrees)
            if self.small_model is not None:
                await self.small_model.aclose()
        finally:
            await self.workspace.release()
            if self.containers is not None:
                await self.containers.release()
            if self.is_temporary and self.outputs_dir.exists():
                import shutil

                shutil.rmtree(self.outputs_dir, ignore_errors=True)
            if self.telemetry is not None:
                await self.telemetry.aclose()

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
        return self._get_parts().notes

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
        parts = self._get_parts()
        if parts.needs_sandbox:
            await parts.workspace.open()  # fail now, not at the first command
        return self

    async def disconnect(self) -> None:
        """Close the model, the MCP servers and the workspace."""
        try:
            await super().disconnect()
        finally:
            if self.parts is not None:
                await self.parts.release()
