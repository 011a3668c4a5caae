"""Random sessions by seed over the public API, whose processes are killed: no law is broken.

    python -m tests.faults.api_fuzz 10000 [--store sqlite|postgresql] [--kills N] [--first SEED]

A session lives in several processes, which fork from this one. Most of them kill themselves: at a
random write of a store (before it, in the middle of it, or after it), or at an effect of a tool.
With --kills, the first N sessions are killed from outside, at a random moment. Some journals are
damaged between two processes. The last process answers what is left. What a user does is
api_fuzz_user.py, what has to hold api_fuzz_checks.py. A failure names its seed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import psycopg_pool  # noqa: F401 - as below

from tests.faults.api_fuzz_agent import Ledger, World
from tests.faults.api_fuzz_user import FuzzUser
from tests.postgres import PostgresServer, find_programs
from treadle.agents import structured_output  # noqa: F401 - once, not in each process
from treadle.agents.child_tools import task_tool  # noqa: F401 - as above
from treadle.core.arguments import loose_json  # noqa: F401 - as above
from treadle.sessions.log.segment import Segment
from treadle.sessions.postgres.postgres_store import PostgresStore
from treadle.sessions.queued_store import QueuedEntry
from treadle.sessions.sqlite_store import SqliteStore

STORES = ("journal", "sqlite", "postgresql")
HANG_SECONDS = 60
End = Literal["clean", "write", "effect", "kill"]


class FuzzPlan(msgspec.Struct, frozen=True):
    """One process of a session: how it ends, and at which write or effect."""

    seed: int
    number: int
    end: End
    is_last: bool
    was_killed: bool
    count: int = 0  # of writes or effects
    place: str = "before"  # before, inside, after
    is_damaged: bool = False  # after its end


class InlineExecutor(ThreadPoolExecutor):
    """Runs everything at once, so that a seed gives the same session again."""

    def submit(self, work: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*given, **named))
        except BaseException as error:  # noqa: BLE001 - for who waits for the future
            future.set_exception(error)
        return future


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def watch_writes(world: World, plan: FuzzPlan) -> None:
    """Tell the world of every write, and end the process at that of the plan."""
    count = 0
    write_lines, write_rows = Segment.append, SqliteStore._write
    write_batch = PostgresStore._write_batch

    def is_last() -> bool:
        nonlocal count
        count += 1
        world.tick()
        if plan.end == "write" and count == plan.count and plan.place == "before":
            kill_self()
        return plan.end == "write" and count == plan.count

    def append(segment: Segment, lines: bytes) -> None:
        if is_last():
            cut = len(lines) if plan.place == "after" else world.rng.randrange(len(lines))
            write_lines(segment, lines[:cut])
            kill_self()
        write_lines(segment, lines)

    def write(store: SqliteStore, batch: list[QueuedEntry]) -> None:
        is_end = is_last()
        if is_end and plan.place == "inside":
            rows = [(store._number, one.seq, one.time, one.body) for one in batch]
            store._database.executemany("INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?)", rows)
            kill_self()
        write_rows(store, batch)
        if is_end:
            kill_self()

    async def write_to_server(store: PostgresStore, batch: list[QueuedEntry]) -> None:
        is_end = is_last()
        if is_end and plan.place == "inside":
            asyncio.get_running_loop().call_later(world.rng.random() / 1_000, kill_self)
        await write_batch(store, batch)
        if is_end:
            kill_self()

    Segment.append = append  # type: ignore[method-assign,assignment]
    SqliteStore._write = write  # type: ignore[method-assign,assignment]
    PostgresStore._write_batch = write_to_server  # type: ignore[method-assign,assignment]


def watch_effects(world: World, plan: FuzzPlan) -> None:
    """End the process at the effect of the plan."""
    count = 0

    def note_effect(place: str) -> None:
        nonlocal count
        count += place == "before"
        if count == plan.count and place == plan.place:
            kill_self()

    if plan.end == "effect":
        world.on_effect = note_effect


async def live(plan: FuzzPlan, world: World, location: str) -> None:
    if world.rng.random() < 0.85:
        asyncio.get_running_loop().set_default_executor(InlineExecutor())
    asyncio.get_running_loop().set_exception_handler(world.note_error)
    session_id = world.rng.choice(world.ledger.read("session")).name  # the first one, or a fork
    user = FuzzUser(world, location, session_id, was_killed=plan.was_killed)
    await user.live(world.rng.randint(1, 3) if plan.is_last else world.rng.randint(2, 10))
    if plan.is_last:
        await user.finish()
    else:
        await user.close()
    assert world.errors == [], world.errors


def run_process(plan: FuzzPlan, folder: Path, location: str) -> None:
    """One life of the session, in a process that has been forked for it. Does not return."""
    status = 1
    try:
        world = World(random.Random(f"{plan.seed}/{plan.number}"), Ledger(folder / "ledger"))
        signal.signal(signal.SIGALRM, report_hang)
        signal.alarm(HANG_SECONDS)
        watch_writes(world, plan)
        watch_effects(world, plan)
        asyncio.run(live(plan, world, location))
        status = 0
    except BaseException:  # noqa: BLE001 - a forked process never returns into its parent's code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def report_hang(*_: object) -> None:
    print("the process hangs; its tasks:", file=sys.stderr)
    for task in asyncio.all_tasks():
        task.print_stack(limit=12)
    sys.stderr.flush()
    os._exit(3)


def make_plans(seed: int, *, is_killed: bool) -> Iterator[FuzzPlan]:
    rng = random.Random(seed)
    count, was_killed = rng.randint(1, 4), False
    for number in range(count):
        is_last = number == count - 1
        end: End = "clean"
        if not is_last and rng.random() < 0.85:
            end = "kill" if is_killed else rng.choice(["write", "write", "effect"])
        at = rng.randint(1, 6 if end == "effect" else 30)
        place = rng.choice(["before", "after", *["inside"] * (end == "write")])
        is_damaged = rng.random() < 0.1 and not is_last
        yield FuzzPlan(seed, number, end, is_last, was_killed, at, place, is_damaged)
        was_killed = end != "clean"


def fuzz_session(seed: int, folder: Path, location: str, *, is_killed: bool) -> int:
    """One session in its processes; how many of them were killed. AssertionError if one failed."""
    session_id = f"s{seed}-{os.getpid()}"
    ledger = Ledger(folder / "ledger")
    ledger.add("session", session_id)
    killed = 0
    for plan in make_plans(seed, is_killed=is_killed):
        ledger.add("action", f"process {plan.number}: {plan.end} {plan.count} {plan.place};")
        child = os.fork()
        if not child:
            run_process(plan, folder, location)
        if plan.end == "kill":
            time.sleep(random.Random(f"{seed}/{plan.number}/kill").uniform(0, 0.15))
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        killed += os.WIFSIGNALED(status)
        is_planned = plan.end != "clean" and status == signal.SIGKILL
        if status and not is_planned:
            actions = " ".join([one.name for one in ledger.read("action")][-60:])
            raise AssertionError(f"seed {seed}: {actions}")
        if plan.is_damaged:
            damage_journal(Path(location) / session_id / "journal.jsonl", seed, ledger)
    ledger.close()
    return killed


def damage_journal(path: Path, seed: int, ledger: Ledger) -> None:
    """Some lines become unreadable while no process has the session open."""
    if not path.exists():  # nothing is written, or the store is another one
        return
    rng = random.Random(f"{seed}/damage")
    ledger.add("damaged", path.parent.name)
    for _ in range(rng.choice([1, 1, 2])):
        path.write_bytes(damage_bytes(path.read_bytes(), rng))


def damage_bytes(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    if len(lines) < 2:
        return data
    position = rng.randrange(1, len(lines))
    match rng.choice(["spoil", "spoil", "remove", "repeat", "cut", "zeros"]):
        case "spoil":
            lines[position] = b"#" * (len(lines[position]) - 1) + b"\n"
        case "remove":
            del lines[position]
        case "repeat":
            lines.insert(position, lines[position])
        case "zeros":
            lines[position] = bytes(len(lines[position]))
        case _:
            cut = len(lines[0]) + rng.randrange(max(1, len(data) - len(lines[0])))
            return data[: max(cut, len(data) - 3_000)]
    return b"".join(lines)


@contextmanager
def make_location(store: str, base: Path) -> Iterator[Callable[[Path], str]]:
    """Where the session of a folder is kept."""
    if store == "journal":
        yield lambda folder: str(folder / "sessions")
    elif store == "sqlite":
        yield lambda folder: str(folder / "sessions.db")
    else:
        programs = find_programs()
        assert programs is not None, "PostgreSQL is not installed"
        server = PostgresServer(programs)
        try:
            server.start()
            url = server.create_database()
            yield lambda folder: url
        finally:
            server.remove()


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("count", type=int)
    parser.add_argument("--store", choices=STORES, default="journal")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args(words)
    memory = Path("/dev/shm")
    base = Path(tempfile.mkdtemp(prefix="api-fuzz-", dir=memory if memory.is_dir() else None))
    started, killed = time.monotonic(), 0
    gc.collect()
    gc.freeze()  # forked processes do not copy what exists now
    try:
        with make_location(options.store, base) as locate:
            for number in range(options.count):
                seed, folder = options.first + number, base / str(number)
                folder.mkdir()
                try:
                    is_killed = number < options.kills
                    killed += fuzz_session(seed, folder, locate(folder), is_killed=is_killed)
                except AssertionError as error:
                    print(f"FAILED, {options.store}: {error}", flush=True)
                    return 1
                shutil.rmtree(folder)
                if number % 500 == 499:
                    seconds = time.monotonic() - started
                    print(f"{number + 1} sessions, {killed} kills, {seconds:.0f} s", flush=True)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    seconds = time.monotonic() - started
    print(
        f"{options.store}: {options.count} sessions, {killed} kills, {seconds:.0f} s: all laws hold"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
