"""What a source says of its tools as a whole reaches the model, without touching the prompt."""

from __future__ import annotations

import asyncio
import hashlib

from treadle import Agent
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.loop.driver import Driver
from treadle.core.steps import Finished
from treadle.core.transcript import NoticeItem, Transcript, to_user_item
from treadle.core.transcript.entries import Rewound
from treadle.core.transcript.state import fold_entries
from treadle.models import Scripted
from treadle.testing.conformance.mutator import make_mutation_context
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import ChangingSource, RecordingTool
from treadle.tools.federation import Federation
from treadle.tools.late_tools import StableToolList


class Talking(ChangingSource):
    text = ""

    def instructions(self) -> str:
        return self.text


def notices(transcript: Transcript) -> list[str]:
    return [item.text for item in transcript if isinstance(item, NoticeItem)]


async def turn(driver: Driver) -> None:
    driver.submit("go")
    while not isinstance(await driver.next(), Finished):
        pass


async def test_instructions_are_sent_once_and_again_when_they_changed():
    source = Talking([RecordingTool("first")])
    steady = StableToolList(source)
    model = Scripted(["a", "b", "c", "d"])
    driver = Agent(model, [steady], mutators=[steady], instructions="Be brief.").start()
    await turn(driver)
    assert notices(driver.transcript) == []
    source.text = "Greet politely."
    await turn(driver)
    await turn(driver)
    assert notices(driver.transcript) == ["Greet politely."]
    source.text = "Greet loudly."
    await turn(driver)
    assert notices(driver.transcript) == ["Greet politely.", "Greet loudly."]
    assert {request.system for request in model.requests} == {"Be brief."}


async def test_a_resumed_session_does_not_get_them_again():
    source = Talking([RecordingTool("first")])
    source.text = "Greet politely."
    first = StableToolList(source)
    before = Agent(Scripted(["a"]), [first], mutators=[first]).start()
    await turn(before)
    anew = StableToolList(source)
    after = Agent(Scripted(["b"]), [anew], mutators=[anew]).start(history=before.transcript)
    await turn(after)
    assert notices(after.transcript) == ["Greet politely."]


async def test_late_tools_and_their_instructions_are_one_notice():
    source = Talking([])
    steady = StableToolList(source)
    steady.tools()
    source.set_tools([RecordingTool("late")])
    source.text = "Greet politely."
    driver = Agent(Scripted(["a"]), [steady], mutators=[steady]).start()
    await turn(driver)
    [notice] = notices(driver.transcript)
    assert notice.startswith("Greet politely.\n\nNew tools; call them by `use_tool`:\n- late: ")


class WaitsOnce:
    """A mutator that is busy when it runs for the first time."""

    name = "waits"
    points: frozenset[MutationPoint] = frozenset({"before_model"})

    def __init__(self) -> None:
        self.reached = asyncio.Event()

    async def mutate(self, context: MutationContext) -> Transcript | None:
        if not self.reached.is_set():
            self.reached.set()
            await asyncio.Event().wait()
        return None


async def test_an_announcement_is_kept_when_a_later_mutator_is_interrupted():
    source = Talking([])
    steady, slow = StableToolList(source), WaitsOnce()
    steady.tools()
    source.set_tools([RecordingTool("late")])
    model = Scripted(["a"])
    driver = Agent(model, [steady], mutators=[steady, slow]).start()
    interrupted = asyncio.create_task(turn(driver))
    await slow.reached.wait()
    driver.interrupt()
    await interrupted
    await turn(driver)
    assert sum("- late: " in text for text in notices(model.requests[0].transcript)) == 1


async def test_after_a_rewind_late_tools_and_instructions_are_announced_again():
    source = Talking([])
    steady = StableToolList(source)
    store = MemoryStore()
    model = Scripted(["a", "b", "c"])
    agent = Agent(model, [steady], mutators=[steady])
    driver = agent.start(store=store)
    await turn(driver)
    source.set_tools([RecordingTool("late")])
    source.text = "Greet politely."
    await turn(driver)
    rewound = [*store.entries, Rewound("turn-2")]
    again = agent.start(state=fold_entries(rewound), session_id=driver.session_id)
    await turn(again)
    [notice] = notices(model.requests[2].transcript)
    assert "Greet politely." in notice
    assert "- late: " in notice


