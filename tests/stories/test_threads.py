"""Stories of one agent in several threads, each with its own event loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.patience import PATIENCE
from treadle import Agent
from treadle.core.contracts.model import ModelRequest
from treadle.core.errors import LoopError
from treadle.models import Scripted
from treadle.testing.tools import ChangingSource, RecordingTool
from treadle.tools.federation import Federation, StaticSource

THREADS = 4


def test_one_agent_runs_in_several_threads_at_once():
    everyone = threading.Barrier(THREADS)

    async def reply(request: ModelRequest) -> str:
        await asyncio.to_thread(everyone.wait, 20)  # all runs are under way at this moment
        return "done"

    agent = Agent(Scripted(reply), [RecordingTool("look")])

    def run() -> list[str]:
        return [agent.run_sync("x").text for _ in range(20)]

    with ThreadPoolExecutor(THREADS) as pool:
        runs = [pool.submit(run) for _ in range(THREADS)]
        assert [run.result(timeout=PATIENCE) for run in runs] == [["done"] * 20] * THREADS


async def _hold(lock_holder: Federation, entered: threading.Event, leave: threading.Event) -> None:
    await lock_holder.open()
    entered.set()
    await asyncio.to_thread(leave.wait, 20)
    await lock_holder.aclose()


def test_a_source_that_is_opened_slowly_in_one_thread_does_not_stop_another_thread():
    """The lock of one event loop is not the lock of another one."""
    opening, finish = threading.Event(), threading.Event()

    class Slow(StaticSource):
        async def open(self) -> None:
            opening.set()
            await asyncio.to_thread(finish.wait, 20)

    federation = Federation([Slow([]), StaticSource([RecordingTool("look")])])
    first = threading.Thread(target=lambda: asyncio.run(federation.open()))
    first.start()
    assert opening.wait(20)
    with pytest.raises(LoopError, match="event loop of another thread; make an Agent"):
        asyncio.run(federation.open())
    finish.set()
    first.join(20)


def test_a_thread_does_not_close_the_server_that_another_thread_uses():
    source = ChangingSource([RecordingTool("look")], "files")
    agent = Agent(Scripted(lambda request: "done"), [source])
    entered, leave = threading.Event(), threading.Event()
    own_tools = agent.config.source
    assert isinstance(own_tools, Federation)
    holder = threading.Thread(target=lambda: asyncio.run(_hold(own_tools, entered, leave)))
    holder.start()
    assert entered.wait(20)
    with pytest.raises(LoopError, match="the tools of 'files' are open in the event loop"):
        agent.run_sync("x")
    assert (source.open_count, source.close_count) == (1, 0)
    leave.set()
    holder.join(20)
    assert source.close_count == 1
    assert agent.run_sync("x").text == "done"  # one after the other works
