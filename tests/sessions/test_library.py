"""Sessions are found, listed, searched and removed, whatever became of the index."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from treadle.core.errors import ConfigError, SessionBusy, SessionNotFound, StoreError
from treadle.core.transcript.content import Text
from treadle.core.transcript.entries import (
    Entry,
    InputQueued,
    ItemAdded,
    Suspended,
    TurnBegan,
    TurnEnded,
    UsageRecorded,
    WakeCondition,
)
from treadle.core.transcript.items import AssistantItem, ToolResultItem, UserItem
from treadle.core.transcript.usage import Usage
from treadle.sessions import Journal, Library, SessionInOtherFolder
from treadle.sessions.cost import read_costs
from treadle.sessions.detached.suspend import is_due, list_suspended, suspend_turn
from treadle.sessions.history import read_state
from treadle.sessions.log.reader import list_segments
from treadle.sessions.log.records import ForkPoint
from treadle.sessions.search import search
from treadle.sessions.summaries import summarize_session
from treadle.testing.faulty_files import FaultyFiles, FileFault


def said(text: str) -> Entry:
    return ItemAdded(UserItem((Text(text),)))


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "sessions")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my project").mkdir()
    return tmp_path / "my project"


async def session(
    library: Library, folder: Path, *entries: Entry, parent: ForkPoint | None = None
) -> Path:
    journal = library.create(folder, parent=parent)
    for entry in entries:
        journal.append(entry)
    await journal.aclose()
    return journal.session_dir


def age(place: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(place / "journal.jsonl", (then, then))


TURN = (
    TurnBegan("turn-1"),
    said("Make it   faster\nplease"),
    UsageRecorded("m", Usage(10, 5, requests=1, cost=0.25)),
    TurnEnded("turn-1", "end_turn"),
)


async def test_a_list_says_what_a_person_wants_to_know(library: Library, folder: Path) -> None:
    place = await session(library, folder, *TURN, TurnBegan("turn-2"), said("more"))
    (summary,) = library.list_summaries()
    assert summary.id == place.name
    assert summary.title == "Make it faster please"
    assert summary.folder == str(folder)
    assert (summary.turns, summary.usage.cost, library.describe_state(summary)) == (
        2,
        0.25,
        "interrupted",
    )
    assert place.parent.name.startswith("my-project-")


async def test_a_message_that_waits_for_a_run_is_the_title(library: Library, folder: Path) -> None:
    place = await session(library, folder, InputQueued(UserItem((Text("Tidy up"),))))
    assert library.get_summary(place).title == "Tidy up"


async def test_the_newest_session_comes_first_and_is_the_one_to_continue(
    library: Library, folder: Path, tmp_path: Path
) -> None:
    old, new = [await session(library, folder, *TURN) for _ in range(2)]
    other = await session(library, tmp_path, *TURN)
    age(old, 100)
    age(new, 50)
    assert [s.id for s in library.list_summaries()] == [other.name, new.name, old.name]
    assert [s.id for s in library.list_summaries(folder=folder)] == [new.name, old.name]
    assert library.find_latest(folder) == new
    assert library.find_latest(tmp_path / "nowhere") is None


async def test_a_summary_goes_on_where_the_index_stopped(library: Library, folder: Path) -> None:
    place = await session(library, folder, *TURN)
    assert library.list_summaries()[0].turns == 1
    resumed = library.resume(place.name)
    assert library.describe_state(library.list_summaries()[0]) == "open"  # it waits for the user
    resumed.journal.append(TurnBegan("turn-2"))
    await resumed.journal.flush()
    (summary,) = library.list_summaries()
    assert (summary.turns, summary.title) == (2, "Make it faster please")
    assert library.describe_state(summary) == "running"
    await resumed.journal.aclose()
    (library.root / "index.jsonl").write_bytes(b"\0not json\n{}\n")
    assert library.list_summaries()[0].turns == 2
    (library.root / "index.jsonl").unlink()
    assert library.list_summaries()[0].turns == 2


async def test_the_beginning_of_an_id_is_enough(library: Library, folder: Path) -> None:
    place = await session(library, folder, *TURN)
    assert library.find(place.name[:-2]) == place
    with pytest.raises(SessionNotFound, match="no session 'zzz'"):
        library.find("zzz")
    with pytest.raises(SessionNotFound, match="not a session id"):
        library.find("../../etc")
    await session(library, folder, *TURN)
    with pytest.raises(SessionNotFound, match="matches 2 sessions"):
        library.find(place.name[:5])


async def test_the_end_of_an_id_is_enough_from_four_characters_on(
    library: Library, folder: Path
) -> None:
    place = await session(library, folder, *TURN)
    assert library.find(place.name[7:]) == place
    assert library.find(place.name[-4:]) == place
    with pytest.raises(SessionNotFound, match="no session"):
        library.find(place.name[-3:])
    for name in (f"200101-{place.name[-6:]}", f"{place.name[-6:]}-begins"):
        (await session(library, folder, *TURN)).rename(place.with_name(name))
        with pytest.raises(SessionNotFound, match=r"matches \d sessions"):
            library.find(place.name[-6:])
    assert library.find(place.name) == place


async def test_a_session_of_another_folder_says_whose_it_is(
    library: Library, folder: Path, tmp_path: Path
) -> None:
    place = await session(library, folder, *TURN)
    with pytest.raises(SessionInOtherFolder, match=r"belongs to .*my project"):
        library.find(place.name, folder=tmp_path)
    assert library.find(place.name, folder=folder) == place


async def test_text_is_found_in_lines_and_blobs_as_a_person_writes_it(
    library: Library, folder: Path
) -> None:
    place = await session(library, folder, said('He said: "Größe\tmatters", (a+b)*2'))
    long = "x" * 100_000 + " the needle in it " + "y" * 100_000
    other = await session(library, folder, ItemAdded(ToolResultItem("c", "bash", (Text(long),))))
    assert [hit.session for hit in await search(library.root, 'SAID: "größe\tm')] == [place.name]
    assert [hit.session for hit in await search(library.root, "(a+b)*2")] == [place.name]
    (hit,) = await search(library.root, "matters")
    assert hit.text == 'He said: "Größe matters", (a+b)*2'  # not the line of JSON that it is in
    assert await search(library.root, "content") == []  # a word of the file's, not of the session's
    (hit,) = await search(library.root, "needle in it")
    assert hit.session == other.name
    assert "the needle in it" in hit.text
    assert len(hit.text) < 200
    assert await search(library.root, "nowhere to be found") == []
    assert await search(library.root, "") == []


async def test_a_session_is_found_by_the_words_of_its_title_or_of_its_name(
    library: Library, folder: Path
) -> None:
    parser = await session(library, folder, said("Repair the parser of dates"))
    other = await session(library, folder, said("Repair the docs"))
    assert library.find("DATES parser", folder=folder, by_words=True) == parser
    with pytest.raises(SessionNotFound, match="matches 2 sessions"):
        library.find("repair", folder=folder, by_words=True)
    with pytest.raises(SessionNotFound):
        library.find("dates parser")  # `sessions remove` takes ids only
    library.list_summaries()  # also after the index has it
    library.rename(other, "  the   manual ")
    assert [one.title for one in library.list_summaries() if one.id == other.name] == ["the manual"]
    assert library.find("manual", folder=folder, by_words=True) == other


async def test_a_session_that_failed_before_its_first_reply_is_not_continued(
    library: Library, folder: Path
) -> None:
    reply = ItemAdded(AssistantItem((Text("Hello."),)))
    good = await session(
        library, folder, TurnBegan("t"), said("one"), reply, TurnEnded("t", "end_turn")
    )
    bad = await session(library, folder, TurnBegan("t"), said("two"), TurnEnded("t", "error"))
    later = time.time() + 60
    os.utime(bad / "journal.jsonl", (later, later))
    assert library.find_latest(folder) == good
    assert [one.has_failed for one in library.list_summaries(folder=folder)] == [True, False]
    assert [one.has_failed for one in library.list_summaries(folder=folder)] == [True, False]


async def test_a_session_that_others_read_from_is_not_removed(
    library: Library, folder: Path
) -> None:
    parent = await session(library, folder, *TURN)
    child = await session(library, folder, said("other"), parent=ForkPoint(parent.name, 2))
    with pytest.raises(StoreError, match=rf"has 1 fork: {child.name}"):
        library.remove(parent)
    assert library.remove(parent, with_forks=True) > 0
    assert library.list_summaries() == []


@pytest.mark.parametrize("is_pruned", [False, True])
async def test_nothing_of_a_removed_session_stays_in_the_caches(
    library: Library, folder: Path, is_pruned: bool
) -> None:
    usage = UsageRecorded("m", Usage(input=5, cost=0.5))
    secret = await session(library, folder, said("the secret plan"), usage)
    kept = await session(library, folder, said("the other plan"), usage)
    read_costs(library)
    age(secret, 400 * 86_400)
    assert len(library.list_summaries()) == 2
    library.prune(days=300) if is_pruned else library.remove(secret)
    left = "".join(path.read_text() for path in library.root.glob("*.jsonl"))
    assert kept.name in left
    assert secret.name not in left
    assert "secret plan" not in left


async def test_an_open_session_is_not_removed(library: Library, folder: Path) -> None:
    journal = library.create(folder)
    journal.append(said("one"))
    await journal.flush()
    with pytest.raises(SessionBusy):
        library.remove(journal.session_dir)
    await journal.aclose()


async def test_pruning_takes_the_old_and_then_the_oldest(library: Library, folder: Path) -> None:
    places = [await session(library, folder, said("x" * 10_000)) for _ in range(6)]
    child = await session(library, folder, said("c"), parent=ForkPoint(places[0].name, 1))
    parked = Suspended("t", "budget", WakeCondition("money"))
    waits = await session(library, folder, TurnBegan("t"), parked)
    for number, place in enumerate([*places, waits]):
        age(place, (100 - number) * 86_400)
    would = library.prune(days=98.5, dry_run=True)
    assert [summary.id for summary in would.removed] == [places[1].name]  # 0 has a fork
    assert library.prune(days=98.5).removed == would.removed
    pruned = library.prune(days=1000, max_bytes=25_000)
    assert [summary.id for summary in pruned.removed] == [p.name for p in places[2:5]]
    left = {summary.id for summary in library.list_summaries()}
    assert left == {places[0].name, places[5].name, child.name, waits.name}


async def test_a_parked_turn_waits_and_the_next_process_goes_on_there(
    library: Library, folder: Path
) -> None:
    journal = library.create(folder)
    journal.append(TurnBegan("turn-1"))
    journal.append(said("go"))
    await suspend_turn(
        journal, Suspended("turn-1", "rate_limit", WakeCondition("time", at=1000.0), "429")
    )
    await journal.aclose()
    (one,) = list_suspended(library, now=999.0)
    assert (one.summary.id, one.is_due, one.entry.reason) == (
        journal.session_id,
        False,
        "rate_limit",
    )
    assert list_suspended(library, now=1000.0)[0].is_due
    assert library.describe_state(one.summary) == "suspended (rate_limit)"
    resumed = library.resume(journal.session_id)
    assert resumed.state.turn is not None
    assert resumed.state.turn.id == "turn-1"
    assert resumed.state.suspended is not None
    resumed.journal.append(said("on"))
    await resumed.journal.aclose()
    assert list_suspended(library) == []
    assert library.resume(journal.session_id).state.suspended is None


def test_a_wake_by_a_file_is_due_when_it_is_there(tmp_path: Path) -> None:
    wake = WakeCondition("file", path=str(tmp_path / "answer"))
    assert not is_due(wake)
    (tmp_path / "answer").touch()
    assert is_due(wake)
    assert not is_due(WakeCondition("answer"))


async def test_a_listing_survives_a_folder_that_is_no_session(
    library: Library, folder: Path
) -> None:
    place = await session(library, folder, *TURN)
    (place.parent / "empty").mkdir()
    (place.parent / "damaged").mkdir()
    (place.parent / "damaged/journal.jsonl").write_bytes(b"\xff\xfe\0\0garbage")
    assert {summary.id for summary in library.list_summaries()} == {place.name, "damaged"}


def test_a_journal_outside_a_library_needs_no_index(tmp_path: Path) -> None:
    assert Journal.create(tmp_path / "alone").session_id == "alone"


async def test_usage_that_a_second_file_repeats_after_a_failed_sync_counts_once(
    tmp_path: Path,
) -> None:
    def fail_second_sync(number: int, name: str) -> FileFault | None:
        return FileFault("error", errno.EIO) if name == "sync journal.jsonl" else None

    journal = Journal.create(tmp_path / "project/s", files=FaultyFiles(fail_second_sync))
    for turn in (1, 2):
        journal.append(TurnBegan(f"turn-{turn}"))
        journal.append(UsageRecorded("m", Usage(input=10, output=5, cost=0.25)))
        await journal.flush()
    await journal.aclose()
    assert len(list_segments(tmp_path / "project/s")) == 2
    summary = summarize_session(tmp_path / "project/s")
    view = read_state(tmp_path / "project/s")
    assert summary.usage == view.usage
    assert summary.usage.cost == 0.5
    assert (summary.turns, summary.is_damaged) == (2, False)


@pytest.mark.parametrize("wrong", [{"days": -1}, {"days": float("nan")}, {"max_bytes": -1}])
async def test_a_prune_with_a_senseless_number_removes_nothing(
    library: Library, folder: Path, wrong: dict[str, float]
) -> None:
    await session(library, folder, *TURN)
    with pytest.raises(ConfigError, match="expected a number, 0 or more"):
        library.prune(**wrong)  # type: ignore[arg-type]
    assert len(library.list_summaries()) == 1
