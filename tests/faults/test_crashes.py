"""Nothing acknowledged is lost and no effect happens twice, wherever a process ends.

Real processes, killed by SIGKILL at every call of a run to the file system and at every place
around an effect; then fresh ones that go on.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.storage_scenario import Run, check_end, new_run
from tests.patience import PATIENCE
from treadle.agents.agent import Agent
from treadle.core.contracts.tool import ToolContext, ToolOutput
from treadle.core.errors import StoreFull
from treadle.core.steps import Finished
from treadle.core.transcript.content import Arguments, Text
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.items import AssistantItem, ToolResultItem, UserItem
from treadle.core.transcript.state import fold_entries
from treadle.core.transcript.transcript import Transcript
from treadle.models.scripted import Say, Scripted
from treadle.sessions import Journal, resume
from treadle.sessions.log.journal import read_entries
from treadle.testing.faulty_files import FaultyFiles, FileFault
from treadle.testing.tools import RecordingTool

ROOT = Path(__file__).parents[2]


@pytest.fixture
def quick(own_place: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: these tests sync thousands of times."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else own_place))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


async def whole_run(folder: Path) -> tuple[Transcript, list[str]]:
    files = FaultyFiles()
    transcript = await new_run(folder, files).go()
    return transcript, files.calls


async def test_a_run_that_nobody_stops_leaves_one_line_an_effect(quick: Path) -> None:
    run = new_run(quick / "whole")
    transcript = await run.go()
    check_end(run, transcript, transcript)
    assert len(run.effects()) == 6
    assert read_entries(run.place) == run.acknowledged()


@pytest.mark.parametrize(
    "kind",
    [
        "torn",
        pytest.param("kill", marks=pytest.mark.slow),
        pytest.param("done", marks=pytest.mark.slow),
    ],
)
def test_fault_1_2_3_killed_at_every_call_and_every_effect(kind: str, quick: Path) -> None:
    script = ROOT / "tests/faults/kill_sweep.py"
    done = subprocess.run(
        [sys.executable, str(script), kind, str(quick)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    count = int(done.stdout.split()[0])
    assert count >= (8 if kind == "torn" else 40)


def test_fault_27_a_call_that_was_running_is_answered_with_the_evidence(quick: Path) -> None:
    whole, calls = asyncio.run(whole_run(quick / "whole"))
    inside = calls.index("send: inside") + 1
    child = os.fork()
    if child == 0:
        # Only the kill ends this: whatever else happens must not return into pytest.
        try:
            files = FaultyFiles({inside: FileFault("kill")}, send_sigkill=True)
            asyncio.run(new_run(quick / "killed", files).go())
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    run = Run(quick / "killed", FaultyFiles())
    transcript = asyncio.run(run.go())
    check_end(run, transcript, whole)
    answers = [item for item in transcript if isinstance(item, ToolResultItem)]
    (answer,) = [item for item in answers if item.is_error]
    assert isinstance(answer.content[0], Text)
    assert "outcome unknown" in answer.content[0].text
    assert "send was about to run" in answer.content[0].text
    assert len(run.effects()) == 6


# --- in the same process -------------------------------------------------------------------


def test_fault_9_a_full_disk_pauses_the_run_before_the_model_and_it_goes_on(quick: Path) -> None:
    is_full = True

    def plan(number: int, name: str) -> FileFault | None:
        full = is_full and name.startswith("write") and "journal" in name
        return FileFault("error", errno.ENOSPC) if full else None

    async def work() -> None:
        nonlocal is_full
        journal = Journal.create(quick / "s", files=FaultyFiles(plan))
        model = Scripted(["answered"])
        driver = Agent(model).start(prompt="hello", store=journal)
        for _ in range(3):
            with pytest.raises(StoreFull, match="Free some space"):
                await driver.next()
            assert model.requests == []
        is_full = False
        step = await driver.next()
        assert isinstance(step, Finished)
        assert step.result.text == "answered"
        await driver.aclose()
        assert [type(item) for item in driver.transcript] == [UserItem, AssistantItem]

    asyncio.run(work())
    assert len(fold_entries(read_entries(quick / "s")).transcript) == 2


async def test_fault_9_an_effect_beside_a_full_disk_does_not_happen_twice(quick: Path) -> None:
    begun = asyncio.Event()
    is_full = False

    def plan(number: int, name: str) -> FileFault | None:
        return FileFault("error", errno.ENOSPC) if is_full and name.startswith("write") else None

    class Slow(RecordingTool):
        async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
            self.calls.append(arguments)
            begun.set()
            await asyncio.Event().wait()  # until the round is given up
            return ToolOutput("sent")

    class Late(RecordingTool):
        was_asked = False

        async def evidence(self, arguments: Arguments, context: ToolContext) -> dict[str, object]:
            nonlocal is_full
            await begun.wait()
            is_full = not self.was_asked  # the disk is full the first time only
            self.was_asked = True
            return {}

    slow = Slow("slow", effect="irreversible", concurrent=True)
    late = Late("late", effect="verifiable", concurrent=True)
    agent = Agent(Scripted([Say(calls=[("slow", {}), ("late", {})]), "done"]), [slow, late])
    journal = Journal.create(quick / "s", files=FaultyFiles(plan))
    driver = agent.start(prompt="go", store=journal)
    with pytest.raises(StoreFull):
        await driver.next()
    is_full = False
    async with asyncio.timeout(PATIENCE):
        while not isinstance(await driver.next(), Finished):
            pass
    assert len(slow.calls) == 1
    await driver.aclose()


@pytest.mark.parametrize("step", range(0, 60, 4))
def test_fault_79_cancelled_anywhere_the_journal_goes_on(step: int, quick: Path) -> None:
    """Cancel after so many turns of the event loop; then a fresh process carries on."""

    async def work() -> Transcript | None:
        task = asyncio.get_running_loop().create_task(Run(quick / "s", files).go())
        for _ in range(step):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task])
        return None if task.cancelled() else done.pop().result()

    (quick / "s").mkdir()
    files = FaultyFiles()
    finished = asyncio.run(work())
    files.close_all()
    run = Run(quick / "s", FaultyFiles())
    known = run.acknowledged()
    kept = read_entries(run.place) if (run.place / "journal.jsonl").exists() else []
    assert kept[: len(known)] == known
    effects = run.effects()
    assert len(effects) == len(set(effects))
    if finished is None and kept:
        resumed = resume(run.place)
        assert find_violations(resumed.state.transcript) == []
        assert resumed.damage == ()
        asyncio.run(resumed.journal.aclose())
