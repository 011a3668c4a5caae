"""One language server: started at first use, asked one thing at a time, started again if it ends.

It knows the texts of the files that it was shown, and waits for diagnostics of just these texts,
asked for or published by the server. Used by servers.py; the messages are in connection.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from treadle.core.errors import WorkspaceError
from treadle.tools.language_servers.connection import (
    LanguageServerError,
    LspConnection,
    RefusedRequest,
)
from treadle.tools.language_servers.diagnostic import Diagnostic, clean_message
from treadle.tools.language_servers.languages import Language
from treadle.tools.piped_process import PipedProcess, StartProcess

START_SECONDS = 60.0
ANSWER_SECONDS = 30.0
SETTLE_SECONDS = 0.3  # a server may publish what it found in several parts
MAX_RESTARTS = 2
MAX_REPEATS = 10
MAX_OPEN_FILES = 50
MAX_ITEMS = 1000  # diagnostics, places or symbols of one answer
_WARNING = 2  # the severity; what is less than a warning is not reported

T = TypeVar("T")
ReadText = Callable[[Path], Awaitable[str | None]]  # None: there is no such text file


class CodePosition(msgspec.Struct, frozen=True):
    """Both count from 0; `character` counts UTF-16 code units."""

    line: int
    character: int


class CodeRange(msgspec.Struct, frozen=True):
    start: CodePosition
    end: CodePosition


class _Diagnostic(msgspec.Struct, frozen=True):
    range: CodeRange
    message: str
    severity: int | None = 1
    code: str | int | None = None


class OpenFile(msgspec.Struct):
    """A file that the server was shown."""

    text: str
    version: int = 1
    published: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    diagnostics: object = None


class LanguageServer:
    """`commands`: command lines that may start it, in order. One that does not start, or that ends
    more than MAX_RESTARTS times, is not tried again; after the last one, `problem` says why."""

    is_project_wide = False

    def __init__(
        self,
        language: Language,
        commands: Sequence[tuple[str, ...]],
        root: Path,
        start: StartProcess,
        read: ReadText,
    ) -> None:
        self._language, self._root, self._start, self._read = language, root, start, read
        self._commands, self._suffixes = list(commands), language.suffixes
        self._restarts = 0
        self._connection: LspConnection | None = None
        self._capabilities: Mapping[str, Any] = {}
        self._files: dict[str, OpenFile] = {}  # by URI, the least recently shown first
        self._lock = asyncio.Lock()
        self.is_warm = False  # it has answered once
        self.problem = ""

    @property
    def name(self) -> str:
        program = Path(self._commands[0][0]).name if self._commands else self._language.name
        return program.removesuffix("-langserver")

    @property
    def can_start(self) -> bool:
        return bool(self._commands)

    async def check(self, path: Path, text: str) -> list[Diagnostic]:
        """What it says about a file with this text."""
        async with self._lock:
            connection = await self._connect()
            try:
                items = await self._diagnose(connection, path, text)
            except RefusedRequest:
                raise
            except LanguageServerError as error:
                await self._give_up(str(error))
                raise
            self.is_warm = True
            return _convert_diagnostics(path, text, items)

    def get_published(self, path: Path, text: str) -> list[Diagnostic] | None:
        """What it published, perhaps after `check`, about a file with this text; None: nothing."""
        file = self._files.get(path.as_uri())
        if file is None or file.text != text or not file.published.is_set():
            return None
        return _convert_diagnostics(path, text, file.diagnostics)

    async def ask(self, method: str, path: Path | None, text: str, **params: Any) -> Any:
        """The answer to a request, about a file if one is given."""
        async with self._lock:
            connection = await self._connect()
            for uri in tuple(self._files):  # a command may have changed them
                opened = parse_uri(uri)
                now = await self._read(opened) if opened is not None else None
                if opened is not None and now is not None:
                    self._show(connection, opened, now)
            is_cold, answer = not self.is_warm, None
            if path is not None:
                self._show(connection, path, text)
                params["textDocument"] = {"uri": path.as_uri()}
            if is_cold:
                await self._warm_up(connection, path or self._find_some_file())
            for _ in range(MAX_REPEATS if is_cold else 1):
                # One that just started knows only a part of the project: ask until it settles.
                last, answer = answer, await connection.request(method, params, ANSWER_SECONDS)
                if is_cold and answer != last:
                    await asyncio.sleep(SETTLE_SECONDS)
                else:
                    break
            return answer

    async def aclose(self) -> None:
        connection, self._connection, self.is_warm = self._connection, None, False
        if connection is not None:
            await connection.aclose()

    # --- start and end ---------------------------------------------------------------------

    async def _connect(self) -> LspConnection:
        if self._connection is not None and self._connection.end_reason:
            await self._give_up(self._connection.end_reason)
        while self._connection is None:
            if not self._commands:
                raise LanguageServerError(self.problem)
            self._files = {}
            argv = self._commands[0]
            process = PipedProcess(self._start, argv, cwd=str(self._root), env=None)
            connection = LspConnection(process, self._answer, self._on_notification, self._on_end)
            try:
                await connection.open()
            except WorkspaceError as error:
                self._drop_command(str(error))
                continue
            self._connection = connection
            try:
                await self._initialize(connection)
            except LanguageServerError as error:
                await self.aclose()
                self._drop_command(str(error))
        return self._connection

    async def _initialize(self, connection: LspConnection) -> None:
        uri = self._root.as_uri()
        reply = await connection.request(
            "initialize",
            {
                "processId": None,
                "clientInfo": {"name": "treadle"},
                "rootUri": uri,
                "workspaceFolders": [{"uri": uri, "name": self._root.name}],
                "capabilities": {
                    "workspace": {"configuration": True, "workspaceFolders": True},
                    "textDocument": {
                        "diagnostic": {},
                        "publishDiagnostics": {"versionSupport": True},
                        "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
                    },
                },
            },
            START_SECONDS,
        )
        match reply:
            case {"capabilities": dict(capabilities)}:
                self._capabilities = capabilities
            case _:
                raise LanguageServerError("it did not say what it can do")
        connection.notify("initialized", {})

    async def _give_up(self, reason: str) -> None:
        """Close the connection; the next request starts the server again, unless it did that too
        often."""
        await self.aclose()
        self._restarts += 1
        if self._restarts > MAX_RESTARTS:
            self._drop_command(reason)

    def _drop_command(self, reason: str) -> None:
        name, self._restarts = self.name, 0
        del self._commands[0]
        self.problem = f"{name} is not used: {reason}"

    async def _warm_up(self, connection: LspConnection, path: Path | None) -> None:
        """Let it check a file: it reads the project only then."""
        text = await self._read(path) if path is not None else None
        if path is not None and text is not None:
            await self._diagnose(connection, path, text)
            self.is_warm = True

    def _find_some_file(self) -> Path | None:
        places = (f"{folder}*{one}" for folder in ("", "*/", "*/*/") for one in self._suffixes)
        return next((path for place in places for path in self._root.glob(place)), None)

    # --- what it asks and tells ------------------------------------------------------------

    def _answer(self, method: str, params: Any) -> object:
        match method, params:
            case "workspace/configuration", {"items": list(items)}:
                return [self._get_configuration(one) for one in items[:MAX_ITEMS]]
            case "workspace/applyEdit", _:
                return {"applied": False}
            case "workspace/workspaceFolders", _:
                return [{"uri": self._root.as_uri(), "name": self._root.name}]
            case "client/registerCapability" | "client/unregisterCapability", _:
                return None
            case "window/workDoneProgress/create" | "window/showMessageRequest", _:
                return None
        if method.startswith("workspace/") and method.endswith("/refresh"):
            return None
        raise LookupError(method)

    def _get_configuration(self, item: object) -> object:
        """The interpreter of the project: a server does not look for it."""
        python = next(self._root.glob("*venv/bin/python"), None)
        if python is not None and isinstance(item, dict) and item.get("section") == "python":
            return {"pythonPath": str(python)}
        return None

    def _on_notification(self, method: str, params: Any) -> None:
        match method, params:
            case "textDocument/publishDiagnostics", {"uri": str(uri), "diagnostics": list(items)}:
                file, version = self._files.get(uri), params.get("version")
                if file is not None and version in (None, file.version):
                    file.diagnostics = items
                    file.published.set()
            case _:
                pass  # logs, progress, telemetry

    def _on_end(self) -> None:
        for file in self._files.values():
            file.published.set()

    # --- files -----------------------------------------------------------------------------

    def _show(self, connection: LspConnection, path: Path, text: str) -> OpenFile:
        """Let the server know the text of a file."""
        uri, file = path.as_uri(), self._files.pop(path.as_uri(), None)
        if file is None:
            file = OpenFile(text)
            language = self._suffixes.get(path.suffix, self._language.name)
            document = {"uri": uri, "languageId": language, "version": 1, "text": text}
            connection.notify("textDocument/didOpen", {"textDocument": document})
        elif file.text != text:
            file = OpenFile(text, file.version + 1)
            changed = {"uri": uri, "version": file.version}
            params = {"textDocument": changed, "contentChanges": [{"text": text}]}
            connection.notify("textDocument/didChange", params)
            # Some check only what is saved; the text is that of the disk, or becomes it.
            connection.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
        self._files[uri] = file
        while len(self._files) > MAX_OPEN_FILES:
            oldest = next(iter(self._files))
            del self._files[oldest]
            connection.notify("textDocument/didClose", {"textDocument": {"uri": oldest}})
        return file

    async def _diagnose(self, connection: LspConnection, path: Path, text: str) -> object:
        file = self._show(connection, path, text)
        if self._capabilities.get("diagnosticProvider"):
            params = {"textDocument": {"uri": path.as_uri()}}
            reply = await connection.request("textDocument/diagnostic", params, ANSWER_SECONDS)
            return reply.get("items") if isinstance(reply, dict) else reply
        if not await _wait(file.published, ANSWER_SECONDS) and not connection.end_reason:
            raise LanguageServerError(f"it reported nothing in {ANSWER_SECONDS:g} s")
        while file.published.is_set() and not connection.end_reason:
            file.published.clear()
            await _wait(file.published, SETTLE_SECONDS)
        if connection.end_reason:
            raise LanguageServerError(connection.end_reason)
        file.published.set()
        return file.diagnostics


async def _wait(event: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True


def convert_items(items: object, kind: type[T]) -> list[T]:
    """Values that a server sent, as a type; LanguageServerError if they are something else."""
    listed = items if isinstance(items, list) else [] if items is None else [items]
    try:
        return msgspec.convert(listed[:MAX_ITEMS], list[kind])  # type: ignore[valid-type]
    except (msgspec.ValidationError, RecursionError) as error:
        raise LanguageServerError(f"it sent a malformed answer: {error}") from None


def _convert_diagnostics(path: Path, text: str, items: object) -> list[Diagnostic]:
    lines, found = text.splitlines(), list[Diagnostic]()
    for one in convert_items(items, _Diagnostic):
        severity, start = one.severity or 1, one.range.start
        if severity > _WARNING or start.line < 0:
            continue
        code = f" ({one.code})" if one.code else ""
        source = lines[start.line].strip() if start.line < len(lines) else ""
        message = clean_message(one.message) + code[:60]
        place = (path, start.line + 1, start.character + 1)
        found.append(Diagnostic(*place, message, severity < _WARNING, source))
    return found


def parse_uri(uri: str) -> Path | None:
    """The path that a `file:` URI names."""
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None
