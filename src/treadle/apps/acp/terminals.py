"""Commands in terminals of the editor: `terminal/create` and the methods that belong to it.

Only for commands that would run without a sandbox anyway (workspace.py decides). The user sees the
output in the editor while the command runs. Made by session.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from acp import RequestError
from acp.interfaces import Client
from acp.schema import EnvVariable
from pydantic import ValidationError

from treadle.core.contracts.workspace import CommandResult
from treadle.core.errors import WorkspaceError
from treadle.lib.text.sanitize import strip_escapes

MAX_OUTPUT_BYTES = 256 << 10
CLIENT_ERRORS = (RequestError, ConnectionError, ValidationError)
_CWD_VARIABLE = "_TREADLE_CWD"
_VARIABLES = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}


class ClientTerminals:
    """`on_open` gets the command and the id of its terminal."""

    def __init__(self, client: Client, on_open: Callable[[str, str], None]) -> None:
        self._client = client
        self._on_open = on_open
        self.session_id = ""

    async def run(
        self,
        command: str,
        cwd: str,
        env: Mapping[str, str] | None,
        timeout: float | None,
        hidden: Sequence[str],
    ) -> CommandResult | None:
        """Run a command line to its end; None if the editor opens no terminal for it."""
        with tempfile.TemporaryDirectory(prefix="treadle-acp-") as folder:
            cwd_file = Path(folder, "cwd")
            variables = {**_VARIABLES, **(env or {}), _CWD_VARIABLE: str(cwd_file)}
            argv = make_argv(command, hidden)
            try:
                created = await self._client.create_terminal(
                    session_id=self.session_id,
                    command=argv[0],
                    args=argv[1:],
                    cwd=cwd,
                    env=[EnvVariable(name=name, value=value) for name, value in variables.items()],
                    output_byte_limit=MAX_OUTPUT_BYTES,
                )
            except CLIENT_ERRORS:
                return None
            self._on_open(command, created.terminal_id)
            try:
                return await self._wait(created.terminal_id, timeout, cwd_file)
            except CLIENT_ERRORS as error:
                raise WorkspaceError(f"the terminal of the editor failed: {error}") from error
            finally:
                await self._release(created.terminal_id)

    async def _wait(self, terminal_id: str, timeout: float | None, cwd_file: Path) -> CommandResult:
        where = {"session_id": self.session_id, "terminal_id": terminal_id}
        timed_out = False
        try:
            await asyncio.wait_for(self._client.wait_for_terminal_exit(**where), timeout)
        except TimeoutError:
            timed_out = True
            await self._client.kill_terminal(**where)
        except asyncio.CancelledError:
            with contextlib.suppress(*CLIENT_ERRORS):
                await asyncio.shield(self._client.kill_terminal(**where))
            raise
        seen = await self._client.terminal_output(**where)
        status = seen.exit_status
        is_cut = "the editor kept only the end of the output" if seen.truncated else ""
        late = f"it did not end within {timeout:g} s and was killed" if timed_out else ""
        return CommandResult(
            exit_code=None if timed_out or status is None else status.exit_code,
            output=strip_escapes(seen.output.replace("\r\n", "\n")),
            signal=(status.signal or "") if status is not None else "",
            timed_out=timed_out,
            total_bytes=len(seen.output.encode(errors="replace")),
            cwd=_read_cwd(cwd_file),
            note="; ".join(note for note in (late, is_cut) if note),
        )

    async def _release(self, terminal_id: str) -> None:
        with contextlib.suppress(*CLIENT_ERRORS):
            await self._client.release_terminal(session_id=self.session_id, terminal_id=terminal_id)


def make_argv(command: str, hidden: Sequence[str]) -> list[str]:
    """bash without these variables; at its end it tells its folder."""
    bash = ["bash", "-c", f"trap 'pwd -P > \"${_CWD_VARIABLE}\"' EXIT\n{command}"]
    unset = [word for name in hidden for word in ("-u", name)]
    return ["env", *unset, *bash] if unset else bash


def _read_cwd(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").rstrip("\n")
    except OSError:
        return ""
