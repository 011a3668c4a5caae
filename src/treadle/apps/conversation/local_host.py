"""The Host over apps/assembly: a folder, the user's settings, and sessions on disk.

Adds what only an interactive terminal needs: trust, changing the model of an open session, rewind
with files. Used by the terminal and by the editors (acp).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from treadle.agents.child_agents import ChildAgents
from treadle.apps.assembly import AgentSession, SessionOptions, build_agent
from treadle.apps.assembly.redaction import find_environment_secrets, redact
from treadle.apps.assembly.sessions import get_session_dir
from treadle.apps.conversation import plans, undo
from treadle.apps.conversation.crash_report import CrashReport
from treadle.apps.conversation.host import (
    Ability,
    FileChange,
    HostCallbacks,
    LimitLine,
    ModelQuestion,
    PlanAnswer,
    RestoreAction,
    SessionLine,
    TurnLine,
)
from treadle.apps.settings import changes as settings_changes
from treadle.apps.settings import extensions, rule_changes, rules
from treadle.apps.settings.changes import SettingChange
from treadle.apps.settings.claude_settings import PERMISSION_MODES
from treadle.apps.settings.command_files import CustomCommand
from treadle.apps.settings.load import load_settings
from treadle.apps.settings.rule_changes import RuleChange
from treadle.apps.settings.settings import SETTINGS, Settings
from treadle.core.contracts.model import ModelCard
from treadle.core.contracts.workspace import CommandResult
from treadle.core.errors import ConfigError, StoreError, TreadleError
from treadle.core.events import TurnResult
from treadle.core.loop.driver import Driver
from treadle.core.steps import PendingApproval
from treadle.core.transcript.entries import ItemAdded
from treadle.core.transcript.items import Item, NoticeItem, UserItem
from treadle.policy.modes import PermissionMode
from treadle.sessions import history
from treadle.sessions.library import Library

if TYPE_CHECKING:
    from treadle.apps.conversation.undo import PlannedRestore
    from treadle.tools.builtin import UserQuestion
    from treadle.tools.mcp.server import McpServer
    from treadle.workspace.checkpoints.checkpoints import Checkpoints
    from treadle.workspace.checkpoints.restore import RestoreResult

SELECTABLE_MODES: tuple[PermissionMode, ...] = ("ask", "accept-edits", "plan", "auto")


class LocalHost:
    """Implements host.Host. `flags` are settings of the command line by name."""

    abilities: frozenset[Ability] = frozenset(get_args(Ability))

    def __init__(
        self,
        folder: Path,
        flags: Mapping[str, object] | None = None,
        options: SessionOptions | None = None,
    ) -> None:
        self.folder = folder.resolve()
        self.notes: tuple[str, ...] = ()
        self._flags = dict(flags or {})
        self._options = options or SessionOptions()
        self._library = Library()
        self._session: AgentSession | None = None
        self._driver: Driver | None = None
        self._callbacks: HostCallbacks | None = None
        self._mode: str | None = None
        self._session_rules: tuple[str, ...] = ()
        self._rules_session = ""  # the session that they are for
        self._goal = self._options.until
        self._changed_limits: set[str] = set()
        self._removed_limits: set[str] = set()
        self._shown_warnings: set[str] = set()
        self._checkpoints: Checkpoints | None = None
        self._children = ChildAgents()

    def list_added_folders(self) -> tuple[Path, ...]:
        names = self._load_settings().add_dir
        return tuple(Path(self.folder, name).expanduser() for name in names)

    def _load_settings(self) -> Settings:
        settings = load_settings(self.folder, self._flags, is_trusted=lambda: self.is_trusted)
        return msgspec.structs.replace(settings, **dict.fromkeys(self._removed_limits))

    # --- trust ---------------------------------------------------------------------------

    @property
    def is_trusted(self) -> bool:
        return rules.is_trusted(self.folder)

    @property
    def is_trust_declined(self) -> bool:
        return rules.is_trust_declined(self.folder)

    def trust(self) -> None:
        store, found = rules.open_trust_store(), rules.read_project_rules(self.folder)
        store.trust(self.folder)
        store.accept_rules(self.folder, found)

    def decline_trust(self) -> None:
        rules.open_trust_store().decline(self.folder)

    def list_project_rules(self) -> list[str]:
        try:
            return rules.describe_project_rules(self.folder)
        except ConfigError:
            return []  # the session does not start with such a file, and says why

    def list_extension_files(self) -> list[str]:
        return extensions.list_extension_files(self.folder)

    def list_unapproved_programs(self) -> list[str]:
        programs = extensions.discover_extensions(self.folder).unapproved
        return [line for program in programs for line in program.detail_lines]

    def approve_programs(self) -> None:
        extensions.approve_extensions(self.folder)

    # --- the session ---------------------------------------------------------------------

    async def open(
        self, callbacks: HostCallbacks, *, resume: str | None = None, fork: bool = False
    ) -> Driver:
        if fork and resume:
            await self.aclose()
            parent = self._library.find(resume)
            resume = await undo.fork_session(self._library, parent, self.folder)
        return await self._open(callbacks, resume)

    async def _open(self, callbacks: HostCallbacks, resume: str | None, new_id: str = "") -> Driver:
        await self.aclose()
        self._callbacks = callbacks
        options = msgspec.structs.replace(
            self._options,
            interactive=True,
            resume=resume,
            until=self._goal,
            checkpoints=True,
            session_id=new_id,
        )
        settings, ask, show = self._load_settings(), callbacks.ask_approval, callbacks.show_message
        session = await build_agent(
            settings, self.folder, options, approve=ask, notify=show, warn=self._warn_once
        )
        self._session = self._add_services(session, callbacks)
        if self._mode is not None:
            self.change_mode(self._mode)
        if self._session.store.session_id != self._rules_session:  # another session
            self._session_rules, self._rules_session = (), self._session.store.session_id
        self._session.policy.allow_for_session(self._session_rules)
        self.notes = self._session.notes
        # In a thread: the items of a long session are measured, and a host has other sessions.
        is_resumed = self._session.state is not None
        self._children = self._session.make_children()
        start = partial(self._session.start, children=self._children)
        self._driver = await asyncio.to_thread(start) if is_resumed else start()
        for server in self._session.servers:
            await server.open()  # in the background: it may be up before the first message
        if self._session.state is not None and self._session.state.intents:
            self._driver.watch(CrashReport(self._session.state, callbacks.show_message))
        if settings.sandbox != "off":
            self._session.workspace.preload()  # a missing sandbox is shown before the first command
        return self._driver

    def _warn_once(self, text: str) -> None:
        """Show a warning, unless an earlier session of this process had the same."""
        if self._callbacks is not None and text not in self._shown_warnings:
            self._shown_warnings.add(text)
            self._callbacks.show_message(text)

    def _add_services(self, session: AgentSession, callbacks: HostCallbacks) -> AgentSession:
        """The session with what `ask` and `present_plan` use of this host."""
        from treadle.workspace.checkpoints.checkpoints import Checkpoints

        async def ask(question: UserQuestion) -> str | None:
            choices = tuple((choice.label, choice.description) for choice in question.choices)
            asked = ModelQuestion(question.question, choices, question.multiple)
            answer = await callbacks.ask_user(asked)
            return answer if isinstance(answer, str) else None

        async def present_plan(session_id: str, plan: str) -> PlanAnswer | None:
            if self.mode != "plan" or session_id != self.driver.session_id:
                return None
            given = await callbacks.ask_user(plans.make_plan_question(plan))
            answer = plans.parse_plan_answer(plan, given)
            if answer.mode:
                self._change_mode_by_answer(answer.mode)
            return answer

        self._checkpoints = Checkpoints(self.folder, self._library.checkpoint_dir(self.folder))
        services = {"ask": ask, "present_plan": present_plan}
        agent = session.agent.replace(services={**session.agent.config.services, **services})
        return msgspec.structs.replace(session, agent=agent)

    @property
    def driver(self) -> Driver:
        if self._driver is None:
            raise StoreError("no session is open")
        return self._driver

    @property
    def _current_session(self) -> AgentSession:
        if self._session is None:
            raise StoreError("no session is open")
        return self._session

    @property
    def _session_dir(self) -> Path:
        return get_session_dir(self._current_session.store)

    async def aclose(self) -> None:
        driver, self._driver = self._driver, None
        session, self._session = self._session, None
        try:
            if driver is not None:
                await driver.aclose()
        finally:
            if session is not None:
                await session.aclose()

    async def reopen(self) -> Driver:
        assert self._callbacks is not None, "only an open session is opened again"
        session = self.driver.session_id
        if len(self.driver.history):
            return await self._open(self._callbacks, session)
        return await self._open(self._callbacks, None, session)  # an empty one is not on disk

    async def finish_turn(self) -> TurnResult:
        """Run the turn of the submitted message; `callbacks` decide on all approvals."""
        return await self._current_session.agent.finish_turn(self.driver)

    @property
    def sandbox_problem(self) -> str:
        return self._current_session.workspace.sandbox_problem

    # --- model, mode, goal ---------------------------------------------------------------

    @property
    def model(self) -> ModelCard:
        return self._current_session.model.card

    def list_models(self) -> list[tuple[str, str]]:
        from treadle.models.catalog import card_for, list_models
        from treadle.models.registry.default_model import describe_card

        return [(name, describe_card(card_for(name))) for name in list_models()]

    async def change_model(self, name: str) -> Driver:
        from treadle.models import registry

        aliases = self._load_settings().aliases
        await registry.model(name, aliases=aliases).aclose()  # raises if the name is unknown
        return await self._change_flag("model", name)

    async def _change_flag(self, setting: str, value: str) -> Driver:
        """Open the session again with another setting; if that fails, with the one before."""
        before, callbacks, driver = dict(self._flags), self._callbacks, self.driver
        self._flags[setting] = value
        try:
            return await self.reopen()
        except TreadleError:
            self._flags = before
            assert callbacks is not None, "an open session has callbacks"
            has_history = bool(len(driver.history))
            await self._open(callbacks, driver.session_id if has_history else None)
            raise

    @property
    def thinking(self) -> str:
        """An effort, a number of tokens, or "auto"."""
        return self._load_settings().thinking

    async def change_thinking(self, effort: str) -> Driver:
        return await self._change_flag("thinking", effort)

    @property
    def mode(self) -> str:
        if self._session is None:  # before it is opened
            return self._mode or self._load_settings().permission_mode
        return self._session.policy.mode

    @property
    def modes(self) -> tuple[str, ...]:
        is_bypass = self._flags.get("permission_mode") == "bypass"
        return (*SELECTABLE_MODES, "bypass") if is_bypass else SELECTABLE_MODES

    def change_mode(self, mode: str) -> None:
        mode = PERMISSION_MODES.get(mode, mode)
        if mode not in self.modes:
            raise ConfigError(f"unknown mode {mode!r}; the modes are {', '.join(self.modes)}")
        self._mode = mode
        self._current_session.policy.change_mode(msgspec.convert(mode, PermissionMode))

    def _change_mode_by_answer(self, mode: str) -> None:
        self.change_mode(mode)
        if self._callbacks is not None:
            self._callbacks.show_mode()

    def allow_for_session(self, approval: PendingApproval) -> None:
        if approval.wider_mode:
            self._change_mode_by_answer(approval.wider_mode)
            return
        self._session_rules = (*self._session_rules, *approval.rules)
        self._current_session.policy.allow_for_session(approval.rules)

    @property
    def goal(self) -> str:
        return self._goal

    async def change_goal(self, command: str) -> Driver:
        self._goal = command
        last = self.driver.transcript[-1:]
        if not command and last and _is_about_goal(last[0]):
            return await self._end_goal()
        return await self.reopen()

    async def _end_goal(self) -> Driver:
        """Without its goal, the last turn is finished: nothing is left to continue."""
        session, callbacks = self.driver.session_id, self._callbacks
        assert callbacks is not None, "an open session has callbacks"
        await self.aclose()
        journal = self._library.resume(session, folder=self.folder).journal
        try:
            text = "The user removed the goal: its command is not run any more."
            journal.append(ItemAdded(NoticeItem(text, kind="goal", next_move="rest")))
        finally:
            await journal.aclose()
        return await self.open(callbacks, resume=session)

    def list_limits(self) -> list[LimitLine]:
        settings, usage = self._load_settings(), self.driver.total_usage
        used = {"max_cost": usage.cost, "max_tokens": float(usage.total), "max_time": None}
        lines: list[LimitLine] = []
        for name, amount in used.items():
            value, origin = getattr(settings, name), settings.origin(name)
            if value is not None and origin != "default":  # the default is for scripts
                origin = "/budget" if name in self._changed_limits else origin
                lines.append(LimitLine(name, value, origin, amount))
        return lines

    async def change_limit(self, setting: str, value: float | None) -> Driver:
        if value is None:
            self._removed_limits.add(setting)
        else:
            self._flags[setting] = int(value) if setting == "max_tokens" else value
            self._removed_limits.discard(setting)
            self._changed_limits.add(setting)
        return await self.reopen()

    # --- lists ---------------------------------------------------------------------------

    def list_sessions(self, limit: int = 200) -> list[SessionLine]:
        lines: list[SessionLine] = []
        for one in self._library.list_summaries(folder=self.folder, limit=limit):
            if one.turns:
                state = self._library.describe_state(one)
                title = self._library.get_title(one)
                lines.append(SessionLine(one.id, title, one.updated, one.turns, state))
        return lines

    async def preview_session(self, session_id: str) -> list[str]:
        from treadle.apps.conversation.session_preview import read_preview

        session_dir = self._library.find(session_id, folder=self.folder)
        return await asyncio.to_thread(read_preview, session_dir)

    def list_turns(self) -> list[TurnLine]:
        lines: list[TurnLine] = []
        has_files = False
        for mark in reversed(history.list_turns(self._session_dir)):
            has_files = has_files or bool(mark.checkpoint_before)
            lines.append(TurnLine(mark.turn_id, mark.number, mark.text, mark.time, has_files))
        return lines[::-1]

    def list_permissions(self) -> list[tuple[str, str]]:
        applied = rules.load_rules(self.folder, self._options.allow, self._options.deny)[0]()
        rows = (("deny", applied.deny), ("ask", applied.ask), ("allow", applied.allow))
        return [(f"{verb} {rule.text}", str(rule.origin)) for verb, part in rows for rule in part]

    def list_settings(self) -> list[tuple[str, str, str]]:
        settings = self._load_settings()
        names = [setting.name for setting in SETTINGS]
        return [(name, settings.format(name), settings.origin(name)) for name in names]

    def describe_setting(self, name: str) -> str:
        return settings_changes.describe_setting(self._load_settings(), name)

    def plan_setting(self, arguments: str) -> SettingChange:
        return settings_changes.plan_setting_change(self._load_settings(), arguments)

    async def change_setting(self, change: SettingChange) -> tuple[Driver, str]:
        file = settings_changes.write_change(change)
        try:
            driver = await self.reopen()
        except TreadleError as error:
            settings_changes.revert_change(change)
            raise ConfigError(f"{change.name} is not changed: {error}") from error
        return driver, settings_changes.describe_change(change, file, self._load_settings)

    def change_rules(self, change: RuleChange) -> str:
        changed = rule_changes.change_rules(self.folder, change)
        return rule_changes.describe_rule_change(self.folder, change, changed)

    def list_agents(self) -> list[tuple[str, str]]:
        from treadle.agents.agent_definition import BUILTIN_AGENTS
        from treadle.agents.agent_files import read_agent_files

        folders = [self.folder] if self.is_trusted else []
        agents, _ = read_agent_files([*folders, Path.home()], home=Path.home())
        own = {agent.name for agent in agents}
        agents += [agent for agent in BUILTIN_AGENTS if agent.name not in own]
        return [(agent.name, agent.description) for agent in agents]

    def steer_child(self, session_id: str, text: str) -> bool:
        driver = self._children.find_driver(session_id)
        if driver is not None:
            driver.steer(text)
        return driver is not None

    def stop_child(self, session_id: str) -> bool:
        driver = self._children.find_driver(session_id)
        if driver is not None:
            driver.interrupt("stopped by the user")
        return driver is not None

    def list_skills(self) -> list[tuple[str, str]]:
        from treadle.tools.skills import find_skills

        skills, _ = find_skills(self.folder, Path.home(), trusted=self.is_trusted)
        return [(skill.name, skill.description) for skill in skills]

    # --- MCP servers ---------------------------------------------------------------------

    def list_servers(self) -> list[str]:
        return [server.status.summary for server in self._servers]

    async def wait_for_servers(self) -> None:
        """Until each is up, or has failed for now."""
        await asyncio.gather(*(server.wait_ready() for server in self._servers))

    def list_server_logs(self, server: str) -> list[str]:
        found = [one for one in self._servers if one.name == server]
        if not found:
            names = ", ".join(one.name for one in self._servers) or "none"
            raise ConfigError(f"there is no MCP server {server!r} (there are: {names})")
        logs = [f"{log.level} {log.logger} {log.text}" for log in found[0].logs]
        return [found[0].status.summary, *(logs or ["it has sent no log messages"])]

    def list_prompts(self) -> list[tuple[str, str]]:
        if not self._servers:
            return []
        from treadle.apps.conversation.mcp_prompts import list_prompt_commands

        return list_prompt_commands(self._servers)

    async def expand_prompt(self, command: str, arguments: str) -> UserItem | None:
        if not self._servers:
            return None
        from treadle.apps.conversation.mcp_prompts import expand_prompt

        wait = self._load_settings().server_wait
        return await expand_prompt(self._servers, command, arguments, wait)

    def list_prompt_hints(self) -> dict[str, str]:
        """What an editor shows after the name of each prompt."""
        if not self._servers:
            return {}
        from treadle.apps.conversation.mcp_prompts import list_prompt_hints

        return list_prompt_hints(self._servers)

    def list_resources(self) -> list[str]:
        if not self._servers:
            return []
        from treadle.apps.conversation.mcp_prompts import list_resource_mentions

        return list_resource_mentions(self._servers)

    @property
    def _servers(self) -> tuple[McpServer, ...]:
        return self._session.servers if self._session is not None else ()

    # --- undo ----------------------------------------------------------------------------

    async def preview_rewind(self, turn_id: str) -> list[FileChange]:
        planned = await self._plan_rewind(turn_id)
        return _list_file_changes(planned) if planned is not None else []

    async def rewind(
        self, turn_id: str, *, files: bool, include: Collection[str] = ()
    ) -> tuple[Driver, str]:
        session, restored = self.driver.session_id, ""
        if files and (planned := await self._plan_rewind(turn_id)) is not None:
            restored = _format_restored(await self._restore(planned, include))
        callbacks = self._callbacks
        assert callbacks is not None, "an open session has callbacks"
        await self.aclose()
        journal = self._library.resume(session, folder=self.folder).journal
        try:
            await history.rewind(journal, turn_id)
        finally:
            await journal.aclose()
        return await self.open(callbacks, resume=session), restored

    async def preview_restore(
        self, action: RestoreAction, include: Collection[str] = ()
    ) -> tuple[str, list[FileChange]]:
        plan = self._plan_redo if action == "redo" else self._plan_undo
        planned = await plan(include)
        return undo.describe_plan_title(planned), _list_file_changes(planned)

    async def list_changed_files(self) -> dict[str, str]:
        await self._current_session.store.flush()
        return {**await undo.list_changed_files(self._require_checkpoints(), self._session_dir)}

    async def preview_undo(self, include: Collection[str] = ()) -> list[FileChange]:
        return _list_file_changes(await self._plan_undo(include))

    async def undo(self, include: Collection[str] = ()) -> str:
        return await self._restore_and_describe(await self._plan_undo(include), include)

    async def preview_redo(self, include: Collection[str] = ()) -> list[FileChange]:
        return _list_file_changes(await self._plan_redo(include))

    async def redo(self, include: Collection[str] = ()) -> str:
        return await self._restore_and_describe(await self._plan_redo(include), include)

    async def _plan_undo(self, include: Collection[str]) -> PlannedRestore:
        await self._current_session.store.flush()
        try:
            return await undo.plan_undo(self._require_checkpoints(), self._session_dir, include)
        except undo.NothingButUsersFiles as error:
            raise StoreError(f"{error}; /undo PATH restores one") from error

    async def _plan_redo(self, include: Collection[str]) -> PlannedRestore:
        await self._current_session.store.flush()
        try:
            return await undo.plan_redo(self._require_checkpoints(), self._session_dir, include)
        except undo.NothingButUsersFiles as error:
            raise StoreError(f"{error}; /redo PATH restores one") from error

    async def _plan_rewind(self, turn_id: str) -> PlannedRestore | None:
        await self._current_session.store.flush()
        turn = history.find_turn(self._session_dir, turn_id)
        return await undo.plan_rewind(self._require_checkpoints(), self._session_dir, turn)

    async def _restore_and_describe(self, planned: PlannedRestore, include: Collection[str]) -> str:
        restored = _format_restored(await self._restore(planned, include))
        again = "/redo PATH" if planned.action == "redo" else "/undo PATH"
        notes = undo.describe_notes(planned, include, self.driver.session_id, again)
        return "; ".join([f"{undo.describe_action(planned)}: {restored}", *filter(None, [notes])])

    async def _restore(
        self, planned: PlannedRestore, include: Collection[str] = ()
    ) -> RestoreResult:
        store = self._current_session.store
        return await undo.run_restore(self._require_checkpoints(), store, planned, include)

    def _require_checkpoints(self) -> Checkpoints:
        assert self._checkpoints is not None, "an open session has checkpoints"
        return self._checkpoints

    # --- services ------------------------------------------------------------------------

    async def expand_command(self, command: CustomCommand, arguments: str) -> UserItem:
        from treadle.apps.conversation.command_expansion import expand_command

        session = self._current_session
        is_approved = extensions.is_command_approved(self.folder, command)
        folders = self.list_added_folders()
        message = await expand_command(
            session, command, arguments, is_approved=is_approved, added_folders=folders
        )
        if is_approved:
            session.policy.grant(command.allowed_tools)
        return message

    async def run_git(self, arguments: str) -> CommandResult:
        from treadle.lib.git.run import SAFE_SETTINGS

        settings = " ".join(f"-c {setting}" for setting in SAFE_SETTINGS)
        return await self._run_command(f"git {settings} --no-pager {arguments}")

    async def run_shell_command(
        self, command: str, on_output: Callable[[str], None]
    ) -> CommandResult:
        return await self._run_command(command, on_output=on_output, sandboxed=False)

    async def _run_command(self, command: str, **options: Any) -> CommandResult:
        result = await self._current_session.workspace.run(command, **options)
        output = redact(find_environment_secrets(), result.output)
        return msgspec.structs.replace(result, output=output)

    async def remember(self, text: str) -> str:
        from treadle.context.memory import append_memory, choose_memory_file

        file = choose_memory_file(self.folder)
        append_memory(file, text)
        return str(file)

    def save_setting(self, name: str, value: bool | str) -> str:
        from treadle.apps.settings.writer import write_setting

        file = write_setting(name, value)
        settings = load_settings(self.folder)
        overridden = f", but {settings.origin(name)} sets {settings.format(name)}"
        return f"saved in {file}{'' if getattr(settings, name) == value else overridden}"

    def save_theme(self, name: str) -> str:
        return self.save_setting("theme", name)

    async def flush(self) -> Path:
        await self._current_session.store.flush()
        return self._session_dir


def _is_about_goal(item: Item) -> bool:
    return isinstance(item, NoticeItem) and "goal_command" in (item.data or {})


def _list_file_changes(planned: PlannedRestore) -> list[FileChange]:
    return [FileChange(**msgspec.structs.asdict(change)) for change in planned.plan.changes]


def _format_restored(restored: RestoreResult) -> str:
    return "; ".join([undo.list_restored(restored), *undo.list_skipped(restored)[:3]])
