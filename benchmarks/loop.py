"""What a tool round costs in process: microseconds and memory at 100, 1,000 and 10,000 rounds.

    python benchmarks/loop.py [--rounds 100,1000,10000]

The scripted model answers each round with some text and one call of a trivial tool. Nothing
but the loop is measured, as CPU time: no network, no disk. A round may cost 200 µs at most, and
at 10,000 rounds no more than 1.3 times of what it costs at 100.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import sys
import time
from collections.abc import Iterator

from treadle import Agent, tool
from treadle.models import Say, Scripted

MOST_MICROSECONDS = 200.0
MOST_GROWTH = 1.3


@tool(effect="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def script(rounds: int) -> Iterator[Say]:
    for number in range(rounds):
        yield Say("Adding these two. ", calls=[("add", {"a": number, "b": 1})])
    yield Say("Done.")


async def one_run(rounds: int) -> float:
    """Seconds of CPU for a whole run of so many rounds."""
    agent = Agent(Scripted(script(rounds)), [add], max_turns=rounds + 1)
    gc.collect()
    began = time.process_time()
    async with agent.stream("go") as events:
        async for _ in events:
            pass
    spent = time.process_time() - began
    assert events.result.reason == "end_turn", events.result
    assert events.result.turn.rounds == rounds
    return spent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", default="100,1000,10000")
    counts = [int(count) for count in parser.parse_args().rounds.split(",")]
    asyncio.run(one_run(50))  # imports and caches
    costs: dict[int, float] = {}
    print(f"{'rounds':>8} {'µs a round':>12} {'peak MB':>9}")
    for count in counts:
        repeats = max(1, 2_000 // count)
        best = min(asyncio.run(one_run(count)) for _ in range(repeats))
        costs[count] = best / count * 1e6
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{count:>8} {costs[count]:>12.1f} {peak:>9.0f}")
    growth = costs[counts[-1]] / costs[counts[0]]
    print(f"growth from {counts[0]} to {counts[-1]} rounds: {growth:.2f} times")
    holds = max(costs.values()) <= MOST_MICROSECONDS and growth <= MOST_GROWTH
    print("holds" if holds else "DOES NOT HOLD")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
