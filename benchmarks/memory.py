"""What a long session holds in memory: MB after each tenth of many rounds with large outputs.

    python benchmarks/memory.py [--rounds 10000] [--size 16384] [--most 1.5]

One turn, with a journal on disk, compaction, and every request encoded for the wire; only the
network is left out. Each round's tool prints `size` other characters. What a model is shown is
bounded by its window; all that was ever said and printed is held once, so that it can be searched
and brought back, and nothing may be held twice: at most `most` bytes for each byte of output,
counted from the first compaction on.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import read_memory
from treadle import Agent, tool
from treadle.context.compaction import Compactor
from treadle.core.contracts.model import ModelCard, ModelRequest
from treadle.models import Say, Scripted
from treadle.models.anthropic.model import AnthropicCodec
from treadle.models.catalog import card_for
from treadle.sessions import Journal

CARD = ModelCard("measured", window=100_000, max_output=8_000)
MB = 1 << 20


def held() -> int:
    """Bytes of memory that this process has now."""
    gc.collect()
    return read_memory()


class Measured:
    """A model that encodes what it is asked, notes the memory, and goes on for so many rounds."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._asked = 0
        self._codec = AnthropicCodec("claude-sonnet-5-5", card=card_for("claude-sonnet-5-5"))
        self.largest = 0
        self.seen: list[tuple[int, int]] = []
        self.model = Scripted(self._answer, card=CARD)

    def _answer(self, request: ModelRequest) -> Say:
        body = self._codec.encode_request(request).body
        self.largest = max(self.largest, sum(map(len, body)))
        self.model.requests.clear()  # a scripted model remembers what it was shown
        number, self._asked = self._asked, self._asked + 1
        if number % max(1, self._rounds // 10) == 0:
            self.seen.append((number, held()))
        if number >= self._rounds:
            return Say("Done.")
        return Say("I go on. ", calls=[("work", {"n": number})])


async def measure(rounds: int, size: int, place: Path) -> Measured:
    journal = Journal.create(place)

    @tool(effect="pure")
    async def work(n: int) -> str:
        if n % 50 == 49:
            await journal.flush()  # what waits for a slow disk is not held for long
        return f"{n:07d} " * (size // 8)

    measured = Measured(rounds)
    notes = Compactor(Scripted(lambda request: "Notes: all is well.", card=CARD))
    agent = Agent(measured.model, [work], mutators=[notes], max_turns=rounds + 1)
    result = await agent.run("go", session=journal)
    assert (result.reason, result.turn.rounds) == ("end_turn", rounds), result
    return measured


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=16_384)
    parser.add_argument("--most", type=float, default=1.5, help="bytes for each byte of output")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured = asyncio.run(measure(options.rounds, options.size, Path(folder) / "session"))
    for number, memory in measured.seen:
        print(f"{number:>8} rounds {memory / MB:>8.0f} MB")
    (begun, before), (ended, after) = measured.seen[1], measured.seen[-1]
    printed = (ended - begun) * options.size
    kept = (after - before) / printed
    print(f"the largest request has {measured.largest / MB:.1f} MB")
    print(f"{kept:.2f} bytes are held for each of the last {printed / MB:.0f} MB of output")
    print("holds" if kept <= options.most else "DOES NOT HOLD")
    return 0 if kept <= options.most else 1


if __name__ == "__main__":
    sys.exit(main())
