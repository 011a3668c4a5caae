"""What a client offers to its servers, and the values of it: roots, sampling, questions, files.

Values and callbacks only; client_callbacks.py connects them to the SDK. The host decides what it
offers: a server is told only of what it gets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from treadle.core.contracts.tool import ToolContext
from treadle.core.transcript.content import Text, UserContent
from treadle.tools.mcp.auth.token_store import TokenStore


class SamplingMessage(msgspec.Struct, frozen=True):
    role: Literal["user", "assistant"]
    content: tuple[UserContent, ...]

    @property
    def text(self) -> str:
        parts = self.content
        return "\n".join(p.text if isinstance(p, Text) else f"[{p.media_type}]" for p in parts)


class SamplingRequest(msgspec.Struct, frozen=True):
    """A server asks for a reply of the model."""

    server: str
    messages: tuple[SamplingMessage, ...]
    system_prompt: str = ""
    max_tokens: int = 0
    temperature: float | None = None


class SamplingReply(msgspec.Struct, frozen=True):
    text: str
    model: str
    stop_reason: Literal["endTurn", "maxTokens"] = "endTurn"


# Raises ToolError with the reason if there is no reply. The context is that of the call during
# which the server asks; None if none runs.
Sampler = Callable[[SamplingRequest, ToolContext | None], Awaitable[SamplingReply]]
SaveFile = Callable[[str, bytes], str]  # (file name, content) -> path


class McpLogMessage(msgspec.Struct, frozen=True):
    """A log message of a server, for the user who asks for it."""

    level: str
    text: str
    logger: str = ""


class PersonLogin(Protocol):
    """How a person logs in: `show_link` lets them open it, `wait_redirect` returns the URL that
    the authorization server sends them to."""

    redirect_uri: str

    async def show_link(self, url: str) -> None: ...

    async def wait_redirect(self) -> str: ...


class McpClientOptions(msgspec.Struct, frozen=True):
    """What the servers of a host get.

    roots      the folders that a server may work in
    sampler    answers a server that asks for a reply of the model; None: it cannot ask
    can_ask    whether the user can be asked: the service "ask" of the call that runs
    open_url   opens a page in the browser, after the user agreed
    save_file  keeps sound and other data that no model takes
    headers    called at each connection: further headers for its URL
    tokens     where logins are kept; None: there are none
    login      how a person logs in, while they do
    """

    roots: tuple[Path, ...] = ()
    sampler: Sampler | None = None
    can_ask: bool = True
    open_url: Callable[[str], object] | None = None
    save_file: SaveFile | None = None
    headers: Callable[[], Mapping[str, str]] = dict
    tokens: TokenStore | None = None
    login: PersonLogin | None = None

    def complete(
        self, root: Path | None, headers: Callable[[], Mapping[str, str]] | None
    ) -> McpClientOptions:
        """The options with a root before the others, and with these headers."""
        roots = self.roots if root is None or root in self.roots else (root, *self.roots)
        headers = headers if headers is not None else self.headers
        return msgspec.structs.replace(self, roots=roots, headers=headers)
