"""Opens, reconfigures and closes the session of a host: a folder, the user's choices, a log.

The base of HostedSession (hosted_session.py), which adds the parts. What may be done while a turn
runs is decided here. How a session is put together is apps/assembly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from treadle.agents.child_agents import ChildAgents
from treadle.apps.assembly import AgentSession, SessionOptions, build_agent
from treadle.apps.assembly.redaction import find_environment_secrets, redact
from treadle.apps.assembly.sessions import get_session_dir
from treadle.apps.conversation import undo
from treadle.apps.conversation.conversation import Conversation
from treadle.apps.conversation.crash_report import CrashReport
from treadle.apps.conversation.session.callbacks import HostCallbacks
from treadle.apps.conversation.state.from_transcript import finish_view
from treadle.apps.conversation.state.view_state import ViewState
from treadle.apps.settings.command_files import CustomCommand
from treadle.apps.settings.extensions import load_commands
from treadle.apps.settings.folder_rules import is_trusted
from treadle.apps.settings.load import load_settings
from treadle.apps.settings.managed_policy import apply_policy
from treadle.apps.settings.settings import SETTINGS_BY_NAME, Settings
from treadle.core.contracts.workspace import CommandResult
from treadle.core.errors import ConfigError, StoreError, TreadleError
from treadle.core.events import TurnResult
from treadle.core.loop.driver import Driver
from treadle.core.loop.session_log import SessionLog
from treadle.core.steps import Approval, Denial, PendingApproval
from treadle.core.transcript.recover import recover
from treadle.permissions.modes import PermissionMode
from treadle.sessions.detached import background
from treadle.sessions.library import Library

# Which command changes a setting for the session; the others are limits.
_COMMANDS = {"model": "/model", "thinking": "/config thinking", "permission_mode": "/mode"}


class SessionChoices(msgspec.Struct, frozen=True):
    """What the user chose for the session, beside the settings; it stays when the session is opened
    again. `flags` are settings of the command line by name, `rules` allow until another session
    than `rules_session` is opened."""

    flags: Mapping[str, object] = {}
    mode: str | None = None
    goal: str = ""
    rules: tuple[str, ...] = ()
    rules_session: str = ""
    dry_run: bool = False
    changed_limits: frozenset[str] = frozenset()
    removed_limits: frozenset[str] = frozenset()


class SessionLifecycle:
    """A folder to work in, and at most one open session.

    Promises: no file of the folder takes effect before it is trusted; a session that gets another
    model, limit, goal or trust, or is rewound, stays open and locked all the time; a change that
    fails leaves it as it was. Problems are TreadleErrors with a message for the user. `notes` are
    lines about the open session.
    """

    def __init__(
        self,
        folder: Path,
        flags: Mapping[str, object] | None = None,
        options: SessionOptions | None = None,
    ) -> None:
        self.folder = folder.resolve()
        self.options = options or SessionOptions()
        self._given_flags = dict(flags or {})
        self.choices = SessionChoices(
            self._given_flags, goal=self.options.until, dry_run=self.options.dry_run
        )
        self.library = Library()
        self.callbacks = HostCallbacks()
        self.notes: tuple[str, ...] = ()
        self.children: ChildAgents = ChildAgents()
        self.custom_commands: Sequence[CustomCommand] = ()
        self.conversation: Conversation | None = None
        self._agent_session: AgentSession | None = None
        self._driver: Driver | None = None
        self._lock = asyncio.Lock()  # one change of the open session at a time
        self._shown_warnings: set[str] = set()
        self.background = background.NO_CHOICES  # of a session that was in the background

    # --- what is open --------------------------------------------------------------------

    @property
    def driver(self) -> Driver:
        if self._driver is None:
            raise StoreError("no session is open")
        return self._driver

    @property
    def agent_session(self) -> AgentSession:
        if self._agent_session is None:
            raise StoreError("no session is open")
        return self._agent_session

    @property
    def is_open(self) -> bool:
        return self._agent_session is not None

    def require_conversation(self) -> Conversation:
        """The conversation; raises if the session is being opened again."""
        if self.conversation is None:
            raise ConfigError("the session is being opened again; try once more")
        return self.conversation

    def require_idle(self, action: str = "this") -> Conversation:
        """The conversation; raises if a turn runs."""
        conversation = self.require_conversation()
        if conversation.view.is_busy:
            busy = f"{action} is not available while a turn runs; interrupt the turn first"
            raise ConfigError(busy)
        return conversation

    def load_settings(self) -> Settings:
        settings = load_settings(
            self.folder,
            {**self.background.flags, **self.choices.flags},
            is_trusted=lambda: is_trusted(self.folder),
            format_flag=lambda name: _format_origin(self._given_flags, self.choices, name),
        )
        if not self.choices.removed_limits:
            return settings
        removed = dict.fromkeys(self.choices.removed_limits)
        return apply_policy(msgspec.structs.replace(settings, **removed))

    def list_added_folders(self) -> tuple[Path, ...]:
        """Other folders that the agent may work in."""
        names = self.load_settings().add_dir
        return tuple(Path(self.folder, name).expanduser() for name in names)

    @property
    def sandbox_problem(self) -> str:
        """Why commands run without the sandbox that is wanted; "" if there is no problem."""
        return self.agent_session.workspace.sandbox_problem

    @property
    def session_dir(self) -> Path:
        return get_session_dir(self.agent_session.store)

    async def flush(self) -> Path:
        """Write what is pending to the session's log; the folder of the log."""
        await self.agent_session.store.flush()
        return self.session_dir

    async def run_command(self, command: str, **options: Any) -> CommandResult:
        """Run a command of the user or of a slash command; without the secrets in its output."""
        result = await self.agent_session.workspace.run(command, **options)
        output = redact(find_environment_secrets(), result.output)
        return msgspec.structs.replace(result, output=output)

    async def finish_turn(self) -> TurnResult:
        """Run the turn of the submitted message; the callbacks decide on all approvals."""
        return await self.agent_session.agent.finish_turn(self.driver)

    # --- open, switch, reconfigure, close ------------------------------------------------

    async def open(
        self, callbacks: HostCallbacks, *, resume: str | None = None, fork: bool = False
    ) -> None:
        """Open a new session, or resume one: by (part of) its id, or "" for the newest here."""
        self.callbacks = callbacks
        resume = await self._find_resumed(resume, fork=fork)
        session = await self._build(resume)
        await self._attach(await self._start(session))

    async def switch(self, resume: str | None, *, fork: bool = False) -> None:
        """Show a new session, or another one, in place of this one. If that cannot be opened, this
        one stays as it is, and the error is raised."""
        async with self._lock:
            conversation, earlier = self.require_idle(), self.background
            if resume is not None and not fork:
                session_dir = _find_session(self.library, self.folder, resume)
                if session_dir is not None and session_dir.name == self.driver.session_id:
                    return
            try:
                session = await self._build(await self._find_resumed(resume, fork=fork))
            except BaseException:
                self.background = earlier
                raise
            await self._leave(conversation)
            await self._close_driver()
            await self._attach(await self._start(session))

    async def reconfigure(
        self,
        edit: Callable[[], Awaitable[None]] | None = None,
        *,
        keeps_view: bool = True,
        has_notes: bool = False,
        **choices: Any,
    ) -> None:
        """Continue the session with other choices of the user, and with the settings as they are
        now. It stays open and locked. If an agent cannot be built with them, nothing has changed.
        `edit` changes the log (`agent_session.store`) while no driver runs on it."""
        async with self._lock:
            conversation, earlier = self.require_idle(), self.choices
            old_log, old_session = self.driver.log, self.agent_session
            log = SessionLog(old_log.wrapped, old_log.state)
            self.choices = msgspec.structs.replace(earlier, **choices)
            try:
                session = await self._build(log=log)
            except BaseException:
                self.choices = earlier
                raise
            view = conversation.view if keeps_view and self.callbacks.keeps_view else None
            await self._leave(conversation)
            old_log.hand_over()
            problems: list[Exception] = []
            await _collect(problems, self.driver.aclose())
            log.state, self._agent_session = old_log.state, session
            if edit is not None:
                await _collect(problems, edit())
            for entry in recover(log.state):
                log.append(entry)
            state = None if log.is_empty else log.state
            await self._attach(
                await self._start(msgspec.structs.replace(session, state=state)),
                view,
                has_notes=has_notes,
            )
            await _collect(problems, old_session.aclose())
            for problem in problems:
                raise problem

    async def _find_resumed(self, resume: str | None, *, fork: bool) -> str | None:
        if fork and resume:
            return await undo.fork_session(self.library, self.library.find(resume), self.folder)
        self.background, session_dir = background.NO_CHOICES, None
        if resume is not None:
            session_dir = _find_session(self.library, self.folder, resume)
        if session_dir is not None:
            tell = partial(self._show_faint, "the session works: it comes here after this round")
            await background.take_over(session_dir, tell)
            self.background = background.read_choices(session_dir) or background.NO_CHOICES
            goal = self.background.until or self.choices.goal
            self.choices = msgspec.structs.replace(self.choices, goal=goal)
        return resume

    async def _leave(self, conversation: Conversation) -> None:
        self.callbacks.start_switch()
        self.conversation = None  # no input and no drawing without a session
        await conversation.aclose()

    async def _build(
        self, resume: str | None = None, *, log: SessionLog | None = None
    ) -> AgentSession:
        """The agent of a new or a resumed session, or of one that is open (`log`)."""
        allow, deny = list_flag_rules(self)
        options = msgspec.structs.replace(
            self.options,
            interactive=True,
            resume=resume,
            allow=allow,
            deny=deny,
            until=self.choices.goal,
            dry_run=self.choices.dry_run,
            checkpoints=True,
        )
        session = await build_agent(
            self.load_settings(),
            self.folder,
            options,
            approve=self._ask_approval,
            notify=self._show_faint,
            warn=self._warn_once,
            log=log,
        )
        agent = session.agent
        agent = agent.replace(services={**agent.config.services, **self._make_services()})
        return msgspec.structs.replace(session, agent=agent)

    async def _start(self, session: AgentSession) -> Driver:
        """Start the driver of a session, which is the open one from now on."""
        self._agent_session = session
        self._apply_choices(session)
        self.notes, self.children = session.notes, session.make_children()
        start = partial(session.start, children=self.children)
        # In a thread: the items of a long session are measured, and a host has other sessions.
        is_resumed = session.state is not None
        self._driver = await asyncio.to_thread(start) if is_resumed else start()
        for server in session.servers:
            await server.open()  # in the background: it may be up before the first message
        if session.state is not None and session.state.intents:
            self._driver.watch(CrashReport(session.state, self._show_faint))
        if self.load_settings().sandbox != "off":
            session.workspace.preload()  # a missing sandbox is shown before the first command
        return self._driver

    def _apply_choices(self, session: AgentSession) -> None:
        choices, session_id = self.choices, session.store.session_id
        if choices.mode is not None:
            session.policy.change_mode(msgspec.convert(choices.mode, PermissionMode))
        if session_id != choices.rules_session:
            choices = msgspec.structs.replace(choices, rules=(), rules_session=session_id)
            self.choices = choices
        session.policy.allow_for_session(choices.rules)

    async def _attach(
        self, driver: Driver, view: ViewState | None = None, *, has_notes: bool = True
    ) -> None:
        callbacks, is_shown = self.callbacks, view is not None
        self.custom_commands, problems = load_commands(self.folder, trusted=is_trusted(self.folder))
        is_told = is_shown and not has_notes
        notes: Sequence[str] = () if is_told else (*self.notes, *problems)
        if view is None:
            view, notes = await callbacks.read_view(driver, notes)
        conversation = self._make_conversation(driver, view)
        _continue_from_background(self, conversation)
        callbacks.prepare_conversation(conversation, notes)
        self.conversation = conversation
        if callbacks.runs_turns:
            conversation.start()
        callbacks.attach_conversation(conversation, is_shown=is_shown)

    def detach(self) -> Conversation | None:
        """The conversation, which is not the current one any more: the host is being closed."""
        conversation, self.conversation = self.conversation, None
        return conversation

    async def aclose(self) -> None:
        conversation = self.detach()
        if conversation is not None:
            await conversation.aclose()
        await self._close_driver()

    async def _close_driver(self) -> None:
        driver, self._driver = self._driver, None
        session, self._agent_session = self._agent_session, None
        try:
            if driver is not None:
                await driver.aclose()
        finally:
            if session is not None:
                await session.aclose()

    # --- for HostedSession -----------------------------------------------------------------

    def _make_services(self) -> dict[str, object]:
        """What tools such as `ask` use of a host."""
        return {}

    def _make_conversation(self, driver: Driver, view: ViewState) -> Conversation:
        callbacks = self.callbacks
        return Conversation(driver, callbacks.mark_changed, callbacks.return_messages, view)

    # --- callbacks -----------------------------------------------------------------------

    def _show_faint(self, text: str) -> None:
        self.callbacks.show_message(text, "faint")

    def _warn_once(self, text: str) -> None:
        """Show a warning, unless an earlier session of this process had the same."""
        if text not in self._shown_warnings:
            self._shown_warnings.add(text)
            self._show_faint(text)

    async def _ask_approval(self, approval: PendingApproval) -> Approval | Denial | bool:
        if self.conversation is None:
            return False
        return await self.callbacks.ask_approval(self.conversation, approval) or False


