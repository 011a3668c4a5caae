"""Terminal, page and a worker of a fleet at work for an hour: what they hold stays what it was.

    python benchmarks/soak.py [--minutes 60] [--hosts terminal,page,fleet]

Each is a real process, against a model of this machine that says what the script wants: a command,
then an answer. The terminal begins a new session after some turns, the page gets new sessions and
closes those that nobody looks at, the worker gets new runs. Every ten seconds memory, descriptors,
threads, tasks of the event loop and child processes of each are read, and what is on the disk
beside the sessions. Printed: the median of the second sixth of the time, of the last sixth, and
whether it grew. Exits with 1 if something did.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.apps.program import environment  # noqa: E402
from tests.apps.tui.tmux import Terminal  # noqa: E402
from tests.apps.web.server import WebServer, open_tab  # noqa: E402
from tests.patience import until_in_thread  # noqa: E402
from treadle.fleet import FleetTask, open_database  # noqa: E402
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer  # noqa: E402
from treadle.testing.provider.http import ReceivedRequest  # noqa: E402

MODEL = "claude-sonnet-5-5"
TURNS_OF_A_SESSION, RUNS_AT_ONCE, IDLE_SECONDS = 15, 4, 20.0
SAMPLE_SECONDS, PAUSE_SECONDS = 10.0, 0.2
# How much more than at the start is no growth: a factor, and an amount.
TOLERANCES = {
    "MB": (1.1, 6.0),
    "descriptors": (1.0, 4.0),
    "threads": (1.0, 4.0),
    "tasks": (1.0, 6.0),
    "children": (1.0, 3.0),
    "files beside sessions": (1.0, 10.0),
}


class Host(NamedTuple):
    name: str
    find_pid: Callable[[], int]
    work: Callable[[int], Awaitable[None]]  # one piece of work; its number is given


# --- a program that tells how many tasks it has ---------------------------------------------


def run_program(arguments: list[str]) -> None:
    """treadle, which writes the number of its tasks into a file when it gets SIGUSR2."""
    from treadle.__main__ import main
    from treadle.apps.web.hub import Hub

    def tell(*_: object) -> None:
        loop = asyncio._get_running_loop()
        count = 0 if loop is None else len(asyncio.all_tasks(loop))
        file = Path(os.environ["SOAK_TASKS"], str(os.getpid()))
        file.with_suffix(".new").write_text(str(count))
        file.with_suffix(".new").replace(file)

    signal.signal(signal.SIGUSR2, tell)
    Hub.close_idle.__defaults__ = (IDLE_SECONDS,)
    sys.argv = ["treadle", *arguments]
    sys.exit(main())


def program(*arguments: str) -> list[str]:
    return [sys.executable, str(Path(__file__).resolve()), "--program", *arguments]


# --- the model and the hosts -----------------------------------------------------------------


def answer(request: ReceivedRequest) -> FakeReply:
    """A command for a message `go N`, and then the answer `Done N.`"""
    messages: Any = request.json["messages"]
    last = messages[-1]["content"]
    texts = [last] if isinstance(last, str) else [part.get("text", "") for part in last]
    number = next((text[3:] for text in texts if text.startswith("go ")), "")
    if number:
        return FakeReply("", calls=(FakeCall("bash", {"command": f"seq 300; echo {number}"}),))
    found = re.search(r"300\\n(\d+)", json.dumps(last))  # the last line of the command
    return FakeReply(f"Done {found[1] if found else '?'}.")


@asynccontextmanager
async def open_terminal(server: ProviderServer, place: Path) -> AsyncIterator[Host]:
    given = ("--model", MODEL, "--permission-mode", "bypass", "--sandbox", "off")
    with closing(Terminal(place)) as terminal:
        words = [f"{name}={os.environ[name]}" for name in ("HOME", "TMPDIR", "SOAK_TASKS")]
        words += [f"ANTHROPIC_BASE_URL={server.url}", "ANTHROPIC_API_KEY=k"]
        terminal.send(shlex.join(["env", *words, *program(*given)]))
        await asyncio.to_thread(terminal.sees, "Do you trust")
        await asyncio.to_thread(terminal.answer, "y", "Enter")
        await asyncio.to_thread(terminal.sees, "/help lists commands")

        def work(number: int) -> None:
            terminal.send(f"go {number}")
            terminal.sees(f"Done {number}.")
            if number % TURNS_OF_A_SESSION == 0:
                terminal.send("/clear")
                terminal.sees(f"Done {number}.", gone=True)

        yield Host("terminal", terminal.pid, lambda number: asyncio.to_thread(work, number))
        terminal.press("C-c", "C-c", "C-c")


@asynccontextmanager
async def open_page(server: ProviderServer, place: Path) -> AsyncIterator[Host]:
    given = ("--model", MODEL, "--permission-mode", "bypass")
    process = await asyncio.create_subprocess_exec(
        *program("web", str(Path.cwd()), *given),
        stdout=asyncio.subprocess.PIPE,
        env=environment(server),
    )
    assert process.stdout is not None
    web = WebServer(process, (await process.stdout.readline()).decode().split()[-1])

    async def work(number: int) -> None:
        async with web.client() as client:
            session = (await client.post("/new")).json()["session"]
        async with open_tab(web, session) as tab:
            await tab.receive()
            await tab.send(do="send", text=f"go {number}", id="1")
            await tab.wait_until(lambda tab: f"Done {number}." in tab.text)

    try:
        yield Host("page", lambda: process.pid, work)
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def open_fleet(server: ProviderServer, place: Path) -> AsyncIterator[Host]:
    store = f"sqlite:{place / 'fleet.db'}"
    database = await open_database(store)
    options = ("--store", store, "--agent", "benchmarks.fleet:make_agent", "--poll", "0.1")
    process = subprocess.Popen(  # noqa: ASYNC220 - it runs beside the others
        program("fleet", "worker", *options, "--runs-at-once", str(RUNS_AT_ONCE)),
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    async def work(number: int) -> None:
        ids = [f"r{number}-{run}" for run in range(RUNS_AT_ONCE)]
        await database.submit([FleetTask(id=one, prompt="work 3") for one in ids])
        while (await database.totals()).unfinished:  # noqa: ASYNC110 - another process
            await asyncio.sleep(PAUSE_SECONDS)

    try:
        yield Host("fleet", lambda: process.pid, work)
    finally:
        process.terminate()
        process.wait()
        await database.aclose()


HOSTS = {"terminal": open_terminal, "page": open_page, "fleet": open_fleet}


# --- measuring -------------------------------------------------------------------------------


def read_host(pid: int) -> dict[str, float]:
    process = Path("/proc", str(pid))
    file = Path(os.environ["SOAK_TASKS"], str(pid))
    file.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR2)
    until_in_thread(file.exists)
    pages = int((process / "statm").read_text().split()[1])
    return {
        "MB": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "descriptors": len(list((process / "fd").iterdir())),
        "threads": len(list((process / "task").iterdir())),
        "tasks": int(file.read_text()),
        "children": len((process / f"task/{pid}/children").read_text().split()),
    }


def count_files(*folders: Path) -> int:
    """The files that are no session and not the measurement's own."""
    found = (walked for folder in folders for walked in os.walk(folder))  # some are just gone
    return sum(len(files) for top, _, files in found if "sessions" not in Path(top).parts)


