"""The tools that come with the engine: files, search, commands, the web, the user.

    from treadle.tools.builtin import builtin_tools
    agent = Agent(model, tools=[builtin_tools(workspace)], workspace=workspace)

    base             what the tools have in common
    session_memory   what they remember of a session
    files/           read write edit apply_patch notebook_edit
    search/          glob grep ls
    shell/           bash task_output task_input task_stop
    web/             web_fetch web_search
    conversation/    todo ask recall present_plan remember
    code/            find_symbol rename_symbol

Each tool is described to the model by the `.md` beside its code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from treadle.core.arguments.fit_names import fold_name
from treadle.core.contracts.tool import NO_ACCESS, Access, Tool, ToolKind
from treadle.core.contracts.workspace import Workspace
from treadle.core.errors import ConfigError, ToolError, WorkspaceError
from treadle.core.transcript import Arguments, Item
from treadle.tools.builtin.base import BuiltinTool
from treadle.tools.builtin.conversation.ask import AskTool, QuestionChoice, UserQuestion
from treadle.tools.builtin.conversation.present_plan import PresentPlanTool
from treadle.tools.builtin.conversation.recall import RecallTool
from treadle.tools.builtin.conversation.remember import ProposeMemory, RememberTool
from treadle.tools.builtin.conversation.todo import TodoTool
from treadle.tools.builtin.files.apply_patch import ApplyPatchTool
from treadle.tools.builtin.files.edit import EditTool
from treadle.tools.builtin.files.notebook_edit import NotebookEditTool
from treadle.tools.builtin.files.read import ReadTool
from treadle.tools.builtin.files.write import WriteTool
from treadle.tools.builtin.search.glob import GlobTool
from treadle.tools.builtin.search.grep import GrepTool
from treadle.tools.builtin.search.ls import LsTool
from treadle.tools.builtin.session_memory import GetFindDenied, ToolSessions
from treadle.tools.builtin.shell.bash import BashTool, find_last_cwd
from treadle.tools.builtin.shell.task_input import TaskInputTool
from treadle.tools.builtin.shell.task_output import TaskOutputTool
from treadle.tools.builtin.shell.task_stop import TaskStopTool
from treadle.tools.builtin.web.http_fetch import FetchedPage, FetchPage, HttpFetcher
from treadle.tools.builtin.web.web_fetch import WebFetchTool
from treadle.tools.builtin.web.web_search import WebSearchTool
from treadle.tools.federation import StaticSource

__all__ = [
    "builtin_tools", "BuiltinSource", "ALL_TOOLS", "STANDARD_TOOLS", "SMALL_TOOLS",
    "READ_ONLY_TOOLS", "UserQuestion", "QuestionChoice", "FetchPage", "HttpFetcher", "FetchedPage",
]  # fmt: skip

_TOOL_CLASSES: tuple[type[BuiltinTool[Any]], ...] = (
    ReadTool, WriteTool, EditTool, ApplyPatchTool, NotebookEditTool, GlobTool, GrepTool, LsTool,
    BashTool, TaskOutputTool, TaskInputTool, TaskStopTool, TodoTool, WebFetchTool, WebSearchTool,
    AskTool, RecallTool, PresentPlanTool, RememberTool,
)  # fmt: skip

STANDARD_TOOLS: tuple[str, ...] = (
    "read", "write", "edit", "notebook_edit", "glob", "grep", "ls", "bash", "task_output",
    "task_input", "task_stop", "todo", "web_fetch", "ask", "recall", "present_plan",
)  # fmt: skip
"""All but apply_patch, which is for models that were trained on it (name it in place of edit),
web_search, which needs a `search_address`, and remember, which needs `propose_memory`."""

ALL_TOOLS: frozenset[str] = frozenset(tool.name for tool in _TOOL_CLASSES)

KINDS_BY_NAME: Mapping[str, ToolKind] = {
    fold_name(name): tool.kind for tool in _TOOL_CLASSES for name in (tool.name, *tool.aliases)
}
"""For calls that are only looked at: the kinds by folded names and aliases."""

SMALL_TOOLS: tuple[str, ...] = ("ls", "read", "grep", "edit", "write", "bash")
"""Few enough for a small model."""

READ_ONLY_TOOLS: tuple[str, ...] = ("read", "glob", "grep", "ls")
"""The tools that only read files."""


class BuiltinSource(StaticSource):
    """The source of these tools, with their sessions."""

    def __init__(
        self,
        sessions: ToolSessions,
        tools: Sequence[Tool],
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(tools, "builtin")
        self.sessions = sessions
        self._close = close

    async def aclose(self) -> None:
        """End the language servers."""
        if self._close is not None:
            await self._close()

    def cwd(self, session_id: str) -> str:
        """The working directory of the session's next call; a policy resolves paths by it."""
        return self.sessions.cwd(session_id)

    def begin_session(self, session_id: str, items: Sequence[Item]) -> None:
        """A resumed session is in the folder of its last command. A new one is in the root and has
        seen no file, also if another one, which is kept elsewhere, had its id."""
        if items:
            self.restore_cwd(session_id, items)
        else:
            self.sessions.set_cwd(session_id, self.sessions.root)
            self.sessions.get(session_id).seen_files.clear()

    def restore_cwd(self, session_id: str, items: Iterable[Item]) -> None:
        """Set the working directory of a resumed session to that of its last command."""
        cwd = find_last_cwd(items)
        if cwd is not None:
            with contextlib.suppress(WorkspaceError):  # it is no longer part of the workspace
                self.sessions.set_cwd(session_id, str(self.sessions.workspace.resolve(cwd)))


