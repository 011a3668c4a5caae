"""The Host contract: everything that the frontends and the commands need from below.

They do not know how a session is put together (local_host.py does). `abilities` lists what this
host supports; commands that need anything else are not offered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from treadle.apps.settings.changes import SettingChange
from treadle.apps.settings.command_files import CustomCommand
from treadle.apps.settings.rule_changes import RuleChange
from treadle.core.contracts.model import ModelCard
from treadle.core.contracts.workspace import CommandResult
from treadle.core.loop.driver import Driver
from treadle.core.steps import Approval, Denial, PendingApproval
from treadle.core.transcript.items import UserItem

Ability = Literal[
    "sessions", "rewind", "files", "compact", "goal", "budget", "agents", "models", "remember"
]

RestoreAction = Literal["undo", "redo"]


class SessionLine(msgspec.Struct, frozen=True):
    """A session in a list."""

    id: str
    title: str
    updated: float
    turns: int
    state: str


class TurnLine(msgspec.Struct, frozen=True):
    """A turn that the user can rewind to. `has_files`: its files can be restored, too."""

    turn_id: str
    number: int
    text: str
    time: float
    has_files: bool = False


class FileChange(msgspec.Struct, frozen=True):
    """What an undo, a redo or a rewind would do to a file, and who changed it.

    It leaves alone what the user changed: alone, or (`both`) after the agent, in the same lines,
    unless included. `unknown`: the agent or the user changed it; `doubt` says why. `has_earlier`:
    there is an earlier version, before a change of the user. `is_merged`: the user changed other
    lines since, which are kept.
    """

    path: str
    kind: Literal["added", "removed", "changed"]
    author: Literal["agent", "both", "unknown", "user"] = "agent"
    has_earlier: bool = False
    is_merged: bool = False
    doubt: str = ""

    @property
    def is_doubtful(self) -> bool:
        """Whether it is the agent's change or the user's."""
        return self.author == "unknown"

    @property
    def note(self) -> str:
        notes = {
            "both": "  (you changed it, too: left alone)",
            "unknown": f"  ({self.doubt}: may be your change)",
            "user": f"  (you {self.kind} it: left alone)",
        }
        if self.author == "agent" and self.is_merged:
            return "  (your changes are kept)"
        return notes.get(self.author, "  (back to your version)" if self.has_earlier else "")

    @property
    def sign(self) -> str:
        """What would happen to the file; the user's own changes, which stay, have no sign."""
        if self.author == "user":
            return " "
        return {"added": "+", "removed": "-", "changed": "~"}[self.kind]


class LimitLine(msgspec.Struct, frozen=True):
    """A limit that applies: the setting, its value and origin, and what is used of it."""

    setting: str
    value: float
    origin: str
    used: float | None = None


class ModelQuestion(msgspec.Struct, frozen=True):
    """A question from the model to the user, who may also answer with another text.

    `is_multiple`: the user may choose several answers. `plan`: Markdown to show; the question is
    whether the user accepts this plan.
    """

    text: str
    choices: tuple[tuple[str, str], ...] = ()
    is_multiple: bool = False
    plan: str = ""


class PlanAnswer(msgspec.Struct, frozen=True):
    """What the user decided about a plan: the mode that it is accepted into, and its text, which
    the user may have edited; or without a mode a comment for the model, "" to keep planning."""

    mode: str = ""
    plan: str = ""
    comment: str = ""


def _ignore_mode() -> None:
    """`HostCallbacks.show_mode` of a frontend that draws the mode anyway."""


class HostCallbacks(msgspec.Struct, frozen=True):
    """How the session reaches the user: a child's approval, a question, a line to show. `show_mode`
    is called when an answer of the user has changed the permission mode."""

    ask_approval: Callable[[PendingApproval], Awaitable[Approval | Denial | None]]
    ask_user: Callable[[ModelQuestion], Awaitable[str | PlanAnswer | None]]
    show_message: Callable[[str], None]
    show_mode: Callable[[], None] = _ignore_mode


