"""`treadle models get`: an embedded model comes over the network, and the person sees how far.

A progress line and nothing else: what is fetched, from where, and whether it is whole is decided
in treadle.models.embedded.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from treadle.apps.cli import exits

if TYPE_CHECKING:
    from treadle.models.embedded import Progress

BAR_WIDTH = 30


async def get(name: str) -> int:
    from treadle.models.embedded import fetch, known, located

    weights = known(name)
    here = located(weights)
    if here is not None:
        print(f"{weights.title} is here already: {here}")
        return exits.DONE
    print(f"Fetching {weights.title}, {_size(weights.bytes)}, {weights.license}.")
    bar = Bar(sys.stderr)
    try:
        path = await fetch(weights.name, bar.show)
    finally:
        bar.end()
    print(f"{weights.title} is here: {path}")
    print(f"From now on it is what `embedded` means. {weights.note}")
    return exits.DONE


class Bar:
    """A bar that redraws itself on a terminal, and a line for each tenth elsewhere."""

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._live = out.isatty()
        self._stage = ("", "")
        self._start = (0.0, 0)  # when this stage began, and with how much
        self._drawn = ""
        self._tenth = -1

    def show(self, now: Progress) -> None:
        """A resumed fetch begins above zero; checking, or another source, begins anew."""
        if now.phase == "done":
            return
        if (now.phase, now.source) != self._stage:
            self._stage = (now.phase, now.source)
            self._start, self._tenth = (self._clock(), now.done), -1
        if self._live:
            self._redraw(self._line(now))
        elif now.total and (tenth := now.done * 10 // now.total) > self._tenth:
            self._tenth = tenth
            print(self._line(now), file=self._out, flush=True)

    def end(self) -> None:
        if self._live and self._drawn:
            print(file=self._out, flush=True)
            self._drawn = ""

    def _redraw(self, line: str) -> None:
        if line != self._drawn:
            self._out.write("\r" + line.ljust(len(self._drawn)))
            self._out.flush()
            self._drawn = line

    def _line(self, now: Progress) -> str:
        share = min(1.0, now.done / now.total) if now.total else 0.0
        filled = round(share * BAR_WIDTH)
        bar = "#" * filled + "." * (BAR_WIDTH - filled)
        size = f"{_size(now.done)} of {_size(now.total)}"
        return f"{now.phase} [{bar}] {share:4.0%}  {size}{self._pace(now.done, now.total)}"

    def _pace(self, done: int, total: int) -> str:
        began, had = self._start
        seconds = self._clock() - began
        if seconds < 1 or done <= had:
            return ""
        speed = (done - had) / seconds
        left = (total - done) / speed
        return f", {_size(speed)}/s, {_duration(left)} left"


def _size(amount: float) -> str:
    return f"{amount / 1e9:.2f} GB" if amount >= 1e9 else f"{amount / 1e6:.0f} MB"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
