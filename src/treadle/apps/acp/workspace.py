"""The workspace of a session whose editor offers its files: a wrapper behind the contract.

Texts of the folder and the added folders are read as the editor has them, unsaved changes included,
and written through it. The limits stay those of the local workspace: it resolves every path, and
what is protected, binary or outside never goes to the editor. While a command of the agent runs,
writes go to disk: a command could swap a folder for a symlink, which the editor would follow. Made
by session.py.
"""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakValueDictionary

import msgspec
from acp import RequestError
from acp.interfaces import Client
from acp.schema import ClientCapabilities
from pydantic import ValidationError

from treadle.apps.assembly.lazy import LazyWorkspace
from treadle.core.contracts.workspace import (
    CommandInput,
    CommandResult,
    FileContent,
    NetworkAccess,
    ProgramResult,
    RunningCommand,
)
from treadle.core.contracts.wrapped import WrappedCommand, WrappedWorkspace
from treadle.core.errors import WorkspaceError
from treadle.lib.files.protected_paths import find_protected_part

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


MAX_EDITOR_BYTES = 8 << 20  # a larger file is not asked of the editor
NEW_FILE_MODE = 0o644
_BOM = codecs.BOM_UTF8


class EditorFiles(Protocol):
    """The files of the editor. Both return instead of raising if the editor cannot do it."""

    can_read: bool
    can_write: bool

    async def read(self, path: Path) -> str | None:
        """The text as the editor has it; None if it does not have the file."""

    async def write(self, path: Path, text: str) -> bool:
        """Write and save; False if the editor refused. WorkspaceError if it did not answer."""


class RunInTerminal(Protocol):
    def __call__(
        self,
        command: str,
        cwd: str,
        env: Mapping[str, str] | None,
        timeout: float | None,
        hidden: Sequence[str],
    ) -> Awaitable[CommandResult | None]:
        """Run a command without the variables `hidden`; None if the editor cannot."""


class EditorWorkspace(WrappedWorkspace):
    """`folders` are those that the editor has open; `run_in_terminal` its terminals, if any."""

    def __init__(
        self,
        workspace: LazyWorkspace,
        files: EditorFiles,
        folders: Sequence[Path],
        run_in_terminal: RunInTerminal | None = None,
    ) -> None:
        super().__init__(workspace)
        self._local = workspace
        self._files = files
        self._folders = tuple(folder.resolve() for folder in folders)
        self._run_in_terminal = run_in_terminal
        self._running: set[object] = set()  # commands
        self._unsaved: dict[str, str] = {}  # digest on disk -> digest of the unsaved text
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    # --- files ---------------------------------------------------------------------------

    async def read(self, path: str, *, limit: int | None = None) -> FileContent:
        if limit == 0 or not self._files.can_read or not self._is_open(self.resolve(path)):
            return await self._local.read(path, limit=limit)
        current = await self._read_current(path)
        if current.is_truncated:
            return await self._local.read(path, limit=limit)
        return current if limit is None else _truncate(current, limit)

    async def _read_current(self, path: str) -> FileContent:
        """The file as the editor has it, or as it is on disk; of a large one its beginning."""
        real = self.resolve(path)
        try:
            on_disk = await self._local.read(path, limit=MAX_EDITOR_BYTES)
        except WorkspaceError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            text = await self._files.read(real) if self._files.can_read else None
            if not text:
                raise
            return _make_content(text.encode(errors="replace"), NEW_FILE_MODE)
        disk_text = _decode(on_disk)
        if disk_text is None or not self._files.can_read or not self._is_open(real):
            return on_disk
        text = await self._files.read(real)
        if text is None or _normalize(text) == _normalize(disk_text):
            self._unsaved.pop(on_disk.digest, None)
            return on_disk
        unsaved = _make_content(_encode_like(text, on_disk.data), on_disk.mode)
        self._unsaved[on_disk.digest] = unsaved.digest
        return unsaved

    def find_seen_digest(self, digest: str) -> str:
        return self._unsaved.get(digest, digest)

    async def write(
        self, path: str, data: bytes, *, expected: str | None = None, mode: int | None = None
    ) -> FileContent:
        real = self.resolve(path, for_write=True)
        async with self._locks.setdefault(real, asyncio.Lock()):
            text = _decode(_make_content(data, 0))
            is_shared = self._files.can_write and self._is_open(real) and mode is None
            if text is None or not is_shared or find_protected_part(str(real)):
                return await self._local.write(path, data, expected=expected, mode=mode)
            return await self._write_shared(path, real, text, data, expected)

    async def _write_shared(
        self, path: str, real: Path, text: str, data: bytes, expected: str | None
    ) -> FileContent:
        current = await _if_exists(self._read_current(path))
        _check_expected(current, expected, path)
        on_disk = await _if_exists(self._local.read(path))
        if self._running or (on_disk is not None and not on_disk.mode & 0o222):
            return await self._write_to_disk(path, data, current, on_disk)
        if on_disk is None:  # claims the name, within the limits of the local workspace
            on_disk = await self._local.write(path, b"", expected="")
        if not await _finish(self._files.write(real, text)):
            return await self._local.write(path, data, expected=on_disk.digest)
        if (saved := await self._local.read(path)).data == data:
            return saved
        written = await self._read_current(path)  # the editor may have formatted it, or not saved
        if written.digest in (_digest(current), on_disk.digest) and written.data != data:
            raise WorkspaceError(f"the editor did not write {path}: it is as before")
        return written

    async def _write_to_disk(
        self, path: str, data: bytes, current: FileContent | None, on_disk: FileContent | None
    ) -> FileContent:
        if _digest(current) != _digest(on_disk):
            raise WorkspaceError(
                f"{path} has unsaved changes in the editor, and a command of the agent runs: "
                "wait until it has ended, or save the file"
            )
        return await self._local.write(path, data, expected=_digest(on_disk))

    async def read_outside(self, path: str, *, limit: int | None = None) -> FileContent:
        return await self._local.read_outside(path, limit=limit)

    def resolve_outside(self, path: str) -> Path:
        return self._local.resolve_outside(path)

    async def execute_outside(
        self, argv: Sequence[str], *, path: Path, cwd: str, timeout: float, limit: int
    ) -> ProgramResult:
        return await self._local.execute_outside(
            argv, path=path, cwd=cwd, timeout=timeout, limit=limit
        )

    async def remove(self, path: str, *, expected: str | None = None) -> None:
        if expected is None:
            await self._local.remove(path)
            return
        _check_expected(await _if_exists(self.read(path)), expected, path)
        on_disk = await self._local.read(path)
        await self._local.remove(path, expected=on_disk.digest)

    def _is_open(self, real: Path) -> bool:
        return any(real.is_relative_to(folder) for folder in self._folders)

    # --- commands ------------------------------------------------------------------------

    async def run(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_output: Callable[[str], None] | None = None,
        sandboxed: bool | None = None,
        network: NetworkAccess | None = None,
    ) -> CommandResult:
        token = object()
        self._running.add(token)
        try:
            # The editor has no sandbox: its terminals are for commands that would have none.
            if self._run_in_terminal is not None and not (await self._local.open()).sandboxed:
                folder, hidden = str(self.root / (cwd or ".")), await self._list_hidden_variables()
                done = await self._run_in_terminal(command, folder, env, timeout, hidden)
                if done is not None:
                    if on_output is not None:
                        on_output(done.output)
                    return done
            return await self._local.run(
                command,
                cwd=cwd,
                env=env,
                timeout=timeout,
                on_output=on_output,
                sandboxed=sandboxed,
                network=network,
            )
        finally:
            self._running.discard(token)

    async def _list_hidden_variables(self) -> list[str]:
        """The variables that a command does not get, such as keys; the editor has them, too."""
        local = await self._local.open()
        return sorted({*os.environ} - {*local.command_environment(sandboxed=False)})

    async def start(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        sandboxed: bool | None = None,
        network: NetworkAccess | None = None,
        stdin: CommandInput = False,
    ) -> RunningCommand:
        running = await self._local.start(
            command, cwd=cwd, env=env, sandboxed=sandboxed, network=network, stdin=stdin
        )
        return WatchedCommand(running, self._running)


