"""Nothing acknowledged is lost and no effect happens twice, wherever a process ends.

Real processes, killed by SIGKILL at every call of a run to the file system and at every place
around an effect; then fresh ones that go on.
"""

from __future__ import annotations

import asyncio
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
from treadle.core.transcript.content import Text
from treadle.core.transcript.items import ToolResultItem
from treadle.core.transcript.transcript import Transcript
from treadle.sessions.journal import read
from treadle.testing.faulty_files import Fault, FaultyFiles

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
    assert read(run.place) == run.acknowledged()


@pytest.mark.parametrize("kind", ["kill", "torn", "done"])
def test_fault_1_2_3_killed_at_every_call_and_every_effect(kind: str, quick: Path) -> None:
    script = ROOT / "tests/faults/kill_everywhere.py"
    done = subprocess.run(
        [sys.executable, str(script), kind, str(quick)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=50,
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
            files = FaultyFiles({inside: Fault("kill")}, really=True)
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
    assert "turn-1/call" in answer.content[0].text  # the key
    assert len(run.effects()) == 6
