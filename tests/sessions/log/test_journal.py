"""The journal keeps what it was given, in a file that a person can read."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.patience import until
from treadle.core.errors import SessionBusy, SessionNotFound, SessionTooNew, StoreError
from treadle.core.transcript.content import Text, ToolCall
from treadle.core.transcript.entries import (
    EarlyResult,
    Entry,
    Intent,
    ItemAdded,
    NoticeShown,
    TurnBegan,
)
from treadle.core.transcript.items import AssistantItem, ToolResultItem, UserItem, to_user_item
from treadle.core.transcript.state import fold_entries
from treadle.sessions import Journal, resume
from treadle.sessions.log.entry_redaction import EntryRedactor
from treadle.sessions.log.journal import read_entries
from treadle.sessions.log.lock import is_locked
from treadle.sessions.log.records import FORMAT_VERSION, ForkPoint, JournalHeader, encode_header
from treadle.testing.conformance.store import EVERY_ENTRY_KIND
from treadle.testing.faulty_files import FaultyFiles, FileFault


def said(text: str) -> Entry:
    return ItemAdded(UserItem((Text(text),)))


async def written(place: Path, *texts: str) -> Journal:
    journal = Journal.create(place)
    for text in texts:
        journal.append(said(text))
    await journal.aclose()
    return journal


async def test_every_line_is_json_with_a_number_and_a_checksum(tmp_path: Path) -> None:
    await written(tmp_path / "s", "Hello", "World")
    lines = [json.loads(x) for x in (tmp_path / "s/journal.jsonl").read_text().splitlines()]
    header, opened, first, second = lines
    assert (header["treadle"], header["format"], header["session"]) == (
        "session",
        FORMAT_VERSION,
        "s",
    )
    assert (opened["kind"], opened["pid"]) == ("opened", os.getpid())
    assert [(x["n"], x["e"], x["kind"]) for x in (first, second)] == [
        (1, 1, "item"),
        (2, 1, "item"),
    ]
    assert first["item"]["content"] == [{"type": "text", "text": "Hello"}]


async def test_nothing_is_on_disk_before_something_was_said(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "s")
    assert not (tmp_path / "s/journal.jsonl").exists()
    await journal.aclose()
    with pytest.raises(SessionNotFound, match="no session"):
        resume(tmp_path / "s")


async def test_a_group_of_entries_costs_one_sync(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "s")
    for number in range(100):
        journal.append(said(str(number)))
    await journal.flush()
    assert journal.sync_count == 1
    await journal.aclose()


async def test_what_nobody_flushes_is_written_by_itself(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "s")
    journal.append(said("later"))
    await until(lambda: journal.unwritten_entries == ())
    assert read_entries(tmp_path / "s") == [said("later")]
    await journal.aclose()


async def test_the_view_of_a_resumed_session_is_the_fold_of_its_entries(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "s")
    for entry in EVERY_ENTRY_KIND:
        journal.append(entry)
    await journal.aclose()
    resumed = resume(tmp_path / "s")
    assert resumed.state == fold_entries(EVERY_ENTRY_KIND)
    assert resumed.warnings == ()
    await resumed.journal.aclose()


async def test_a_long_result_stands_once_beside_the_journal(tmp_path: Path) -> None:
    result = ToolResultItem("c", "bash", (Text("x" * 1_000_000),))
    journal = Journal.create(tmp_path / "s")
    journal.append(EarlyResult(result))
    journal.append(ItemAdded(result))
    await journal.aclose()
    blobs = [path for path in (tmp_path / "s/blobs").rglob("*") if path.is_file()]
    assert len(blobs) == 1
    assert (tmp_path / "s/journal.jsonl").stat().st_size < 2000
    assert read_entries(tmp_path / "s") == [EarlyResult(result), ItemAdded(result)]


async def test_a_lost_blob_is_told_and_the_call_stays_answered(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "s")
    journal.append(said("go"))
    journal.append(ItemAdded(ToolResultItem("c", "bash", (Text("x" * 100_000),))))
    await journal.aclose()
    for path in (tmp_path / "s/blobs").rglob("*"):
        if path.is_file():
            path.write_bytes(b"something else")
    resumed = resume(tmp_path / "s")
    assert "blob is missing" in resumed.warnings[0]
    await resumed.journal.aclose()


async def test_a_fork_reads_its_parents_entries_and_leaves_them_alone(tmp_path: Path) -> None:
    await written(tmp_path / "p/parent", "one", "two", "three")
    before = (tmp_path / "p/parent/journal.jsonl").read_bytes()
    child = Journal.create(tmp_path / "p/child", parent=ForkPoint("parent", 2))
    assert list(await child.load()) == [said("one"), said("two")]
    child.append(said("other"))
    await child.aclose()
    grandchild = Journal.create(tmp_path / "q/grandchild", parent=ForkPoint("child", 3))
    grandchild.append(said("more"))
    await grandchild.aclose()
    texts = ["one", "two", "other", "more"]
    assert read_entries(tmp_path / "q/grandchild") == [said(text) for text in texts]
    resumed = resume(tmp_path / "q/grandchild")
    assert [item.text for item in resumed.state.transcript] == texts
    assert resumed.damage == ()
    await resumed.journal.aclose()
    assert (tmp_path / "p/parent/journal.jsonl").read_bytes() == before


async def test_a_fork_whose_parent_is_gone_says_so(tmp_path: Path) -> None:
    child = Journal.create(tmp_path / "child", parent=ForkPoint("parent", 2))
    child.append(said("other"))
    await child.aclose()
    with pytest.raises(SessionNotFound, match="fork of parent"):
        resume(tmp_path / "child")


async def test_a_closed_journal_takes_nothing_more(tmp_path: Path) -> None:
    journal = await written(tmp_path / "s", "one")
    with pytest.raises(StoreError, match="closed"):
        journal.append(said("two"))


def test_closing_leaves_nothing_behind(tmp_path: Path, no_leaks) -> None:
    no_leaks.run(written(tmp_path / "s", "one"))


async def test_a_journal_serves_as_a_store_for_a_turn_that_began(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "s")
    journal.append(TurnBegan("turn-1"))
    journal.append(said("one"))
    await journal.aclose()
    resumed = resume(tmp_path / "s")
    assert resumed.state.turn is not None
    assert resumed.state.turn.id == "turn-1"
    await resumed.journal.aclose()


def test_fault_26_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        journal = Journal.create(tmp_path / "a/b/s")
        journal.append(ItemAdded(ToolResultItem("c", "bash", (Text("x" * 100_000),))))
        asyncio.run(journal.aclose())
    finally:
        os.umask(old)
    for path in (tmp_path / "a").rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


async def test_fault_18_order_is_by_number_and_not_by_time(tmp_path: Path) -> None:
    times = iter([1000.0, 1000.0, 5000.0, -100.5, 90000.0])
    journal = Journal.create(tmp_path / "s", clock=lambda: next(times))
    for text in "abc":
        journal.append(said(text))
    await journal.aclose()
    assert read_entries(tmp_path / "s") == [said("a"), said("b"), said("c")]


async def test_fault_20_a_newer_session_is_read_and_not_written(tmp_path: Path) -> None:
    await written(tmp_path / "s", "one")
    path = tmp_path / "s/journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[0] = encode_header(JournalHeader(FORMAT_VERSION + 1, "s", 0.0))
    path.write_bytes(b"".join(lines))
    with pytest.raises(SessionTooNew, match=f"format {FORMAT_VERSION + 1}"):
        resume(tmp_path / "s")
    assert read_entries(tmp_path / "s") == [said("one")]
    assert path.read_bytes() == b"".join(lines)


async def test_fault_14_a_second_opening_says_who_has_it(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "s")
    journal.append(said("one"))
    await journal.flush()
    with pytest.raises(SessionBusy, match=rf"another run of this process \(pid {os.getpid()}\)"):
        resume(tmp_path / "s")
    holder = tmp_path / "s" / "lock"
    holder.write_text('{"pid": 1, "host": "elsewhere", "since": 0, "program": "treadle web"}')
    with pytest.raises(SessionBusy, match=r"open in treadle web, pid 1 on elsewhere since \d{4}-"):
        resume(tmp_path / "s")
    assert read_entries(tmp_path / "s") == [said("one")]  # it can be read all the same
    await journal.aclose()
    await resume(tmp_path / "s").journal.aclose()


async def test_every_new_folder_above_a_session_is_synced_with_its_first_entries(
    tmp_path: Path,
) -> None:
    files = FaultyFiles()
    journal = Journal.create(tmp_path / "data/treadle/sessions/project/s", files=files)
    journal.append(NoticeShown("one"))
    await journal.flush()
    synced = {call for call in files.calls if call.startswith("sync ") and call.endswith("/")}
    parents = ["s", "project", "sessions", "treadle", "data", tmp_path.name]
    assert synced == {f"sync {name}/" for name in parents}
    await journal.aclose()


async def test_a_blob_whose_folder_could_not_be_synced_is_synced_at_the_next_try(
    tmp_path: Path,
) -> None:
    is_failing = [True]

    def fail_first_folder_sync(number: int, name: str) -> FileFault | None:
        if is_failing[0] and name == "sync blobs/":
            return FileFault("error", errno.EIO)
        return None

    files = FaultyFiles(fail_first_folder_sync)
    journal = Journal.create(tmp_path / "s", files=files)
    journal.append(ItemAdded(to_user_item("x" * 100_000)))
    with pytest.raises(StoreError):
        await journal.flush()
    is_failing[0], before = False, len(files.calls)
    await journal.flush()
    assert "sync blobs/" in files.calls[before:]
    await journal.aclose()


async def test_a_damaged_blob_is_written_again_when_its_content_comes_again(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "s")
    entry = ItemAdded(to_user_item("x" * 100_000))
    journal.append(entry)
    await journal.aclose()
    [blob] = [path for path in (tmp_path / "s/blobs").rglob("*") if path.is_file()]
    blob.write_bytes(b"?" * blob.stat().st_size)
    journal = resume(tmp_path / "s").journal
    journal.append(entry)
    await journal.aclose()
    assert read_entries(tmp_path / "s") == [entry, entry]


class SlowFiles(FaultyFiles):
    """The first sync of the journal waits until `release` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs = threading.Event()
        self.release = threading.Event()

    def sync(self, fd: int) -> None:
        self.syncs.set()
        assert self.release.wait(30)
        super().sync(fd)


