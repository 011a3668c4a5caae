"""A run inside a cancel scope of anyio, as in Starlette: it is cancelled again at every step."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from treadle import Agent
from treadle.models import Pause, Scripted


@pytest.mark.parametrize("way", ["run", "stream"])
async def test_a_cancelled_scope_ends_the_run_and_the_session_goes_on(tmp_path: Path, way: str):
    pause = Pause()
    agent = Agent(Scripted([["be", pause, "gun"], "done"]), store=tmp_path)
    async with agent.session("a") as session:

        async def work() -> None:
            if way == "run":
                await session.run("go")
            async with session.stream("go") as events:
                async for _ in events:
                    pass

        async with anyio.create_task_group() as group:
            group.start_soon(work)
            await pause.reached.wait()
            group.cancel_scope.cancel()
        assert (await session.run("again")).text == "done"
