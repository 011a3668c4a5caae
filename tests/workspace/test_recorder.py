"""Which spans the calls of a turn have: what changes in a span is the agent's, else the user's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from treadle.core.events import ChildEvent, TaskFinished, ToolDetached, TurnStarted
from treadle.core.transcript.entries import Checkpoint, Entry
from treadle.workspace.checkpoints.checkpoints import Checkpoints
from treadle.workspace.checkpoints.recorder import CheckpointRecorder

ONE, TWO = ("s", "1"), ("s", "2")


class Recorded:
    """A recorder of a folder, and what it wrote to the log."""

    def __init__(self, root: Path, store: Path) -> None:
        self.root = root
        self.checkpoints = Checkpoints(root, store, max_files=20)
        self.entries: list[Entry] = []
        self.warnings: list[str] = []
        append, warn = self.entries.append, self.warnings.append
        self.recorder = CheckpointRecorder(self.checkpoints, append, warn)
        self.recorder.on_event(TurnStarted("s", "turn-1", 1))

    def write(self, *names: str) -> None:
        for name in names:
            (self.root / name).write_text(name)

    async def spans(self) -> list[tuple[list[str], tuple[str, ...]]]:
        """The changed files of each span, and what ran in the background."""
        found = []
        before = ""
        for entry in self.entries:
            assert isinstance(entry, Checkpoint)
            if entry.side == "before":
                before = entry.tree
            else:
                changes = await self.checkpoints.diff(before, entry.tree)
                found.append(([one.path for one in changes], entry.background))
        return found


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    (tmp_path / "project").mkdir()
    recorded = Recorded(tmp_path / "project", tmp_path / "store")
    with closing(recorded.checkpoints):
        yield recorded


async def test_what_changes_between_two_calls_is_in_no_span(recorded: Recorded):
    recorder = recorded.recorder
    for key, name in ((ONE, "a"), (TWO, "b")):
        await recorder.begin(key, "")
        recorded.write(name)
        await recorder.end(key)
        recorded.write(f"mine {name}")
    await recorder.end_turn()
    assert await recorded.spans() == [(["a"], ()), (["b"], ())]


async def test_calls_at_the_same_time_share_a_span_until_the_last_one_ends(recorded: Recorded):
    recorder = recorded.recorder
    await recorder.begin(ONE, "")
    await recorder.begin(TWO, "")
    recorded.write("a")
    await recorder.end(ONE)
    recorded.write("b")
    await recorder.end(TWO)
    recorded.write("mine")
    assert await recorded.spans() == [(["a", "b"], ())]


@pytest.mark.parametrize("is_child", [False, True])
async def test_a_span_in_which_only_background_calls_run_names_them(
    recorded: Recorded, is_child: bool
):
    recorder = recorded.recorder
    await recorder.begin(ONE, "npm run dev")
    detached = ToolDetached("s", "turn-1", 1, "1", "task-1")
    recorder.on_event(ChildEvent("p", "turn-1", 1, "9", detached) if is_child else detached)
    recorded.write("either")
    await recorder.begin(TWO, "")
    recorded.write("agent")
    await recorder.end(TWO)
    recorded.write("or")
    await recorder.end(ONE)
    recorder.on_event(TaskFinished("s", "turn-1", 1, "task-1", "bash", ""))
    recorded.write("mine")
    await recorder.end_turn()
    server = ("npm run dev",)
    assert await recorded.spans() == [(["either"], server), (["agent"], ()), (["or"], server)]


async def test_a_background_call_that_was_stopped_is_forgotten(recorded: Recorded):
    recorder = recorded.recorder
    await recorder.begin(ONE, "npm run dev")
    recorder.on_event(ToolDetached("s", "turn-1", 1, "1", "task-1"))
    recorder.on_event(TaskFinished("s", "turn-1", 1, "task-1", "bash", "", is_cancelled=True))
    await recorder.begin(TWO, "")
    await recorder.end(TWO)
    recorded.write("mine")
    await recorder.end_turn()
    assert await recorded.spans() == [([], ("npm run dev",)), ([], ())]


async def test_the_end_of_the_turn_ends_the_span_of_an_interrupted_call(recorded: Recorded):
    recorder = recorded.recorder
    await recorder.begin(ONE, "")
    recorded.write("a")
    await recorder.end_turn()
    recorded.write("mine")
    recorder.on_event(TurnStarted("s", "turn-2", 1))
    await recorder.begin(TWO, "")
    recorded.write("b")
    await recorder.end(TWO)
    assert await recorded.spans() == [(["a"], ()), (["b"], ())]
    turns = [entry.turn_id for entry in recorded.entries if isinstance(entry, Checkpoint)]
    assert turns == ["turn-1", "turn-1", "turn-2", "turn-2"]


async def test_a_checkpoint_that_fails_is_told_once_and_has_no_span(recorded: Recorded):
    recorded.write(*(f"{number}" for number in range(21)))
    recorder = recorded.recorder
    for key in (ONE, TWO):
        await recorder.begin(key, "")
        await recorder.end(key)
    await recorder.end_turn()
    assert (recorded.entries, len(recorded.warnings)) == ([], 1)
    assert "holds more than 20 files" in recorded.warnings[0]
