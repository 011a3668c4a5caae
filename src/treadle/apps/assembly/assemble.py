"""`build_agent`: the coding agent with a session on disk, for the hosts.

It chooses the model, opens the session and calls `coding_agent`, as a program does
(coding_agent.py). Used by the command line and the terminal.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.agents.agent import Agent
from treadle.agents.agent_settings import Approver
from treadle.agents.child_agents import ChildAgents
from treadle.apps.assembly.coding_agent import coding_agent
from treadle.apps.assembly.lazy import LazyPolicy, LazyWorkspace
from treadle.apps.assembly.model_choice import check_session_model, choose_model
from treadle.apps.assembly.parts import AgentParts, HostSession, SessionOptions
from treadle.apps.assembly.redaction import find_environment_secrets
from treadle.apps.assembly.sessions import get_session_dir, make_child_agents, open_session
from treadle.apps.settings.folder_rules import load_rules
from treadle.apps.settings.settings import Settings
from treadle.context.prompt import SystemPrompt
from treadle.core.contracts.hook import Hook
from treadle.core.contracts.model import Model
from treadle.core.contracts.observer import Observer
from treadle.core.contracts.store import Store
from treadle.core.errors import ConfigError
from treadle.core.loop.driver import Driver
from treadle.core.loop.session_log import SessionLog
from treadle.core.steps import UserInput
from treadle.core.transcript.state import SessionState
from treadle.observe.timings import TimingRecorder

if TYPE_CHECKING:
    from treadle.agents.structured_output import StructuredOutput
    from treadle.tools.mcp.server import McpServer

MAX_CHARS_PER_TOKEN = 5  # in ordinary text


class AgentSession(msgspec.Struct, frozen=True):
    """The coding agent and its session.

    `notes` are lines for the user: the model, what waits for approval, what a resumed session
    lost. `session_warnings` are those that every host shows: about the session's log, about
    servers and agents that cannot be used, about branches that interrupted agents left.
    """

    agent: Agent
    parts: AgentParts
    store: Store
    state: SessionState | None
    session_warnings: tuple[str, ...] = ()

    @property
    def model(self) -> Model:
        return self.agent.config.model

    @property
    def workspace(self) -> LazyWorkspace:
        return self.parts.workspace

    @property
    def policy(self) -> LazyPolicy:
        return self.parts.policy

    @property
    def prompt(self) -> SystemPrompt:
        return self.parts.prompt

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self.parts.notes)

    @property
    def servers(self) -> tuple[McpServer, ...]:
        return self.parts.servers

    @property
    def structured_output(self) -> StructuredOutput | None:
        return self.parts.structured_output

    def start(self, input: UserInput | None = None, children: ChildAgents | None = None) -> Driver:
        """The driver of the session. Close it before this object."""
        children = children or self.make_children()
        return self.agent.start(prompt=input, state=self.state, store=self.store, children=children)

    @asynccontextmanager
    async def open_driver(self, input: UserInput | None = None) -> AsyncIterator[Driver]:
        """The driver of the session; then it and this object are closed."""
        try:
            driver = self.start(input)
        except BaseException:
            await self.abandon()
            raise
        try:
            yield driver
        finally:
            try:
                await driver.aclose()
            finally:
                await self.aclose()

    def make_children(self) -> ChildAgents:
        """The subagents of the session, for `start`."""
        return make_child_agents(self.store, self.state.origins if self.state is not None else ())

    async def abandon(self) -> None:
        """Close it without a driver: nothing is written."""
        try:
            await self.store.aclose()
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Close the model, the MCP servers and the workspace. The driver closes the store."""
        try:
            await self.agent.aclose()
        finally:
            await self.parts.aclose()


async def build_agent(
    settings: Settings,
    folder: Path,
    options: SessionOptions | None = None,
    *,
    approve: Approver | None = None,
    hooks: Sequence[Hook] = (),
    observers: Sequence[Observer] = (),
    notify: Callable[[str], None] | None = None,
    warn: Callable[[str], None] | None = None,
    log: SessionLog | None = None,
) -> AgentSession:
    """Build an agent and open its session. Invalid settings, rules and names raise here.

    Without `approve`, a call that needs approval is denied with a reason that the model reads.
    `notify` and `warn`: see HostSession. `log` is an open session that another agent is to
    continue: nothing is written to it here, and it stays open whatever happens.
    """
    options = options or SessionOptions()
    folder = folder.resolve()  # noqa: ASYNC240 - nothing else runs yet that it could block
    load_rules(folder, options.allow, options.deny)  # an invalid one raises before a session opens
    if options.model is not None:
        model, model_note = options.model, f"model: {options.model.name}"
    else:
        model, model_note = await choose_model(settings)
    _check_prompt_length(options.prompt_chars, model)
    no_warnings: tuple[str, ...] = ()
    async with AsyncExitStack() as on_error:
        if log is not None:
            store, view, warnings = log, None if log.is_empty else log.state, no_warnings
        else:
            store, view, warnings = await _open_session(folder, options)
            on_error.push_async_callback(store.aclose)
        is_named = options.model is not None or bool(settings.model)
        changed = check_session_model(model, view, is_named=is_named)
        warnings = (*warnings, changed) if changed else warnings
        agent = coding_agent(
            folder,
            model=model,
            settings=settings,
            allow=options.allow,
            deny=options.deny,
            approve=approve,
            mcp=options.servers or None,
            hooks=hooks,
            observers=(TimingRecorder(get_session_dir(store)), *observers),
            host=HostSession(store, view, options, (model_note, *warnings), notify, warn),
        )
        parts = agent.parts
        assert parts is not None, "coding_agent gives the agent its parts"
        branches = await _describe_branches(parts, store.session_id, view)
        parts.notes += branches
        shown = (*warnings, *parts.warnings, *branches)
        session = AgentSession(agent, parts, store, view, shown)
        on_error.push_async_callback(session.aclose)
        await parts.open_required_sandbox()
        on_error.pop_all()
        return session


async def _open_session(
    folder: Path, options: SessionOptions
) -> tuple[SessionLog, SessionState | None, tuple[str, ...]]:
    origin = "" if options.interactive else options.origin
    opening = (options.resume, folder, find_environment_secrets(), origin)
    if options.resume is None:
        return open_session(*opening)
    # In a thread: a long log takes seconds, and a host has other sessions.
    return await asyncio.to_thread(open_session, *opening)


async def _describe_branches(
    parts: AgentParts, session_id: str, view: SessionState | None
) -> list[str]:
    """Notes on the changes that interrupted agents of a resumed session left in branches."""
    if view is None or parts.kept_branches is None:
        return []
    branches = await parts.kept_branches.describe(session_id, view)
    return [
        f"changes of an agent of this session are in the branch {branch}. {advice}"
        for branch, advice in branches.items()
    ]


def _check_prompt_length(chars: int, model: Model) -> None:
    if chars > model.card.window * MAX_CHARS_PER_TOKEN:
        raise ConfigError(
            f"the prompt is too long: {chars:,} characters, but {model.name} takes about "
            f"{model.card.window:,} tokens. Put the text into a file and name it in the prompt"
        )
