"""Several tool sources as one, in the given order.

The collision policy settles two tools of one name: the first wins, it is an error, or the second
gets the name of its source as a prefix, and a number if that name is taken too. An error is raised
at construction: for tools that come later, as those of a server, the first wins, because they must
not end a session; the log has a warning about the other one. The union is rebuilt only when a
source has changed.

Several threads may use one federation, each with its own event loop. A source that has to be opened
belongs to the loop that opened it: another loop gets an error, and does not close it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Container, Iterable, Sequence
from itertools import count
from threading import Lock
from typing import Literal, get_args
from weakref import WeakKeyDictionary

import msgspec

from treadle.core.argument_checks import check, one_of
from treadle.core.contracts.source import BaseSource, ToolSource, list_instructions
from treadle.core.contracts.tool import Tool, ToolSpec
from treadle.core.contracts.wrapped import WrappedTool
from treadle.core.errors import ConfigError, LoopError
from treadle.core.type_variables import PartDepsT
from treadle.lib.contained import as_exception, call_contained
from treadle.lib.logger import logger

_NOT_OFFERED = "tool %r of %r is not offered: there is another one of this name"

CollisionPolicy = Literal["first_wins", "error", "prefix"]


class StaticSource(BaseSource[PartDepsT]):
    """A source with a fixed list of tools."""

    def __init__(
        self, tools: Sequence[Tool[PartDepsT]], name: str = "tools", instructions: str = ""
    ) -> None:
        self._tools = tuple(tools)
        self.name = name
        self._instructions = instructions

    def tools(self) -> Sequence[Tool[PartDepsT]]:
        return self._tools

    def instructions(self) -> str:
        return self._instructions


class RenamedTool(WrappedTool):
    """The same tool under another name."""

    def __init__(self, tool: Tool, name: str) -> None:
        super().__init__(tool)
        self._spec = msgspec.structs.replace(tool.spec, name=name)

    @property
    def spec(self) -> ToolSpec:
        return self._spec


class Federation:
    """All sources as one."""

    def __init__(
        self, sources: Sequence[ToolSource], collision: CollisionPolicy = "first_wins"
    ) -> None:
        check("collision", collision, one_of(*get_args(CollisionPolicy)))
        self._sources = tuple(sources)
        self._collision = collision
        self._last_tools: list[Sequence[Tool]] = []
        self._tools: tuple[Tool, ...] = ()
        # Many sessions have several of these, mostly empty.
        self._reported: frozenset[tuple[str, str]] = frozenset()  # sources, names not offered
        self._failed: frozenset[int] = frozenset()  # positions of sources
        # By the position of an open source: the event loop that opened it last.
        self._owners: dict[int, asyncio.AbstractEventLoop] = {}
        self._claiming = Lock()
        self._opening: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]
        self._opening = WeakKeyDictionary()
        if collision == "error":
            self._refuse_collisions()

    @property
    def name(self) -> str:
        return "+".join(source.name for source in self._sources)

    def tools(self) -> Sequence[Tool]:
        current = [self._read_tools(position) for position in range(len(self._sources))]
        if current != self._last_tools:
            self._tools = self._merge_tools(current)
            self._last_tools = current
        return self._tools

    def _read_tools(self, position: int) -> Sequence[Tool]:
        """The tools of a source. Once it has had some, a failure does not end the session: it keeps
        those."""
        source = self._sources[position]
        try:
            tools = call_contained(source.tools)
            if not self._last_tools or tools is not self._last_tools[position]:
                _check_tools(source, tools)
            if self._failed:
                self._failed -= {position}
            return tools
        except Exception as error:
            if not self._last_tools:
                raise
            if position not in self._failed:
                self._failed |= {position}
                logger.warning("tools() of %r failed, its last list stays: %r", source.name, error)
            return self._last_tools[position]

    def bind(self, deps: object) -> Federation:
        """Sources that deps do not matter for stay those of this one, which opens and closes
        them."""
        bound = [_bind(source, deps) for source in self._sources]
        if all(new is old for new, old in zip(bound, self._sources, strict=True)):
            return self
        return BoundFederation(self, bound)

    def instructions(self) -> str:
        texts = [(source, call_contained(source.instructions)) for source in self._sources]
        for source, text in texts:
            if not isinstance(text, str):
                raise _make_source_error(source, "instructions", text, "return a text")
        return "\n\n".join(text for _, text in texts if text)

    def list_instructions(self) -> dict[str, str]:
        """The instructions by the name of their source; those of one name are one text."""
        texts: dict[str, str] = {}
        for source in self._sources:
            for name, text in call_contained(list_instructions, source).items():
                texts[name] = f"{texts[name]}\n\n{text}" if name in texts else text
        return texts

    async def open(self) -> None:
        """Open every source once; concurrent calls wait. A source that failed is tried again."""
        await self.open_sources(range(len(self._sources)))

    async def open_sources(self, positions: Iterable[int]) -> None:
        loop = asyncio.get_running_loop()
        async with self._opening.setdefault(loop, asyncio.Lock()):
            left = [n for n in positions if self._owners.get(n) is not loop]
            if len(left) < 2:  # without a task
                for position in left:
                    await self._open_source(position)
                return
            ends = await asyncio.gather(*map(self._open_source, left), return_exceptions=True)
        for problem in ends:
            if problem is not None:
                raise problem

    async def _open_source(self, position: int) -> None:
        source, loop = self._sources[position], asyncio.get_running_loop()
        with self._claiming:
            if self._belongs_to_other_loop(position):
                raise LoopError(
                    f"the tools of {source.name!r} are open in the event loop of another thread; "
                    "make an Agent with its own tools in each thread, or run one after the other"
                )
            self._owners[position] = loop
        try:
            await source.open()
        except BaseException as raised:
            self._owners.pop(position, None)
            if isinstance(raised, SystemExit):  # a task would end the event loop with it
                raise as_exception(raised) from raised
            raise

    def _belongs_to_other_loop(self, position: int) -> bool:
        owner = self._owners.get(position)
        if owner is None or owner is asyncio.get_running_loop() or owner.is_closed():
            return False
        return _must_be_opened(self._sources[position])

    async def aclose(self) -> None:
        """Close every source, even if one cannot be closed, except those of other event loops."""
        await self.close_sources(range(len(self._sources)))

    async def close_sources(self, positions: Sequence[int]) -> None:
        problems: list[Exception] = []
        for position in reversed(positions):
            if self._belongs_to_other_loop(position):
                continue
            self._owners.pop(position, None)
            try:
                await self._sources[position].aclose()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - raised when all are closed
                problems.append(as_exception(error))
        if problems:
            raise problems[0]

    def _refuse_collisions(self) -> None:
        """Raise ConfigError for two tools of one name that are known already."""
        owners: dict[str, str] = {}
        for source in self._sources:
            tools = call_contained(source.tools)
            _check_tools(source, tools)
            for tool in tools:
                name = tool.spec.name
                if name in owners:
                    raise _make_collision_error(name, owners[name], source.name)
                owners[name] = source.name

    def _merge_tools(self, tools_by_source: Sequence[Sequence[Tool]]) -> tuple[Tool, ...]:
        taken: dict[str, Tool] = {}
        for source, tools in zip(self._sources, tools_by_source, strict=True):
            for tool in tools:
                name = tool.spec.name
                if name not in taken:
                    taken[name] = tool
                elif self._collision == "prefix":
                    longer = _find_free_name(f"{source.name}_{name}", taken)
                    taken[longer] = RenamedTool(tool, longer)
                elif (source.name, name) not in self._reported:
                    self._reported |= {(source.name, name)}
                    logger.warning(_NOT_OFFERED, name, source.name)
        # Tools of MCP servers are last: with other servers the tools before them stay cached.
        return tuple(sorted(taken.values(), key=lambda tool: tool.spec.name.startswith("mcp__")))


class BoundFederation(Federation):
    """A federation for one session: the sources that were bound are its own."""

    def __init__(self, shared: Federation, sources: Sequence[ToolSource]) -> None:
        super().__init__(sources, shared._collision)
        self._shared = shared
        pairs = enumerate(zip(sources, shared._sources, strict=True))
        self._own = [position for position, (new, old) in pairs if new is not old]

    async def open(self) -> None:
        others = {*range(len(self._sources))} - {*self._own}
        await self._shared.open_sources(sorted(others))
        await self.open_sources(self._own)

    async def aclose(self) -> None:
        await self.close_sources(self._own)


def _bind(source: ToolSource, deps: object) -> ToolSource:
    bound: object = call_contained(source.bind, deps)
    if not hasattr(bound, "tools"):
        expected = "return a source, such as StaticSource([...]) of a list"
        raise _make_source_error(source, "bind", bound, expected)
    return bound  # type: ignore[return-value]


def _check_tools(source: ToolSource, tools: object) -> None:
    if inspect.iscoroutine(tools):
        tools.close()
        raise ConfigError(f"tools() of {source.name!r} is `async`; what takes time is for open()")
    if not isinstance(tools, Sequence) or not all(hasattr(one, "spec") for one in tools):
        expected = "return a list of tools, as tool(function) makes them"
        raise _make_source_error(source, "tools", tools, expected)


def _make_source_error(
    source: ToolSource, method: str, returned: object, expected: str
) -> ConfigError:
    return ConfigError(f"{method}() of {source.name!r} returned {returned!r:.80}; {expected}")


def _must_be_opened(source: ToolSource) -> bool:
    """Whether opening it does something, which belongs to an event loop then. A federation takes
    care of its own sources."""
    return not isinstance(source, Federation) and type(source).open is not BaseSource.open


def _make_collision_error(name: str, first: str, second: str) -> ConfigError:
    problem = f"two tools are named {name!r}"
    if first != second:
        problem = f"tool {name!r} is offered by {first!r} and by {second!r}"
    return ConfigError(
        f"{problem}; rename one, as tool(function, name=...), or choose what happens: "
        'collision="first_wins" or collision="prefix"'
    )


def _find_free_name(name: str, taken: Container[str]) -> str:
    """The name, or the name with the first number that makes it free."""
    return next(free for n in count(1) if (free := name if n == 1 else f"{name}_{n}") not in taken)
