"""What a fleet costs on PostgreSQL: steps, runs a second, waiting runs, the limit of calls.

    PYTHONPATH=. python benchmarks/fleet.py [steps] [runs] [waiting] [limit] [sessions]
    PYTHONPATH=. .tools/ray/bin/python benchmarks/fleet.py runs --engine ray --runs 100

`sessions` has no fleet: agents of the library, whose sessions are in the database.
The model is scripted and answers at once, and the tool does nothing: what is measured is the fleet.
A worker of `dbos` has 16 runs at once; with `ray` (scripts/ray-tests installs it) a worker is room
for one run in a cluster, and each run has a process of Ray.
A PostgreSQL server of Debian's package is started for it, with its usual settings: each commit is
synced to the disk. A step, a model call and a tool call, has two of them: it may take 8 times of
one row that is written and committed in between.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.measure import Verdict, find_ratio, read_memory
from tests.apps.fleet.processes import PlayedWorker, worker_process
from tests.postgres import MISSING, PostgresServer, find_programs
from tests.ray_cluster import RayCluster
from treadle import Agent, tool
from treadle.apps.fleet.database import open_database
from treadle.apps.fleet.fleet import Fleet
from treadle.apps.fleet.run_record import END_STATES, FleetLimits
from treadle.apps.fleet.sql.sql_database import SqlDatabase
from treadle.apps.fleet.task import FleetTask
from treadle.core.contracts.model import ModelRequest
from treadle.core.steps import AfterToolResult, Finished
from treadle.core.transcript.items import AssistantItem
from treadle.lib.text.text import plural
from treadle.models.scripted import Say, Scripted, ScriptElement

MOST_COMMITS = 8.0
STEPS = 300
RUNS, STEPS_OF_A_RUN = 1000, 3
WORKERS = (1, 2, 4)
SESSIONS_AT_ONCE = 200
LIMITED_RUNS, CALLS_AT_ONCE, CALL_SECONDS = 1000, 50, 0.02
AGENT = "benchmarks.fleet:make_agent"


@tool(effect="irreversible")
async def work() -> str:
    """Do nothing, at most once."""
    return "done"


@tool(effect="irreversible", approval=True)
async def ask() -> str:
    """Needs an approval."""
    return "done"


def make_agent(task: FleetTask, folder: Path) -> Agent:
    """The prompt is the name of the tool and how often it is called."""
    name, count = task.prompt.split()

    def reply(request: ModelRequest) -> ScriptElement:
        rounds = sum(
            isinstance(item, AssistantItem) for item in request.transcript[-2 * int(count) :]
        )
        return Say(calls=[(name, {})]) if rounds < int(count) else "done"

    return Agent(Scripted(reply), [work, ask], max_turns=10_000, approve=lambda approval: False)


async def measure_steps(store: str) -> bool:
    """The steps of one run on a machine that does nothing else."""
    database = await open_database(store)
    assert isinstance(database, SqlDatabase)
    await database.submit([FleetTask(id="steps", prompt="work 1")])
    worker = PlayedWorker(database, "bench", "1")
    await worker.registry.beat()
    (run,) = await worker.claim()
    agent = Agent(
        Scripted([Say(calls=[("work", {})])] * STEPS + ["done"]), [work], max_turns=STEPS + 1
    )
    times, commits = list[float](), list[float]()
    await database.connection.execute("CREATE TABLE floor (n INTEGER)")
    began_cpu = time.process_time()
    async with agent.session(run.session, store=await worker.runs.open_session(run)) as session:
        session.submit("go")
        while True:
            began = time.perf_counter()
            step = await session.next()
            ended = time.perf_counter()
            if isinstance(step, AfterToolResult):
                times.append((ended - began) * 1000)
                await database.connection.execute("INSERT INTO floor VALUES (1)")
                commits.append((time.perf_counter() - ended) * 1000)
            elif isinstance(step, Finished):
                break
    await database.aclose()
    median = statistics.median(times)
    last = statistics.quantiles(times, n=100)[98]
    cpu = (time.process_time() - began_cpu) / len(times) * 1000
    print(f"steps     {len(times)} steps: median {median:.1f} ms, ", end="")
    print(f"99 of 100 below {last:.1f} ms; {cpu:.1f} ms of CPU of the worker")
    verdict = Verdict()
    ratio = find_ratio(list(zip(times, commits, strict=True)))
    verdict.check("          a step, of a commit", ratio, MOST_COMMITS)
    return verdict.is_good


async def measure_runs(server: PostgresServer, engine: str, runs: int) -> bool:
    """Runs a second with 1, 2 and 4 workers, after all of them have started."""
    for count in WORKERS:
        store = server.create_database()
        database = await open_database(store, engine=engine)
        with ExitStack() as workers:
            start_workers(workers, store, engine, count)
            wanted = 1 if engine == "ray" else count
            while len(await database.workers()) < wanted:  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.05)
            prompt = f"work {STEPS_OF_A_RUN - 1}"  # and the answer is a step
            began = time.perf_counter()
            await database.submit(FleetTask(id=f"r{n}", prompt=prompt) for n in range(runs))
            while (await database.totals()).unfinished:  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.05)
            seconds = time.perf_counter() - began
        states = (await database.totals()).states
        await database.aclose()
        rate = f"{runs / seconds:.1f} runs, {runs * STEPS_OF_A_RUN / seconds:.1f} steps a second"
        print(f"runs      {engine}, {plural(count, 'worker')}, ", end="")
        print(f"{runs} of {STEPS_OF_A_RUN} steps: {rate}", flush=True)
        assert states == {"done": runs}, states
    return True


def start_workers(workers: ExitStack, store: str, engine: str, count: int) -> None:
    """Processes of `treadle fleet worker`; for Ray, one of them and a cluster with so much room."""
    environment: dict[str, str] = {}
    if engine == "ray":
        cluster = RayCluster(redis=False)
        workers.callback(cluster.close)
        cluster.start("head", cpus=count)
        environment["RAY_ADDRESS"] = cluster.address
    for _ in range(1 if engine == "ray" else count):
        at_once = 1000 if engine == "ray" else 16
        process = worker_process(store, concurrency=at_once, agent=AGENT, lease=30, env=environment)
        workers.enter_context(process)


async def measure_waiting(server: PostgresServer) -> bool:
    """Runs that wait for an approval: in the worker, and in the database."""
    store = server.create_database()
    name = store.partition("?")[0].rpartition("/")[2]
    sizes: list[tuple[float, float]] = []
    async with Fleet(store, agent=make_agent, poll=0.05, concurrency=16) as fleet:
        for first, last in ((0, 100), (100, 1100)):
            tasks = [FleetTask(id=f"w{n}", prompt="ask 1") for n in range(first, last)]
            await fleet.database.submit(tasks)
            counted = fleet.database.totals
            while (await counted()).states.get("waiting", 0) < last:  # noqa: ASYNC110 - the workers
                await asyncio.sleep(0.05)
            stored = float(server.query(f"SELECT pg_database_size('{name}')"))
            sizes.append((float(read_memory()), stored))
    memory, stored = (after - before for before, after in zip(*sizes, strict=True))
    print(f"waiting   1000 runs: {memory / 1000 / 1024:.1f} KB of a worker's memory a run", end="")
    print(f" and {stored / 1000 / 1024:.1f} KB of the database")
    return True


async def measure_limit(store: str) -> bool:
    """All runs at once against a limit of concurrent calls."""
    now = most = 0

    async def answer(request: ModelRequest) -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(CALL_SECONDS)
        now -= 1
        return "done"

    def make(task: FleetTask, folder: Path) -> Agent:
        return Agent(Scripted(answer, name="fake/model"))

    limits = FleetLimits(concurrent_calls=CALLS_AT_ONCE)
    options: dict[str, Any] = {"agent": make, "limits": limits, "concurrency": LIMITED_RUNS // 2}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    async with Fleet(store, workers=2, poll=0.1, **options) as fleet:
        tasks = [FleetTask(id=f"l{n}", prompt="go") for n in range(LIMITED_RUNS)]
        states = [run.state async for run in fleet.run(tasks)]
        assert isinstance(fleet.database, SqlDatabase)
        rows = await fleet.database.connection.execute(
            "SELECT number, admitted - queued FROM fleet_calls ORDER BY admitted, number"
        )
    seconds = time.perf_counter() - began
    assert len(states) == LIMITED_RUNS
    assert set(states) <= END_STATES
    waits = [float(wait) for _, wait in rows]
    in_order = [number for number, _ in rows] == sorted(number for number, _ in rows)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / LIMITED_RUNS
    print(f"limit     {LIMITED_RUNS} runs in {seconds:.1f} s, ", end="")
    print(f"at most {most} calls at once (limit {CALLS_AT_ONCE}); ", end="")
    print(f"waits: median {statistics.median(waits):.1f} s, longest {max(waits):.1f} s, ", end="")
    print(f"{'in order' if in_order else 'NOT in order'}; {memory:.0f} KB a run at work")
    return most <= CALLS_AT_ONCE and in_order and states.count("done") == LIMITED_RUNS


async def measure_sessions(server: PostgresServer) -> bool:
    """Agents of a library in one process: their sessions in PostgreSQL, and in SQLite."""
    with tempfile.TemporaryDirectory() as folder:
        places: dict[str, str | Path] = {
            "PostgreSQL": server.create_database(),
            "SQLite": Path(folder, "sessions.db"),
        }
        for place, store in places.items():
            task = FleetTask(id="one", prompt=f"work {STEPS_OF_A_RUN - 1}")
            async with make_agent(task, Path(folder)).replace(store=store) as agent:
                began = time.perf_counter()
                runs = (agent.run("go", session=f"s{n}") for n in range(SESSIONS_AT_ONCE))
                results = await asyncio.gather(*runs)
                seconds = time.perf_counter() - began
            assert {result.text for result in results} == {"done"}, results
            rate = f"{SESSIONS_AT_ONCE * STEPS_OF_A_RUN / seconds:.1f} steps a second"
            print(
                f"sessions  {SESSIONS_AT_ONCE} of {STEPS_OF_A_RUN} steps at once, {place}: {rate}"
            )
    return True


async def measure(parts: list[str], server: PostgresServer, engine: str, runs: int) -> bool:
    is_good = True
    for part in parts:
        match part:
            case "steps":
                is_good &= await measure_steps(server.create_database())
            case "runs":
                is_good &= await measure_runs(server, engine, runs)
            case "waiting":
                is_good &= await measure_waiting(server)
            case "limit":
                is_good &= await measure_limit(server.create_database())
            case "sessions":
                is_good &= await measure_sessions(server)
    return is_good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = ["steps", "runs", "waiting", "limit", "sessions"]
    parser.add_argument("part", nargs="*", choices=[*known, []], help="by default all")
    parser.add_argument("--engine", choices=["dbos", "ray"], default="dbos", help="for `runs`")
    parser.add_argument("--runs", type=int, default=RUNS, help="for `runs`: how many")
    given = parser.parse_args()
    parts = given.part or known
    programs = find_programs()
    if programs is None:
        print(MISSING)
        return 1
    server = PostgresServer(programs)
    try:
        server.start()
        return 0 if asyncio.run(measure(parts, server, given.engine, given.runs)) else 1
    finally:
        server.remove()


if __name__ == "__main__":
    sys.exit(main())
