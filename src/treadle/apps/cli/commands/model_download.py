"""`treadle models get`: an embedded model comes over the network, and the person sees how far.

A progress line and nothing else: what is fetched, from where, and whether it is whole is decided
in treadle.models.embedded.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from treadle.apps.cli import exit_codes

if TYPE_CHECKING:
    from treadle.models.embedded import DownloadProgress

BAR_WIDTH = 30


async def download_model(name: str) -> int:
    from treadle.models.embedded import download_weights, find_weights, locate_weights

    weights = find_weights(name)
    here = locate_weights(weights)
    if here is not None:
        print(f"{weights.title} is here already: {here}")
        return exit_codes.SUCCESS
    print(f"Fetching {weights.title}, {_format_size(weights.size)}, {weights.license}.")
    bar = ProgressBar(sys.stderr)
    try:
        path = await download_weights(weights.name, bar.update)
    finally:
        bar.finish()
    print(f"{weights.title} is here: {path}")
    print(f"From now on it is what `embedded` means. {weights.note}")
    return exit_codes.SUCCESS


class ProgressBar:
    """A bar that redraws itself on a terminal, and a line for each tenth elsewhere."""

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._is_terminal = out.isatty()
        self._stage = ("", "")
        self._start = (0.0, 0)  # when this stage began, and with how much
        self._last_line = ""
        self._tenth = -1

    def update(self, progress: DownloadProgress) -> None:
        """A resumed fetch begins above zero; checking, or another source, begins anew."""
        if progress.phase == "done":
            return
        if (progress.phase, progress.source) != self._stage:
            self._stage = (progress.phase, progress.source)
            self._start, self._tenth = (self._clock(), progress.done), -1
        if self._is_terminal:
            self._redraw(self._format_line(progress))
        elif progress.total and (tenth := progress.done * 10 // progress.total) > self._tenth:
            self._tenth = tenth
            print(self._format_line(progress), file=self._out, flush=True)

    def finish(self) -> None:
        if self._is_terminal and self._last_line:
            print(file=self._out, flush=True)
            self._last_line = ""

    def _redraw(self, line: str) -> None:
        if line != self._last_line:
            self._out.write("\r" + line.ljust(len(self._last_line)))
            self._out.flush()
            self._last_line = line

    def _format_line(self, progress: DownloadProgress) -> str:
        share = min(1.0, progress.done / progress.total) if progress.total else 0.0
        filled = round(share * BAR_WIDTH)
        bar = "#" * filled + "." * (BAR_WIDTH - filled)
        size = f"{_format_size(progress.done)} of {_format_size(progress.total)}"
        return f"{progress.phase} [{bar}] {share:4.0%}  {size}{self._format_speed(progress.done, progress.total)}"

    def _format_speed(self, done: int, total: int) -> str:
        began, had = self._start
        seconds = self._clock() - began
        if seconds < 1 or done <= had:
            return ""
        speed = (done - had) / seconds
        left = (total - done) / speed
        return f", {_format_size(speed)}/s, {_format_duration(left)} left"


def _format_size(amount: float) -> str:
    return f"{amount / 1e9:.2f} GB" if amount >= 1e9 else f"{amount / 1e6:.0f} MB"


def _format_duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
