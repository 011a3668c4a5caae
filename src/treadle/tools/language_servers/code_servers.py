"""The language servers of an agent, for its tools and for the hook after edits.

It imports and starts nothing before the first edit of a code file or the first call. Made by the
assembly, which decides whether they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treadle.core.contracts.tool import Tool
from treadle.core.contracts.workspace import Workspace
from treadle.tools.language_servers.languages import find_language, iter_project_languages

if TYPE_CHECKING:
    from treadle.tools.builtin.session_memory import ToolSessions
    from treadle.tools.language_servers.edit_diagnostics import EditDiagnostics
    from treadle.tools.language_servers.servers import LanguageServers


class CodeServers:
    """`start` starts programs of the workspace; the others as in `LanguageServers`."""

    def __init__(
        self,
        workspace: Workspace,
        start: Callable[..., Any],
        *,
        is_trusted: bool,
        is_used: bool = True,
        notify: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._workspace, self._start = workspace, start
        self._is_trusted, self._notify = is_trusted, notify
        self.is_used = is_used
        self._sessions: ToolSessions | None = None
        self._servers: LanguageServers | None = None
        self._diagnostics: EditDiagnostics | None = None

    def get_servers(self) -> LanguageServers:
        if self._servers is None:
            from treadle.tools.language_servers.servers import LanguageServers

            trusted, notify = self._is_trusted, self._notify
            given = self._workspace, self._start
            self._servers = LanguageServers(*given, is_trusted=trusted, notify=notify)
        return self._servers

    def make_tools(self, sessions: ToolSessions) -> Sequence[Tool]:
        """The tools, if a server for a language of the project is installed: from the start on, so
        that the list of tools stays the same."""
        self._sessions = sessions
        if not self.is_used or not any(iter_project_languages(self._workspace.root)):
            return ()
        from treadle.tools.builtin.code.find_symbol import FindSymbolTool
        from treadle.tools.builtin.code.rename_symbol import RenameSymbolTool

        return FindSymbolTool(sessions, self.get_servers), RenameSymbolTool(
            sessions, self.get_servers
        )

    async def before_edit(self, session_id: str, paths: Sequence[Path]) -> None:
        if not any(map(find_language, paths)):
            return
        if self._diagnostics is None:
            from treadle.tools.language_servers.edit_diagnostics import EditDiagnostics

            self._diagnostics = EditDiagnostics(self.get_servers(), self._list_seen)
        await self._diagnostics.before_edit(session_id, paths)

    async def after_edit(self, session_id: str, paths: Sequence[Path]) -> str:
        made = self._diagnostics
        return await made.after_edit(session_id, paths) if made is not None else ""

    async def at_turn_end(self, session_id: str) -> str:
        made = self._diagnostics
        return await made.at_turn_end(session_id) if made is not None else ""

    async def aclose(self) -> None:
        """End the servers; the next use starts them again."""
        made = self._diagnostics or self._servers
        if made is not None:
            await made.aclose()

    def _list_seen(self, session_id: str) -> list[Path]:
        sessions = self._sessions
        return list(sessions.get(session_id).seen_files) if sessions is not None else []
