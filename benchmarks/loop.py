"""What a tool round costs in process: microseconds and memory at 100, 1,000 and 10,000 rounds.

    python benchmarks/loop.py [--rounds 100,1000,10000] [--ahead] [--json]

The scripted model answers each round with some text and one call of a trivial tool. Nothing
but the loop is measured, as CPU time: no network, no disk. The floor is a loop by hand over the
same model, with a list of its events and a task for each call; they take turns. A round may cost 7
times of the floor, and at 10,000 rounds no more than 1.3 times of what it costs at 100. With a
plain function as the tool, which runs in a thread, it may cost 1.5 times of that with an async one.
`--ahead` (root) runs before everything else that wants the processors.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import Figures, Verdict, find_ratio, parse_options, show_figures, take_turns
from treadle import Agent, tool
from treadle.core.contracts.model import ModelRequest, Reply
from treadle.core.contracts.tool import Tool
from treadle.core.transcript import Text, ToolResultItem, Transcript
from treadle.models import Say, Scripted

MOST_OF_FLOOR = 7.0
MOST_GROWTH = 1.3
MOST_PLAIN = 1.5
PAIRS = 9


async def add_numbers(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


add = tool(add_numbers, name="add", effect="pure")


@tool(name="add", effect="pure")
def plain_add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def script(rounds: int) -> Iterator[Say]:
    for number in range(rounds):
        yield Say("Adding these two. ", calls=[("add", {"a": number, "b": 1})])
    yield Say("Done.")


async def one_run(rounds: int, adder: Tool = add) -> float:
    """Seconds of CPU for a whole run of so many rounds."""
    model = Scripted(list(script(rounds)))
    agent = Agent(model, [adder], max_turns=rounds + 1)
    gc.collect()
    began = time.process_time()
    async with agent.stream("go") as events:
        async for _ in events:
            pass
    spent = time.process_time() - began
    assert events.result.reason == "end_turn", events.result
    assert len(model.requests) == rounds + 1
    return spent


async def floor_run(rounds: int) -> float:
    """Seconds of CPU of the loop by hand."""
    model, transcript, events = Scripted(list(script(rounds))), Transcript(), list[object]()
    gc.collect()
    began = time.process_time()
    for _ in range(rounds):
        async for event in model.stream(ModelRequest(transcript)):
            events.append(event)
            if type(event) is Reply:
                transcript = transcript.append(event.item)
                for call in event.item.calls:
                    work = add_numbers(**(call.arguments or {}))
                    text = Text(str(await asyncio.create_task(work)))
                    transcript = transcript.append(ToolResultItem(call.id, call.name, (text,)))
    return time.process_time() - began


def round_cost(run: Coroutine[None, None, float], rounds: int) -> float:
    """Microseconds of CPU."""
    return asyncio.run(run) / rounds * 1e6


def measure(counts: list[int]) -> Figures:
    figures: Figures = {}
    for count in counts:
        repeats = max(1, 2_000 // count)
        best = min(round_cost(one_run(count), count) for _ in range(repeats))
        figures[f"a round of {count}"] = (best, "µs")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        figures[f"peak memory after {count} rounds"] = (peak, "MB")
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", default="100,1000,10000")
    options = parse_options(parser)
    counts = [int(count) for count in options.rounds.split(",")]
    asyncio.run(one_run(50))  # imports and caches
    figures = measure(counts)
    show_figures(figures, as_json=options.json)
    if options.json:
        return 0
    rounds, verdict = 500, Verdict()
    of_floor = take_turns(
        lambda: round_cost(one_run(rounds), rounds),
        lambda: round_cost(floor_run(rounds), rounds),
        PAIRS,
    )
    plain = take_turns(
        lambda: round_cost(one_run(rounds, plain_add), rounds),
        lambda: round_cost(one_run(rounds), rounds),
        PAIRS,
    )
    first, *_, last = [value for value, unit in figures.values() if unit == "µs"] * 2
    verdict.check("a round, of the loop by hand", find_ratio(of_floor), MOST_OF_FLOOR)
    verdict.check(f"growth to {counts[-1]} rounds", find_ratio([(last, first)]), MOST_GROWTH)
    verdict.check("a plain function, of an async one", find_ratio(plain), MOST_PLAIN)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