async def test_a_session_of_0_1_is_not_told_again_of_its_tools():
    source = Talking([])
    steady = StableToolList(source)
    steady.tools()
    source.set_tools([RecordingTool("late")])
    old = NoticeItem("New tools; call them by `use_tool`:\n- late: It is late.", kind="tools")
    driver = Agent(Scripted(["a"]), [steady], mutators=[steady]).start(history=[old])
    await turn(driver)
    assert notices(driver.transcript) == [old.text]


async def test_a_resumed_session_keeps_the_list_that_it_began_with():
    source = ChangingSource([RecordingTool("first"), RecordingTool("late")])
    resumed = StableToolList(source, listed=frozenset({"first", "use_tool", "tool_search"}))
    assert [tool.spec.name for tool in resumed.tools()] == ["first", "use_tool", "tool_search"]
    assert list(resumed.late_tools()) == ["late"]


async def test_the_model_is_told_when_a_late_tool_is_gone_and_when_it_is_back():
    late = RecordingTool("late")
    source = ChangingSource([])
    tools = StableToolList(source)
    tools.tools()

    view = Transcript([to_user_item("go")])
    counts = []
    for now in ([late], [late], [], [], [late]):
        source.set_tools(now)
        view = await tell(tools, view)
        counts.append(len(view))
    assert counts == [2, 2, 3, 3, 4]
    assert view[2].text == "Not available any more: late."
    assert "- late: " in view[3].text


async def tell(tools: StableToolList, view: Transcript) -> Transcript:
    return await tools.mutate(make_mutation_context("before_model", view)) or view


async def announce_late(source: Talking) -> Transcript:
    """The view of a process in which a late tool and instructions were announced."""
    tools = StableToolList(source)
    tools.tools()
    source.set_tools([RecordingTool("late")])
    source.text = "Greet politely."
    return await tell(tools, Transcript([to_user_item("go")]))


async def test_a_resumed_session_without_the_server_is_told_that_its_tools_are_gone():
    view = await announce_late(Talking([], "greeter"))
    without = StableToolList(Federation(()))
    view = await tell(without, view)
    assert view[-1].text == (
        "The instructions of greeter no longer hold.\n\nNot available any more: late."
    )
    assert len(await tell(without, view)) == len(view), "once"


async def test_a_server_that_still_starts_is_not_told_to_be_gone():
    view = await announce_late(Talking([], "greeter"))
    starting = {"late", "greeter"}
    source = Talking([], "greeter")
    resumed = StableToolList(source, is_awaited=lambda name: name in starting)
    assert await tell(resumed, view) is view
    source.set_tools([RecordingTool("late")])
    source.text = "Greet politely."
    assert await tell(resumed, view) is view, "the model knows them"
    source.set_tools([])
    starting.clear()  # it has failed
    assert "Not available any more: late." in (await tell(resumed, view))[-1].text


async def test_instructions_that_become_empty_are_withdrawn_and_can_come_back():
    one, other = Talking([], "one"), Talking([], "other")
    one.text, other.text = "Greet politely.", "Count in dozens."
    tools = StableToolList(Federation((one, other)))
    view = Transcript([to_user_item("go")])
    texts = []
    for now in ("Greet politely.", "", "", "Greet politely."):
        one.text = now
        view = await tell(tools, view)
        texts.append(view[-1].text)
    assert texts == [
        "Greet politely.\n\nCount in dozens.",
        "The instructions of one no longer hold.",
        "The instructions of one no longer hold.",
        "Greet politely.",
    ]
    assert len(view) == 4


async def test_instructions_that_version_0_2_sent_are_not_sent_again():
    source = Talking([], "greeter")
    source.text = "Greet politely."
    digest = hashlib.sha256(b"Greet politely.").hexdigest()[:16]
    old = NoticeItem("Greet politely.", kind="tools", data={"tools": [], "instructions": digest})
    view = Transcript([to_user_item("go"), old])
    assert await tell(StableToolList(source), view) is view


async def test_a_tool_that_is_now_in_the_list_is_not_told_to_be_gone():
    source = Talking([], "greeter")
    view = await announce_late(source)
    assert await tell(StableToolList(source), view) is view
