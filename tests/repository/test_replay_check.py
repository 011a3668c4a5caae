"""The law of replay (tests/replay_check.py) finds a session whose replay differs."""

from __future__ import annotations

import pytest

from tests.replay_check import ReplayCheck
from treadle.agents.agent import Agent
from treadle.core.transcript.entries import Entry, ItemAdded
from treadle.core.transcript.items import ToolResultItem
from treadle.models.scripted import Say, Scripted
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import RecordingTool


async def run_session(store: MemoryStore) -> None:
    calls = Say(calls=[("record", {"n": 1}), ("record", {"n": 2})])
    tool = RecordingTool(answer=lambda given: str(given["n"]))
    await Agent(Scripted([calls, "done"]), [tool]).run("go", session=store)


def is_result(entry: Entry) -> bool:
    return isinstance(entry, ItemAdded) and isinstance(entry.item, ToolResultItem)


async def test_a_session_whose_replay_differs_is_named() -> None:
    store, check = MemoryStore("kept"), ReplayCheck()
    with pytest.MonkeyPatch.context() as patch:
        check.install(patch)
        await run_session(store)
    first, second = (place for place, one in enumerate(store.entries) if is_result(one))
    swapped = list(store.entries)
    swapped[first], swapped[second] = swapped[second], swapped[first]
    check.add("swapped", swapped)
    assert check.count == 2
    (problem,) = await check.find_problems()
    assert problem.startswith("the replay of swapped differs")
