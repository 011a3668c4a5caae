"""The report on the runs of a fleet, as a value: pass rates, distributions, failures by cause.

    make_report(runs, now) -> FleetReport

Pure. Shown by report_text.py (terminal) and report_page.py (page); as JSON it is the value itself.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from treadle.apps.fleet.run_record import FleetRun, RunState, describe_check

MAX_BUCKETS = 12
MAX_LABEL_VALUES = 40  # of one label; the rest is one row
OTHER_VALUES = "(others)"
MODEL_LABEL = "model"
PROMPT_CHARS = 120
ERROR_CHARS = 2_000
Z_95 = 1.96
STATE_ORDER: tuple[RunState, ...] = (
    "done",
    "failed",
    "set_aside",
    "cancelled",
    "running",
    "waiting",
    "parked",
    "queued",
)


class PassRate(msgspec.Struct, frozen=True):
    """How many runs passed of those that ended and were not cancelled; `low` and `high` are the
    bounds of the 95 % interval (Wilson)."""

    passed: int
    judged: int
    rate: float | None
    low: float
    high: float


class Bucket(msgspec.Struct, frozen=True):
    """How many values are from `low` up to, and without, `high`."""

    low: float
    high: float
    count: int


class Distribution(msgspec.Struct, frozen=True):
    """Of seconds or USD, over the runs that ended."""

    count: int
    total: float
    mean: float
    median: float
    p90: float
    highest: float
    buckets: tuple[Bucket, ...]


class LabelGroup(msgspec.Struct, frozen=True):
    """The runs with one value of a label."""

    value: str
    runs: int
    pass_rate: PassRate
    cost: float
    median_seconds: float


class FailureGroup(msgspec.Struct, frozen=True):
    """The runs that failed for one cause; `example` is the message of the first one."""

    cause: str
    runs: tuple[str, ...]
    example: str


class ReportRun(msgspec.Struct, frozen=True):
    """One run. `passed` is None while it is not decided. `session` is the id of its log."""

    id: str
    state: RunState
    passed: bool | None
    cause: str
    prompt: str
    model: str
    labels: dict[str, str]
    cost: float | None
    seconds: float | None
    tokens: int
    attempts: int
    session: str
    error: str


class FleetReport(msgspec.Struct, frozen=True):
    """`cost` is that of all runs with a known price; `unpriced` is the number of the others."""

    generated: float
    states: dict[str, int]
    pass_rate: PassRate
    cost: float
    unpriced: int
    tokens: int
    seconds: Distribution | None
    costs: Distribution | None
    labels: dict[str, tuple[LabelGroup, ...]]
    failures: tuple[FailureGroup, ...]
    runs: tuple[ReportRun, ...]
    began: float | None = None
    ended: float | None = None  # None while a run is not at its end


def make_report(runs: Iterable[FleetRun], now: float) -> FleetReport:
    """The report as of `now`, in seconds since 1970."""
    all_runs = list(runs)
    rows = [_make_row(run) for run in all_runs]
    states = {state: sum(row.state == state for row in rows) for state in STATE_ORDER}
    times = [run.ended for run in all_runs if run.ended is not None]
    is_over = all(run.has_ended for run in all_runs)
    ended = [row for row in rows if row.seconds is not None]
    return FleetReport(
        generated=now,
        states={state: count for state, count in states.items() if count},
        pass_rate=compute_pass_rate(rows),
        cost=sum(row.cost or 0.0 for row in rows),
        unpriced=sum(row.cost is None and row.passed is not None for row in rows),
        tokens=sum(row.tokens for row in rows),
        seconds=make_distribution([row.seconds for row in ended if row.seconds is not None]),
        costs=make_distribution([row.cost for row in ended if row.cost is not None]),
        labels=_group_by_labels(rows),
        failures=_group_failures(rows),
        runs=tuple(rows),
        began=min((run.created for run in all_runs), default=None),
        ended=max(times, default=None) if is_over else None,
    )


def _make_row(run: FleetRun) -> ReportRun:
    result, cause = run.result, ""
    passed: bool | None = None
    if run.has_ended and run.state != "cancelled":
        passed = run.state == "done" and result is not None and result.passed
        cause = "" if passed else (result.cause if result is not None else "") or _name_cause(run)
    has_result = run.has_ended and result is not None
    return ReportRun(
        id=run.id,
        state=run.state,
        passed=passed,
        cause=cause,
        prompt=" ".join(run.task.prompt.split())[:PROMPT_CHARS],
        model=run.task.model or "",
        labels=run.task.labels,
        cost=_find_cost(run),
        seconds=result.seconds if has_result and result is not None else None,
        tokens=result.usage.total if result is not None else 0,
        attempts=run.all_attempts,
        session=run.session,
        error=_describe_error(run) if passed is False else "",
    )


def _find_cost(run: FleetRun) -> float | None:
    """That of the result once there is one; until then, what is known so far."""
    if run.result is not None and (run.state in ("done", "failed") or run.cost is None):
        return run.result.cost
    return run.cost if run.cost is not None or run.has_ended else 0.0


def _name_cause(run: FleetRun) -> str:
    return "set_aside" if run.state == "set_aside" else "error"


def _describe_error(run: FleetRun) -> str:
    """What a failed check printed follows; without any error, the last words of the agent do."""
    if run.result is None:
        return run.error[-ERROR_CHARS:]
    check = run.result.check
    if run.result.cause != "check_failed" or check is None:
        return (run.error or run.result.text)[-ERROR_CHARS:]
    return "\n".join(filter(None, (describe_check(check), check.output[-ERROR_CHARS:].strip())))


# --- figures -------------------------------------------------------------------------------


def compute_pass_rate(rows: Sequence[ReportRun]) -> PassRate:
    judged = sum(row.passed is not None for row in rows)
    passed = sum(bool(row.passed) for row in rows)
    if not judged:
        return PassRate(0, 0, None, 0.0, 1.0)
    rate, square = passed / judged, Z_95**2
    middle = (rate + square / (2 * judged)) / (1 + square / judged)
    spread = Z_95 * math.sqrt(rate * (1 - rate) / judged + square / (4 * judged**2))
    spread /= 1 + square / judged
    return PassRate(passed, judged, rate, max(0.0, middle - spread), min(1.0, middle + spread))


def make_distribution(values: Sequence[float]) -> Distribution | None:
    """None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return Distribution(
        count=len(ordered),
        total=sum(ordered),
        mean=sum(ordered) / len(ordered),
        median=find_quantile(ordered, 0.5),
        p90=find_quantile(ordered, 0.9),
        highest=ordered[-1],
        buckets=_make_buckets(ordered),
    )


