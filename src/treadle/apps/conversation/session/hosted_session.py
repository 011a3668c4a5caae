"""A session as hosts see it: its life (lifecycle.py) and its parts, the small ones here.

The terminal, the page and the editors each have one for every session that they show, and the slash
commands (commands/table.py) work on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.assembly import SessionOptions
from treadle.apps.assembly.model_choice import check_allowed
from treadle.apps.conversation import plans
from treadle.apps.conversation.choices import ModelQuestion, PlanAnswer
from treadle.apps.conversation.conversation import Conversation
from treadle.apps.conversation.session.file_undo import FileUndo
from treadle.apps.conversation.session.lifecycle import SessionLifecycle
from treadle.apps.conversation.session.saved_sessions import SavedSessions
from treadle.apps.conversation.session.session_dry_run import DryRunReport, SessionDryRun
from treadle.apps.conversation.session.session_limits import LimitReport, SessionLimits
from treadle.apps.conversation.session.session_permissions import SessionPermissions
from treadle.apps.conversation.state.view_state import ViewState
from treadle.apps.settings import changes as settings_changes
from treadle.apps.settings import extensions
from treadle.apps.settings import folder_rules as rules
from treadle.apps.settings.load import load_settings
from treadle.apps.settings.settings import SETTINGS
from treadle.core.contracts.hook import Block
from treadle.core.contracts.model import ModelCard
from treadle.core.errors import ConfigError, TreadleError
from treadle.core.loop.driver import Driver
from treadle.core.transcript.items import UserItem

if TYPE_CHECKING:
    from treadle.sessions.forecast import PastTasks
    from treadle.tools.builtin import UserQuestion
    from treadle.tools.mcp.server import McpServer


class HostedSession(SessionLifecycle):
    """A folder, the session that is open in it, and what the user can do with it."""

    def __init__(
        self,
        folder: Path,
        flags: Mapping[str, object] | None = None,
        options: SessionOptions | None = None,
    ) -> None:
        super().__init__(folder, flags, options)
        self.trust = SessionTrust(self.folder)
        self.model = SessionModel(self)
        self.permissions = SessionPermissions(self)
        self.limits = SessionLimits(self)
        self.settings = SessionSettings(self)
        self.servers = SessionServers(self)
        self.saved = SavedSessions(self)
        self.undo = FileUndo(self)
        self.forecast = SessionForecast(self)
        self.dry_run = SessionDryRun(self)

    @property
    def mode_label(self) -> str:
        mode = self.permissions.mode
        return f"{mode}, dry run" if self.choices.dry_run else mode

    def _make_conversation(self, driver: Driver, view: ViewState) -> Conversation:
        callbacks = self.callbacks
        conversation = Conversation(
            driver,
            callbacks.mark_changed,
            callbacks.return_messages,
            view,
            self.permissions.allow_for_session,
            may_wake=lambda: self.load_settings().wake,
        )
        driver.watch(DryRunReport(conversation.show_note))
        driver.watch(LimitReport(self.limits.list_limits, conversation.show_note))
        return conversation

    def _make_services(self) -> dict[str, object]:
        return {"ask": self._ask, "present_plan": self._present_plan}

    async def _ask(self, question: UserQuestion) -> str | None:
        choices = tuple((choice.label, choice.description) for choice in question.choices)
        asked = ModelQuestion(question.question, choices, question.multiple)
        answer = await self._ask_user(asked)
        return answer if isinstance(answer, str) else None

    async def _present_plan(self, session_id: str, plan: str) -> PlanAnswer | None:
        if self.permissions.mode != "plan" or session_id != self.driver.session_id:
            return None
        given = await self._ask_user(plans.make_plan_question(plan))
        answer = plans.parse_plan_answer(plan, given)
        if answer.mode:
            self.permissions.change_mode(answer.mode)
        return answer

    async def _ask_user(self, question: ModelQuestion) -> str | PlanAnswer | None:
        if self.conversation is None:
            return None
        return await self.callbacks.ask_user(self.conversation, question)


class SessionModel:
    def __init__(self, session: SessionLifecycle) -> None:
        self._session = session

    @property
    def card(self) -> ModelCard:
        return self._session.agent_session.model.card

    def list_names(self) -> list[tuple[str, str]]:
        """Names that `change` takes, each with a description."""
        from treadle.models.catalog import card_for, list_models
        from treadle.models.registry.default_model import describe_card_briefly

        return [(name, describe_card_briefly(card_for(name))) for name in list_models()]

    async def change(self, name: str) -> None:
        from treadle.models import registry

        settings = self._session.load_settings()
        check_allowed(name, settings)
        chosen = registry.model(name, aliases=settings.aliases)  # raises if the name is unknown
        try:
            registry.check_keys(chosen)
        finally:
            await chosen.aclose()
        await self._change_flag("model", name)

    @property
    def thinking(self) -> str:
        """An effort, a number of tokens, or "auto"."""
        return self._session.load_settings().thinking

    async def change_thinking(self, effort: str) -> None:
        await self._change_flag("thinking", effort)

    async def _change_flag(self, setting: str, value: str) -> None:
        flags = {**self._session.choices.flags, setting: value}
        await self._session.reconfigure(flags=flags, has_notes=True)


class SessionTrust:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def is_given(self) -> bool:
        return rules.is_trusted(self._folder)

    @property
    def is_declined(self) -> bool:
        """Whether the user asked not to be asked about trust again."""
        return rules.is_trust_declined(self._folder)

    def give(self) -> None:
        store, found = rules.open_trust_store(), rules.read_project_rules(self._folder)
        store.trust(self._folder)
        store.accept_rules(self._folder, found)

    def decline(self) -> None:
        rules.open_trust_store().decline(self._folder)

    def list_files(self) -> list[str]:
        """The files and folders here that take effect with trust."""
        return extensions.list_extension_files(self._folder)

    def list_rules(self) -> list[str]:
        """The allow rules here that trust accepts, the widest first, a line each."""
        try:
            return rules.describe_project_rules(self._folder)
        except ConfigError:
            return []  # the session does not start with such a file, and says why

    def list_unapproved_programs(self) -> list[str]:
        """Hooks and servers of the folder that are new or changed since approval, a line each."""
        programs = extensions.discover_extensions(self._folder).unapproved
        return [line for program in programs for line in program.detail_lines]

    def approve_programs(self) -> None:
        """Approve the programs that `list_unapproved_programs` lists."""
        extensions.approve_extensions(self._folder)


class SessionSettings:
    def __init__(self, session: SessionLifecycle) -> None:
        self._session = session

    def list_settings(self) -> list[tuple[str, str, str]]:
        """Name, value, origin."""
        settings = self._session.load_settings()
        names = [setting.name for setting in SETTINGS]
        return [(name, settings.format(name), settings.origin(name)) for name in names]

    def list_written(self) -> set[str]:
        """The names of those that are in the user's file."""
        from treadle.apps.settings.writer import read_written_value

        names = [setting.name for setting in SETTINGS]
        return {name for name in names if read_written_value(name) is not None}

    def format_values(self) -> dict[str, str]:
        return {name: value for name, value, _ in self.list_settings()}

    def describe(self, name: str) -> str:
        """The value of a setting, its origin and what it means."""
        return settings_changes.describe_setting(self._session.load_settings(), name)

    async def change(self, arguments: str) -> str:
        """Write `NAME VALUE`, or remove it by `NAME --unset`, in the user's file, for
        this session, too; a message about it. If that fails, the file is as it was."""
        session = self._session
        session.require_idle("/config NAME VALUE")
        change = settings_changes.plan_setting_change(session.load_settings(), arguments)
        await self._ask_hooks(change.name)
        file = settings_changes.write_change(change)
        try:
            await session.reconfigure()
        except TreadleError as error:
            settings_changes.revert_change(change)
            raise ConfigError(f"{change.name} is not changed: {error}") from error
        return settings_changes.describe_change(change, file, session.load_settings)

    async def _ask_hooks(self, name: str) -> None:
        """ConfigError if a hook denies a change of the user's file."""
        from treadle.apps.settings.writer import find_config

        data = {"source": "user_settings", "file_path": str(find_config())}
        for answer in await self._session.driver.run_hooks("config_change", data):
            if isinstance(answer, Block):
                raise ConfigError(f"{name} is not changed: {answer.reason}")

    def save(self, name: str, value: bool | str) -> str:
        """Write a setting of the user, which needs no other session; a message about it."""
        from treadle.apps.settings.writer import write_setting

        file = write_setting(name, value)
        settings = load_settings(self._session.folder)
        overridden = f", but {settings.origin(name)} sets {settings.format(name)}"
        return f"saved in {file}{'' if getattr(settings, name) == value else overridden}"


