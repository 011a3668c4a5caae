"""Faults 1 to 29 of the session's storage: what is injected, and what is left."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from treadle.core.errors import SessionBusy, StoreError, StoreFull
from treadle.core.transcript.content import Text
from treadle.core.transcript.entries import Entry, ItemAdded, ViewRewritten
from treadle.core.transcript.integrity import find_violations
from treadle.core.transcript.items import SummaryItem, ToolResultItem, UserItem
from treadle.core.transcript.state import fold_entries
from treadle.sessions import Journal, resume
from treadle.sessions.log.journal import read_entries
from treadle.sessions.log.records import ForkPoint
from treadle.testing.conformance.store import EDGE_CASE_TEXTS
from treadle.testing.faulty_files import FaultyFiles, FileFault, Killed

ROOT = Path(__file__).parents[2]


def said(text: str) -> Entry:
    return ItemAdded(UserItem((Text(text),)))


def texts(entries: list[Entry]) -> list[str]:
    return [e.item.text for e in entries if isinstance(e, ItemAdded)]


async def twelve(place: Path, files: FaultyFiles | None = None) -> list[int]:
    """Twelve entries, each flushed by itself. What was acknowledged when it ended or died."""
    acknowledged: list[int] = []
    try:
        journal = Journal.create(place, files=files)
        for number in range(12):
            journal.append(said(str(number)))
            await journal.flush()
            acknowledged.append(number)
        await journal.aclose()
    except Killed:
        pass
    if files is not None:
        files.close_all()
    return acknowledged


def test_fault_1_2_3_stopped_at_every_call_before_inside_and_behind_it(tmp_path: Path) -> None:
    clean = FaultyFiles()
    asyncio.run(twelve(tmp_path / "clean", clean))
    assert len(clean.calls) > 24
    for number, name in enumerate(clean.calls, start=1):
        for kind in ("kill", "torn", "done"):
            if kind == "torn" and not name.startswith("write"):
                continue
            place = tmp_path / f"{kind}-{number}"
            known = asyncio.run(twelve(place, FaultyFiles({number: FileFault(kind)})))
            kept = texts(read_entries(place)) if (place / "journal.jsonl").exists() else []
            assert kept[: len(known)] == [str(n) for n in known], (kind, name)
            assert kept == [str(n) for n in range(len(kept))], (kind, name)
            assert len(kept) <= len(known) + 1
            if kept:
                resumed = resume(place)
                assert texts(read_entries(place)) == kept
                resumed.journal.append(said("more"))
                asyncio.run(resumed.journal.aclose())
                assert texts(read_entries(place)) == [*kept, "more"]
                assert resume(place).damage == ()


async def test_fault_4_the_last_record_cut_at_every_byte(tmp_path: Path) -> None:
    await twelve(tmp_path / "s")
    whole = (tmp_path / "s/journal.jsonl").read_bytes()
    start = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(start, len(whole)):
        place = tmp_path / f"cut-{cut}"
        place.mkdir()
        (place / "journal.jsonl").write_bytes(whole[:cut])
        resumed = resume(place)
        lacks_only_its_end = cut == len(whole) - 1
        count = 12 if lacks_only_its_end else 11
        assert len(resumed.state.transcript) == count
        torn = whole[start:cut]
        if torn and not lacks_only_its_end:
            (damage,) = resumed.damage
            assert damage.bytes == len(torn)
            assert (place / "journal.jsonl.corrupt").read_bytes() == torn + b"\n"
            assert len(resumed.warnings) == 1
        else:
            assert resumed.damage == ()
        resumed.journal.append(said("on"))
        await resumed.journal.aclose()
        assert texts(read_entries(place)) == [*map(str, range(count)), "on"]
        shutil.rmtree(place)


def spoil(place: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path = place / "journal.jsonl"
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


async def test_fault_5_zeros_in_the_middle_cost_only_what_they_cover(tmp_path: Path) -> None:
    await twelve(tmp_path / "s")
    zeros = b"\0" * 4096
    spoil(tmp_path / "s", lambda lines: [*lines[:5], zeros, *lines[6:]])
    resumed = resume(tmp_path / "s")
    kept = [item.content[0].text for item in resumed.state.transcript]  # type: ignore[union-attr]
    assert kept == [str(n) for n in range(12) if n != 3]
    assert sum(damage.bytes for damage in resumed.damage) == 4096
    assert resumed.damage[0].line == 6
    await resumed.journal.aclose()


async def test_fault_6_a_malformed_line_is_skipped_and_reported(tmp_path: Path) -> None:
    await twelve(tmp_path / "s")
    spoil(tmp_path / "s", lambda lines: [*lines[:4], b"{not json}\n", *lines[5:]])
    resumed = resume(tmp_path / "s")
    assert len(resumed.state.transcript) == 11
    assert (resumed.damage[0].line, resumed.damage[0].bytes) == (5, 11)
    assert "line 5: " in resumed.warnings[0]
    assert "(11 bytes)" in resumed.warnings[0]
    await resumed.journal.aclose()


async def test_fault_6_a_fragment_glued_to_the_next_record_costs_only_itself(
    tmp_path: Path,
) -> None:
    await twelve(tmp_path / "s")
    spoil(tmp_path / "s", lambda lines: [*lines[:4], lines[4][:20], *lines[5:]])
    assert len(read_entries(tmp_path / "s")) == 11


async def test_fault_6_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    await twelve(tmp_path / "s")
    spoil(tmp_path / "s", lambda lines: [x.replace(b'"7"', b'"8"') for x in lines])
    assert "8" in texts(read_entries(tmp_path / "s"))
    assert texts(read_entries(tmp_path / "s")).count("8") == 1


async def test_fault_7_a_record_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    await twelve(tmp_path / "s")
    spoil(tmp_path / "s", lambda lines: [*lines[:6], *lines[4:6], *lines[6:], lines[2]])
    resumed = resume(tmp_path / "s")
    assert len(resumed.state.transcript) == 12
    assert resumed.damage == ()
    await resumed.journal.aclose()


async def test_fault_8_a_gap_is_reported_and_the_rest_is_lawful(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "s")
    for number in range(3):
        journal.append(said(str(number)))
        journal.append(ItemAdded(ToolResultItem(f"c{number}", "bash", (Text("orphan"),))))
    await journal.aclose()
    spoil(tmp_path / "s", lambda lines: [*lines[:3], *lines[5:]])
    resumed = resume(tmp_path / "s")
    assert "2 to 3 are missing" in resumed.damage[0].problem
    assert find_violations(resumed.state.transcript) == []
    resumed.journal.append(said("on"))
    await resumed.journal.aclose()
    assert texts(read_entries(tmp_path / "s"))[-1] == "on"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("kind", ["error", "part"])
async def test_fault_9_a_full_disk_leaves_no_half_record_and_passes(
    number: int, kind: str, tmp_path: Path
) -> None:
    is_full = False

    def plan(_: int, name: str) -> FileFault | None:
        return FileFault(kind, number) if is_full and name == "write journal.jsonl" else None  # type: ignore[arg-type]

    journal = Journal.create(tmp_path / "s", files=FaultyFiles(plan))
    journal.append(said("before"))
    await journal.flush()
    size = (tmp_path / "s/journal.jsonl").stat().st_size
    is_full = True
    journal.append(said("while it is full"))
    for _ in range(3):
        with pytest.raises(StoreFull, match="Free some space"):
            await journal.flush()
        assert (tmp_path / "s/journal.jsonl").stat().st_size == size
    assert isinstance(journal.write_error, StoreFull)
    is_full = False
    await journal.flush()
    assert journal.write_error is None
    await journal.aclose()
    assert texts(read_entries(tmp_path / "s")) == ["before", "while it is full"]


async def test_fault_9_half_a_record_that_cannot_be_cut_off_is_cut_off_later(
    tmp_path: Path,
) -> None:
    is_bad = False

    def plan(_: int, name: str) -> FileFault | None:
        if is_bad and name == "write journal.jsonl":
            return FileFault("part", errno.ENOSPC)
        return FileFault("error", errno.EIO) if is_bad and name.startswith("truncate") else None

    journal = Journal.create(tmp_path / "s", files=FaultyFiles(plan))
    journal.append(said("before"))
    await journal.flush()
    is_bad = True
    journal.append(said("half"))
    with pytest.raises(StoreFull):
        await journal.flush()
    assert texts(read_entries(tmp_path / "s")) == ["before"]
    is_bad = False
    await journal.flush()
    await journal.aclose()
    resumed = resume(tmp_path / "s")
    assert (len(resumed.state.transcript), resumed.damage) == (2, ())
    await resumed.journal.aclose()


async def test_fault_10_a_blob_that_does_not_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    is_full = True

    def plan(_: int, name: str) -> FileFault | None:
        return FileFault("part", errno.ENOSPC) if is_full and name.startswith("write .") else None

    journal = Journal.create(tmp_path / "s", files=FaultyFiles(plan))
    long = ItemAdded(ToolResultItem("c", "bash", (Text("x" * 100_000),)))
    journal.append(long)
    with pytest.raises(StoreFull):
        await journal.flush()
    assert [path for path in (tmp_path / "s/blobs").rglob("*") if path.is_file()] == []
    is_full = False
    await journal.aclose()
    assert read_entries(tmp_path / "s") == [long]


async def test_fault_11_after_a_failed_sync_a_new_file_begins(tmp_path: Path) -> None:
    failures = iter([False, True, False, False, True, False, False])

    def plan(_: int, name: str) -> FileFault | None:
        fails = name.startswith("sync") and "journal" in name and next(failures)
        return FileFault("error", errno.EIO) if fails else None

    journal = Journal.create(tmp_path / "s", files=FaultyFiles(plan))
    for number in range(5):
        journal.append(said(str(number)))
        await journal.flush()
    await journal.aclose()
    assert (tmp_path / "s/journal-3.jsonl").exists()
    assert texts(read_entries(tmp_path / "s")) == list("01234")
    # What the kernel dropped from the old file is in the new one.
    first = (tmp_path / "s/journal.jsonl").read_bytes()
    (tmp_path / "s/journal.jsonl").write_bytes(first[: first.rindex(b"\n", 0, -1) + 30])
    resumed = resume(tmp_path / "s")
    assert len(resumed.state.transcript) == 5
    resumed.journal.append(said("5"))
    await resumed.journal.aclose()
    assert texts(read_entries(tmp_path / "s")) == list("012345")


async def test_fault_12_short_writes_are_completed(tmp_path: Path) -> None:
    def plan(_: int, name: str) -> FileFault | None:
        return FileFault("part") if name.startswith("write") else None

    assert len(await twelve(tmp_path / "s", FaultyFiles(plan))) == 12
    assert texts(read_entries(tmp_path / "s")) == [str(n) for n in range(12)]


@pytest.mark.parametrize("number", [errno.EROFS, errno.EIO, errno.EACCES])
async def test_fault_13_a_disk_that_went_away_keeps_the_history_in_memory(
    number: int, tmp_path: Path
) -> None:
    is_away = False

    def plan(_: int, name: str) -> FileFault | None:
        return FileFault("error", number) if is_away else None

    journal = Journal.create(tmp_path / "s", files=FaultyFiles(plan))
    journal.append(said("kept"))
    await journal.flush()
    is_away = True
    journal.append(said("in memory"))
    with pytest.raises(StoreError, match=os.strerror(number)):
        await journal.flush()
    assert journal.unwritten_entries == (said("in memory"),)
    with pytest.raises(StoreError, match="session s is closed; not written: 1 entry"):
        await journal.aclose()
    assert journal.unwritten_entries == (said("in memory"),)
    assert texts(read_entries(tmp_path / "s")) == ["kept"]
    await resume(tmp_path / "s").journal.aclose()  # its lock is released


async def test_fault_13_a_folder_deleted_during_the_run_is_noticed(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "s")
    journal.append(said("one"))
    await journal.flush()
    shutil.rmtree(tmp_path / "s")
    journal.append(said("two"))
    with pytest.raises(StoreError, match="deleted while the session was open"):
        await journal.flush()
    assert journal.unwritten_entries == (said("two"),)
    with pytest.raises(StoreError):
        await journal.aclose()


HOLD = """
import asyncio, os, sys
from pathlib import Path
from treadle.core.transcript.content import Text
from treadle.core.transcript.entries import ItemAdded
from treadle.core.transcript.items import UserItem
from treadle.core.errors import SessionBusy
from treadle.sessions import Journal

