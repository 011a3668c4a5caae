"""Bases for wrappers: an object of the same contract that changes a few things of another one.

    WrappedModel · WrappedTool · WrappedSource · WrappedStore · WrappedWorkspace

Each delegates everything; a wrapper overrides what it changes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import TYPE_CHECKING, Any, cast

import msgspec

from treadle.core.contracts.model import Model, ModelCard, ModelEvent, ModelRequest, Reply
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.store import Store
from treadle.core.contracts.tool import (
    Access,
    Preview,
    ProbeResult,
    RepairedArguments,
    Tool,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from treadle.core.contracts.workspace import (
    CommandInput,
    CommandResult,
    FileContent,
    NetworkAccess,
    ProgramResult,
    RunningCommand,
    Workspace,
)
from treadle.core.errors import StoreError, StreamBroken
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.entries import Entry
from treadle.core.transcript.items import AssistantItem
from treadle.core.transcript.usage import CallPurpose

if TYPE_CHECKING:
    from pathlib import Path


class WrappedModel:
    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def card(self) -> ModelCard:
        return self._model.card

    @property
    def fallback(self) -> Model | None:
        return self._model.fallback

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        return self._model.stream(request)

    async def aclose(self) -> None:
        await self._model.aclose()


class WrappedTool:
    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    def repair(self, arguments: Arguments) -> RepairedArguments:
        repair = getattr(self._tool, "repair", None)
        return RepairedArguments(arguments) if repair is None else repair(arguments)

    def check(self, arguments: Arguments) -> str | None:
        return self._tool.check(arguments)

    def summary(self, arguments: Arguments) -> str:
        return self._tool.summary(arguments)

    def access(self, arguments: Arguments, session_id: str) -> Access:
        return self._tool.access(arguments, session_id)

    async def preview(self, arguments: Arguments, context: ToolContext) -> Preview | None:
        return await self._tool.preview(arguments, context)

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        return await self._tool.call(arguments, context)

    async def evidence(self, arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        return await self._tool.evidence(arguments, context)

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        return await self._tool.probe(arguments, evidence, context)


class WrappedSource:
    def __init__(self, source: ToolSource) -> None:
        self._source = source

    def bind(self, deps: object) -> ToolSource:
        """The same around the source for these deps."""
        bound = self._source.bind(deps)
        if bound is self._source:
            return self
        from copy import copy

        wrapper = copy(self)
        wrapper._source = bound
        return wrapper

    @property
    def name(self) -> str:
        return self._source.name

    def tools(self) -> Sequence[Tool]:
        return self._source.tools()

    def instructions(self) -> str:
        return self._source.instructions()

    async def open(self) -> None:
        await self._source.open()

    async def aclose(self) -> None:
        await self._source.aclose()


def open_stream(
    model: Model, request: ModelRequest
) -> AbstractAsyncContextManager[AsyncIterator[ModelEvent]]:
    """The model's stream, closed when the block ends, so that no connection stays open.

    The contract promises only an iterator; every stream that holds a connection has `aclose`.
    """
    stream = model.stream(request)
    if not hasattr(stream, "aclose"):
        return nullcontext(stream)
    return aclosing(cast("AsyncGenerator[ModelEvent, None]", stream))


async def call_directly(request: ModelRequest, purpose: CallPurpose, model: Model) -> AssistantItem:
    """A CallModel without a session: nothing is admitted, retried or counted."""
    request = msgspec.structs.replace(request, purpose=purpose)
    async with open_stream(model, request) as events:
        async for event in events:
            if isinstance(event, Reply):
                return event.item
    raise StreamBroken(f"{model.name} ended its stream without a reply", provider=model.name)


class WrappedStore:
    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def wrapped(self) -> Store:
        return self._store

    @property
    def session_id(self) -> str:
        return self._store.session_id

    @property
    def is_empty(self) -> bool:
        return self._store.is_empty

    @property
    def write_error(self) -> StoreError | None:
        return self._store.write_error

    def append(self, entry: Entry) -> None:
        self._store.append(entry)

    async def flush(self) -> None:
        await self._store.flush()

    async def load(self) -> Sequence[Entry]:
        return await self._store.load()

    async def aclose(self) -> None:
        await self._store.aclose()


def find_innermost(store: Store) -> Store:
    """The store that wrappers are around."""
    while isinstance(store, WrappedStore):
        store = store.wrapped
    return store


class WrappedWorkspace:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    @property
    def root(self) -> Path:
        return self._workspace.root

    def resolve(self, path: str, *, for_write: bool = False) -> Path:
        return self._workspace.resolve(path, for_write=for_write)

    async def read(self, path: str, *, limit: int | None = None) -> FileContent:
        return await self._workspace.read(path, limit=limit)

    async def write(
        self, path: str, data: bytes, *, expected: str | None = None, mode: int | None = None
    ) -> FileContent:
        return await self._workspace.write(path, data, expected=expected, mode=mode)

    async def remove(self, path: str, *, expected: str | None = None) -> None:
        await self._workspace.remove(path, expected=expected)

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
        return await self._workspace.run(
            command,
            cwd=cwd,
            env=env,
            timeout=timeout,
            on_output=on_output,
            sandboxed=sandboxed,
            network=network,
        )

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
        return await self._workspace.start(
            command, cwd=cwd, env=env, sandboxed=sandboxed, network=network, stdin=stdin
        )

    async def execute(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        stdin: bytes = b"",
        limit: int = 8 << 20,
        sandboxed: bool | None = None,
        read_only: bool = False,
    ) -> ProgramResult:
        return await self._workspace.execute(
            argv,
            cwd=cwd,
            env=env,
            timeout=timeout,
            stdin=stdin,
            limit=limit,
            sandboxed=sandboxed,
            read_only=read_only,
        )

    async def aclose(self) -> None:
        await self._workspace.aclose()
