from __future__ import annotations

import pytest

from treadle.testing.conformance.source import check_source
from treadle.testing.tools import ChangingSource, RecordingTool
from treadle.tools.federation import Federation, StaticSource
from treadle.tools.function import tool


@tool(effect="pure")
def shout(text: str) -> str:
    """Make it loud."""
    return text.upper()


async def test_a_registry_keeps_the_promises_of_a_source():
    await check_source(lambda: StaticSource([shout, RecordingTool()]))


async def test_a_federation_keeps_the_promises_of_a_source():
    await check_source(
        lambda: Federation([StaticSource([shout]), ChangingSource([RecordingTool()])], "prefix")
    )


async def test_a_broken_promise_is_named():
    class Forgetful(ChangingSource):
        def tools(self):
            return list(super().tools())

    with pytest.raises(AssertionError, match="the same object"):
        await check_source(Forgetful)
