"""What is said to an agent at work is safe while it waits, whatever becomes of the process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from treadle import Agent
from treadle.core.errors import OutputMismatch
from treadle.core.steps import Finished
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.items import UserItem
from treadle.core.transcript.state import fold_entries
from treadle.models import Pause, Scripted
from treadle.sessions import Journal, resume
from treadle.sessions.log.journal import read_entries

SAID = ["Mind the tests.", "And be brief."]
AT_WORK = """
import asyncio, sys
from pathlib import Path
import pytest

from treadle import Agent
from treadle.models import Pause, Scripted
from treadle.sessions import Journal

async def main():
    place = Path(sys.argv[1])
    pause = Pause()
    driver = Agent(Scripted([["Working", pause]])).start(prompt="go", store=Journal.create(place))
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    for text in sys.argv[2:]:
        driver.steer(text)
    while (place / "journal.jsonl").read_text().count('"kind":"queued"') < 2:
        await asyncio.sleep(0.01)
    print("waits", flush=True)
    await step

asyncio.run(main())
"""


async def test_what_waits_to_be_heard_survives_a_kill_and_is_heard_once(own_place: Path) -> None:
    """Nobody flushes: the journal writes it down by itself while the model still speaks."""
    place = own_place / "session"
    process = subprocess.Popen(  # noqa: ASYNC220 - it has to be killed, not awaited
        [sys.executable, "-c", AT_WORK, str(place), *SAID], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    process.kill()
    process.wait()
    process.stdout.close()

    resumed = resume(place)
    model = Scripted(["Yes."])
    driver = Agent(model).start(state=resumed.state, store=resumed.journal)
    assert [item.text for item in driver.snapshot().pending_input] == SAID
    assert isinstance(await driver.next(), Finished)
    await driver.aclose()
    heard = [item for item in model.requests[0].transcript if isinstance(item, UserItem)]
    assert [(item.text, item.steered) for item in heard] == [
        ("go", False),
        *((text, True) for text in SAID),
    ]
    view = fold_entries(read_entries(place))
    assert (view.queued, find_violations(view.transcript)) == ((), [])


async def test_a_message_that_was_taken_back_does_not_come_after_a_restart(own_place: Path) -> None:
    place = own_place / "session"
    pause = Pause()
    driver = Agent(Scripted([["Working", pause]])).start(prompt="go", store=Journal.create(place))
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    for text in ("one", "two", "three"):
        driver.steer(text)
    _, two, _ = driver.snapshot().pending_input
    assert isinstance(two, UserItem)
    assert driver.withdraw(two)
    assert not driver.withdraw(two)
    driver.interrupt()
    await step
    await driver.aclose()
    view = resume(place).state
    assert [one.item.text for one in view.queued] == ["one", "three"]


async def test_a_message_that_an_idle_agent_got_is_not_lost_when_it_is_closed(
    tmp_path: Path,
) -> None:
    driver = Agent(Scripted(["never"])).start(prompt="first", store=Journal.create(tmp_path / "s"))
    await driver.aclose()
    resumed = resume(tmp_path / "s")
    model = Scripted(["done"])
    driver = Agent(model).start(state=resumed.state, store=resumed.journal)
    assert isinstance(await driver.next(), Finished)
    await driver.aclose()
    assert [item.text for item in model.requests[0].transcript if isinstance(item, UserItem)] == [
        "first"
    ]
    assert resume(tmp_path / "s").state.queued == ()


async def test_a_structured_run_without_an_answer_leaves_no_message_behind(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "s")
    with pytest.raises(OutputMismatch):
        await Agent(Scripted(["no", "no", "no"])).run("count", output=int, session=journal)
    assert resume(tmp_path / "s").state.queued == ()
