"""Shows the progress of a download. Used by embedded_setup.py."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from treadle.lib.text.text import format_bytes, format_duration

if TYPE_CHECKING:
    from treadle.models.embedded import DownloadProgress

BAR_WIDTH = 30


class ProgressBar:
    """A bar that is redrawn on a terminal; elsewhere one line for each 10 %."""

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._is_terminal = out.isatty()
        self._stage = ("", "")
        self._start = (0.0, 0)  # time and bytes at the start of this stage
        self._last_line = ""
        self._tenth = -1

    def update(self, progress: DownloadProgress) -> None:
        """A resumed download starts above zero; another phase or source starts a new stage."""
        if progress.phase == "done":
            return
        if (progress.phase, progress.source) != self._stage:
            self._stage = (progress.phase, progress.source)
            self._start, self._tenth = (self._clock(), progress.done), -1
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            self._redraw(self._format_line(progress, width)[:width])
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

    def _format_line(self, progress: DownloadProgress, width: int = 200) -> str:
        """The bar takes the room that the figures leave: a longer line could not be redrawn."""
        share = min(1.0, progress.done / progress.total) if progress.total else 0.0
        size = f"{format_bytes(progress.done)} of {format_bytes(progress.total)}"
        speed = self._format_speed(progress.done, progress.total)
        figures = f"{share:4.0%}  {size}{speed}"
        room = max(0, min(BAR_WIDTH, width - len(progress.phase) - len(figures) - 4))
        filled = round(share * room)
        bar = f"[{'#' * filled}{'.' * (room - filled)}] " if room else ""
        return f"{progress.phase} {bar}{figures}"

    def _format_speed(self, done: int, total: int) -> str:
        start_time, start_bytes = self._start
        seconds = self._clock() - start_time
        if seconds < 1 or done <= start_bytes:
            return ""
        speed = (done - start_bytes) / seconds
        return f", {format_bytes(speed)}/s, {format_duration((total - done) / speed)} left"
