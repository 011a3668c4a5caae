"""What the journal costs: microseconds and syncs a tool round, and the resume of a long session.

    python benchmarks/journal.py              a round with pure, and with irreversible calls
    python benchmarks/journal.py --chain      CPU with and without the chain of hashes, by turns
    python benchmarks/journal.py --long       100,000 entries, 1 GiB: time and memory of a resume
    python benchmarks/journal.py --many       5,000 sessions: the first screen, and a search

Run on the disk that matters: `--folder` says where the sessions are written. Limits are ratios in
the same run, of CPU: a round with a journal to one without, 3 at most, with syncs 8; with the chain
of hashes to without, 1.03; a resume to checking and decoding each line of the same file, 4.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import (
    Figures,
    Verdict,
    find_ratio,
    parse_options,
    run_json,
    show_figures,
    take_turns,
)
from treadle.agents.agent import Agent
from treadle.core.contracts.model import ModelRequest
from treadle.core.contracts.store import Store
from treadle.core.contracts.wrapped import WrappedStore
from treadle.core.transcript.content import Text, ToolCall
from treadle.core.transcript.entries import EffectClass, Entry, ItemAdded, TurnBegan, ViewRewritten
from treadle.core.transcript.entry_json import make_decoder
from treadle.core.transcript.items import AssistantItem, SummaryItem, ToolResultItem, to_user_item
from treadle.models.scripted import Say, Scripted
from treadle.sessions import Journal, resume
from treadle.sessions.log.records import (
    FORMAT_VERSION,
    JournalHeader,
    encode_header,
    encode_record,
    parse_record,
)
from treadle.testing.tools import RecordingTool

ROUNDS = 500
PAIRS, CHAIN_PAIRS = 5, 40
MOST_OF_BARE: dict[EffectClass, float] = {"pure": 3.0, "irreversible": 8.0}  # with two syncs
MOST_CHAIN, MOST_OF_DECODING = 1.03, 4.0
MIB = 1 << 20


class Counting(WrappedStore):
    """A store that counts how often the loop waits for it."""

    waits = 0

    async def flush(self) -> None:
        self.waits += 1
        await super().flush()


class Unchained(Journal):
    def _seal(self, batch: Sequence[object]) -> None:
        pass


async def rounds(effect: EffectClass, store: Store | None) -> float:
    """Microseconds of CPU a round of one model call and one tool call, also of the writer."""

    def reply(request: ModelRequest) -> Say:
        done = len(request.transcript) // 2
        return Say("done") if done >= ROUNDS else Say(calls=[("work", {"n": done})])

    agent = Agent(
        Scripted(reply), [RecordingTool("work", "x" * 2000, effect=effect)], max_turns=10**6
    )
    began = time.process_time()
    await agent.run("go", session=store)
    return (time.process_time() - began) / ROUNDS * 1e6


async def short(folder: Path, verdict: Verdict) -> None:
    for effect, most in MOST_OF_BARE.items():
        pairs, waits, syncs = [], 0, 0
        for number in range(PAIRS):
            journal = Journal.create(folder / f"{effect}-{number}")
            store = Counting(journal)
            pairs.append((await rounds(effect, store), await rounds(effect, None)))
            waits, syncs = waits + store.waits, syncs + journal.sync_count
            await journal.aclose()
        kept, bare = (statistics.median(values) for values in zip(*pairs, strict=True))
        print(
            f"{effect}: {kept:.0f} us a round with a journal, {bare:.0f} without; "
            f"waited {waits / ROUNDS / PAIRS:.2f} times a round, "
            f"{syncs / ROUNDS / PAIRS:.2f} syncs a round"
        )
        verdict.check(f"  {effect}, of that without", find_ratio(pairs), most)


def chain(folder: Path, verdict: Verdict) -> None:
    """On one processor: the caches of two cost more than what is measured."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    numbers = itertools.count()

    async def spend(kind: type[Journal], effect: EffectClass) -> float:
        """Seconds of CPU, also of the thread that writes."""
        journal = kind.create(folder / str(next(numbers)))
        gc.collect()
        began = time.process_time()
        await rounds(effect, journal)
        await journal.flush()
        spent = time.process_time() - began
        await journal.aclose()
        return spent

    def run(kind: type[Journal], effect: EffectClass) -> float:
        return asyncio.run(spend(kind, effect))

    for effect in MOST_OF_BARE:
        runs = partial(run, Journal, effect), partial(run, Unchained, effect)
        pairs = take_turns(*runs, CHAIN_PAIRS)
        verdict.check(f"{effect}, the chain of hashes", find_ratio(pairs), MOST_CHAIN)