class Host(Protocol):
    """A folder to work in, and at most one open session.

    Promises: no file of the folder takes effect before `trust`; `open` closes the previous session
    cleanly; an operation that `abilities` does not list raises. Problems are TreadleErrors with a
    message for the user.
    """

    @property
    def folder(self) -> Path: ...

    def list_added_folders(self) -> tuple[Path, ...]:
        """Other folders that the agent may work in."""

    @property
    def abilities(self) -> frozenset[Ability]: ...

    @property
    def is_trusted(self) -> bool: ...

    @property
    def is_trust_declined(self) -> bool:
        """Whether the user asked not to be asked about trust again."""

    def trust(self) -> None: ...

    def decline_trust(self) -> None: ...

    def list_extension_files(self) -> list[str]:
        """The files and folders here that take effect with trust."""

    def list_project_rules(self) -> list[str]:
        """The allow rules here that trust accepts, the widest first, a line each."""

    def list_unapproved_programs(self) -> list[str]:
        """Hooks and servers of the folder that are new or changed since approval, a line each."""

    def approve_programs(self) -> None:
        """Approve the programs that `list_unapproved_programs` lists."""

    # --- the session

    async def open(
        self, callbacks: HostCallbacks, *, resume: str | None = None, fork: bool = False
    ) -> Driver:
        """Open a new session, or resume one: by (part of) its id, or "" for the newest here."""

    async def reopen(self) -> Driver:
        """Close the session and open it again, with the current settings."""

    @property
    def driver(self) -> Driver: ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for the user about the session that was opened."""

    async def aclose(self) -> None: ...

    @property
    def sandbox_problem(self) -> str:
        """Why commands run without the sandbox that is wanted; "" if there is no problem."""

    # --- model, mode, goal

    @property
    def model(self) -> ModelCard: ...

    def list_models(self) -> list[tuple[str, str]]:
        """Names that `change_model` takes, each with a description."""

    async def change_model(self, name: str) -> Driver: ...

    @property
    def mode(self) -> str:
        """The permission mode; also before a session is open."""

    @property
    def modes(self) -> tuple[str, ...]: ...

    def change_mode(self, mode: str) -> None: ...

    def allow_for_session(self, approval: PendingApproval) -> None:
        """Allow what the approval offers until another session is opened: its wider mode, or else
        its rules. Nothing is saved."""

    @property
    def goal(self) -> str:
        """The command that must succeed before a turn ends; "" if there is none."""

    async def change_goal(self, command: str) -> Driver:
        """Every turn continues until this command succeeds; "" removes the goal."""

    def list_limits(self) -> list[LimitLine]:
        """The limits of cost, tokens and time that apply to this session."""

    async def change_limit(self, setting: str, value: float | None) -> Driver:
        """Change a limit of this session; None removes it."""

    # --- lists

    def list_sessions(self, limit: int = 200) -> list[SessionLine]:
        """The sessions of the folder, last used first."""

    async def preview_session(self, session_id: str) -> list[str]:
        """The last messages of a session of the list, a line each, to recognize it by."""

    def list_turns(self) -> list[TurnLine]: ...

    def list_permissions(self) -> list[tuple[str, str]]:
        """The rules that apply, each with its origin."""

    def list_settings(self) -> list[tuple[str, str, str]]:
        """Name, value, origin."""

    def describe_setting(self, name: str) -> str:
        """The value of a setting, its origin and what it means."""

    def plan_setting(self, arguments: str) -> SettingChange:
        """Check `NAME VALUE`, or `NAME --unset`; nothing is written."""

    async def change_setting(self, change: SettingChange) -> tuple[Driver, str]:
        """Write it to the user's file and open the session again; a message about it. If that
        fails, the file is as it was."""

    def change_rules(self, change: RuleChange) -> str:
        """Add or remove a permission rule in a settings file; a message about it. It is in force
        when the session is opened again."""

    def list_agents(self) -> list[tuple[str, str]]: ...

    def steer_child(self, session_id: str, text: str) -> bool:
        """Send a message to a child agent at work; False if it is not."""

    def stop_child(self, session_id: str) -> bool:
        """Interrupt a child agent; its parent gets what it has done. False if it is not at work."""

    def list_skills(self) -> list[tuple[str, str]]: ...

    # --- MCP servers

    def list_servers(self) -> list[str]:
        """The state of each server, a line each."""

    def list_server_logs(self, server: str) -> list[str]:
        """The state of a server, then its last log messages, oldest first."""

    def list_prompts(self) -> list[tuple[str, str]]:
        """The prompts of the servers as commands, `server:prompt`, each with a summary."""

    async def expand_prompt(self, command: str, arguments: str) -> UserItem | None:
        """The message of a prompt of a server; None if there is none of this name."""

    def list_resources(self) -> list[str]:
        """The resources of the servers, as they are mentioned: `server:uri`."""

    # --- undo

    async def preview_rewind(self, turn_id: str) -> list[FileChange]:
        """What a rewind to before this turn would do to files."""

    async def rewind(
        self, turn_id: str, *, files: bool, include: Collection[str] = ()
    ) -> tuple[Driver, str]:
        """The reopened session, and a message about the files that were restored.

        `include` are files that are restored although the user changed them, too, or may have.
        """

    async def preview_undo(self, include: Collection[str] = ()) -> list[FileChange]:
        """What `undo` would do to files."""

    async def undo(self, include: Collection[str] = ()) -> str:
        """Undo the file changes of the last turn that is not undone; a message about it."""

    async def preview_restore(
        self, action: RestoreAction, include: Collection[str] = ()
    ) -> tuple[str, list[FileChange]]:
        """What `undo` or `redo` would do: a title that names the turn, and the files."""

    async def list_changed_files(self) -> dict[str, str]:
        """The files that the agent added, removed or changed, without what is undone."""

    async def preview_redo(self, include: Collection[str] = ()) -> list[FileChange]:
        """What `redo` would do to files."""

    async def redo(self, include: Collection[str] = ()) -> str:
        """Bring back what the last undo or rewind changed; a message about it."""

    # --- services

    async def expand_command(self, command: CustomCommand, arguments: str) -> UserItem:
        """The message of a custom command; what it allows is allowed until the turn ends."""

    async def run_git(self, arguments: str) -> CommandResult:
        """Run git for a command of ours, such as /diff: in the sandbox where there is one, and
        without the hooks and the file monitor of the folder, which may not be trusted."""

    async def run_shell_command(
        self, command: str, on_output: Callable[[str], None]
    ) -> CommandResult:
        """Run a command that the user typed, outside the sandbox."""

    async def remember(self, text: str) -> str:
        """Add a line to the project's memory file; its path."""

    def save_setting(self, name: str, value: bool | str) -> str:
        """Write a setting of the user; a message about it."""

    def save_theme(self, name: str) -> str:
        """Write the theme to the user's settings; a message about it."""

    async def flush(self) -> Path:
        """Write what is pending to the session's log; the folder of the log."""
