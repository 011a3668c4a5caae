"""Stories of a session whose disk is full: what is paid for, what is reported, what is kept."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import msgspec
import pytest

from treadle import Agent, tool
from treadle.core.errors import StoreFull
from treadle.core.events import Event, RunFailed, TurnFinished
from treadle.core.steps import Finished
from treadle.core.transcript import ToolResultItem
from treadle.core.transcript.state import fold_entries
from treadle.models import Say, Scripted
from treadle.testing.observers import RecordingObserver
from treadle.testing.stores import MemoryStore

FULL = StoreFull("no space is left")


class LazyStore(MemoryStore):
    """Does not know that the disk is full before it writes."""

    write_error = None


async def test_no_model_call_is_paid_for_before_the_result_of_an_effect_is_durable():
    store = LazyStore()

    @tool
    async def fill() -> str:
        store.failure = FULL
        return "the disk is full now"

    model = Scripted([Say(calls=[("fill", {})]), "done"])
    driver = Agent(model, [fill]).start(prompt="go", store=store)
    await driver.next()
    with pytest.raises(StoreFull):
        await driver.next()
    assert len(model.requests) == 1
    store.failure = None
    step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.text == "done"
    results = [
        item for item in fold_entries(store.durable).transcript if isinstance(item, ToolResultItem)
    ]
    assert [result.text for result in results] == ["the disk is full now"]


class FullWhenClosed(MemoryStore):
    async def aclose(self) -> None:
        await super().aclose()
        raise StoreFull("closing: no space is left")


async def test_an_error_of_closing_carries_the_run_and_hides_no_other():
    agent = Agent(Scripted(["answer"]), store=lambda name: FullWhenClosed(name))
    with pytest.raises(StoreFull) as closing:
        await agent.run("go", session="s")
    assert closing.value.session_id == "s"
    assert closing.value.transcript is not None
    assert [item.text for item in closing.value.transcript] == ["go", "answer"]
    assert closing.value.usage is not None

    first = RuntimeError("the first error")
    with pytest.raises(RuntimeError) as raised:
        async with agent.session("t"):
            raise first
    assert raised.value is first
    assert "no space" in first.__notes__[0]


async def test_a_turn_whose_end_cannot_be_written_is_reported_as_failed_with_its_answer():
    store, witness = LazyStore(), RecordingObserver()

    def answer(request: object) -> str:
        store.failure = FULL
        return "the paid answer"

    agent = Agent(Scripted(answer), observers=[witness])
    with pytest.raises(StoreFull):
        await agent.run("go", session=store)
    assert witness.events_of(TurnFinished) == []
    [failed] = witness.events_of(RunFailed)
    assert (failed.kind, failed.result.text) == ("StoreFull", "the paid answer")
    assert witness.events[-1] is failed


async def test_a_stream_on_a_full_disk_leaves_no_exception_that_is_never_retrieved():
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    assert isinstance((await read_stream_on_a_full_disk())[-1], RunFailed)
    gc.collect()
    assert unhandled == []


async def read_stream_on_a_full_disk() -> list[Event]:
    store, seen = LazyStore(), list[Event]()
    store.failure = StoreFull("no space is left")
    try:
        async with Agent(Scripted(["done"])).stream("go", session=store) as events:
            async for event in events:
                seen.append(without_error(event))
    except StoreFull:
        return seen
    raise AssertionError("the stream did not raise")


def without_error(event: Event) -> Event:
    """Without the exception, whose traceback keeps the task alive."""
    if not isinstance(event, RunFailed):
        return event
    return msgspec.structs.replace(event, result=msgspec.structs.replace(event.result, error=None))
