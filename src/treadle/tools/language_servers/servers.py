"""The language servers and checkers of a workspace, one for each language, made when a file of that
language is first edited or asked about. Used by edit_diagnostics.py and the tools of builtin/code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from treadle.core.contracts.workspace import Workspace
from treadle.core.errors import WorkspaceError
from treadle.tools.language_servers.checker import ProgramChecker
from treadle.tools.language_servers.languages import (
    Language,
    find_installed,
    find_language,
    iter_project_languages,
    list_servers,
)
from treadle.tools.language_servers.server import LanguageServer
from treadle.tools.piped_process import StartProcess

MAX_FILE_BYTES = 2 << 20


class LanguageServers:
    """`start` and `execute` start programs of the workspace. Without `is_trusted` they run in the
    sandbox or not at all: they may run code of the repository. `notify` gets, once, why a server is
    not used."""

    def __init__(
        self,
        workspace: Workspace,
        start: Callable[..., Any],
        *,
        is_trusted: bool,
        notify: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._workspace = workspace
        self.root = workspace.root
        sandboxed = None if is_trusted else True
        self._start: StartProcess = partial(start, sandboxed=sandboxed)
        self._execute = partial(workspace.execute, sandboxed=sandboxed)
        self._notify = notify
        self._told: set[str] = set()
        self._servers: dict[str, LanguageServer | None] = {}
        self._checkers: dict[str, ProgramChecker | None] = {}

    def find(self, path: Path) -> LanguageServer | ProgramChecker | None:
        """What checks the file: the server of its language, else a checker."""
        language = find_language(path)
        if language is None:
            return None
        server = self._get_server(language)
        if server is not None and server.can_start:
            return server
        if language.name not in self._checkers:
            self._checkers[language.name] = self._make_checker(language)
        checker = self._checkers[language.name]
        return checker if checker is not None and not checker.problem else None

    def find_server(self, path: Path) -> LanguageServer | None:
        language = find_language(path)
        return self._get_server(language) if language is not None else None

    def list_project_servers(self) -> list[LanguageServer]:
        found = map(self._get_server, iter_project_languages(self.root))
        return [one for one in found if one is not None]

    async def read_text(self, path: Path) -> str | None:
        """The text of a file; None if there is none, or it is too long."""
        try:
            content = await self._workspace.read(str(path), limit=MAX_FILE_BYTES)
            return None if content.is_truncated else content.data.decode()
        except (WorkspaceError, UnicodeDecodeError):
            return None

    def tell_problem(self, problem: str) -> None:
        if problem and problem not in self._told:
            self._told.add(problem)
            self._notify(problem)

    async def aclose(self) -> None:
        """End them; the next use starts them again."""
        servers, self._servers, self._checkers = self._servers, {}, {}
        await asyncio.gather(*(one.aclose() for one in servers.values() if one is not None))

    def _get_server(self, language: Language) -> LanguageServer | None:
        if language.name not in self._servers:
            commands = list_servers(language, self.root)
            given = (language, commands, self.root, self._start, self.read_text)
            self._servers[language.name] = LanguageServer(*given) if commands else None
        return self._servers[language.name]

    def _make_checker(self, language: Language) -> ProgramChecker | None:
        checker = language.checker
        if checker is None or not (self.root / checker.needs).exists():
            return None
        argv = find_installed(checker.argv, self.root)
        return ProgramChecker(argv, self.root, self._execute) if argv is not None else None
