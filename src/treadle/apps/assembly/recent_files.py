"""The files that a session read or changed last, for the time after a compaction.

Used by coding_agent.py; context/compaction/recent_files.py shows them to the model.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from treadle.context.compaction.recent_files import MAX_FILE_CHARS, MAX_RECENT_FILES
from treadle.core.contracts.workspace import Workspace
from treadle.core.errors import WorkspaceError
from treadle.lib.text.redaction import redact

if TYPE_CHECKING:
    from treadle.tools.builtin import BuiltinSource

MAX_BYTES = 4 * MAX_FILE_CHARS


class RecentFiles:
    """Reads them, the newest first. Left out is what is no text or cannot be read, and what a rule
    denies to read: the agent may have written such a file, and the user changed it since."""

    def __init__(
        self, builtin: BuiltinSource, workspace: Workspace, secrets: tuple[str, ...] = ()
    ) -> None:
        self._builtin = builtin
        self._workspace = workspace
        self._secrets = secrets

    async def __call__(self, session_id: str) -> list[tuple[str, str]]:
        seen = self._builtin.sessions.get(session_id).seen_files
        paths = [str(path) for path in islice(reversed(list(seen)), 2 * MAX_RECENT_FILES)]
        denied = await self._find_denied(paths)
        files: list[tuple[str, str]] = []
        for path in paths:
            text = await self._read(path) if path not in denied else None
            if text is not None:
                files.append((path, redact(self._secrets, text)))
        return files

    async def _find_denied(self, paths: list[str]) -> list[str]:
        get_find_denied = self._builtin.sessions.get_find_denied
        find_denied = await get_find_denied() if get_find_denied is not None else None
        return find_denied(paths) if find_denied is not None and paths else []

    async def _read(self, path: str) -> str | None:
        try:
            content = await self._workspace.read(path, limit=MAX_BYTES)
            errors = "ignore" if content.is_truncated else "strict"  # of a cut character
            return None if b"\0" in content.data else content.data.decode(errors=errors)
        except (WorkspaceError, UnicodeDecodeError):
            return None
