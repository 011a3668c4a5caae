"""The promises of a tool source (core/contracts/source.py), as checks.

await check_tool_source(make)        make() returns a source that is not open yet
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from treadle.core.contracts.source import ToolSource
from treadle.core.errors import ToolError
from treadle.testing.conformance.promises import (
    Promise,
    assert_nothing_runs,
    assert_returns_at_once,
    build,
    keep_promises,
    opened,
    track_tasks,
)
from treadle.testing.conformance.tool import assert_checks_arguments, assert_valid_spec
from treadle.testing.tools import make_tool_context

MakeSource = Callable[[], ToolSource | Awaitable[ToolSource]]
Disconnect = Callable[[ToolSource], Awaitable[None]]


async def check_tool_source(make: MakeSource, *, disconnect: Disconnect | None = None) -> None:
    """Raise an AssertionError that names the first broken promise.

    `disconnect` ends what the source gets its tools from, so that their calls fail.
    """
    await keep_promises("tool source", SOURCE_PROMISES, make, disconnect)


async def has_a_name_and_instructions(make: MakeSource, disconnect: Disconnect | None) -> None:
    async with opened(make) as source:
        assert source.name, "the name is empty"
        await source.open()
        assert isinstance(source.instructions(), str), "instructions() is a text, maybe empty"


async def returns_the_same_object_while_nothing_changed(
    make: MakeSource, disconnect: Disconnect | None
) -> None:
    async with opened(make) as source:
        await source.open()
        tools = source.tools()
        assert source.tools() is tools, "tools() returns a new object each time"
        assert_returns_at_once(source.tools, "tools()")


async def has_tools_that_providers_accept(make: MakeSource, disconnect: Disconnect | None) -> None:
    async with opened(make) as source:
        await source.open()
        names = [tool.spec.name for tool in source.tools()]
        assert len(names) == len(set(names)), f"two tools have one name: {names}"
        for tool in source.tools():
            assert_valid_spec(tool)
            assert_checks_arguments(tool)


async def keeps_its_tools_when_their_server_is_gone(
    make: MakeSource, disconnect: Disconnect | None
) -> None:
    if disconnect is None:
        return
    async with opened(make) as source:
        await source.open()
        before = [tool.spec.name for tool in source.tools()]
        await disconnect(source)
        after = source.tools()
        assert [tool.spec.name for tool in after] == before, "the tools it last knew are gone"
        for tool in after:
            try:
                output = await tool.call({}, make_tool_context())
            except ToolError:
                continue
            assert output.is_error, f"{tool.spec.name}: a call without a server succeeds"


async def can_be_closed_twice_and_leaves_nothing_running(
    make: MakeSource, disconnect: Disconnect | None
) -> None:
    source = await build(make)
    with track_tasks() as tasks:
        await source.open()
        await source.aclose()
    await assert_nothing_runs(tasks, "a closed source")
    await source.aclose()


SOURCE_PROMISES: tuple[Promise, ...] = (
    has_a_name_and_instructions,
    returns_the_same_object_while_nothing_changed,
    has_tools_that_providers_accept,
    keeps_its_tools_when_their_server_is_gone,
    can_be_closed_twice_and_leaves_nothing_running,
)
