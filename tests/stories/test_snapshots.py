"""Stories of a snapshot: what a driver holds, stored as JSON and continued elsewhere."""

from __future__ import annotations

import asyncio

import pytest

from treadle import Agent, DriverSnapshot, Image
from treadle.context.compaction import Compactor
from treadle.core.contracts.model import PartQuarantined
from treadle.core.contracts.policy import AllowAll, Ask
from treadle.core.errors import SessionTooNew, StoreError
from treadle.core.steps import AfterToolResult, ApprovalRequest, Finished
from treadle.core.transcript import Text, ToolResultItem, Usage, UserItem
from treadle.core.transcript.recover import list_entries
from treadle.core.transcript.state import SessionState, find_differences, fold_entries
from treadle.models import Pause, Say, Scripted
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import RecordingTool

ROUND = Say("Let me see. ", calls=[("record", {"n": 1})])
COSTLY = Usage(10, 5, requests=1, cost=0.5)


def stored(snapshot: DriverSnapshot) -> DriverSnapshot:
    return DriverSnapshot.from_json(snapshot.to_json())


async def test_a_snapshot_is_stored_as_json_and_another_agent_continues_the_turn():
    model = Scripted([Say(calls=[("record", {})], usage=COSTLY)])
    driver = Agent(model, [RecordingTool()]).start(
        prompt=UserItem((Text("look"), Image("image/png", b"\x89PNG"))), metadata={"job": 1}
    )
    assert isinstance(await driver.next(), AfterToolResult)
    driver.steer("and be quick")
    taken = driver.snapshot()
    snapshot = stored(taken)
    assert snapshot == taken
    await driver.aclose()

    other = Scripted(["Done."])
    again = Agent(other, [RecordingTool()]).start(snapshot=snapshot)
    finished = await again.next()
    assert isinstance(finished, Finished)
    assert (finished.result.text, finished.result.turn_id) == ("Done.", "turn-1")
    assert (finished.result.rounds, finished.result.metadata) == (1, {"job": 1})
    assert again.session_id == driver.session_id
    assert again.usage.cost == 0.5
    said = [item.text for item in other.requests[0].transcript if isinstance(item, UserItem)]
    assert said == ["look", "and be quick"]


async def test_a_call_that_may_have_run_before_the_snapshot_is_not_repeated():
    release = asyncio.Event()
    stuck = RecordingTool(release=release, effect="irreversible")
    driver = Agent(Scripted([ROUND]), [stuck]).start(prompt="go")
    step = asyncio.create_task(driver.next())
    await stuck.started.wait()
    snapshot = stored(driver.snapshot())
    release.set()
    await step
    again = Agent(Scripted(["Hm."]), [tool := RecordingTool(effect="irreversible")])
    resumed = again.start(snapshot=snapshot)
    await resumed.next()
    assert not tool.started.is_set()
    result = next(item for item in resumed.transcript if isinstance(item, ToolResultItem))
    assert result.outcome == "unknown"


async def test_a_decision_of_the_user_is_in_the_snapshot():
    class AskAll(AllowAll):
        async def decide(self, request: object) -> Ask:
            return Ask("please")

    driver = Agent(
        Scripted([Say(calls=[("record", {}), ("record", {})])]), [RecordingTool()], policy=AskAll()
    ).start(prompt="go")
    request = await driver.next()
    assert isinstance(request, ApprovalRequest)
    request.approve(request.calls[0].id)
    snapshot = stored(driver.snapshot())
    resumed = Agent(Scripted(["x"]), [RecordingTool()], policy=AskAll()).start(snapshot=snapshot)
    left = await resumed.next()
    assert isinstance(left, ApprovalRequest)
    assert [call.id for call in left.calls] == [request.calls[1].id]


async def test_a_snapshot_that_is_continued_with_a_store_is_logged_whole():
    pause = Pause()
    model = Scripted(["one", [pause]])
    driver = Agent(model, mutators=[Compactor(Scripted(["short"] * 9))]).start(prompt="long " * 900)
    await driver.next()
    await driver.compact()
    driver.submit("next", metadata={"job": 2})
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    driver.steer("wait for me")
    taken = driver.snapshot()
    driver.interrupt()
    await step
    store = MemoryStore("copy")
    resumed = Agent(Scripted(["two"])).start(snapshot=stored(taken), store=store)
    logged = fold_entries(store.entries)
    assert find_differences(logged, taken.state) == []
    finished = await resumed.next()
    assert isinstance(finished, Finished)
    assert (finished.result.text, finished.result.turn_id) == ("two", "turn-2")
    assert resumed.session_id == "copy"
    assert fold_entries(store.durable).transcript == resumed.transcript


async def test_the_log_of_a_view_gives_the_view_back():
    model = Scripted(
        [
            [PartQuarantined(0, 0, "bad"), Say(calls=[("record", {})], usage=COSTLY)],
            "one",
            "two",
        ]
    )
    driver = Agent(model, [RecordingTool()]).start(prompt="a", metadata={"job": 1})
    views = [driver.state]
    await driver.next()
    views.append(driver.state)
    await driver.next()
    driver.submit("b")
    views.append(driver.state)
    await driver.next()
    views.append(driver.state)
    assert views[1].quarantine == {(0, 0)}
    for view in views:
        assert find_differences(fold_entries(list_entries(view)), view) == []


def test_what_is_not_a_snapshot_is_refused_with_a_reason():
    with pytest.raises(StoreError, match="not a snapshot"):
        DriverSnapshot.from_json(b"{}")
    newer = DriverSnapshot("s", SessionState(), version=99).to_json()
    with pytest.raises(SessionTooNew, match="99"):
        DriverSnapshot.from_json(newer)
