"""A checker of the project, where no language server is found: run after an edit, and before the
first one, so that only new problems are told. Used by servers.py in place of a server.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Protocol

from treadle.core.contracts.workspace import ProgramResult
from treadle.core.errors import WorkspaceError
from treadle.tools.language_servers.connection import LanguageServerError
from treadle.tools.language_servers.diagnostic import Diagnostic, clean_message
from treadle.tools.language_servers.languages import FILE

CHECK_SECONDS = 60.0
MAX_OUTPUT_BYTES = 1 << 20
# `a.py:3:1: F401 text`, `a.ts(3,1): error TS1: text`, `vet: ./a.go:3:1: text`
_LINE = re.compile(
    r"^(?:vet: )?([^\s:(][^:(\n]*)[:(](\d{1,9})[:,](\d{1,9})\)?: (warning)?(?:error)?[: ]*(.+)$",
    re.MULTILINE,
)


class RunChecker(Protocol):
    """`Workspace.execute`, in the sandbox if one is needed."""

    async def __call__(
        self, argv: list[str], *, cwd: str, timeout: float, stdin: bytes, limit: int
    ) -> ProgramResult: ...


class ProgramChecker:
    """It answers like a language server. It is project-wide unless it reads one file from stdin: a
    check is then about the files on disk."""

    is_warm = True

    def __init__(self, argv: tuple[str, ...], root: Path, run: RunChecker) -> None:
        self._argv, self._root, self._run = argv, root, run
        self._lock = asyncio.Lock()
        self.is_project_wide = FILE not in argv
        self.name = Path(argv[0]).name
        self.problem = ""

    async def check(self, path: Path, text: str) -> list[Diagnostic]:
        argv = [str(path) if word == FILE else word for word in self._argv]
        stdin = b"" if self.is_project_wide else text.encode(errors="replace")
        async with self._lock:
            try:
                done = await self._run(
                    argv,
                    cwd=str(self._root),
                    timeout=CHECK_SECONDS,
                    stdin=stdin,
                    limit=MAX_OUTPUT_BYTES,
                )
            except WorkspaceError as error:
                raise self._give_up(str(error)) from None
        output = (done.stdout + b"\n" + done.stderr).decode(errors="replace")
        found = [self._parse(match) for match in _LINE.finditer(output)]
        if done.exit_code not in (0, 1) and not found:
            first = clean_message(output) or f"exit code {done.exit_code}"
            raise self._give_up("it did not end in time" if done.timed_out else first)
        return found

    async def aclose(self) -> None:
        """A run ends with the workspace."""

    def _parse(self, match: re.Match[str]) -> Diagnostic:
        path, line, column, warning, message = match.groups()
        place = (self._root / path, int(line), int(column))
        return Diagnostic(*place, clean_message(message), not warning)

    def _give_up(self, reason: str) -> LanguageServerError:
        self.problem = f"{self.name} is not used: {reason}"
        return LanguageServerError(self.problem)
