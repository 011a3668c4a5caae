"""Going back and forking only append; replay comes to the same transcript."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle.agents.agent import Agent
from treadle.apps.cli.commands.replay import replay_recording
from treadle.core.contracts.policy import Allow, Ask, BasePolicy, PermissionRequest, Verdict
from treadle.core.errors import AccessDenied, StoreError
from treadle.core.steps import AfterToolResult, Approval, AwaitingInput, Finished
from treadle.core.transcript.content import Text
from treadle.core.transcript.entries import Checkpoint, ItemAdded, ViewRewritten
from treadle.core.transcript.items import AssistantItem, SummaryItem, ToolResultItem, UserItem
from treadle.core.transcript.transcript import Transcript
from treadle.models.scripted import Say, Scripted
from treadle.sessions import Journal, Library
from treadle.sessions.history import (
    find_turn,
    fork,
    list_checkpoint_trees,
    list_turns,
    read_state,
    rewind,
)
from treadle.sessions.log.journal import read_entries
from treadle.sessions.replay import find_first_difference, split_recordings
from treadle.testing.tools import RecordingTool
from treadle.tools.federation import StaticSource


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "sessions")


async def play(journal: Journal, script: Any, *prompts: str, state: Any = None, **more: Any) -> Any:
    """Say these one after the other; the driver, closed."""
    agent = Agent(Scripted(script), [RecordingTool(answer="ok")], **more)
    driver = agent.start(state=state, store=journal)
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
    first, second = list_turns(journal.session_dir)
    assert (first.turn_id, first.number, first.text, first.checkpoint_before) == (
        "turn-1",
        1,
        "first",
        "",
    )
    assert (second.text, second.checkpoint_before, second.checkpoint_after) == (
        "second",
        "tree-a",
        "tree-b",
    )
    assert find_turn(journal.session_dir, "-1") == find_turn(journal.session_dir, "2") == second
    assert list_checkpoint_trees(journal.session_dir) == {"tree-a", "tree-b"}
    with pytest.raises(StoreError, match="no turn '7'; it has 2"):
        find_turn(journal.session_dir, "7")


async def test_a_rewind_is_an_entry_and_the_next_turn_follows_it(
    library: Library, tmp_path: Path
) -> None:
    journal = library.create(tmp_path)
    await play(journal, ["one", "two"], "first", "second")
    before = (journal.session_dir / "journal.jsonl").read_bytes()
    resumed = library.resume(journal.session_id)
    view = await rewind(resumed.journal, "turn-2")
    assert texts(view.transcript) == ["first", "one"]
    await play(resumed.journal, ["three"], "third", state=view)
    assert (journal.session_dir / "journal.jsonl").read_bytes().startswith(before)
    assert texts(read_state(journal.session_dir).transcript) == ["first", "one", "third", "three"]
    assert [mark.turn_id for mark in list_turns(journal.session_dir)] == ["turn-1", "turn-3"]
    with pytest.raises(StoreError, match="no turn"):
        await rewind(library.resume(journal.session_id).journal, "turn-2")


async def test_a_fork_goes_its_own_way(library: Library, tmp_path: Path) -> None:
    journal = library.create(tmp_path)
    await play(journal, ["one", "two"], "first", "second")
    child, view = fork(library, journal.session_dir, folder=tmp_path, before_turn="2")
    assert texts(view.transcript) == ["first", "one"]
    await play(child, ["other"], "else", state=view)
    assert texts(read_state(child.session_dir).transcript) == ["first", "one", "else", "other"]
    assert texts(read_state(journal.session_dir).transcript) == ["first", "one", "second", "two"]
    difference = find_first_difference(
        read_state(journal.session_dir).transcript, read_state(child.session_dir).transcript
    )
    assert difference is not None
    assert difference.position == 2
    found = (difference.left, difference.right)
    assert [one.text for one in found if one is not None] == ["second", "else"]


async def test_a_fork_leaves_a_message_that_waits_to_its_parent(
    library: Library, tmp_path: Path
) -> None:
    journal = library.create(tmp_path)
    await play(journal, ["one"], "first")
    resumed = library.resume(journal.session_id)
    driver = Agent(Scripted([])).start(state=resumed.state, store=resumed.journal)
    driver.submit("I wait")
    await driver.aclose()
    child, view = fork(library, journal.session_dir, folder=tmp_path)
    await child.aclose()
    assert view.queued == read_state(child.session_dir).queued == ()
    queued = read_state(journal.session_dir).queued
    assert texts([one.item for one in queued]) == ["I wait"]


# --- replay --------------------------------------------------------------------------------


async def replayed(place: Path) -> int:
    """Replay it; how many replies. It must give the same transcript."""
    replies = 0
    for recording in split_recordings(read_entries(place)):
        assert await replay_recording(recording) is None
        replies += recording.reply_count
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
    assert await replayed(journal.session_dir) == 4


class AsksOnce(BasePolicy):
    async def decide(self, request: PermissionRequest) -> Verdict:
        return Ask("sure?") if request.arguments == {"n": 2} else Allow()


async def test_notes_of_the_engine_and_a_closing_request_are_replayed_equal(
    library: Library, tmp_path: Path
) -> None:
    journal = library.create(tmp_path)
    tool = RecordingTool(answer=lambda given: "x" * 60 if given["n"] == 3 else "ok")
    calls = [("Record", {"n": 1}), ("record", {"n": 2}), ("record", {"n": 3})]
    script = [Say(calls=calls), Say("More:", calls=[("record", {"n": 4})]), Say("One of two.")]
    agent = Agent(
        Scripted(script),
        [tool],
        policy=AsksOnce(),
        approve=lambda approval: Approval(arguments={"n": 5}),
        max_result_chars=50,
        max_turns=1,
    )
    result = await agent.run("go", session=journal)
    assert (result.reason, result.text) == ("max_turns", "One of two.")
    results = [item for item in result.transcript if isinstance(item, ToolResultItem)]
    assert [item.text for item in results] == ["ok", "ok", "x" * 50]
    assert [[note.kind for note in item.notes] for item in results] == [
        ["corrected"],
        ["edited"],
        ["truncated"],
    ]
    assert await replayed(journal.session_dir) == 3
    loaded = read_state(journal.session_dir).transcript
    assert list(loaded) == list(result.transcript)


async def test_a_log_with_notes_in_its_content_is_replayed_equal(
    library: Library, tmp_path: Path
) -> None:
    journal = library.create(tmp_path)
    driver = await play(journal, [Say(calls=[("Record", {"n": 1})]), "done"], "go")
    old = library.create(tmp_path)
    for entry in read_entries(journal.session_dir):
        if isinstance(entry, ItemAdded) and isinstance(entry.item, ToolResultItem):
            text = entry.item.model_text
            entry = ItemAdded(msgspec.structs.replace(entry.item, content=(Text(text),), notes=()))
        old.append(entry)
    await old.aclose()
    assert "[corrected: " in driver.transcript[2].model_text
    assert await replayed(old.session_dir) == 2


async def test_a_replay_goes_through_compaction_steering_and_rewind(
    library: Library, tmp_path: Path
) -> None:
    class Compacting:
        name = "compact"
        points = frozenset({"before_model"})

        async def mutate(self, context: Any) -> Transcript | None:
            if len(context.transcript) < 4 or isinstance(context.transcript[0], SummaryItem):
                return None
            return Transcript([SummaryItem("what was", 3), *context.transcript[3:]])

    journal = library.create(tmp_path)
    agent = Agent(
        Scripted([Say(calls=[("record", {})]), "one", Say(calls=[("record", {})]), "two"]),
        [RecordingTool(answer="ok")],
        mutators=[Compacting()],  # type: ignore[list-item]
    )
    driver = agent.start(prompt="first", store=journal)
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
    assert any(isinstance(entry, ViewRewritten) for entry in read_entries(journal.session_dir))
    resumed = library.resume(journal.session_id)
    view = await rewind(resumed.journal, "turn-2")
    await play(resumed.journal, ["three"], "third", state=view)
    assert await replayed(journal.session_dir) == 5


async def test_a_replay_ends_where_the_log_ends(library: Library, tmp_path: Path) -> None:
    journal = library.create(tmp_path)
    await play(journal, [Say(calls=[("record", {}), ("record", {})]), "done"], "go")
    path = journal.session_dir / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    results = [n for n, line in enumerate(lines) if b'"tool_result"' in line]
    path.write_bytes(b"".join(lines[: results[1]]))  # killed between two results
    assert await replayed(journal.session_dir) == 1


async def test_a_turn_that_failed_is_replayed_with_what_followed(
    library: Library, tmp_path: Path
) -> None:
    journal = library.create(tmp_path)
    agent = Agent(Scripted([AccessDenied("no key"), "better"]))
    driver = agent.start(prompt="first", store=journal)
    assert isinstance(await driver.next(), Finished)
    driver.submit("second")
    assert isinstance(await driver.next(), Finished)
    await driver.aclose()
    assert await replayed(journal.session_dir) == 1


async def test_a_tool_that_answers_otherwise_today_is_named(
    library: Library, tmp_path: Path
) -> None:
    journal = library.create(tmp_path)
    await play(journal, [Say(calls=[("record", {"n": 1}), ("record", {"n": 2})]), "done"], "go")

    def answer(arguments: Any) -> str:
        return "ok" if arguments["n"] == 1 else "changed"

    (recording,) = split_recordings(read_entries(journal.session_dir))
    assert await replay_recording(recording, StaticSource((RecordingTool(answer=answer),))) is None
    (drift,) = recording.mismatches
    assert (drift.name, drift.arguments, drift.recorded, drift.actual) == (
        "record",
        '{"n":2}',
        "ok",
        "changed",
    )


async def test_a_loop_that_behaves_otherwise_is_noticed(library: Library, tmp_path: Path) -> None:
    journal = library.create(tmp_path)
    await play(journal, [Say(calls=[("record", {})]), "done", "again"], "go", "on")
    (recording,) = split_recordings(read_entries(journal.session_dir))
    (call_id,) = recording.results
    result = recording.results[call_id]
    recording.results[call_id] = ToolResultItem(call_id, "record", (), is_error=True)
    difference = await replay_recording(recording)
    assert difference is not None
    assert difference.left == result
    assert difference.position == 2


def test_usage_and_ids_of_replies_make_no_difference() -> None:
    one = AssistantItem((), model="a", response_id="x")
    assert find_first_difference([one], [AssistantItem((), model="b")]) is None
    assert find_first_difference([one], [UserItem(())]) is not None


async def test_awaiting_input_is_what_a_rested_session_gives(
    library: Library, tmp_path: Path
) -> None:
    journal = library.create(tmp_path)
    await play(journal, ["one"], "first")
    resumed = library.resume(journal.session_id)
    driver = Agent(Scripted([])).start(state=resumed.state, store=resumed.journal)
    assert isinstance(await driver.next(), AwaitingInput)
    await driver.aclose()


async def test_a_fork_of_a_fork_before_a_turn_of_the_first_parent_ends_there(
    library: Library, tmp_path: Path
) -> None:
    first = library.create(tmp_path)
    await play(first, ["one", "two", "three"], "1", "2", "3")
    second, view = fork(library, first.session_dir, folder=tmp_path)
    await play(second, ["four"], "4", state=view)
    third, view = fork(library, second.session_dir, folder=tmp_path, before_turn="turn-2")
    assert texts(view.transcript) == ["1", "one"]
    driver = await play(third, ["other"], "5", state=view)
    assert texts(read_state(third.session_dir).transcript) == texts(driver.transcript)


async def test_a_round_with_a_long_reply_counts_once_after_a_resume(
    library: Library, tmp_path: Path
) -> None:
    journal = library.create(tmp_path)
    agent = Agent(
        Scripted([Say("x" * 3_000, calls=[("record", {}), ("record", {}), ("record", {})])]),
        [RecordingTool(answer="ok")],
    )
    driver = agent.start(store=journal, prompt="go")
    assert isinstance(await driver.next(), AfterToolResult)
    await driver.aclose()
    progress = read_state(journal.session_dir).turn
    assert progress is not None
    assert (progress.rounds, progress.calls) == (1, 3)
