"""`@server:uri` in a message: the text of that resource of an MCP server is shown to the model.

A hook, so it works in every host. The user named the resource, so no approval is needed; its text
is data of the server. Content that is no text is left to the tool `read_resource`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from treadle.core.contracts.hook import AddContext, HookInput, HookPoint
from treadle.core.contracts.hook_data import UserPromptSubmitData
from treadle.core.contracts.tool import ToolOutput
from treadle.core.errors import ConfigError, TreadleError
from treadle.core.transcript.content import Text
from treadle.lib.text.text import suggest
from treadle.tools.mcp.server import McpServer

MAX_RESOURCE_CHARS = 100_000


class ResourceMentions:
    """Adds the resources that a message names."""

    def __init__(
        self, servers: Sequence[McpServer], notify: Callable[[str], None] | None = None
    ) -> None:
        self._servers = {server.name: server for server in servers}
        self._notify = notify or (lambda text: None)
        names = "|".join(re.escape(name) for name in self._servers)
        # A name that no server has: only before a whole URI, because `@name:` has other uses.
        self._mention = re.compile(rf"(?<![\w@])@(?:({names}):(\S+)|([\w.-]+):([\w+.-]+://\S*))")

    @property
    def points(self) -> frozenset[HookPoint]:
        return frozenset({"user_prompt_submit"})

    async def run(self, hook_input: HookInput[UserPromptSubmitData]) -> AddContext | None:
        prompt = hook_input.data["prompt"]
        if "@" not in prompt:
            return None
        found = dict.fromkeys(
            (match[1] or match[3], (match[2] or match[4]).rstrip(".,;!?)\"'"))
            for match in self._mention.finditer(prompt)
        )
        parts = [await self._read(name, uri) for name, uri in found]
        return AddContext("\n\n".join(parts)) if parts else None

    async def _read(self, name: str, uri: str) -> str:
        try:
            if name not in self._servers:
                nearest = suggest(name, self._servers)
                hint = f"; did you mean {nearest!r}?" if nearest else ""
                raise ConfigError(f"there is no MCP server {name!r}{hint}")
            output = await self._servers[name].read_resource(uri)
        except TreadleError as error:
            problem = f"@{name}:{uri} is not attached: {error}"
            self._notify(problem)
            return f"[{problem}]"
        text = _format_text(output)
        if len(text) > MAX_RESOURCE_CHARS:
            text = f"{text[:MAX_RESOURCE_CHARS]}... [truncated, {len(text)} chars total]"
        return f'<resource server="{name}" uri="{uri}">\n{text}\n</resource>'


def _format_text(output: ToolOutput) -> str:
    if isinstance(output.content, str):
        return output.content
    texts = [
        part.text if isinstance(part, Text) else f"[{part.media_type}: read it with read_resource]"
        for part in output.content
    ]
    return "\n".join(texts)
