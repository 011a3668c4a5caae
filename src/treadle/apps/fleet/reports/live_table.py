"""Shows how the runs of a fleet progress: a table that is redrawn, or lines where there is no
terminal.

    12 of 200 done · 75% passed · 8 running, 180 queued · $1.23 · about 4m 10s left

The caller gives the records, the time and the output. Used by the command line.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TextIO

from treadle.apps.fleet.reports.report import make_report
from treadle.apps.fleet.reports.report_text import STATE_WORDS
from treadle.apps.fleet.run_record import FleetRun
from treadle.lib.text.bar_chart import fit_width
from treadle.lib.text.sanitize import escape_invisible, strip_escapes
from treadle.lib.text.text import format_dollars, format_duration, format_seconds

ACTIVE_ROWS = 12
APPROVE = "treadle fleet approve"  # what the user is told to do
_OPEN = ("waiting", "running", "parked", "queued")  # in this order
_CLEAR_LINE, _CLEAR_BELOW, _UP = "\x1b[K", "\x1b[J", "\x1b[{}A"


def estimate_seconds_left(runs: Sequence[FleetRun], now: float) -> float | None:
    """From the rate of the runs that ended; None while that is not known."""
    ended = sorted(run.ended for run in runs if run.ended is not None)
    starts = [run.started for run in runs if run.started is not None]
    left = sum(not run.has_ended for run in runs)
    if not left or len(ended) < 2 or not starts:
        return None
    rate = len(ended) / max(now - min(starts), 0.001)
    return left / rate


def format_progress(runs: Sequence[FleetRun], now: float) -> str:
    """All runs in one line."""
    report = make_report(runs, now)
    ended = sum(run.has_ended for run in runs)
    parts = [f"{ended:,} of {len(runs):,} ended"]
    if report.pass_rate.rate is not None:
        parts.append(f"{report.pass_rate.rate:.0%} passed")
    open_states = [
        f"{count:,} {STATE_WORDS[state]}"
        for state, count in report.states.items()
        if state in _OPEN
    ]
    parts += [", ".join(open_states)] * bool(open_states) + [format_dollars(report.cost)]
    left = estimate_seconds_left(runs, now)
    if left is not None:
        parts.append(f"about {format_duration(left)} left")
    return " · ".join(parts)


def format_table(
    runs: Sequence[FleetRun],
    now: float,
    width: int,
    rows: int = ACTIVE_ROWS,
    approve: str = APPROVE,
) -> list[str]:
    """The line of all runs, then the runs that have not ended."""
    active = [run for run in runs if run.state in _OPEN]
    active.sort(key=lambda run: (_OPEN.index(run.state), run.started or now))
    lines = [format_progress(runs, now)]
    lines += [f"  waits for an approval: {approve}"] * any(run.state == "waiting" for run in runs)
    lines += [_format_run(run, now) for run in active[:rows]]
    if len(active) > rows:
        lines.append(f"  and {len(active) - rows:,} more")
    return [fit_width(escape_invisible(line), width, "end").rstrip() for line in lines]


def _format_run(run: FleetRun, now: float) -> str:
    seconds = "" if run.started is None else format_seconds(max(0.0, now - run.started))
    prompt = " ".join(strip_escapes(run.task.prompt).split())
    attempts = f" (attempt {run.attempts})" if run.attempts > 1 else ""
    return f"  {run.id:24} {STATE_WORDS[run.state]}{attempts:3} {seconds:>7}  {prompt}"


def format_ended(run: FleetRun) -> str:
    """The line of a run that ended, for an output that is no terminal."""
    result = run.result
    problem = f": {' '.join(strip_escapes(run.error).split())}" if run.error else ""
    if result is None or run.state not in ("done", "failed"):  # a result may be of an earlier end
        return escape_invisible(f"{run.id}: {STATE_WORDS[run.state]}{problem}")
    outcome = "passed" if run.state == "done" and result.passed else result.cause or run.state
    cost = "" if result.cost is None else f", {format_dollars(result.cost)}"
    figures = f"{format_seconds(result.seconds)}{cost}"
    return escape_invisible(f"{run.id}: {outcome}, {figures}{problem}")


def format_open(run: FleetRun) -> str:
    """The line of a run that has not ended."""
    figures = f"{format_seconds(run.seconds)}, {format_dollars(run.cost or 0.0)} so far"
    return escape_invisible(f"{run.id}: {STATE_WORDS[run.state]}, {figures}")


class LiveTable:
    """Shows each new state of the runs on a terminal, or each run that ended as a line."""

    def __init__(self, out: TextIO, approve: str = APPROVE) -> None:
        self._out = out
        self._approve = approve
        self._is_terminal = out.isatty()
        self._drawn = 0
        self._reported: dict[str, str] = {}

    def update(self, runs: Sequence[FleetRun], now: float) -> None:
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            self._draw(format_table(runs, now, width, approve=self._approve))
            return
        for run in runs:
            is_news = run.has_ended or run.state == "waiting"
            if is_news and self._reported.get(run.id) != run.state:
                self._reported[run.id] = run.state
                waits = f"{run.id}: waits for an approval: {self._approve}"
                line = format_ended(run) if run.has_ended else waits
                print(line, file=self._out, flush=True)

    def finish(self, runs: Sequence[FleetRun], now: float) -> None:
        """The last state; a terminal keeps it as text."""
        self.update(runs, now)
        if not self._is_terminal:
            print(format_progress(runs, now), file=self._out, flush=True)

    def add_line(self, text: str) -> None:
        """A line above the table."""
        above = (_UP.format(self._drawn) if self._drawn else "") + _CLEAR_BELOW
        self._out.write((above if self._is_terminal else "") + escape_invisible(text) + "\n")
        self._out.flush()
        self._drawn = 0

    def _draw(self, lines: Sequence[str]) -> None:
        """Over the lines of the last time; what is left of them is cleared."""
        up = _UP.format(self._drawn) if self._drawn else ""
        empty = [""] * (self._drawn - len(lines))
        shown = "".join(f"{line}{_CLEAR_LINE}\n" for line in (*lines, *empty))
        back = _UP.format(len(empty)) if empty else ""
        self._out.write(up + shown + back)
        self._out.flush()
        self._drawn = len(lines)
