"""What the benchmarks share: ratios of pairs with their interval, servers, processes, verdicts.

A limit is a ratio to something else that is measured in the same run, by turns: what a machine can
do, and what else it does, changes both. Used by the programs in this folder and by compare.py.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from math import comb
from pathlib import Path
from typing import NamedTuple

Figures = dict[str, tuple[float, str]]  # value and unit by what is measured
PAGE = os.sysconf("SC_PAGE_SIZE")


class Ratio(NamedTuple):
    """The median of the ratios of pairs, and where it is with a certainty of 9 in 10."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def find_ratio(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """Of the first to the second. The interval needs five pairs or more, and no distribution: it is
    between two of the ratios in their order."""
    ratios = sorted(one / other for one, other in pairs)
    tails = accumulate(
        comb(len(ratios), out) / 2 ** (len(ratios) - 1) for out in range(len(ratios))
    )
    out = max(0, sum(tail <= 0.1 for tail in tails) - 1)  # at each end
    return Ratio(statistics.median(ratios), ratios[out], ratios[-1 - out])


def take_turns(
    one: Callable[[], float], other: Callable[[], float], pairs: int
) -> list[tuple[float, float]]:
    return [(one(), other()) for _ in range(pairs)]


class Verdict:
    """Prints a line for each limit; `is_good` as long as all hold."""

    is_good = True

    def check(self, what: str, ratio: Ratio, most: float | None) -> None:
        holds = most is None or ratio.median <= most
        self.is_good = self.is_good and holds
        limit = "" if most is None else f", {most:g} at most{'' if holds else '  DOES NOT HOLD'}"
        print(f"{what:50} {ratio}{limit}", flush=True)

    def end(self) -> int:
        """The exit code."""
        print("holds" if self.is_good else "DOES NOT HOLD")
        return 0 if self.is_good else 1


def parse_options(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """With the options of every benchmark."""
    parser.add_argument("--ahead", action="store_true", help="run before all others; needs root")
    parser.add_argument("--json", action="store_true", help="only figures, for compare.py")
    options = parser.parse_args()
    if options.ahead:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    return options


def show_figures(figures: Figures, *, as_json: bool = False) -> None:
    if as_json:
        print(json.dumps(figures))
        return
    for label, (value, unit) in figures.items():
        print(f"{label:60} {value:10.2f} {unit}")


@contextmanager
def serve(argv: Sequence[str]) -> Iterator[str]:
    """A server in a process of its own, on a processor of its own; the line that it prints."""
    server = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        if hasattr(os, "sched_setaffinity") and len(os.sched_getaffinity(0)) > 1:
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(server.pid, {cores[0]})
            os.sched_setaffinity(0, set(cores[1:]))
        assert server.stdout is not None
        yield server.stdout.readline().strip()
    finally:
        server.kill()
        server.wait()


def read_cpu(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_memory(pid: int | str = "self") -> int:
    """Bytes of memory that a process has now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


def run_json(argv: Sequence[str], **options: object) -> Figures:
    """The figures that a benchmark prints with `--json`."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, **options)  # type: ignore[call-overload]
    figures: Figures = {label: tuple(one) for label, one in json.loads(done.stdout).items()}
    return figures


def resident_memory(pid: int, parent: bytes = b"") -> int:
    """kB of a process and all below it; a page that several of them share counts once in all."""
    try:
        place = Path(f"/proc/{pid}")
        words = (place / "cmdline").read_bytes()
        if words == parent:
            return 0  # just forked: it shares all pages, which some kernels count twice
        rollup = (place / "smaps_rollup").read_text()
        children = (place / f"task/{pid}/children").read_text().split()
    except OSError:
        return 0
    share = next((line for line in rollup.splitlines() if line.startswith("Pss:")), "Pss: 0")
    return int(share.split()[1]) + sum(resident_memory(int(child), words) for child in children)