async def test_a_cancelled_close_writes_all_entries_before_it_releases_the_session(
    tmp_path: Path,
) -> None:
    files = SlowFiles()
    journal = Journal.create(tmp_path / "s", files=files)
    journal.append(NoticeShown("one"))
    flush = asyncio.create_task(journal.flush())
    await asyncio.to_thread(files.syncs.wait)
    journal.append(NoticeShown("two"))
    closing = asyncio.create_task(journal.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.sleep(0)
    assert is_locked(tmp_path / "s")
    files.release.set()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await flush
    assert not is_locked(tmp_path / "s")
    assert read_entries(tmp_path / "s") == [NoticeShown("one"), NoticeShown("two")]
    assert journal.unwritten_entries == ()


async def test_a_closed_session_with_unwritten_entries_is_not_written_without_its_lock(
    tmp_path: Path,
) -> None:
    is_full = [True]

    def fill_disk(number: int, name: str) -> FileFault | None:
        is_write = name.startswith("write")
        return FileFault("error", errno.ENOSPC) if is_full[0] and is_write else None

    journal = Journal.create(tmp_path / "s", files=FaultyFiles(fill_disk))
    journal.append(NoticeShown("one"))
    with pytest.raises(StoreError):
        await journal.aclose()
    is_full[0] = False
    with pytest.raises(StoreError, match="is closed, and its last entries are not written"):
        await journal.flush()
    assert not (tmp_path / "s/journal.jsonl").exists()
    assert journal.unwritten_entries == (NoticeShown("one"),)


@pytest.mark.parametrize("secret", ["assistant", "tool_result", 'pass"word\\9', "änderung\n1"])
async def test_a_secret_is_not_written_and_every_line_stays_readable(
    tmp_path: Path, secret: str
) -> None:
    raw = json.dumps({"command": f"login {secret}"}, ensure_ascii=False)
    call = ToolCall("call_assistant", "bash", raw)
    entries: list[Entry] = [
        ItemAdded(to_user_item(f"it is {secret}")),
        ItemAdded(AssistantItem((Text(secret * 20_000), call), "tool_use")),
        Intent("call_assistant", "bash", "key", "irreversible", {"path": [secret]}, raw),
        ItemAdded(ToolResultItem("call_assistant", "bash", (Text(secret),), data={"x": secret})),
    ]
    journal = Journal.create(tmp_path / "s")
    journal.redactor = EntryRedactor([secret])
    for entry in entries:
        journal.append(entry)
    await journal.aclose()
    read = read_entries(tmp_path / "s")
    assert [type(entry) for entry in read] == [type(entry) for entry in entries]
    assert read[0] == ItemAdded(to_user_item("it is [redacted]"))
    reply: Any = read[1].item  # type: ignore[union-attr]
    assert reply.text == "[redacted]" * 20_000
    assert reply.calls == (ToolCall("call_assistant", "bash", '{"command": "login [redacted]"}'),)
    assert read[2] == Intent(
        "call_assistant",
        "bash",
        "key",
        "irreversible",
        {"path": ["[redacted]"]},
        reply.calls[0].raw,
    )
    assert resume(tmp_path / "s").damage == ()


def test_a_secret_in_the_metadata_of_a_message_is_not_written():
    entry = ItemAdded(to_user_item("hi", {"key": "sk-1234567", "job": 3}))
    written = EntryRedactor(["sk-1234567"]).redact(entry)
    assert written == ItemAdded(to_user_item("hi", {"key": "[redacted]", "job": 3}))