def builtin_tools(
    workspace: Workspace,
    names: Sequence[str] = STANDARD_TOOLS,
    *,
    fetch: FetchPage | None = None,
    search_address: str = "",
    native_pdf: bool = True,
    read_outside: bool = False,
    detach_after: float | None = None,
    get_find_denied: GetFindDenied | None = None,
    unlisted: Sequence[str] = (),
    more: Callable[[ToolSessions], Sequence[Tool]] | None = None,
    close: Callable[[], Awaitable[None]] | None = None,
    propose_memory: ProposeMemory | None = None,
) -> BuiltinSource:
    """The named tools on a workspace.

    `fetch` fetches a page for web_fetch. `search_address`: of the SearXNG server of web_search.
    `native_pdf`: the model reads PDFs itself. `read_outside`: read, grep, glob and ls also show
    files outside of the workspace; only for an agent whose policy decides on them.
    `detach_after`: seconds after which a command continues in the background.
    `unlisted`: more tools, which the model is not told about and may call (`ToolSpec.unlisted`).
    `get_find_denied` tells which files grep leaves out, because a rule denies reading them.
    `more` makes further tools with the same sessions; `close` closes what they use.
    `propose_memory` keeps a line that remember proposes.
    """
    sessions = ToolSessions(workspace, get_find_denied, read_outside=read_outside)
    options: dict[str, dict[str, Any]] = {
        "read": {"native_pdf": native_pdf},
        "bash": {"detach_after": detach_after},
        "web_fetch": {"fetch": fetch},
        "web_search": {"address": search_address},
        "remember": {"propose": propose_memory},
    }
    classes = {tool.name: tool for tool in _TOOL_CLASSES}
    unknown = [name for name in (*names, *unlisted) if name not in classes]
    if unknown:
        known = ", ".join(classes)
        raise ConfigError(f"there is no built-in tool {unknown[0]!r}; there are {known}")
    tools = [classes[name](sessions, **options.get(name, {})) for name in dict.fromkeys(names)]
    tools += [classes[name](sessions).unlist() for name in unlisted if name not in names]
    return BuiltinSource(sessions, [*tools, *(more(sessions) if more else ())], close)


def describe_access(tool: str, arguments: Arguments, cwd: str = "") -> Access:
    """What a call of a built-in tool touches, for calls that are only looked at: arguments may be
    missing. NO_ACCESS if it is not known."""
    classes = {one.name.replace("_", ""): one for one in _TOOL_CLASSES}
    tool_class = classes.get(tool.lower().replace("_", ""))
    if tool_class is None:
        return NO_ACCESS
    aliases = tool_class.argument_aliases
    given = {aliases.get(name, name): value for name, value in arguments.items()}
    known: Arguments = {}
    for field in msgspec.structs.fields(tool_class.arguments_type):
        if field.required or field.encode_name in given:
            known[field.encode_name] = given.get(field.encode_name, "")
    try:
        return tool_class.describe_access(known, cwd)
    except ToolError:
        return NO_ACCESS
