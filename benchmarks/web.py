"""The page's server: CPU per event, memory per idle session, time to open a long session.

    python benchmarks/web.py [--sessions 20] [--tabs 5] [--pieces 500] [--entries 100000] [--json]

The real server runs as a process of its own, against a provider on this machine. An event is a
piece of text that the model streams; each goes to all tabs of its session. CPU and memory are those
of the server's process. Limits are ratios of CPU in the same run: another step of Inspect to
the first one, which opens the session, 0.5 at most; a tab more to the first tab, 0.1.
benchmarks/compare.py compares two versions.
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

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import (
    Figures,
    Verdict,
    find_ratio,
    parse_options,
    read_cpu,
    read_memory,
    show_figures,
)

if TYPE_CHECKING:
    from tests.apps.web.server import TabClient, WebServer

MB = 1 << 20
IDLE_SESSIONS = 300  # the memory of a process grows by whole arenas
MORE_TABS = 100
MOST_STEP, MOST_TAB = 0.5, 0.1
IDLE_SECONDS = 1.0
STEP, OPEN = "  another step", "  it can be continued"
TABS = f"  in {MORE_TABS} more tabs, one after the other"


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


async def wait_until_idle(server: WebServer) -> None:
    before = -1.0
    while (now := read_cpu(server.process.pid)) > before:
        before = now
        await asyncio.sleep(IDLE_SECONDS)


class Stopwatch:
    """Notes seconds and CPU of the server since it was made."""

    def __init__(self, server: WebServer, figures: Figures) -> None:
        self._pid = server.process.pid
        self._figures = figures
        self._cpu, self._start = read_cpu(self._pid), time.perf_counter()

    def note(self, label: str) -> None:
        self._figures[label] = (time.perf_counter() - self._start, "s")
        self._figures[f"{label}, CPU"] = (read_cpu(self._pid) - self._cpu, "s")


async def measure_long(server: WebServer, folder: Path, entries: int, figures: Figures) -> None:
    from tests.apps.web.server import open_tab

    elsewhere = folder.parent / "elsewhere"  # so that the first page does not open it
    elsewhere.mkdir()
    session = await write_long_session(elsewhere, entries)
    last = f"answer {entries // 6 - 1} "
    async with server.client() as client:
        client.timeout = 60.0
        for label, address in (
            (f"Inspect of {entries:,} entries, the first time", f"/inspect/{session}"),
            (STEP, f"/inspect/{session}/step?step=50"),
        ):
            watch = Stopwatch(server, figures)
            (await client.get(address)).raise_for_status()
            watch.note(label)
    watch = Stopwatch(server, figures)
    async with open_tab(server, session) as tab:
        await tab.wait_until(lambda one: last in one.text)
        watch.note(f"a session of {entries:,} entries: its end is shown")
        await tab.wait_until(lambda one: bool(one.regions))
        watch.note(OPEN)
        await wait_until_idle(server)  # what it does after an opening is not the second tab's
    watch = Stopwatch(server, figures)
    for _ in range(MORE_TABS):  # the clock of CPU ticks in hundredths of a second
        async with open_tab(server, session) as tab:
            await tab.wait_until(lambda one: last in one.text)
    watch.note(TABS)


async def measure(options: argparse.Namespace, folder: Path) -> Figures:
    from tests.apps.web.server import script, web_server
    from treadle.testing.provider import FakeReply, ProviderServer

    figures: Figures = {}
    pieces = tuple(f"piece {number} " for number in range(options.pieces))
    async with ProviderServer(script(FakeReply(text=pieces))) as provider:
        async with web_server(provider, folder) as server:
            sessions, memory = await measure_idle(server, max(IDLE_SESSIONS, options.sessions))
            sessions = sessions[: options.sessions]
            figures["memory of an idle, empty session"] = (memory, "MB")
            cost, seconds = await measure_stream(
                server, sessions, options.tabs, pieces[-1].strip(), options.pieces
            )
            label = f"{options.sessions} sessions to {options.tabs} tabs each, CPU per event"
            figures[label] = (cost, "µs")
            figures[f"  {options.sessions * options.pieces:,} events"] = (seconds, "s")
            await measure_long(server, folder, options.entries, figures)
    return figures


def check_limits(figures: Figures, entries: int) -> int:
    first = figures[f"Inspect of {entries:,} entries, the first time, CPU"][0]
    step = (figures[f"{STEP}, CPU"][0], first)
    tab = (figures[f"{TABS}, CPU"][0] / MORE_TABS, figures[f"{OPEN}, CPU"][0])
    verdict = Verdict()
    verdict.check("another step, of the first", find_ratio([step]), MOST_STEP)
    verdict.check("another tab, of the first", find_ratio([tab]), MOST_TAB)
    return verdict.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--tabs", type=int, default=5)
    parser.add_argument("--pieces", type=int, default=500)
    parser.add_argument("--entries", type=int, default=100_000)
    options = parse_options(parser)
    with tempfile.TemporaryDirectory() as home:
        names = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
        os.environ.update(dict.fromkeys(names, home))
        folder = Path(home) / "project"
        folder.mkdir()
        figures = asyncio.run(measure(options, folder))
    show_figures(figures, as_json=options.json)
    return 0 if options.json else check_limits(figures, options.entries)


if __name__ == "__main__":
    sys.exit(main())
