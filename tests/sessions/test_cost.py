"""What sessions spent: read off the journals, once, and never counted as nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle import Usage
from treadle.core.transcript import to_user_item
from treadle.core.transcript.entries import ChildUsageRecorded, Entry, ItemAdded, UsageRecorded
from treadle.sessions import cost
from treadle.sessions.cost import (
    CostBucket,
    CostTotal,
    format_local_day,
    group_costs,
    read_costs,
    sum_costs,
)
from treadle.sessions.library import Library
from treadle.sessions.log.journal import Journal

DAY = 86_400.0
PRICED = Usage(100, 10, cache_read=300, cache_write=100, requests=1, cost=0.5)
UNPRICED = Usage(50, 5, requests=1, cost=None)


async def session(
    library: Library, folder: Path, *spent: tuple[str, Usage], at: float | None = None
) -> Journal:
    """A closed session with these calls."""
    journal = library.create(folder)
    journal._clock = lambda: time.time() if at is None else at
    await written(
        journal, [ItemAdded(to_user_item("do it")), *(UsageRecorded(*one) for one in spent)]
    )
    return journal


async def written(journal: Journal, entries: list[Entry]) -> None:
    for entry in entries:
        journal.append(entry)
    await journal.aclose()


async def test_sums_by_model_session_day_and_project(own_place: Path):
    library, now = Library(), time.time()
    one = await session(library, own_place / "a", ("x/big", PRICED), ("x/big", PRICED))
    await session(
        library, own_place / "b", ("x/big", PRICED), ("x/small", PRICED), at=now - 5 * DAY
    )
    spent = read_costs(library)
    assert [(t.key, t.calls, t.cost) for t in group_costs(spent, "model")] == [
        ("x/big", 3, 1.5),
        ("x/small", 1, 0.5),
    ]
    assert [(t.key, t.cost) for t in group_costs(spent, "day")] == [
        (format_local_day(now - 5 * DAY), 1.0),
        (format_local_day(now), 1.0),
    ]
    assert {t.key for t in group_costs(spent, "project")} == {str(own_place / n) for n in "ab"}
    assert one.session_id in {t.key for t in group_costs(spent, "session")}
    whole = sum_costs(spent)
    assert (whole.usage.cache_read, whole.usage.total_input) == (1_200, 2_000)
    assert [e.folder for e in read_costs(library, folder=own_place / "a")] == [str(own_place / "a")]


async def test_a_price_that_is_not_known_is_never_nothing(own_place: Path):
    library = Library()
    await session(library, own_place, ("own/model", UNPRICED), ("own/model", PRICED))
    await session(library, own_place, ("other", UNPRICED))
    found = {one.key: one for one in group_costs(read_costs(library), "model")}
    assert found["other"].cost is None
    assert (found["own/model"].cost, found["own/model"].unpriced_calls) == (0.5, 1)
    assert found["own/model"].usage.input == 150


async def test_what_child_agents_without_a_session_spent_is_counted_once(own_place: Path):
    library = Library()
    parent = library.create(own_place)
    child = Journal.create(parent.session_dir / "children" / "call-1", folder=str(own_place))
    unstored = [ChildUsageRecorded("call-9", "small", PRICED)]  # of the child's child
    await written(child, [UsageRecorded("small", PRICED), *unstored])
    spent = [ChildUsageRecorded("call-1", "small", PRICED), *unstored]
    await written(parent, [ItemAdded(to_user_item("do it")), UsageRecorded("big", PRICED), *spent])
    for _ in ("read", "from the cache"):
        costs = read_costs(library)
        assert [(t.key, t.calls, t.cost) for t in group_costs(costs, "model")] == [
            ("small", 2, 1.0),
            ("big", 1, 0.5),
        ]
        assert [t.key for t in group_costs(costs, "session")] == [parent.session_id]


async def test_what_child_agents_spent_is_their_parents(own_place: Path):
    library = Library()
    parent = await session(library, own_place, ("big", PRICED))
    child = Journal.create(parent.session_dir / "children" / "call-1", folder=str(own_place))
    await written(child, [UsageRecorded("small", PRICED)])
    grandchild = Journal.create(child.session_dir / "children" / "call-2", folder=str(own_place))
    await written(grandchild, [UsageRecorded("small", PRICED)])
    told: list[Entry] = [
        ChildUsageRecorded(one.session_id, "small", PRICED) for one in (child, grandchild)
    ]
    await written(library.resume(parent.session_id).journal, told)
    [one] = group_costs(read_costs(library), "session")
    assert (one.key, one.cost) == (parent.session_id, 1.5)  # each call once


async def test_a_session_that_goes_on_is_read_only_where_it_grew(own_place: Path, monkeypatch):
    library = Library()
    first = await session(library, own_place, ("m", PRICED))
    await session(library, own_place, ("m", PRICED))
    assert sum_costs(read_costs(library)).cost == 1.0
    scanned: list[tuple[str, int]] = []
    real = cost._read_chunks

    def watched(path: Path, offset: int) -> Iterator[bytes]:
        scanned.append((path.parent.name, offset))
        return real(path, offset)

    monkeypatch.setattr(cost, "_read_chunks", watched)
    assert sum_costs(read_costs(library)).cost == 1.0
    assert scanned == []
    await written(library.resume(first.session_id).journal, [UsageRecorded("m", PRICED)])
    assert sum_costs(read_costs(library)).cost == 1.5
    [(name, offset)] = scanned
    assert (name, offset > 0) == (first.session_id, True)


async def test_what_is_older_is_left_out(own_place: Path):
    library, now = Library(), time.time()
    await session(library, own_place, ("m", PRICED), at=now - 40 * DAY)
    await session(library, own_place, ("m", PRICED), ("m", PRICED))
    assert sum_costs(read_costs(library, since=now - 30 * DAY)).calls == 2
    assert sum_costs(read_costs(library)).calls == 3


async def test_broken_lines_lines_twice_and_a_broken_memory_do_no_harm(own_place: Path):
    library = Library()
    journal = await session(library, own_place, ("m", PRICED), ("m", PRICED))
    file = journal.session_dir / "journal.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    spent = [line for line in lines if b'"kind":"usage"' in line]
    torn = spent[0].replace(b'"output":10', b'"output":99')
    # A sync that failed: the same lines stand in a second file as well.
    (journal.session_dir / "journal-2.jsonl").write_bytes(
        lines[0] + spent[1] + torn + spent[1][:40]
    )
    (library.root / cost.CACHE_NAME).write_bytes(b"nonsense\n")
    assert sum_costs(read_costs(library)).calls == 2
    assert sum_costs(read_costs(library)).calls == 2


async def test_a_removed_session_is_forgotten(own_place: Path):
    library = Library()
    journal = await session(library, own_place, ("m", PRICED))
    assert sum_costs(read_costs(library)).calls == 1
    library.remove(journal.session_dir)
    assert read_costs(library) == []


def test_no_sessions_at_all_is_nothing_spent():
    assert read_costs(Library()) == []
    assert sum_costs([]) == CostTotal("all")
    assert sum_costs([]).cost == 0.0


@pytest.mark.parametrize("by", ["model", "session", "day", "project"])
def test_every_way_of_summing_keeps_the_whole(by):
    rows = [
        CostBucket(n * 900, f"m{n % 3}", f"s{n % 5}", f"/p{n % 2}", 1, PRICED) for n in range(200)
    ]
    assert sum(one.calls for one in group_costs(rows, by)) == 200
    assert sum(one.cost or 0 for one in group_costs(rows, by)) == pytest.approx(100.0)
