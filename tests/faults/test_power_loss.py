"""Power loss: what a store acknowledged is there, whatever the disk lost of what was not synced.

A program writes a session under strace. From its system calls come the disks that a loss of power
could leave after each of them: what was synced, and any part of the rest, in pieces of a sector. On
each of them the session is opened again. Not modelled: a disk that lies about a sync.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from treadle import Agent
from treadle.core.errors import SessionNotFound
from treadle.core.transcript.entries import ItemAdded
from treadle.core.transcript.items import UserItem
from treadle.models import Scripted
from treadle.sessions.open_store import read_session

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="there is no strace here")
ENTRIES, SECTOR = 8, 512
CALLS = "openat,write,pwrite64,ftruncate,fsync,fdatasync,rename,renameat,unlink,unlinkat,mkdir"
PLACES = {"journal": "sessions", "sqlite": "sessions.db"}
WITHOUT_SYNC = {
    "journal": """
from treadle.lib.files.file_system import LocalFiles
LocalFiles.sync = LocalFiles.sync_folder = lambda *_: None
""",
    "sqlite": """
from treadle.sessions import sqlite_store
real = sqlite_store.open_database
def open_database(path):
    database = real(path)
    database.execute("PRAGMA synchronous = OFF")
    return database
sqlite_store.open_database = open_database
""",
}
WRITER = f"""
import asyncio, os, sys
from treadle.core.transcript.entries import ItemAdded
from treadle.core.transcript.items import to_user_item
from treadle.sessions.open_store import open_store

async def main(location, acknowledged):
    store = (await open_store(location, "a")).store
    for number in range({ENTRIES}):
        store.append(ItemAdded(to_user_item(f"{{number}} " + "x" * 700 * number)))
        await store.flush()
        os.write(acknowledged, b"!")
    await store.aclose()

asyncio.run(main(sys.argv[1], os.open(sys.argv[2], os.O_CREAT | os.O_WRONLY, 0o600)))
"""
CALL = re.compile(r"^\d+ +(\w+)\((.*)\) = (\d+)(?:<(.*)>)?$")
OPEN_FILE = re.compile(r"^\d+<(.*?)>")
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


class Disk:
    """The files below a folder: what is synced, and what is not."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}  # path to file, as the program sees them
        self.synced_names: dict[str, int] = {}
        self.changed_names: list[tuple[str, int | None]] = []
        self.synced: dict[int, list[tuple[int, bytes | None]]] = {}  # writes, or a new length
        self.changed: dict[int, list[tuple[int, bytes | None]]] = {}

    def name(self, path: str, file: int | None) -> None:
        self.changed_names.append((path, file))
        if file is None:
            self.names.pop(path, None)
        else:
            self.names[path] = file

    def create(self, path: str) -> int:
        if path not in self.names:
            self.name(path, len(self.synced))
            self.synced[self.names[path]], self.changed[self.names[path]] = [], []
        return self.names[path]

    def write(self, path: str, at: int | None, data: bytes | None) -> None:
        file = self.create(path)
        if at is None:
            at = len(build(self.synced[file] + self.changed[file]))
        self.changed[file].append((at, data))

    def sync(self, path: str) -> None:
        if path in self.names:
            file = self.names[path]
            self.synced[file] += self.changed[file]
            self.changed[file] = []
            return
        waiting, self.changed_names = self.changed_names, []
        for name, file_or_none in waiting:
            if Path(name).parent != Path(path):
                self.changed_names.append((name, file_or_none))
            elif file_or_none is None:
                self.synced_names.pop(name, None)
            else:
                self.synced_names[name] = file_or_none

    def lose_power(self, keeps: Callable[[], bool]) -> Iterator[tuple[str, bytes]]:
        """What is there afterwards; `keeps` decides for each thing that was not synced."""
        names = dict(self.synced_names)
        for name, file in self.changed_names:
            if not keeps():
                break  # a file system keeps the order of names
            if file is None:
                names.pop(name, None)
            else:
                names[name] = file
        for name, file in names.items():
            kept = [piece for change in self.changed[file] for piece in cut(change) if keeps()]
            yield name, build(self.synced[file] + kept)


def cut(change: tuple[int, bytes | None]) -> Iterator[tuple[int, bytes | None]]:
    at, data = change
    if data is None:
        yield change
        return
    for start in range(0, len(data), SECTOR):
        yield at + start, data[start : start + SECTOR]


