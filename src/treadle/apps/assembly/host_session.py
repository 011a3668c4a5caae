"""What a host adds to the coding agent: its session, and what it wants of it.

The command line and the terminal run the agent that `coding_agent` makes; a program that uses the
library has no HostSession. Made by assemble.py, used by coding_agent.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from treadle.apps.assembly.lazy import LazyWorkspace
from treadle.core.contracts.model import Model
from treadle.core.contracts.store import Store
from treadle.core.contracts.workspace import Workspace
from treadle.core.transcript.state import SessionState


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
    With `suspend`, a wait that is too long raises TurnSuspended (suspend.py). `checkpoints` records
    the files before and after turns; None means only for a host that is not interactive.
    A new session gets `session_id`, if one is given. `servers` are MCP servers that the host brings
    as the user's own. `model` is used instead of the one that the settings name. `wrap_workspace`
    puts the host between the tools and the workspace, if it wants to.
    """

    interactive: bool = False
    resume: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    until: str = ""
    output_schema: dict[str, Any] | None = None
    prompt_chars: int = 0
    suspend: bool = False
    checkpoints: bool | None = None
    session_id: str = ""
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