def list_flag_rules(session: SessionLifecycle) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The allow and deny rules of flags, also of those with which it was in the background."""
    options, earlier = session.options, session.background
    return (*options.allow, *earlier.allow), (*options.deny, *earlier.deny)


def _continue_from_background(session: SessionLifecycle, conversation: Conversation) -> None:
    """The session is open here now; a turn that a run left open is continued."""
    if background.read_choices(session.session_dir) is None:
        return
    background.forget_choices(session.session_dir)
    state = session.driver.state
    if session.callbacks.runs_turns and (state.turn is not None or state.queued):
        # What the run had not begun is not interrupted: it begins here.
        conversation.view = finish_view(
            conversation.view, lambda call: "interrupted" if call in state.intents else "waiting"
        )
        conversation.resume()


def _format_origin(given: Mapping[str, object], choices: SessionChoices, name: str) -> str:
    """Where a choice of the session comes from: an option, or a command that changed it."""
    is_option = choices.flags.get(name) == given.get(name)
    return SETTINGS_BY_NAME[name].option if is_option else _COMMANDS.get(name, "/budget")


def _find_session(library: Library, folder: Path, resume: str) -> Path | None:
    """The session that is meant: the newest one of the folder, if it is ""; None without one."""
    if not resume:
        return library.find_latest(folder)
    return library.find(resume, folder=folder, by_words=True)


async def _collect(problems: list[Exception], work: Awaitable[None]) -> None:
    """Do this; a problem must not prevent what has to follow it."""
    try:
        await work
    except (TreadleError, OSError) as error:
        problems.append(error)
