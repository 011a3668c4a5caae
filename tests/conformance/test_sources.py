from __future__ import annotations

from treadle.testing import ChangingSource, RecordingTool, check_tool_source
from treadle.tools.federation import Federation, StaticSource
from treadle.tools.function import tool


@tool(effect="pure")
def shout(text: str) -> str:
    """Make it loud."""
    return text.upper()


async def test_a_registry_keeps_the_promises_of_a_source():
    await check_tool_source(lambda: StaticSource([shout, RecordingTool()]))


async def test_a_federation_keeps_the_promises_of_a_source():
    await check_tool_source(
        lambda: Federation([StaticSource([shout]), ChangingSource([RecordingTool()])], "prefix")
    )
