"""What a tool round costs in process: microseconds and memory at 100, 1,000 and 10,000 rounds.

    python benchmarks/loop.py [--rounds 100,1000,10000]

The scripted model answers each round with some text and one call of a trivial tool. Nothing
but the loop is measured, as CPU time: no network, no disk. What the scripted model itself costs of
it is told beside it. A round may cost 200 µs at most, and at 10,000 rounds no more than 1.3 times
of what it costs at 100. With a plain function as the tool, which runs in a thread, a round may cost
1.5 times of that with an async one. `--ahead` (root) runs before everything else that wants the
processors, and so shows what a machine without other work would.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import resource
import sys
import time
from collections.abc import Iterator

from treadle import Agent, tool
from treadle.core.contracts.model import ModelRequest
from treadle.core.contracts.tool import Tool
from treadle.core.transcript import Transcript
from treadle.models import Say, Scripted

MOST_MICROSECONDS = 200.0
MOST_GROWTH = 1.3
MOST_PLAIN = 1.5


@tool(effect="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


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
    agent = Agent(Scripted(list(script(rounds))), [adder], max_turns=rounds + 1)
    gc.collect()
    began = time.process_time()
    async with agent.stream("go") as events:
        async for _ in events:
            pass
    spent = time.process_time() - began
    assert events.result.reason == "end_turn", events.result
    assert events.result.turn.rounds == rounds
    return spent


async def model_alone(rounds: int) -> float:
    """Seconds of CPU for the replies of the scripted model, without the loop."""
    model, request = Scripted(list(script(rounds))), ModelRequest(Transcript())
    began = time.process_time()
    for _ in range(rounds):
        async for _ in model.stream(request):
            pass
    return time.process_time() - began


def compare_plain(rounds: int = 500, repeats: int = 8) -> float:
    """A round with a plain function against one with an async one; they take turns."""
    pairs = [
        (asyncio.run(one_run(rounds)), asyncio.run(one_run(rounds, plain_add)))
        for _ in range(repeats)
    ]
    return min(plain for _, plain in pairs) / min(fast for fast, _ in pairs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", default="100,1000,10000")
    parser.add_argument("--ahead", action="store_true", help="run before all others; needs root")
    given = parser.parse_args()
    if given.ahead:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    counts = [int(count) for count in given.rounds.split(",")]
    asyncio.run(one_run(50))  # imports and caches
    costs: dict[int, float] = {}
    print(f"{'rounds':>8} {'µs a round':>12} {'the model':>11} {'peak MB':>9}")
    for count in counts:
        repeats = max(1, 2_000 // count)
        best = min(asyncio.run(one_run(count)) for _ in range(repeats))
        model = min(asyncio.run(model_alone(count)) for _ in range(repeats)) / count * 1e6
        costs[count] = best / count * 1e6
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{count:>8} {costs[count]:>12.1f} {model:>11.1f} {peak:>9.0f}")
    growth = costs[counts[-1]] / costs[counts[0]]
    print(f"growth from {counts[0]} to {counts[-1]} rounds: {growth:.2f} times")
    plain = compare_plain()
    print(f"a plain function as the tool: {plain:.2f} times of an async one")
    holds = max(costs.values()) <= MOST_MICROSECONDS and growth <= MOST_GROWTH
    holds = holds and plain <= MOST_PLAIN
    print("holds" if holds else "DOES NOT HOLD")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
