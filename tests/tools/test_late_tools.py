"""What a source says of its tools as a whole reaches the model, without touching the prompt."""

from __future__ import annotations

from treadle import Agent
from treadle.core.loop.driver import Driver
from treadle.core.steps import Finished
from treadle.core.transcript import NoticeItem, Transcript
from treadle.models import Scripted
from treadle.testing.tools import ChangingSource, RecordingTool
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
    after = Agent(Scripted(["b"]), [anew], mutators=[anew]).start(transcript=before.transcript)
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
