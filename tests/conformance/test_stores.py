"""Our stores against the suite; also with a full disk, and after kill -9."""

# ruff: noqa: ASYNC220 - the process is a writer that is killed

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from tests.patience import until
from treadle.contracts import Entry, Store, StoreError
from treadle.core.errors import StoreFull
from treadle.core.transcript import to_user_item
from treadle.core.transcript.entries import ItemAdded
from treadle.sessions import Journal, SqliteStore, resume
from treadle.testing import FaultyFiles, MemoryStore, check_store
from treadle.testing.conformance.store import EVERY_ENTRY_KIND, user_entry
from treadle.testing.faulty_files import FileFault

FIRST_FILLER = 5
FILLER = 10**9  # entries behind the others, which take the rest of the pages


def open_journal(folder: Path, files: FaultyFiles | None = None) -> Callable[[str], Store]:
    def open_session(session_id: str) -> Store:
        place = folder / "project" / session_id
        if (place / "journal.jsonl").exists():
            return resume(place, files=files).journal
        return Journal.create(place, files=files)

    return open_session


async def test_a_store_can_be_checked_again_in_the_same_place(own_place: Path) -> None:
    place = own_place / "sessions.db"
    for _ in range(2):
        await check_store(lambda session_id: SqliteStore(place, session_id))


async def test_to_write_entries_beside_a_very_long_one_does_not_read_it(own_place: Path) -> None:
    place, long = own_place / "sessions.db", 5_000_000
    before, other = SqliteStore(place, "before"), SqliteStore(place, "other")
    other.append(user_entry("a" * long))
    await other.aclose()
    read = count_read_bytes()
    for number in range(100):
        before.append(user_entry(str(number)))
    await before.aclose()
    assert count_read_bytes() - read < 5 * long


def count_read_bytes() -> int:
    """That this process has read from files so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


async def test_a_flush_cancelled_before_the_close_leaves_no_unseen_error(
    own_place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(20):
        store = SqliteStore(own_place / "sessions.db", str(number))
        store.append(ItemAdded(to_user_item("kept")))
        flushes = [asyncio.ensure_future(store.flush()) for _ in range(20)]
        await asyncio.sleep(0)
        for flush in flushes:
            flush.cancel()
        await store.aclose()
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()}, "the end of all tasks")
    gc.collect()
    assert not caplog.records


async def test_the_journal_keeps_the_promises_of_a_store(own_place: Path) -> None:
    is_full = False

    def fill_disk(number: int, name: str) -> FileFault | None:
        return FileFault("error", errno.ENOSPC) if is_full and name.startswith("write") else None

    def fail_writes(fails: bool) -> None:
        nonlocal is_full
        is_full = fails

    open_session = open_journal(own_place, FaultyFiles(fill_disk))
    await check_store(open_session, fail_writes=fail_writes)


async def test_the_sqlite_store_keeps_the_promises_of_a_store(own_place: Path) -> None:
    opened: list[SqliteStore] = []

    def open_session(session_id: str) -> Store:
        opened.append(SqliteStore(own_place / "sessions.db", session_id))
        return opened[-1]

    def fail_writes(fails: bool) -> None:
        """A database that may not grow says the same as one on a full disk."""
        database = opened[-1]._database
        if not fails:
            with contextlib.suppress(sqlite3.ProgrammingError):  # it is closed
                database.execute("PRAGMA max_page_count = 1000000000")
            with contextlib.closing(sqlite3.connect(own_place / "sessions.db")) as other:
                other.execute("DELETE FROM entries WHERE entry = ''")
                other.commit()
            return
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {pages}")
        # Small numbers too: then there is no room in the index for the next entry.
        for seqs in (range(FILLER, FILLER + 100_000), range(FIRST_FILLER, FIRST_FILLER + 100_000)):
            with contextlib.suppress(sqlite3.OperationalError):
                for seq in seqs:
                    row = (opened[-1]._number, seq)
                    database.execute("INSERT INTO entries VALUES (?, ?, 0, '')", row)
                    database.commit()

    await check_store(open_session, fail_writes=fail_writes)


async def test_the_postgres_store_keeps_the_promises_of_a_store(postgres_url: str) -> None:
    pytest.importorskip("psycopg_pool", reason="the extra `fleet` is not installed")
    from treadle.sessions.postgres.postgres_pool import PostgresPool
    from treadle.sessions.postgres.postgres_server import LeasedPostgresStore

    async def open_session(session_id: str) -> Store:
        return await LeasedPostgresStore.open_session(postgres_url, session_id)

    work = PostgresPool.execute

    async def refuse(self: PostgresPool, query: str, parameters: object = ()) -> object:
        raise StoreFull("the database is full")

    def fail_writes(fails: bool) -> None:
        PostgresPool.execute = refuse if fails else work  # type: ignore[method-assign,assignment]

    await check_store(open_session, fail_writes=fail_writes)


async def test_the_memory_store_keeps_the_promises_of_a_store() -> None:
    kept: dict[str, list[Entry]] = {}
    opened: list[MemoryStore] = []

    def open_session(session_id: str) -> Store:
        store = MemoryStore(session_id)
        store.durable = kept.setdefault(session_id, [])
        opened.append(store)
        return store

    def fail_writes(fails: bool) -> None:
        opened[-1].failure = StoreError("the disk is full") if fails else None

    await check_store(open_session, fail_writes=fail_writes)


def test_the_suite_writes_every_kind_of_entry() -> None:
    assert {type(entry) for entry in EVERY_ENTRY_KIND} == set(get_args(Entry))


WRITER = """
import asyncio, sys
from pathlib import Path
from treadle.sessions import Journal, SqliteStore
from treadle.testing.conformance.store import user_entry

async def main():
    place = Path(sys.argv[2])
    store = Journal.create(place) if sys.argv[1] == "journal" else SqliteStore(place, "s")
    for number in range(100_000):
        store.append(user_entry(str(number)))
        await store.flush()
        print(number, flush=True)

asyncio.run(main())
"""


async def test_a_sqlite_store_whose_last_flush_fails_says_what_is_not_written(
    own_place: Path,
) -> None:
    path = own_place / "sessions.db"
    store = SqliteStore(path, "s")
    store.append(ItemAdded(to_user_item("lost")))
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        store._database.execute("PRAGMA busy_timeout = 0")
        with pytest.raises(StoreError, match="session s is closed; not written: 1 entry"):
            await store.aclose()
    await store.aclose()
    again = SqliteStore(path, "s")
    assert await again.load() == []
    await again.aclose()


@pytest.mark.parametrize("kind", ["journal", "sqlite"])
async def test_what_was_flushed_survives_kill_9(kind: str, own_place: Path) -> None:
    place = own_place / "store"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, kind, str(place)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        while int(process.stdout.readline()) < 30:
            pass
        process.kill()
        flushed = max([30, *(int(line) for line in process.stdout if line.endswith("\n"))])
    store: Store = resume(place).journal if kind == "journal" else SqliteStore(place, "s")
    texts = [entry.item.text for entry in await store.load() if isinstance(entry, ItemAdded)]
    await store.aclose()
    assert texts == [str(number) for number in range(len(texts))]
    assert len(texts) in (flushed + 1, flushed + 2)  # the last one may be told by no line