async def main():
    journal = Journal.create(Path(sys.argv[1]))
    journal.append(ItemAdded(UserItem((Text("theirs"),))))
    await journal.flush()
    print("held", flush=True)
    sys.stdin.readline()
    journal.append(ItemAdded(UserItem((Text("too late"),))))
    try:
        await journal.flush()
    except SessionBusy as error:
        print(error, flush=True)
        os._exit(9)
    print("written", flush=True)

asyncio.run(main())
"""


def holding(place: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_fault_15_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    with holding(tmp_path / "s") as process:
        with pytest.raises(SessionBusy, match=f"pid {process.pid} "):
            resume(tmp_path / "s")
        process.kill()
        process.wait()
        resumed = resume(tmp_path / "s")
        assert len(resumed.state.transcript) == 1
        asyncio.run(resumed.journal.aclose())


def test_fault_16_17_a_writer_that_was_replaced_stops_before_it_writes(tmp_path: Path) -> None:
    with holding(tmp_path / "s") as process:
        process.send_signal(signal.SIGSTOP)
        resumed = resume(tmp_path / "s", take_over=True)
        resumed.journal.append(said("ours"))
        asyncio.run(resumed.journal.aclose())
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate("\n", timeout=PATIENCE)
        assert process.returncode == 9
        assert "taken over" in out
    assert texts(read_entries(tmp_path / "s")) == ["theirs", "ours"]


async def test_fault_16_lines_of_a_replaced_writer_do_not_count(tmp_path: Path) -> None:
    old = Journal.create(tmp_path / "s")
    old.append(said("old"))
    await old.flush()
    late = (tmp_path / "s/journal.jsonl").read_bytes().splitlines(keepends=True)[-1]
    new = resume(tmp_path / "s", take_over=True)
    new.journal.append(said("new"))
    await new.journal.flush()
    with (tmp_path / "s/journal.jsonl").open("ab") as file:
        file.write(late)  # as a network file system may deliver it
    assert texts(read_entries(tmp_path / "s")) == ["old", "new"]
    old.append(said("too late"))
    with pytest.raises(SessionBusy, match="taken over"):
        await old.flush()
    with pytest.raises(SessionBusy):
        await old.aclose()
    assert texts(read_entries(tmp_path / "s")) == ["old", "new"]
    await asyncio.gather(new.journal.aclose(), return_exceptions=True)


@pytest.mark.parametrize("path", sorted((ROOT / "tests/sessions/formats").glob("*")))
def test_fault_19_every_format_that_was_ever_written_loads(path: Path, tmp_path: Path) -> None:
    shutil.copytree(path, tmp_path / "s")
    before = (tmp_path / "s/journal.jsonl").read_bytes()
    resumed = resume(tmp_path / "s")
    assert len(resumed.state.transcript) == 4
    assert resumed.damage == ()
    resumed.journal.append(said("on"))
    asyncio.run(resumed.journal.aclose())
    # What an older or newer version wrote, with fields that nobody here knows, stays as it is.
    assert (tmp_path / "s/journal.jsonl").read_bytes().startswith(before)
    assert b'"future":' in before


def test_fault_21_a_compaction_is_there_or_not(tmp_path: Path) -> None:
    compaction = ViewRewritten("compact", 0, 3, (SummaryItem("what was", 3),))

    async def run(place: Path, files: FaultyFiles) -> None:
        try:
            journal = Journal.create(place, files=files)
            for number in range(4):
                journal.append(said(str(number)))
            await journal.flush()
            journal.append(compaction)
            await journal.flush()
            journal.append(said("after"))
            await journal.aclose()
        except Killed:
            pass
        files.close_all()

    clean = FaultyFiles()
    asyncio.run(run(tmp_path / "clean", clean))
    seen = set()
    for number in range(1, len(clean.calls) + 1):
        for kind in ("kill", "torn", "done"):
            place = tmp_path / f"{kind}-{number}"
            asyncio.run(run(place, FaultyFiles({number: FileFault(kind)})))
            if (place / "journal.jsonl").exists():
                entries = read_entries(place)
                assert len(texts(entries)) >= 4
                seen.add(len(fold_entries(entries).transcript))
    assert seen == {4, 2, 3}  # before it, with it, and with what came after it


def test_fault_22_a_fork_killed_anywhere_leaves_its_parent_alone(tmp_path: Path) -> None:
    asyncio.run(twelve(tmp_path / "parent"))
    before = (tmp_path / "parent/journal.jsonl").read_bytes()

    async def fork(place: Path, files: FaultyFiles) -> None:
        try:
            child = Journal.create(place, parent=ForkPoint("parent", 6), files=files)
            child.append(said("other"))
            await child.aclose()
        except Killed:
            pass
        files.close_all()

    clean = FaultyFiles()
    asyncio.run(fork(tmp_path / "clean", clean))
    for number in range(1, len(clean.calls) + 1):
        place = tmp_path / f"fork-{number}"
        asyncio.run(fork(place, FaultyFiles({number: FileFault("torn")})))
        asyncio.run(fork(tmp_path / f"done-{number}", FaultyFiles({number: FileFault("done")})))
        assert (tmp_path / "parent/journal.jsonl").read_bytes() == before
    assert texts(read_entries(tmp_path / "parent")) == [str(n) for n in range(12)]


@pytest.mark.slow
async def test_fault_24_a_result_of_200_mib_stands_beside_the_journal(tmp_path: Path) -> None:
    text = "0123456789abcdef" * (200 << 16)
    journal = Journal.create(tmp_path / "s")
    journal.append(ItemAdded(ToolResultItem("c", "bash", (Text(text),))))
    await journal.aclose()
    assert (tmp_path / "s/journal.jsonl").stat().st_size < 1 << 20
    (entry,) = read_entries(tmp_path / "s")
    assert texts([entry]) == [text]


async def test_fault_25_strange_text_and_long_lines_come_back_as_they_were(tmp_path: Path) -> None:
    entries = [said(text) for text in EDGE_CASE_TEXTS]
    entries.append(ViewRewritten("compact", 0, 1, (SummaryItem("x" * (10 << 20)),)))  # no blob
    journal = Journal.create(tmp_path / "s")
    for entry in entries:
        journal.append(entry)
    await journal.aclose()
    assert read_entries(tmp_path / "s") == entries
    resumed = resume(tmp_path / "s")
    assert resumed.state == fold_entries(entries)
    await resumed.journal.aclose()


def test_fault_28_exit_waits_for_the_writer(tmp_path: Path) -> None:
    async def run() -> None:
        journal = Journal.create(tmp_path / "s")
        for number in range(1000):
            journal.append(said(str(number)))
        await journal.aclose()

    asyncio.run(run())
    assert len(read_entries(tmp_path / "s")) == 1000


@pytest.mark.skipif(shutil.which("strace") is None, reason="there is no strace here")
@pytest.mark.parametrize(
    ("inject", "expected"),
    [
        ("write:error=ENOSPC", "StoreFull"),
        ("fdatasync:error=EIO", "fine"),
        ("write:retval=20", "StoreError"),
        ("write:signal=KILL", ""),
    ],
)
def test_faults_9_11_12_1_as_the_kernel_would_give_them(
    inject: str, expected: str, tmp_path: Path
) -> None:
    """The same faults by strace, on the system calls themselves.

    A write that lies about what it took (20 bytes claimed, none written) is noticed too.
    """
    script = ROOT / "tests/faults/three_entries.py"
    place = tmp_path / "s"
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(place / "journal.jsonl")]
    call = inject.partition(":")[0]
    command += ["-e", f"trace={call}", "-e", f"inject={inject}"]
    done = subprocess.run(
        [*command, sys.executable, str(script), str(place)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    if "ptrace" in done.stderr and "not permitted" in done.stderr:
        pytest.skip("strace may not trace here")
    assert done.stdout.strip() == expected, done.stderr
    resumed = resume(place)
    kept = [item.content[0].text for item in resumed.state.transcript]  # type: ignore[union-attr]
    assert kept == list("012")[: len(kept)]
    assert len(kept) >= (3 if expected == "fine" else 1)
    asyncio.run(resumed.journal.aclose())
