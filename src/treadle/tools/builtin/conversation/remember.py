"""`remember`: proposes a line for the memory of later sessions. The user accepts it, or not.

Where lines are kept is the host's: a function that this tool is made with.
"""

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

import msgspec

from treadle.core.contracts.tool import ToolOutput
from treadle.core.errors import ConfigError, ToolError
from treadle.tools.builtin.base import BuiltinTool, describe, escape_multiline
from treadle.tools.builtin.session_memory import CallSite, ToolSessions

# (text, scope, source) -> the number and the text of the line as it is kept.
ProposeMemory = Callable[[str, Literal["project", "user"], str], tuple[int, str]]


class RememberArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    scope: Annotated[Literal["project", "user"], describe("user: in every project")] = "project"


class RememberTool(BuiltinTool[RememberArguments]):
    name = "remember"
    kind = "think"
    arguments_type = RememberArguments
    concurrent = False
    aliases = ("save_memory", "update_memory", "memory")
    argument_aliases: ClassVar = {"fact": "text", "content": "text", "line": "text"}

    def __init__(self, sessions: ToolSessions, propose: ProposeMemory | None = None) -> None:
        super().__init__(sessions)
        self._propose = propose

    async def run(self, args: RememberArguments, site: CallSite) -> ToolOutput:
        if self._propose is None:
            raise ToolError("nothing is kept for later sessions here; continue without it")
        source = f"{site.context.session_id} {site.context.call_id}"
        try:
            number, text = self._propose(args.text, args.scope, source)
        except (ConfigError, OSError) as error:
            raise ToolError(f"the line is not kept: {error}") from error
        # One line, in the end: the user reads it in passing, and may decide at any time.
        shown = f"Proposed for memory: {escape_multiline(text)}   (/memory accept {number})"
        return ToolOutput("Proposed; the user decides on it. Do not mention it.", display=shown)
