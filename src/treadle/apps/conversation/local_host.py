"""The Host over apps/assembly: a folder, the user's settings, and sessions on disk.

Adds what only an interactive terminal needs: trust, changing the model of an open session, rewind
with files. Used by both frontends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import msgspec

from treadle.apps import settings as settings_page
from treadle.apps.assembly import AgentSession, SessionOptions, build_agent, extensions, rules
from treadle.apps.assembly.redaction import find_environment_secrets, redact
from treadle.apps.assembly.sessions import get_session_dir
from treadle.apps.conversation.host import (
    Ability,
    FileChange,
    HostCallbacks,
    LimitLine,
    ModelQuestion,
    SessionLine,
    TurnLine,
)
from treadle.apps.services import undo
from treadle.apps.services.crash_report import CrashReport
from treadle.core.contracts.model import ModelCard
from treadle.core.contracts.workspace import CommandResult
from treadle.core.errors import ConfigError, StoreError
from treadle.core.loop.driver import Driver
from treadle.policy.modes import PermissionMode
from treadle.sessions import history
from treadle.sessions.library import Library

if TYPE_CHECKING:
    from treadle.apps.services.undo import PlannedRestore
    from treadle.tools.builtin import UserQuestion
    from treadle.workspace.checkpoints.checkpoints import Checkpoints
    from treadle.workspace.checkpoints.restore import RestoreResult

SELECTABLE_MODES: tuple[PermissionMode, ...] = ("ask", "accept-edits", "auto", "plan")


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
        self._goal = self._options.until
        self._changed_limits: set[str] = set()
        self._removed_limits: set[str] = set()
        self._checkpoints: Checkpoints | None = None

    def list_added_folders(self) -> tuple[Path, ...]:
        names = self._load_settings().add_dir
        return tuple(Path(self.folder, name).expanduser() for name in names)

    def _load_settings(self) -> settings_page.Settings:
        load = settings_page.load_settings
        settings = load(self.folder, self._flags, is_trusted=lambda: self.is_trusted)
        return msgspec.structs.replace(settings, **dict.fromkeys(self._removed_limits))

    # --- trust ---------------------------------------------------------------------------

    @property
    def is_trusted(self) -> bool:
        return rules.is_trusted(self.folder)

    @property
    def is_trust_declined(self) -> bool:
        return rules.is_trust_declined(self.folder)

    def trust(self) -> None:
        store = rules.open_trust_store()
        store.trust(self.folder)
        store.accept_rules(self.folder, rules.read_project_rules(self.folder))

    def decline_trust(self) -> None:
        rules.open_trust_store().decline(self.folder)

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
        await self.aclose()
        self._callbacks = callbacks
        if fork and resume:
            parent = self._library.find(resume)
            resume = await undo.fork_session(self._library, parent, self.folder)
        options = msgspec.structs.replace(
            self._options, interactive=True, resume=resume, until=self._goal, checkpoints=True
        )
        settings, ask, show = self._load_settings(), callbacks.ask_approval, callbacks.show_message
        session = await build_agent(settings, self.folder, options, approve=ask, notify=show)
        self._session = self._add_ask_service(session, callbacks)
        if self._mode is not None:
            self.change_mode(self._mode)
        self.notes = self._session.notes
        self._driver = self._session.start()
        if self._session.view is not None and self._session.view.intents:
            self._driver.watch(CrashReport(self._session.view, callbacks.show_message))
        return self._driver

    def _add_ask_service(self, session: AgentSession, callbacks: HostCallbacks) -> AgentSession:
        """The session with the service that the `ask` tool uses."""
        from treadle.workspace.checkpoints import Checkpoints

        async def ask(question: UserQuestion) -> str | None:
            choices = tuple((choice.label, choice.description) for choice in question.choices)
            asked = ModelQuestion(question.question, choices, question.multiple)
            return await callbacks.ask_user(asked)

        self._checkpoints = Checkpoints(self.folder, self._library.checkpoint_dir(self.folder))
        agent = session.agent.replace(services={**session.agent.config.services, "ask": ask})
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
        # An empty session is not on disk.
        session = self.driver.session_id if len(self.driver.history) else None
        return await self.open(self._callbacks, resume=session)

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
        self._flags["model"] = name
        return await self.reopen()

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
        if mode not in self.modes:
            raise ConfigError(f"unknown mode {mode!r}; the modes are {', '.join(self.modes)}")
        self._mode = mode
        self._current_session.policy.change_mode(msgspec.convert(mode, PermissionMode))

    @property
    def goal(self) -> str:
        return self._goal

    async def change_goal(self, command: str) -> Driver:
        self._goal = command
        return await self.reopen()

    def list_limits(self) -> list[LimitLine]:
        settings, usage = self._load_settings(), self.driver.usage
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

    def list_sessions(self) -> list[SessionLine]:
        lines: list[SessionLine] = []
        for one in self._library.list_summaries(folder=self.folder, limit=200):
            if one.turns:
                state = self._library.describe_state(one)
                title = one.title or (f"fork of {one.parent.session}" if one.parent else "")
                lines.append(SessionLine(one.id, title, one.updated, one.turns, state))
        return lines

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
        names = [setting.name for setting in settings_page.SETTINGS]
        return [(name, settings.format(name), settings.origin(name)) for name in names]

    def list_agents(self) -> list[tuple[str, str]]:
        from treadle.agents.agent_files import read_agent_files

        folders = [self.folder] if self.is_trusted else []
        agents, _ = read_agent_files([*folders, Path.home()], home=Path.home())
        return [(agent.name, agent.description) for agent in agents]

    def list_skills(self) -> list[tuple[str, str]]:
        from treadle.tools.skills import find_skills

        skills, _ = find_skills(self.folder, Path.home(), trusted=self.is_trusted)
        return [(skill.name, skill.description) for skill in skills]

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

    async def preview_undo(self) -> list[FileChange]:
        return _list_file_changes(await self._plan_undo())

    async def undo(self, include: Collection[str] = ()) -> str:
        return await self._restore_and_describe(await self._plan_undo(), include)

    async def preview_redo(self, include: Collection[str] = ()) -> list[FileChange]:
        return _list_file_changes(await self._plan_redo(include))

    async def redo(self, include: Collection[str] = ()) -> str:
        return await self._restore_and_describe(await self._plan_redo(include), include)

    async def _plan_undo(self) -> PlannedRestore:
        await self._current_session.store.flush()
        return await undo.plan_undo(self._require_checkpoints(), self._session_dir)

    async def _plan_redo(self, include: Collection[str]) -> PlannedRestore:
        await self._current_session.store.flush()
        try:
            return await undo.plan_redo(self._require_checkpoints(), self._session_dir, include)
        except undo.NothingToRedo as error:
            raise StoreError(f"{error}; /redo PATH restores one") from error

    async def _plan_rewind(self, turn_id: str) -> PlannedRestore | None:
        await self._current_session.store.flush()
        turn = history.find_turn(self._session_dir, turn_id)
        return await undo.plan_rewind(self._require_checkpoints(), self._session_dir, turn)

    async def _restore_and_describe(self, planned: PlannedRestore, include: Collection[str]) -> str:
        restored = _format_restored(await self._restore(planned, include))
        return f"{undo.describe_action(planned)}: {restored}"

    async def _restore(
        self, planned: PlannedRestore, include: Collection[str] = ()
    ) -> RestoreResult:
        store = self._current_session.store
        return await undo.run_restore(self._require_checkpoints(), store, planned, include)

    def _require_checkpoints(self) -> Checkpoints:
        assert self._checkpoints is not None, "an open session has checkpoints"
        return self._checkpoints

    # --- services ------------------------------------------------------------------------

    async def run_shell_command(
        self, command: str, on_output: Callable[[str], None]
    ) -> CommandResult:
        workspace = self._current_session.workspace
        result = await workspace.run(command, on_output=on_output, sandboxed=False)
        output = redact(find_environment_secrets(), result.output)
        return msgspec.structs.replace(result, output=output)

    async def remember(self, text: str) -> str:
        from treadle.context.memory import append_memory

        file = self.folder / "AGENTS.md"
        append_memory(file, text)
        return str(file)

    def save_theme(self, name: str) -> str:
        from treadle.apps.services.settings_writer import write_setting

        file = write_setting("theme", name)
        settings = settings_page.load_settings(self.folder)
        overridden = f", but {settings.origin('theme')} sets {settings.theme}"
        return f"saved in {file}{'' if settings.theme == name else overridden}"

    async def flush(self) -> Path:
        await self._current_session.store.flush()
        return self._session_dir


def _list_file_changes(planned: PlannedRestore) -> list[FileChange]:
    return [FileChange(change.path, change.kind, change.author) for change in planned.plan.changes]


def _format_restored(restored: RestoreResult) -> str:
    return "; ".join([undo.list_restored(restored), *undo.list_skipped(restored)[:3]])
