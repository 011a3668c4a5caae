"""The editor's files over the protocol: `fs/read_text_file` and `fs/write_text_file`.

Implements workspace.EditorFiles. An editor that does not have a file, or has no answer, is no
problem for a read: the file on disk is used. Made by session.py.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from acp import RequestError
from acp.interfaces import Client
from acp.schema import ClientCapabilities
from pydantic import ValidationError

from treadle.core.errors import WorkspaceError

READ_SECONDS = 20.0
WRITE_SECONDS = 60.0


class ClientFiles:
    """The files of one session; `session_id` is known when the session is open."""

    def __init__(self, client: Client, capabilities: ClientCapabilities) -> None:
        self._client = client
        self.session_id = ""
        self.can_read = bool(capabilities.fs and capabilities.fs.read_text_file)
        self.can_write = bool(capabilities.fs and capabilities.fs.write_text_file)

    async def read(self, path: Path) -> str | None:
        request = self._client.read_text_file(session_id=self.session_id, path=str(path))
        try:
            return (await asyncio.wait_for(request, READ_SECONDS)).content
        except (RequestError, ConnectionError, ValidationError, TimeoutError):
            return None

    async def write(self, path: Path, text: str) -> bool:
        request = self._client.write_text_file(
            session_id=self.session_id, path=str(path), content=text
        )
        try:
            await asyncio.wait_for(request, WRITE_SECONDS)
        except RequestError:
            return False
        except (ConnectionError, ValidationError, TimeoutError) as error:
            raise WorkspaceError(
                f"the editor did not confirm that it wrote {path}; read the file to see what it has"
            ) from error
        return True