def build(changes: list[tuple[int, bytes | None]]) -> bytes:
    content = bytearray()
    for at, data in changes:
        if data is None:
            content = content[:at].ljust(at, b"\0")
        else:
            content = content.ljust(at, b"\0")
            content[at : at + len(data)] = data
    return bytes(content)


def read_text(hexadecimal: str) -> bytes:
    return bytes.fromhex(hexadecimal.replace("\\x", ""))


def replay(trace: str, folder: str, acknowledged: str) -> Iterator[tuple[Disk, int]]:
    """The disk after each call, and how many entries were acknowledged until then."""
    disk, count = Disk(), 0
    for line in trace.splitlines():
        if (match := CALL.match(line)) is None:
            continue
        call, given, result, opened = match.groups()
        texts = [read_text(found) for found in TEXT.findall(given)]
        path = opened or (found[1] if (found := OPEN_FILE.match(given)) else os.fsdecode(texts[0]))
        path = os.fsdecode(read_text(path)) if path.startswith("\\x") else path
        if path == acknowledged and call == "write":
            count += 1
        is_inside = Path(path) == Path(folder).parent or path.startswith(folder)
        if not is_inside or path.endswith("-shm"):  # that file is memory, not data
            continue
        if call == "openat" and "O_CREAT" in given:
            disk.create(path)
        elif call == "pwrite64":
            disk.write(path, int(given.rpartition(", ")[2]), texts[-1][: int(result)])
        elif call == "write":
            disk.write(path, None, texts[-1][: int(result)])
        elif call == "ftruncate":
            disk.write(path, int(given.rpartition(", ")[2]), None)
        elif call in ("fsync", "fdatasync"):
            disk.sync(path)
        elif call.startswith("rename"):
            disk.name(os.fsdecode(texts[-1]), disk.names[path])
            disk.name(path, None)
        elif call.startswith("unlink"):
            disk.name(path, None)
        yield disk, count


def trace_writer(place: Path, kind: str, prelude: str = "") -> str:
    """The system calls of the program that writes the session."""
    strace = ["strace", "-f", "-y", "-xx", "-s", "10000000", "-e", f"trace={CALLS}"]
    ran = subprocess.run(
        [
            *(*strace, "-o", str(place / "trace"), sys.executable, "-c", prelude + WRITER),
            *(str(place / PLACES[kind]), str(place / "said")),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    if "ptrace" in ran.stderr and "not permitted" in ran.stderr:
        pytest.skip("strace may not trace here")
    assert ran.returncode == 0, ran.stderr
    return (place / "trace").read_text()


@pytest.mark.parametrize("kind", PLACES)
def test_no_loss_of_power_takes_what_was_acknowledged(kind: str, tmp_path: Path) -> None:
    assert lose_power_after_each_call(tmp_path, kind, trace_writer(tmp_path, kind)) > 4 * ENTRIES


@pytest.mark.parametrize("kind", PLACES)
def test_a_store_that_does_not_sync_loses_what_it_acknowledged(kind: str, tmp_path: Path) -> None:
    trace = trace_writer(tmp_path, kind, WITHOUT_SYNC[kind])
    with pytest.raises(AssertionError, match="of 1 are there"):
        lose_power_after_each_call(tmp_path, kind, trace)


def lose_power_after_each_call(place: Path, kind: str, trace: str) -> int:
    """Open the session on each disk that may be left; returns how many there are."""
    dice = random.Random(kind)
    choices: list[Callable[[], bool]] = [
        lambda: False,
        lambda: True,
        lambda: dice.random() < 0.5,
        lambda: dice.random() < 0.9,
    ]
    states = 0
    for disk, acknowledged in replay(trace, f"{place}/sessions", str(place / "said")):
        for keeps in choices:
            states += 1
            after = place / f"after-{states}"
            for name, content in disk.lose_power(keeps):
                file = after / Path(name).relative_to(place)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            after.mkdir(exist_ok=True)
            asyncio.run(check(after / PLACES[kind], acknowledged))
            shutil.rmtree(after)
    return states


async def check(location: Path, acknowledged: int) -> None:
    try:
        entries = await read_session(location, "a")
    except SessionNotFound:
        entries = []
    items = [entry.item for entry in entries if isinstance(entry, ItemAdded)]
    numbers = [int(item.text.split()[0]) for item in items if isinstance(item, UserItem)]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= acknowledged, f"{len(numbers)} of {acknowledged} are there"
    async with Agent(Scripted(["Yes."]), store=location).session("a") as session:
        assert (await session.run("Are you there?")).text == "Yes."
