"""Going back and forking only append; replay comes to the same transcript."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from treadle.agents.agent import Agent
from treadle.apps.cli.replay import run_again
from treadle.core.errors import AccessDenied, StoreError
from treadle.core.loop.steps import AfterToolResult, AwaitingInput, Finished
from treadle.core.transcript.entries import Checkpoint, Rewritten
from treadle.core.transcript.items import AssistantItem, SummaryItem, ToolResultItem, UserItem
from treadle.core.transcript.transcript import Transcript
from treadle.models.scripted import Say, Scripted
from treadle.sessions import Journal, Library
from treadle.sessions.comparing import first_difference, words
from treadle.sessions.journal import read
from treadle.sessions.replay import recordings
from treadle.sessions.travel import fork, rewind, trees, turn, turns, view_of
from treadle.testing.tools import RecordingTool
from treadle.tools.federation import Registry


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "sessions")


async def play(journal: Journal, script: Any, *prompts: str, view: Any = None, **more: Any) -> Any:
    """Say these one after the other; the driver, closed."""
    agent = Agent(Scripted(script), [RecordingTool(answer="ok")], **more)
    driver = agent.start(view=view, store=journal)
    for prompt in prompts:
        driver.submit(prompt)
        while not isinstance(await driver.next(), Finished):
            pass
    await driver.aclose()
    return driver


def texts(transcript: Any) -> list[str]:
    return [item.text for item in transcript]


async def test_turns_are_numbered_and_know_their_files(library: Library, tmp_path: Path) -> None:
    journal = library.create(tmp_path)
    await play(journal, ["one", "two"], "first", "second")
    resumed = library.resume(journal.session_id)
    resumed.journal.append(Checkpoint("turn-2", "tree-a"))
    resumed.journal.append(Checkpoint("turn-2", "tree-b"))
    await resumed.journal.aclose()
    first, second = turns(journal.place)
    assert (first.turn_id, first.number, first.text, first.before) == ("turn-1", 1, "first", "")
    assert (second.text, second.before, second.after) == ("second", "tree-a", "tree-b")
    assert turn(journal.place, "-1") == turn(journal.place, "2") == second
    assert trees(journal.place) == {"tree-a", "tree-b"}
    with pytest.raises(StoreError, match="no turn '7'; it has 2"):
        turn(journal.place, "7")


async def test_a_rewind_is_an_entry_and_the_next_turn_follows_it(
    library: Library, tmp_path: Path
) -> None:
    journal = library.create(tmp_path)
    await play(journal, ["one", "two"], "first", "second")
    before = (journal.place / "journal.jsonl").read_bytes()
    resumed = library.resume(journal.session_id)
    view = await rewind(resumed.journal, "turn-2")
    assert texts(view.transcript) == ["first", "one"]
    await play(resumed.journal, ["three"], "third", view=view)
    assert (journal.place / "journal.jsonl").read_bytes().startswith(before)
    assert texts(view_of(journal.place).transcript) == ["first", "one", "third", "three"]
    assert [mark.turn_id for mark in turns(journal.place)] == ["turn-1", "turn-3"]
    with pytest.raises(StoreError, match="no turn"):
        await rewind(library.resume(journal.session_id).journal, "turn-2")


async def test_a_fork_goes_its_own_way(library: Library, tmp_path: Path) -> None:
    journal = library.create(tmp_path)
    await play(journal, ["one", "two"], "first", "second")
    child, view = fork(library, journal.place, folder=tmp_path, before="2")
    assert texts(view.transcript) == ["first", "one"]
    await play(child, ["other"], "else", view=view)
    assert texts(view_of(child.place).transcript) == ["first", "one", "else", "other"]
    assert texts(view_of(journal.place).transcript) == ["first", "one", "second", "two"]
    difference = first_difference(
        view_of(journal.place).transcript, view_of(child.place).transcript
    )
    assert difference is not None
    assert difference.position == 2
    assert (words(difference.left), words(difference.right)) == ("user:\nsecond", "user:\nelse")


# --- replay --------------------------------------------------------------------------------


async def replayed(place: Path) -> int:
    """Replay it; how many replies. It must give the same transcript."""
    replies = 0
    for recording in recordings(read(place)):
        assert await run_again(recording) is None
        replies += recording.asked
    return replies


async def test_a_replay_gives_the_same_transcript(library: Library, tmp_path: Path) -> None:
    journal = library.create(tmp_path)
    script = [
        Say("Looking", calls=[("record", {"n": 1}), ("record", {"n": 2}), ("nosuch", {})]),
        Say(calls=[("record", '{"broken')]),
        "done",
        Say(thinking="hm", text="again"),
    ]
    await play(journal, script, "first", "second")
    assert await replayed(journal.place) == 4


async def test_a_replay_goes_through_compaction_steering_and_rewind(
    library: Library, tmp_path: Path
) -> None:
    class Compacting:
        name = "compact"
        points = frozenset({"before_model"})

        async def mutate(self, scene: Any) -> Transcript | None:
            if len(scene.transcript) < 4 or isinstance(scene.transcript[0], SummaryItem):
                return None
            return Transcript([SummaryItem("what was", 3), *scene.transcript[3:]])

    journal = library.create(tmp_path)
    agent = Agent(
        Scripted([Say(calls=[("record", {})]), "one", Say(calls=[("record", {})]), "two"]),
        [RecordingTool(answer="ok")],
        mutators=[Compacting()],  # type: ignore[list-item]
    )
    driver = agent.start(input="first", store=journal)
    ended = 0
    while ended < 2:
        match await driver.next():
            case AfterToolResult() if not ended:
                driver.steer("steered")
            case Finished():
                ended += 1
                driver.submit("second")
            case _:
                pass
    await driver.aclose()
    assert any(isinstance(entry, Rewritten) for entry in read(journal.place))
    resumed = library.resume(journal.session_id)
    view = await rewind(resumed.journal, "turn-2")
    await play(resumed.journal, ["three"], "third", view=view)
    assert await replayed(journal.place) == 5


async def test_a_replay_ends_where_the_log_ends(library: Library, tmp_path: Path) -> None:
    journal = library.create(tmp_path)
    await play(journal, [Say(calls=[("record", {}), ("record", {})]), "done"], "go")
    path = journal.place / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    results = [n for n, line in enumerate(lines) if b'"tool_result"' in line]
    path.write_bytes(b"".join(lines[: results[1]]))  # killed between two results
    assert await replayed(journal.place) == 1


async def test_a_turn_that_failed_is_replayed_with_what_followed(
    library: Library, tmp_path: Path
) -> None:
    journal = library.create(tmp_path)
    agent = Agent(Scripted([AccessDenied("no key"), "better"]))
    driver = agent.start(input="first", store=journal)
    assert isinstance(await driver.next(), Finished)
    driver.submit("second")
    assert isinstance(await driver.next(), Finished)
    await driver.aclose()
    assert await replayed(journal.place) == 1


async def test_a_tool_that_answers_otherwise_today_is_named(
    library: Library, tmp_path: Path
) -> None:
    journal = library.create(tmp_path)
    await play(journal, [Say(calls=[("record", {"n": 1}), ("record", {"n": 2})]), "done"], "go")

    def answer(arguments: Any) -> str:
        return "ok" if arguments["n"] == 1 else "changed"

    (recording,) = recordings(read(journal.place))
    assert await run_again(recording, Registry((RecordingTool(answer=answer),))) is None
    (drift,) = recording.drifts
    assert (drift.name, drift.arguments, drift.then, drift.now) == (
        "record",
        '{"n":2}',
        "ok",
        "changed",
    )


async def test_a_loop_that_behaves_otherwise_is_noticed(library: Library, tmp_path: Path) -> None:
    journal = library.create(tmp_path)
    await play(journal, [Say(calls=[("record", {})]), "done", "again"], "go", "on")
    (recording,) = recordings(read(journal.place))
    (call_id,) = recording.results
    result = recording.results[call_id]
    recording.results[call_id] = ToolResultItem(call_id, "record", (), is_error=True)
    difference = await run_again(recording)
    assert difference is not None
    assert difference.left == result
    assert difference.position == 2


def test_usage_and_ids_of_replies_make_no_difference() -> None:
    one = AssistantItem((), model="a", response_id="x")
    assert first_difference([one], [AssistantItem((), model="b")]) is None
    assert first_difference([one], [UserItem(())]) is not None


async def test_awaiting_input_is_what_a_rested_session_gives(
    library: Library, tmp_path: Path
) -> None:
    journal = library.create(tmp_path)
    await play(journal, ["one"], "first")
    resumed = library.resume(journal.session_id)
    driver = Agent(Scripted([])).start(view=resumed.view, store=resumed.journal)
    assert isinstance(await driver.next(), AwaitingInput)
    await driver.aclose()