def write_long(place: Path, entries: int, size: int, compacts: bool) -> None:
    """Turns of six entries, mostly results; the text makes up the size."""
    place.mkdir(parents=True)
    # Two of seven entries are results.
    text = ("All work and no play makes a long session. " * 4000)[: size * 7 // (entries * 2)]
    seq = 0
    with (place / "journal.jsonl").open("wb", buffering=MIB) as file:
        file.write(encode_header(JournalHeader(FORMAT_VERSION, place.name, 0.0)))

        def put(entry: Entry) -> None:
            nonlocal seq
            seq += 1
            file.write(encode_record(entry, seq, 1, float(seq)))

        items = turn = 0
        while seq < entries:
            turn += 1
            put(TurnBegan(f"turn-{turn}"))
            put(ItemAdded(to_user_item(f"Do number {turn}")))
            for part in range(2):
                call = ToolCall(f"c{turn}-{part}", "bash", '{"command": "make"}')
                put(ItemAdded(AssistantItem((call,), "tool_use")))
                put(ItemAdded(ToolResultItem(call.id, "bash", (Text(text + f" {seq}"),))))
            put(ItemAdded(AssistantItem((Text("Done."),))))
            items += 6
            if compacts and items > 1000:
                put(ViewRewritten("compact", 0, items, (SummaryItem("What was", items),)))
                items = 1


def measure(place: Path) -> None:
    """In a process of its own: how long, and how much memory."""
    began, cpu = time.perf_counter(), time.process_time()
    resumed = resume(place)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    asyncio.run(resumed.journal.aclose())
    show_figures({"CPU": (cpu, "s"), "time": (seconds, "s"), "memory": (peak, "MiB")}, as_json=True)


def decode_lines(place: Path) -> None:
    """The floor of a resume, in a process of its own."""
    decode = make_decoder(Entry).decode
    began = time.process_time()
    with (place / "journal.jsonl").open("rb", buffering=MIB) as file:
        next(file)  # the header
        for line in file:
            record = parse_record(line)
            assert record is not None
            if record.kind != "opened":
                decode(line)
    show_figures({"CPU": (time.process_time() - began, "s")}, as_json=True)


def read_cpu(place: Path, what: str) -> float:
    return run_json([sys.executable, __file__, what, str(place)])["CPU"][0]


def long(folder: Path, entries: int, size: int, verdict: Verdict, *, as_json: bool) -> None:
    figures: Figures = {}
    for compacts in (True, False):
        place = folder / ("compacted" if compacts else "whole")
        write_long(place, entries, size, compacts)
        found = run_json([sys.executable, __file__, "--measure", str(place)])
        label = f"resume of {entries} entries, {place.name}"
        figures |= {f"{label}: {what}": figure for what, figure in found.items()}
        if not as_json:
            floor = partial(read_cpu, place, "--decode")
            pairs = take_turns(partial(read_cpu, place, "--measure"), floor, PAIRS)
            what = f"{label}, of decoding it"
            verdict.check(what, find_ratio(pairs), MOST_OF_DECODING)
        (place / "journal.jsonl").unlink()
    show_figures(figures, as_json=as_json)


def many(folder: Path, sessions: int) -> None:
    """Whole processes, as a person starts them."""
    for number in range(sessions):
        place = folder / "treadle/sessions" / f"project-{number % 50}" / f"260101-{number:06x}"
        write_long(place, 40, 40_000, compacts=False)
        if number % 5 == 0:
            write_long(place / "children/call-1", 20, 20_000, compacts=False)
    environment = {**os.environ, "XDG_DATA_HOME": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for words in (["list"], ["list"], ["list"], ["list", "--all"], ["search", "Do number 6"]):
        began = time.perf_counter()
        command = [sys.executable, "-m", "treadle", "sessions", *words]
        done = subprocess.run(command, env=environment, check=True, capture_output=True)
        seconds = time.perf_counter() - began
        shown = done.stdout.count(b"\n")
        print(f"{sessions} sessions, {' '.join(words)}: {seconds:.3f} s, {shown} lines")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--many", action="store_true")
    parser.add_argument("--chain", action="store_true")
    parser.add_argument("--sessions", type=int, default=5_000)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1024, help="MiB")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--decode", type=Path, help=argparse.SUPPRESS)
    options = parse_options(parser)
    if options.measure:
        measure(options.measure)
        return 0
    if options.decode:
        decode_lines(options.decode)
        return 0
    verdict = Verdict()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        if options.many:
            many(Path(name), options.sessions)
        elif options.chain:
            chain(Path(name), verdict)
        elif options.long:
            size = options.size * MIB
            long(Path(name), options.entries, size, verdict, as_json=options.json)
        else:
            asyncio.run(short(Path(name), verdict))
    return 0 if options.json else verdict.end()


if __name__ == "__main__":
    sys.exit(main())