class SessionServers:
    def __init__(self, session: SessionLifecycle) -> None:
        self._session = session

    def list_servers(self) -> tuple[McpServer, ...]:
        return self._session.agent_session.servers if self._session.is_open else ()

    def list_starting(self) -> tuple[str, ...]:
        """The names of those whose tools are not there yet."""
        return tuple(one.name for one in self.list_servers() if one.status.state == "starting")

    def find(self, name: str) -> McpServer:
        for server in self.list_servers():
            if server.name == name:
                return server
        names = ", ".join(one.name for one in self.list_servers()) or "none"
        raise ConfigError(f"there is no MCP server {name!r} (there are: {names})")

    async def wait(self) -> None:
        """Until each is up, or has failed for now."""
        await asyncio.gather(*(server.wait_ready() for server in self.list_servers()))

    def list_prompts(self) -> list[tuple[str, str, str]]:
        """The prompts of the servers as commands, `server:prompt`: name, summary, arguments."""
        if not self.list_servers():
            return []
        from treadle.apps.conversation.commands.mcp_prompts import list_prompt_commands

        return list_prompt_commands(self.list_servers())

    async def expand_prompt(self, command: str, arguments: str) -> UserItem | None:
        """The message of a prompt of a server; None if there is none of this name."""
        if not self.list_servers():
            return None
        from treadle.apps.conversation.commands.mcp_prompts import expand_prompt

        wait = self._session.load_settings().server_wait
        return await expand_prompt(self.list_servers(), command, arguments, wait)

    def list_resources(self) -> list[str]:
        """The resources of the servers, as they are mentioned: `server:uri`."""
        if not self.list_servers():
            return []
        from treadle.apps.conversation.commands.mcp_prompts import list_resource_mentions

        return list_resource_mentions(self.list_servers())


class SessionForecast:
    """What the first message will probably cost, while the user writes it (sessions/forecast.py).

    Hosts call `update` when the user pauses, and show `text` where the cost of the session will be.
    It is "" before and after the first message, and if too little is known."""

    def __init__(self, session: SessionLifecycle) -> None:
        self._session = session
        self._past: tuple[str, PastTasks] | None = None  # of a model
        self._message = ""
        self.text = ""

    async def update(self, message: str) -> bool:
        """Whether the text is another one now."""
        before, session = self.text, self._session
        is_command = message.startswith(("/", "!"))
        if not session.is_open or len(session.driver.history) or is_command or not message.strip():
            self.text = self._message = ""
        elif message != self._message:
            self._message = message
            self.text = await asyncio.to_thread(self._make, session.agent_session.model.name)
        return self.text != before

    def _make(self, model: str) -> str:
        from treadle.sessions.forecast import PastTasks

        if self._past is None or self._past[0] != model:
            self._past = model, PastTasks(self._session.library, self._session.folder, model)
        return self._past[1].forecast(self._message).short
