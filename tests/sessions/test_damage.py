"""Sessions whose log has unreadable lines: what is lost is only what the lines held."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle import Agent
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.loop.driver import Driver
from treadle.core.steps import AwaitingInput, Finished
from treadle.core.transcript import (
    AssistantItem,
    SummaryItem,
    Text,
    ToolCall,
    ToolResultItem,
    Transcript,
    UserItem,
    to_user_item,
)
from treadle.core.transcript.entries import Entry, Intent, ItemAdded, Quarantined, TurnBegan
from treadle.core.transcript.integrity import find_violations
from treadle.models.scripted import Say, Scripted
from treadle.sessions import Library, resume
from treadle.sessions.history import fork, list_turns, read_state, rewind
from treadle.sessions.log.reader import find_damage
from treadle.testing.tools import RecordingTool

PAY, MAIL = ToolCall("c1", "pay", '{"n":1}'), ToolCall("c2", "mail", '{"n":2}')


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "sessions")


async def write_session(library: Library, folder: Path, entries: list[Entry]) -> Path:
    journal = library.create(folder)
    for entry in entries:
        journal.append(entry)
    await journal.aclose()
    return journal.session_dir


def steered(text: str) -> UserItem:
    return msgspec.structs.replace(to_user_item(text), steered=True)


def damage_line(session_dir: Path, is_damaged: Callable[[bytes], bool]) -> None:
    """Make the one line that matches unreadable."""
    path = session_dir / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    kept = (b'"kind":"queued"', b'"kind":"unqueued"')  # a message is in the log twice
    found = [n for n, line in enumerate(lines) if is_damaged(line)]
    [position] = [n for n in found if not any(kind in lines[n] for kind in kept)]
    lines[position] = b"#" * (len(lines[position]) - 1) + b"\n"
    path.write_bytes(b"".join(lines))


def item_with(text: str) -> Callable[[bytes], bool]:
    mark = f'"text":"{text}"'.encode()
    return lambda line: b'"kind":"item"' in line and mark in line


def open_round() -> list[Entry]:
    """Two calls with effects ran; the process ended before the next model call."""
    return [
        TurnBegan("turn-1"),
        ItemAdded(to_user_item("pay and mail")),
        ItemAdded(AssistantItem((PAY, MAIL), "tool_use")),
        Intent("c1", "pay", "key-1", "irreversible"),
        Intent("c2", "mail", "key-2", "irreversible"),
        ItemAdded(ToolResultItem("c1", "pay", (Text("paid"),))),
        ItemAdded(ToolResultItem("c2", "mail", (Text("mailed"),))),
    ]


def make_tools() -> tuple[RecordingTool, RecordingTool]:
    return RecordingTool("pay", effect="irreversible"), RecordingTool("mail", effect="irreversible")


async def finish(driver: Driver) -> None:
    while not isinstance(await driver.next(), Finished):
        pass
    await driver.aclose()


def results(items: Any) -> dict[str, str]:
    return {item.call_id: item.text for item in items if isinstance(item, ToolResultItem)}


async def test_a_damaged_result_does_not_make_a_later_call_of_the_round_run_again(
    library: Library, tmp_path: Path
) -> None:
    place = await write_session(library, tmp_path, open_round())
    damage_line(place, lambda line: b'"tool_result","call_id":"c1"' in line)
    resumed = resume(place)
    pay, mail = make_tools()
    driver = Agent(Scripted(["done"]), [pay, mail]).start(
        state=resumed.state, store=resumed.journal
    )
    await finish(driver)
    assert (pay.calls, mail.calls) == ([], [])
    answers = results(driver.transcript)
    assert answers["c2"] == "mailed"
    assert "outcome unknown" in answers["c1"]
    assert read_state(place).transcript == driver.transcript


async def test_a_history_keeps_a_result_that_comes_before_a_missing_one() -> None:
    pay, mail = make_tools()
    messages: list[Any] = [
        to_user_item("pay and mail"),
        AssistantItem((PAY, MAIL), "tool_use"),
        ToolResultItem("c2", "mail", (Text("mailed"),)),
    ]
    messages = list((await Agent(Scripted(["done"]), [pay, mail]).run(history=messages)).transcript)
    assert (pay.calls, mail.calls) == ([{"n": 1}], [])
    assert results(messages) == {"c1": "ok", "c2": "mailed"}


@pytest.mark.parametrize("cut", [1, 20, 60, 100])
async def test_a_log_cut_inside_an_intent_says_that_the_call_may_have_run(
    library: Library, tmp_path: Path, cut: int
) -> None:
    place = await write_session(library, tmp_path, open_round()[:4])
    path = place / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b"\n", 0, -1) + 1 + cut])
    resumed = resume(place)
    pay, mail = make_tools()
    driver = Agent(Scripted(["done"]), [pay, mail]).start(
        state=resumed.state, store=resumed.journal
    )
    await finish(driver)
    assert (pay.calls, mail.calls) == ([], [])
    told = results(driver.transcript)["c1"]
    assert "the session log is damaged at this call; pay may have run" in told


async def test_a_pure_call_runs_again_after_a_cut_log(library: Library, tmp_path: Path) -> None:
    place = await write_session(library, tmp_path, open_round()[:4])
    path = place / "journal.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    resumed = resume(place)
    pay, mail = RecordingTool("pay"), RecordingTool("mail")
    driver = Agent(Scripted(["done"]), [pay, mail]).start(
        state=resumed.state, store=resumed.journal
    )
    await finish(driver)
    assert (pay.calls, mail.calls) == ([{"n": 1}], [{"n": 2}])


class SummarizeFirst:
    """On request, replaces the first `count` items by a summary."""

    name = "summarize-first"
    points: frozenset[MutationPoint] = frozenset({"on_request"})

    def __init__(self, count: int) -> None:
        self._count = count

    async def mutate(self, context: MutationContext) -> Transcript | None:
        rest = context.transcript[self._count :]
        return Transcript([SummaryItem("before", self._count), *rest])


async def three_turns(library: Library, folder: Path) -> Path:
    """Three turns; the result of the call in the first one is unreadable."""
    journal = library.create(folder)
    script: list[Any] = [Say(calls=[ToolCall("c1", "pay", "{}")]), "one", "two", "three"]
    driver = Agent(Scripted(script), [make_tools()[0]]).start(store=journal)
    for prompt in ("first", "second", "third"):
        driver.submit(prompt)
        while not isinstance(await driver.next(), Finished):
            pass
    await driver.aclose()
    damage_line(journal.session_dir, lambda line: b'"tool_result","call_id":"c1"' in line)
    return journal.session_dir


def said(items: Any) -> list[str]:
    return [item.text for item in items if isinstance(item, UserItem)]


async def test_a_damaged_session_that_is_compacted_keeps_its_later_messages(
    library: Library, tmp_path: Path
) -> None:
    place = await three_turns(library, tmp_path)
    resumed = resume(place)
    agent = Agent(Scripted(["four"]), [make_tools()[0]], mutators=[SummarizeFirst(4)])
    driver = agent.start(state=resumed.state, store=resumed.journal)
    assert await driver.compact()
    await driver.aclose()
    again = resume(place)
    assert again.state.transcript == driver.transcript
    assert said(again.state.transcript) == ["second", "third"]
    driver = agent.start(state=again.state, store=again.journal)
    assert driver.uncompact()
    assert find_violations(driver.transcript) == []
    assert said(driver.transcript) == ["first", "second", "third"]
    await driver.aclose()
    assert read_state(place).transcript == driver.transcript


async def compacted_session(library: Library, folder: Path) -> Path:
    """Three turns; a summary replaces the first two."""
    journal = library.create(folder)
    agent = Agent(Scripted(["a", "b", "c"]), mutators=[SummarizeFirst(4)])
    driver = agent.start(store=journal)
    for prompt in ("first", "second", "third"):
        driver.submit(prompt)
        while not isinstance(await driver.next(), Finished):
            pass
    assert await driver.compact()
    await driver.aclose()
    return journal.session_dir


async def test_a_line_lost_before_a_compaction_does_not_cost_a_message_after_it(
    library: Library, tmp_path: Path
) -> None:
    place = await compacted_session(library, tmp_path)
    assert said(read_state(place).transcript) == ["third"]
    damage_line(place, lambda line: b'"text":"first"' in line)
    assert said(read_state(place).transcript) == ["third"]


@pytest.mark.parametrize("lost", [["first"], ["first", "a", "second", "b"]])
async def test_uncompact_keeps_the_summary_of_messages_that_the_log_has_lost(
    library: Library, tmp_path: Path, lost: list[str]
) -> None:
    place = await compacted_session(library, tmp_path)
    for text in lost:
        damage_line(place, item_with(text))
    resumed = resume(place)
    driver = Agent(Scripted([])).start(state=resumed.state, store=resumed.journal)
    assert driver.uncompact()
    assert isinstance(driver.transcript[0], SummaryItem)
    assert said(driver.transcript) == [t for t in ("first", "second", "third") if t not in lost]
    await driver.aclose()
    assert read_state(place).transcript == driver.transcript


async def test_a_refused_part_is_not_mistaken_for_another_after_damage(
    library: Library, tmp_path: Path
) -> None:
    entries: list[Entry] = [
        TurnBegan("turn-1"),
        *[ItemAdded(to_user_item(text)) for text in ("first", "refused", "third")],
        Quarantined(1, 0, "a bad picture"),
    ]
    place = await write_session(library, tmp_path, entries)
    damage_line(place, lambda line: b'"text":"first"' in line)
    for _ in range(2):
        resumed = resume(place)
        assert resumed.state.quarantine == frozenset()
        await resumed.journal.aclose()
    assert (place / "journal.jsonl").read_bytes().count(b'"mutator":"repair"') == 1


async def test_a_repair_alone_is_nothing_to_uncompact(library: Library, tmp_path: Path) -> None:
    place = await three_turns(library, tmp_path)
    for _ in range(2):
        resumed = resume(place)
        driver = Agent(Scripted(["four"])).start(state=resumed.state, store=resumed.journal)
        assert not driver.uncompact()
        assert find_violations(driver.transcript) == []
        await driver.aclose()
    log = (place / "journal.jsonl").read_bytes()
    assert log.count(b'"mutator":"repair"') == 1


async def test_a_fork_and_a_rewind_of_a_damaged_session_are_lawful(
    library: Library, tmp_path: Path
) -> None:
    place = await three_turns(library, tmp_path)
    last = list_turns(place)[-1].turn_id
    journal, view = fork(library, place, folder=tmp_path, before_turn=last)
    assert find_violations(view.transcript) == []
    driver = Agent(Scripted(["four"])).start(state=view, store=journal, prompt="go on")
    await finish(driver)
    assert resume(journal.session_dir).state.transcript == driver.transcript
    resumed = resume(place)
    view = await rewind(resumed.journal, last)
    await resumed.journal.aclose()
    assert find_violations(view.transcript) == []
    assert read_state(place).transcript == view.transcript


async def test_an_open_session_that_was_damaged_is_lawful_after_a_rewind(
    library: Library, tmp_path: Path
) -> None:
    place = await three_turns(library, tmp_path)
    async with Agent(Scripted(["four"]), store=place.parent).session(place.name) as session:
        await session.rewind()  # to a view from before the repair
        assert find_violations(session.transcript) == []
        await session.run("go on")
        transcript = session.transcript
    assert read_state(place).transcript == transcript


async def test_a_turn_after_a_damaged_one_gets_an_id_of_its_own(
    library: Library, tmp_path: Path
) -> None:
    place = await three_turns(library, tmp_path)
    damage_line(place, lambda line: b'"turn_id":"turn-2"' in line and b'"kind":"turn"' in line)
    resumed = resume(place)
    driver = Agent(Scripted(["four"])).start(
        state=resumed.state, store=resumed.journal, prompt="fourth"
    )
    await finish(driver)
    assert [turn.turn_id for turn in list_turns(place)] == ["turn-1", "turn-3", "turn-4"]


async def test_a_steered_message_does_not_run_after_a_rewind_to_before_its_turn(
    library: Library, tmp_path: Path
) -> None:
    journal = library.create(tmp_path)
    release_never = RecordingTool("pay", effect="irreversible")
    model = Scripted(["one", Say(calls=[ToolCall("c1", "pay", "{}")])])
    driver = Agent(model, [release_never]).start(store=journal, prompt="first")
    while not isinstance(await driver.next(), Finished):
        pass
    driver.submit("second")
    await driver.next()
    driver.steer("and hurry")
    driver.interrupt()
    assert isinstance(await driver.next(), Finished)
    await driver.aclose()
    resumed = resume(journal.session_dir)
    assert [one.item for one in resumed.state.queued] == [steered("and hurry")]
    view = await rewind(resumed.journal, "turn-2")
    driver = Agent(Scripted(["never"])).start(state=view, store=resumed.journal)
    assert isinstance(await driver.next(), AwaitingInput)
    await driver.aclose()
    assert read_state(journal.session_dir).queued == ()


async def test_a_fork_leaves_waiting_messages_to_its_parent(
    library: Library, tmp_path: Path
) -> None:
    journal = library.create(tmp_path)
    driver = Agent(Scripted(["one", "two"])).start(store=journal, prompt="first")
    while not isinstance(await driver.next(), Finished):
        pass
    driver.steer("second")  # waits in the log until the next turn takes it
    await driver.aclose()
    for before_turn in (None, "turn-1"):
        forked, view = fork(library, journal.session_dir, folder=tmp_path, before_turn=before_turn)
        driver = Agent(Scripted(["never"])).start(state=view, store=forked)
        assert isinstance(await driver.next(), AwaitingInput)
        await driver.aclose()
    assert [one.item for one in read_state(journal.session_dir).queued] == [steered("second")]


def drop_header(path: Path) -> None:
    path.write_bytes(path.read_bytes().partition(b"\n")[2])


@pytest.mark.parametrize(
    ("harm", "problem", "count"),
    [
        (lambda path: path.write_bytes(b""), "the file is empty", 0),
        (drop_header, "the header is missing", 2),
    ],
)
async def test_an_emptied_log_and_one_without_its_header_are_damaged(
    library: Library, tmp_path: Path, harm: Callable[[Path], None], problem: str, count: int
) -> None:
    said: list[Entry] = [ItemAdded(to_user_item("one")), ItemAdded(to_user_item("two"))]
    session_dir = await write_session(library, tmp_path, said)
    path = session_dir / "journal.jsonl"
    harm(path)
    [summary] = library.list_summaries()
    assert summary.is_damaged
    resumed = resume(session_dir)
    assert resumed.warnings == (f"the session log is damaged: {path}: {problem}",)
    assert len(resumed.state.transcript) == count
    resumed.journal.append(ItemAdded(to_user_item("three")))
    await resumed.journal.aclose()
    assert len(read_state(session_dir).transcript) == count + 1


async def test_a_missing_entry_is_reported_without_a_line_or_a_size(
    library: Library, tmp_path: Path
) -> None:
    said: list[Entry] = [ItemAdded(to_user_item(str(n))) for n in range(4)]
    session_dir = await write_session(library, tmp_path, said)
    path = session_dir / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if b'"n":2,' not in line))
    assert [str(damage) for damage in find_damage(session_dir)] == [f"{path}: entry 2 is missing"]


async def test_two_neighbouring_lines_that_changed_places_are_read_by_their_numbers(
    library: Library, tmp_path: Path
) -> None:
    journal = library.create(tmp_path)
    script: list[Any] = [Say(calls=[("pay", {"n": 1})]), "done", "again"]
    agent = Agent(Scripted(script), [*make_tools()])
    driver = agent.start(store=journal)
    driver.submit("first")
    await finish(driver)
    session_dir = journal.session_dir
    resumed = resume(session_dir)
    driver = agent.start(state=resumed.state, store=resumed.journal)
    driver.submit("second")
    await finish(driver)
    path = session_dir / "journal.jsonl"
    whole, view = path.read_bytes(), read_state(session_dir)
    lines = whole.splitlines(keepends=True)
    for first in range(1, len(lines) - 1):
        swapped = [*lines[:first], lines[first + 1], lines[first], *lines[first + 2 :]]
        path.write_bytes(b"".join(swapped))
        assert find_damage(session_dir) == [], first
        assert read_state(session_dir) == view, first


async def test_a_line_that_is_far_from_its_place_is_lost_and_the_others_are_not(
    library: Library, tmp_path: Path
) -> None:
    texts = [f"message {number}" for number in range(100)]
    entries: list[Entry] = [ItemAdded(to_user_item(text)) for text in texts]
    session_dir = await write_session(library, tmp_path, entries)
    path = session_dir / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    [at] = [number for number, line in enumerate(lines) if b'"message 3"' in line]
    path.write_bytes(b"".join([*lines[:at], *lines[at + 1 :], lines[at]]))
    assert [damage.problem for damage in find_damage(session_dir)] == ["entry 4 is missing"]
    assert said(read_state(session_dir).transcript) == [t for t in texts if t != "message 3"]
