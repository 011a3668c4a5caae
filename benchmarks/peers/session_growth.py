"""What it costs to continue a session of so many entries: open it, one reply, close it.

    python benchmarks/peers/session_growth.py ENTRIES [--compacted]

Prints JSON. The session is written before the time is taken, with results of 1 KiB; `--compacted`
writes a summary after each thousand items, as long sessions have it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.journal import write_long
from benchmarks.peers.worker import peak_mb
from treadle import Agent
from treadle.models import Scripted

RESULT_BYTES = 1024


async def continue_session(folder: Path, name: str) -> dict[str, float]:
    async with Agent(Scripted(["Done."]), store=folder) as agent:
        wall, cpu = time.perf_counter(), time.process_time()
        result = await agent.run("What was the last one?", session=name)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert result.text == "Done.", result
    return {"wall": wall, "cpu": cpu}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("entries", type=int)
    parser.add_argument("--compacted", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(continue_session(folder, "warm-up"))
        size = given.entries * RESULT_BYTES * 2 // 7  # two of seven entries are results
        write_long(folder / "long", given.entries, size, given.compacted)
        before = peak_mb()
        spent = asyncio.run(continue_session(folder, "long"))
        journal = (folder / "long" / "journal.jsonl").stat().st_size
    figures = {**spent, "mb": peak_mb() - before, "journal_mb": journal / 1e6}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
