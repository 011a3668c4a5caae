from __future__ import annotations

import pytest

from treadle.testing.conformance.source import check_source
from treadle.testing.tools import RecordingTool, ShiftingSource
from treadle.tools.federation import Federation, Registry
from treadle.tools.function import tool


@tool(effect="pure")
def shout(text: str) -> str:
    """Make it loud."""
    return text.upper()


async def test_a_registry_keeps_the_promises_of_a_source():
    await check_source(lambda: Registry([shout, RecordingTool()]))


async def test_a_federation_keeps_the_promises_of_a_source():
    await check_source(
        lambda: Federation([Registry([shout]), ShiftingSource([RecordingTool()])], "prefix")
    )


async def test_a_broken_promise_is_named():
    class Forgetful(ShiftingSource):
        def tools(self):
            return list(super().tools())

    with pytest.raises(AssertionError, match="the same object"):
        await check_source(Forgetful)
