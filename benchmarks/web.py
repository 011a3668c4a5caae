"""The page's server: CPU per event, memory per idle session, time to open a long session.

    python benchmarks/web.py [--sessions 20] [--tabs 5] [--pieces 500] [--entries 100000]

The real server runs as a process of its own, against a provider on this machine. An event is a
piece of text that the model streams; each goes to all tabs of its session. CPU and memory are those
of the server's process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.apps.web.server import TabClient, WebServer

MB = 1 << 20
IDLE_SESSIONS = 100


def read_cpu(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_memory(pid: int) -> int:
    """Bytes of memory that a process has now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def create_sessions(server: WebServer, count: int) -> list[str]:
    async with server.client() as client:
        return [(await client.post("/new")).json()["session"] for _ in range(count)]


async def measure_idle(server: WebServer, count: int) -> tuple[list[str], float]:
    """Open sessions, and the MB that each of them needs."""
    await create_sessions(server, 2)  # what is loaded once
    before = read_memory(server.process.pid)
    sessions = await create_sessions(server, count)
    return sessions, (read_memory(server.process.pid) - before) / count / MB


async def measure_stream(
    server: WebServer, sessions: list[str], tabs: int, last: str, events: int
) -> tuple[float, float]:
    """All sessions stream at once: CPU microseconds per event, and seconds in all."""
    from tests.apps.web.server import open_tab

    ready = asyncio.Barrier(len(sessions) * tabs + 1)

    def is_done(tab: TabClient) -> bool:
        return last in tab.text and not tab.regions["now"]

    async def follow(session: str, is_first: bool) -> None:
        async with open_tab(server, session) as tab:
            await tab.receive()
            await ready.wait()
            if is_first:
                await tab.send(do="send", text="go", id="1")
            await tab.wait_until(is_done)
            if tab.text.count(last) != 1 or tab.versions != sorted(set(tab.versions)):
                raise AssertionError("a tab got an event twice, or not in order")

    async with asyncio.TaskGroup() as group:
        for session in sessions:
            for number in range(tabs):
                group.create_task(follow(session, not number))
        await ready.wait()
        cpu, start = read_cpu(server.process.pid), time.perf_counter()
    spent = read_cpu(server.process.pid) - cpu
    return spent / (len(sessions) * events) * 1e6, time.perf_counter() - start


async def write_long_session(folder: Path, entries: int) -> str:
    """A session with so many entries: turns of a message, a call, its result and a reply."""
    from treadle.core.transcript import AssistantItem, Text, ToolCall, ToolResultItem, UserItem
    from treadle.core.transcript.entries import ItemAdded, TurnBegan, TurnEnded
    from treadle.sessions import Library

    journal = Library().create(folder)
    for turn in range(entries // 6):
        call = ToolCall(f"c{turn}", "bash", f'{{"command": "echo {turn}"}}')
        journal.append(TurnBegan(f"turn-{turn + 1}"))
        for item in (
            UserItem((Text(f"message {turn}"),)),
            AssistantItem((call,), model="m"),
            ToolResultItem(f"c{turn}", "bash", (Text(f"{turn}\n" * 5),)),
            AssistantItem((Text(f"answer {turn} with some **text**"),), model="m"),
        ):
            journal.append(ItemAdded(item))
        journal.append(TurnEnded(f"turn-{turn + 1}", "end_turn"))
        if turn % 1_000 == 0:
            await journal.flush()
    await journal.aclose()
    return journal.session_id


async def measure_long(server: WebServer, folder: Path, entries: int) -> None:
    from tests.apps.web.server import open_tab

    elsewhere = folder.parent / "elsewhere"  # so that the first page does not open it
    elsewhere.mkdir()
    session = await write_long_session(elsewhere, entries)
    last = f"answer {entries // 6 - 1} "

    async def open_first() -> None:
        start = time.perf_counter()
        async with open_tab(server, session) as tab:
            await tab.wait_until(lambda one: last in one.text)
            print_time(f"open a session of {entries:,} entries: its end is shown", start)
            await tab.wait_until(lambda one: bool(one.regions))
            print_time("  it can be continued", start)

    async def open_again() -> None:
        start = time.perf_counter()
        async with open_tab(server, session) as tab:
            await tab.wait_until(lambda one: last in one.text)
            print_time("open it in a second tab", start)

    await open_first()
    await open_again()
    async with server.client() as client:
        client.timeout = 60.0
        for label, address in (
            ("look into it", f"/inspect/{session}"),
            ("another step of it", f"/inspect/{session}/step?step=50"),
        ):
            start = time.perf_counter()
            (await client.get(address)).raise_for_status()
            print_time(label, start)


def print_time(label: str, start: float) -> None:
    print(f"{label:60} {time.perf_counter() - start:8.3f} s")


async def run(options: argparse.Namespace, folder: Path) -> None:
    from tests.apps.web.server import script, web_server
    from treadle.testing.provider import FakeReply, ProviderServer

    pieces = tuple(f"piece {number} " for number in range(options.pieces))
    async with ProviderServer(script(FakeReply(text=pieces))) as provider:
        async with web_server(provider, folder) as server:
            sessions, memory = await measure_idle(server, max(IDLE_SESSIONS, options.sessions))
            sessions = sessions[: options.sessions]
            print(f"{'memory of an idle, empty session':60} {memory:8.2f} MB")
            cost, seconds = await measure_stream(
                server, sessions, options.tabs, pieces[-1].strip(), options.pieces
            )
            label = f"{options.sessions} sessions to {options.tabs} tabs each, CPU per event"
            print(f"{label:60} {cost:8.0f} µs")
            print(f"{f'{options.sessions * options.pieces:,} events in':60} {seconds:8.2f} s")
            await measure_long(server, folder, options.entries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--tabs", type=int, default=5)
    parser.add_argument("--pieces", type=int, default=500)
    parser.add_argument("--entries", type=int, default=100_000)
    options = parser.parse_args()
    sys.path[0] = str(Path(__file__).parent.parent)  # instead of this folder, which has a http.py
    with tempfile.TemporaryDirectory() as home:
        names = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
        os.environ.update(dict.fromkeys(names, home))
        folder = Path(home) / "project"
        folder.mkdir()
        asyncio.run(run(options, folder))


if __name__ == "__main__":
    main()
