"""Bases for wrappers: an object of the same contract that changes a few things of another one.

    WrappedModel · WrappedTool · WrappedSource · WrappedStore
    WrappedWorkspace · WrappedCommand

Each delegates everything; a wrapper overrides what it changes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

import msgspec

from treadle.core.contracts.model import Model, ModelCard, ModelEvent, ModelRequest, Reply
from treadle.core.contracts.source import ToolSource, list_instructions
from treadle.core.contracts.store import Store
from treadle.core.contracts.tool import (
    Access,
    ForwardingTool,
    Preview,
    ProbeResult,
    RepairedArguments,
    Tool,
    ToolContext,
    ToolOutput,
    ToolSpec,
    UndoAnswer,
    find_target,
)
from treadle.core.contracts.workspace import RunningCommand, Workspace
from treadle.core.errors import StoreError, StreamBroken
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.entries import Entry
from treadle.core.transcript.items import AssistantItem, ToolResultItem
from treadle.core.transcript.usage import CallPurpose

if TYPE_CHECKING:
    from pathlib import Path

P = ParamSpec("P")
T = TypeVar("T")


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

    def undo(self, arguments: Arguments, result: ToolResultItem) -> UndoAnswer:
        undo = getattr(self._tool, "undo", None)
        return undo(arguments, result) if undo is not None else None

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


class WrappedForwardingTool(WrappedTool):
    """Around a ForwardingTool: its targets are wrapped, too."""

    def wrap_target(self, target: Tool) -> Tool:
        raise NotImplementedError

    def target(self, arguments: Arguments) -> tuple[Tool, Arguments] | str:
        assert isinstance(self._tool, ForwardingTool)
        found = self._tool.target(arguments)
        return found if isinstance(found, str) else (self.wrap_target(found[0]), found[1])

    def find_target(self, name: str) -> Tool | None:
        found = find_target(self._tool, name)
        return None if found is None else self.wrap_target(found)


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

    def list_instructions(self) -> dict[str, str]:
        """Those of the source behind it, unless the wrapper has others."""
        own = self.instructions()
        if own == self._source.instructions():
            return list_instructions(self._source)
        return {self.name: own} if own else {}

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


def _forward(method: Callable[Concatenate[Any, P], T], to: str) -> Callable[Concatenate[Any, P], T]:
    """The method of a contract, as that of the object in the attribute `to`."""
    name = method.__name__

    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        done: T = getattr(getattr(self, to), name)(*args, **kwargs)
        return done

    return call


class WrappedWorkspace:
    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    @property
    def root(self) -> Path:
        return self._workspace.root

    resolve = _forward(Workspace.resolve, "_workspace")
    read = _forward(Workspace.read, "_workspace")
    write = _forward(Workspace.write, "_workspace")
    remove = _forward(Workspace.remove, "_workspace")
    run = _forward(Workspace.run, "_workspace")
    start = _forward(Workspace.start, "_workspace")
    execute = _forward(Workspace.execute, "_workspace")
    aclose = _forward(Workspace.aclose, "_workspace")


class WrappedCommand:
    def __init__(self, command: RunningCommand) -> None:
        self._command = command

    @property
    def pid(self) -> int:
        return self._command.pid

    output = _forward(RunningCommand.output, "_command")
    write = _forward(RunningCommand.write, "_command")
    resize = _forward(RunningCommand.resize, "_command")
    wait = _forward(RunningCommand.wait, "_command")
    kill = _forward(RunningCommand.kill, "_command")