async def soak(host: Host, until: float, folders: list[Path]) -> list[dict[str, float]]:
    samples: list[dict[str, float]] = []
    number, next_sample = 0, time.monotonic()
    while time.monotonic() < until:
        number += 1
        await host.work(number)
        await asyncio.sleep(PAUSE_SECONDS)
        if time.monotonic() >= next_sample:
            next_sample = time.monotonic() + SAMPLE_SECONDS
            sample = await asyncio.to_thread(read_host, host.find_pid())
            files = await asyncio.to_thread(count_files, *folders)
            samples.append({**sample, "files beside sessions": files})
    print(f"{host.name}: {number} pieces of work, {len(samples)} samples", flush=True)
    return samples


def report(name: str, samples: list[dict[str, float]]) -> bool:
    sixth = max(1, len(samples) // 6)
    is_flat = True
    for what, (factor, amount) in TOLERANCES.items():
        start = statistics.median(sample[what] for sample in samples[sixth : 2 * sixth] or samples)
        end = statistics.median(sample[what] for sample in samples[-sixth:])
        grew = end > start * factor + amount
        is_flat &= not grew
        print(f"  {name:9} {what:22} {start:8.1f} {end:8.1f}  {'GREW' if grew else 'flat'}")
    return is_flat


async def main(minutes: float, names: list[str]) -> bool:
    with tempfile.TemporaryDirectory(prefix="treadle-soak-") as folder:
        place = Path(folder)
        folders = [place / name for name in ("home", "tmp", "tasks", "project")]
        for one in folders:
            one.mkdir()
        home, temp, tasks, project = map(str, folders)
        os.environ.update(HOME=home, TMPDIR=temp, SOAK_TASKS=tasks)
        os.chdir(project)
        until = time.monotonic() + minutes * 60

        async def run(name: str, server: ProviderServer) -> list[dict[str, float]]:
            async with HOSTS[name](server, place) as host:
                return await soak(host, until, folders[:2])

        async with ProviderServer(answer, strict=False) as server:
            async with asyncio.TaskGroup() as group:
                found = {name: group.create_task(run(name, server)) for name in names}
        print(f"{minutes:g} minutes; the second sixth of the time, and the last:")
        flat = {name: report(name, samples.result()) for name, samples in found.items()}
        return all(flat.values())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--program"]:
        run_program(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--hosts", default=",".join(HOSTS))
    chosen = parser.parse_args()
    sys.exit(0 if asyncio.run(main(chosen.minutes, chosen.hosts.split(","))) else 1)