def find_quantile(ordered: Sequence[float], share: float) -> float:
    """Between two values if there is no value at this place."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _make_buckets(ordered: Sequence[float]) -> tuple[Bucket, ...]:
    """From zero, in steps of 1, 2 or 5 times a power of ten."""
    highest = ordered[-1]
    if highest <= 0:
        return (Bucket(0.0, 0.0, len(ordered)),)
    rough = highest / MAX_BUCKETS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    counts = [0] * (math.floor(highest / step) + 1)
    for value in ordered:
        counts[min(int(value / step), len(counts) - 1)] += 1
    return tuple(Bucket(n * step, (n + 1) * step, count) for n, count in enumerate(counts))


# --- groups --------------------------------------------------------------------------------


def _group_by_labels(rows: Sequence[ReportRun]) -> dict[str, tuple[LabelGroup, ...]]:
    """For each label its values, the most frequent first; the model is a label, too."""
    groups: dict[str, dict[str, list[ReportRun]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        labels = {MODEL_LABEL: row.model, **row.labels} if row.model else row.labels
        for label, value in labels.items():
            groups[label][value].append(row)
    return {label: _make_label_groups(values) for label, values in sorted(groups.items())}


def _make_label_groups(values: dict[str, list[ReportRun]]) -> tuple[LabelGroup, ...]:
    ordered = sorted(values.items(), key=lambda one: (-len(one[1]), one[0]))
    if len(ordered) > MAX_LABEL_VALUES:
        rest = [row for _, rows in ordered[MAX_LABEL_VALUES - 1 :] for row in rows]
        ordered = [*ordered[: MAX_LABEL_VALUES - 1], (OTHER_VALUES, rest)]
    return tuple(_make_label_group(value, rows) for value, rows in ordered)


def _make_label_group(value: str, rows: Sequence[ReportRun]) -> LabelGroup:
    seconds = make_distribution([row.seconds for row in rows if row.seconds is not None])
    return LabelGroup(
        value=value,
        runs=len(rows),
        pass_rate=compute_pass_rate(rows),
        cost=sum(row.cost or 0.0 for row in rows),
        median_seconds=seconds.median if seconds is not None else 0.0,
    )


def _group_failures(rows: Sequence[ReportRun]) -> tuple[FailureGroup, ...]:
    """The largest group first."""
    groups: dict[str, list[ReportRun]] = defaultdict(list)
    for row in rows:
        if row.passed is False:
            groups[row.cause].append(row)
    ordered = sorted(groups.items(), key=lambda one: (-len(one[1]), one[0]))
    return tuple(
        FailureGroup(cause, tuple(row.id for row in failed), failed[0].error)
        for cause, failed in ordered
    )