class WatchedCommand(WrappedCommand):
    """A background command. It is in `running` until it is known to be over."""

    def __init__(self, command: RunningCommand, running: set[object]) -> None:
        super().__init__(command)
        self._running = running
        running.add(self)

    async def wait(self) -> CommandResult:
        result = await self._command.wait()
        self._running.discard(self)
        return result

    async def kill(self) -> CommandResult:
        result = await self._command.kill()
        self._running.discard(self)
        return result


# ------------------------------------------------------------------ contents


def _make_content(data: bytes, mode: int) -> FileContent:
    return FileContent(data, hashlib.sha256(data).hexdigest(), len(data), mode)


def _truncate(content: FileContent, limit: int) -> FileContent:
    is_truncated = limit < len(content.data)
    return msgspec.structs.replace(content, data=content.data[:limit], is_truncated=is_truncated)


def _decode(content: FileContent) -> str | None:
    """The text of a whole file in UTF-8; None for any other."""
    if content.is_truncated or content.size > MAX_EDITOR_BYTES or b"\0" in content.data:
        return None
    try:
        return content.data.decode()
    except UnicodeDecodeError:
        return None


def _normalize(text: str) -> str:
    """Without what editors keep apart from the text: the mark at its start, the line ends."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _encode_like(text: str, old: bytes) -> bytes:
    """The editor's text with the line ends and the mark of the file."""
    if b"\r\n" in old and "\r" not in text:
        text = text.replace("\n", "\r\n")
    data = text.encode(errors="replace")
    return _BOM + data if old.startswith(_BOM) and not data.startswith(_BOM) else data


def _digest(content: FileContent | None) -> str:
    return content.digest if content is not None else ""


def _check_expected(content: FileContent | None, expected: str | None, path: str) -> None:
    if expected is None or _digest(content) == expected:
        return
    if content is None:
        raise WorkspaceError(f"{path} was removed since it was read; read it again")
    if not expected:
        raise WorkspaceError(f"{path} exists already; read it first")
    raise WorkspaceError(f"{path} was changed since it was read; read it again, then edit")


async def _if_exists(read: Awaitable[FileContent]) -> FileContent | None:
    try:
        return await read
    except WorkspaceError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


async def _finish(work: Coroutine[Any, Any, bool]) -> bool:
    """Wait for a write even if cancelled: what happened to the file has to be known."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
