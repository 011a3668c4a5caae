"""What a task will probably cost, and how long it will take: from the user's own sessions.

Those whose first message has the same words, in the same folder, with the same model count most.
A forecast is a middle and a range; with few sessions it says so, with almost none there is none.
Reads the indexes of the library, no log. Used by `-p --verbose`, `--max-cost auto`, `/forecast`,
`/cost`, and by the hosts while the first message is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from treadle.lib.text.text import format_dollars, plural
from treadle.sessions.cost import CostTotal, read_costs
from treadle.sessions.library import Library

MIN_SAMPLES = 3  # fewer are no forecast
FEW_SAMPLES = 8  # fewer are named as few
MAX_SAMPLES = 30
MIN_LIMIT = 0.10  # USD, for `--max-cost auto`
LIMIT_FACTOR = 2.0  # of the upper end
_WORD = re.compile(r"\w{3,}")


class Spread(msgspec.Struct, frozen=True):
    """Eight of ten are between `low` and `high`."""

    low: float
    middle: float
    high: float


class Forecast(msgspec.Struct, frozen=True):
    """`cost` in USD and `seconds` of one turn; None if too few sessions are known."""

    samples: int
    cost: Spread | None = None
    seconds: Spread | None = None

    @property
    def max_cost(self) -> float | None:
        """A limit that only an unusual task reaches; None if too little is known."""
        if self.cost is None or self.samples < FEW_SAMPLES:
            return None
        return max(MIN_LIMIT, round(self.cost.high * LIMIT_FACTOR, 2))

    @property
    def short(self) -> str:
        """A few words for a status line; "" if too little is known."""
        if self.cost is None:
            return ""
        middle, low, high = map(format_dollars, (self.cost.middle, self.cost.low, self.cost.high))
        few = f", a guess from {self.samples} tasks" if self.samples < FEW_SAMPLES else ""
        time = "" if self.seconds is None else f", {_format_time(self.seconds.middle)}"
        return f"about {middle} ({low}–{high}){time}{few}"

    def __str__(self) -> str:
        known = plural(self.samples, "earlier task")
        if self.cost is None:
            return f"no forecast: only {known} with a known cost"
        few = f"only {known}: a guess" if self.samples < FEW_SAMPLES else f"from {known}"
        text = _format_spread(self.cost, format_dollars)
        if self.seconds is not None:
            text += f", {_format_spread(self.seconds, _format_time)}"
        return f"{text}, {few}"


def _format_spread(spread: Spread, format_one: Callable[[float], str]) -> str:
    middle, low, high = map(format_one, (spread.middle, spread.low, spread.high))
    return (
        f"about {middle}" if low == middle == high else f"about {middle} (mostly {low} to {high})"
    )


class _PastTask(msgspec.Struct, frozen=True):
    words: set[str]
    updated: float
    cost: float
    seconds: float | None
    is_same_folder: bool
    is_same_model: bool

    def score(self, words: set[str]) -> float:
        alike = len(words & self.words) / len(words | self.words) if words | self.words else 0.0
        return 2 * alike + self.is_same_folder + self.is_same_model


def make_forecast(library: Library, prompt: str, folder: Path, model: str) -> Forecast:
    return PastTasks(library, folder, model).forecast(prompt)


class PastTasks:
    """What is known, read once: from then on a forecast reads no file."""

    def __init__(self, library: Library, folder: Path, model: str) -> None:
        self._tasks = _list_tasks(library, str(folder.resolve()), model)
        alike = [one for one in self._tasks if one.is_same_model]
        if len(alike) >= FEW_SAMPLES:
            self._tasks = alike

    def forecast(self, prompt: str) -> Forecast:
        words = _find_words(prompt)
        ordered = sorted(self._tasks, key=lambda one: (one.score(words), one.updated), reverse=True)
        chosen = ordered[:MAX_SAMPLES]
        if len(chosen) < MIN_SAMPLES:
            return Forecast(len(chosen))
        seconds = [one.seconds for one in chosen if one.seconds is not None]
        times = _measure(seconds) if len(seconds) >= MIN_SAMPLES else None
        return Forecast(len(chosen), _measure([one.cost for one in chosen]), times)


def _list_tasks(library: Library, folder: str, model: str) -> list[_PastTask]:
    totals: dict[str, CostTotal] = {}
    models: dict[str, set[str]] = {}
    for bucket in read_costs(library):
        total = totals.get(bucket.session, CostTotal(bucket.session))
        totals[bucket.session] = total.add(bucket)
        models.setdefault(bucket.session, set()).add(bucket.model)
    tasks = []
    for summary in library.list_summaries():
        found = totals.get(summary.id)
        if found is None or not summary.turns or found.unpriced_calls:
            continue
        # How long a user thought between two turns is no time of the task.
        is_one_run = summary.turns == 1 and summary.origin == "print"
        seconds = summary.updated - summary.created if is_one_run else None
        cost = (found.cost or 0.0) / summary.turns
        is_same = summary.folder == folder, model in models[summary.id]
        words = _find_words(summary.title)
        tasks.append(_PastTask(words, summary.updated, cost, seconds, *is_same))
    return tasks


def _find_words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))


def _measure(values: Sequence[float]) -> Spread:
    ordered = sorted(values)
    last = len(ordered) - 1
    return Spread(*(ordered[round(last * share)] for share in (0.1, 0.5, 0.9)))


def _format_time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
