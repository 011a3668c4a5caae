"""What the terminal needs of everything below it: a Host.

The app, the plain mode and the commands know this page and not how a session is put together
(local_host.py does). `can` names what this host is able to do, so that nothing is offered in vain.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from treadle.core.contracts.model import ModelCard
from treadle.core.contracts.workspace import CommandResult
from treadle.core.loop.driver import Driver
from treadle.core.steps import PendingApproval
from treadle.core.transcript.content import ToolCall

Ability = Literal["sessions", "rewind", "files", "compact", "goal", "agents", "models", "remember"]


class SessionLine(msgspec.Struct, frozen=True):
    """A session in a list."""

    id: str
    title: str
    updated: float
    turns: int
    state: str


class TurnLine(msgspec.Struct, frozen=True):
    """A turn that one can go back to before."""

    turn_id: str
    number: int
    text: str
    time: float
    has_files: bool = False


class FileChange(msgspec.Struct, frozen=True):
    """What going back would do to a file."""

    path: str
    kind: Literal["added", "removed", "changed"]


class ModelQuestion(msgspec.Struct, frozen=True):
    """A question of the model to the person; any other answer than the choices will do, too."""

    text: str
    choices: tuple[tuple[str, str], ...] = ()


class HostCallbacks(msgspec.Struct, frozen=True):
    """How what is below reaches the person: about a child's call, a question, a line to show."""

    ask_approval: Callable[[PendingApproval], Awaitable[bool | str]]
    ask_user: Callable[[ModelQuestion], Awaitable[str | None]]
    show_message: Callable[[str], None]


class Host(Protocol):
    """A folder to work in, and at most one open session.

    Promises: nothing of the folder is believed before `trust`; `open` leaves the session before
    whole and closed; what `can` does not name raises. Problems are TreadleErrors in words for the
    person.
    """

    @property
    def folder(self) -> Path: ...

    def list_added_folders(self) -> tuple[Path, ...]:
        """Folders beside it that may be worked in."""

    @property
    def abilities(self) -> frozenset[Ability]: ...

    @property
    def is_trusted(self) -> bool: ...

    @property
    def is_trust_declined(self) -> bool:
        """Whether the person does not want to be asked about trust again."""

    def trust(self) -> None: ...

    def decline_trust(self) -> None: ...

    def list_extension_files(self) -> list[str]:
        """The files and folders here that would count with trust."""

    def list_unapproved_programs(self) -> list[str]:
        """The programs that the folder brings and that nobody approved as they are, a line each."""

    def approve_programs(self) -> None:
        """The person saw those lines, and lets the programs run."""

    # --- the session

    async def open(
        self, callbacks: HostCallbacks, *, resume: str | None = None, fork: bool = False
    ) -> Driver:
        """A new session, or (part of) the id of one, "" for the last one here."""

    async def reopen(self) -> Driver:
        """The same session, put together anew."""

    @property
    def driver(self) -> Driver: ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines about the session that was opened."""

    async def aclose(self) -> None: ...

    # --- what can be changed while it is open

    @property
    def model(self) -> ModelCard: ...

    def list_models(self) -> list[tuple[str, str]]:
        """Names that `change_model` takes, each with a word on it."""

    async def change_model(self, name: str) -> Driver: ...

    @property
    def mode(self) -> str: ...

    @property
    def modes(self) -> tuple[str, ...]: ...

    def change_mode(self, mode: str) -> None: ...

    async def change_goal(self, command: str) -> Driver:
        """Every turn goes on until this command succeeds; "" ends that."""

    # --- looking around

    def list_sessions(self) -> list[SessionLine]: ...

    def list_turns(self) -> list[TurnLine]: ...

    def list_permissions(self) -> list[tuple[str, str]]:
        """The rules in force, each with where it comes from."""

    def list_settings(self) -> list[tuple[str, str, str]]:
        """Name, value, origin."""

    def list_agents(self) -> list[tuple[str, str]]: ...

    def list_skills(self) -> list[tuple[str, str]]: ...

    async def preview_call(self, call: ToolCall) -> str:
        """What a call would do to files, as a unified diff; "" if that cannot be said."""

    # --- going back

    async def preview_rewind(self, turn_id: str) -> list[FileChange]:
        """What going back to before this turn would do to files."""

    async def rewind(self, turn_id: str, *, files: bool) -> tuple[Driver, str]: ...

    async def undo(self) -> str:
        """Take back what the last turn did to files; a sentence about it."""

    async def redo(self) -> str: ...

    # --- small services

    async def run_shell_command(
        self, command: str, on_output: Callable[[str], None]
    ) -> CommandResult:
        """A command of the person's own."""

    async def remember(self, text: str) -> str:
        """Write a line into the project's memory; where."""

    def save_theme(self, name: str) -> str:
        """Write the theme into the user's settings; a sentence about it."""

    async def export(self, path: str) -> Path:
        """Write the session to a file of this name, or of one made for it; where."""
