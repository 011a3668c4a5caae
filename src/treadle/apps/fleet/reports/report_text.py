"""The report on a fleet for a terminal. report_page.py uses its words for numbers, too."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise

from treadle.apps.fleet.reports.report import (
    Distribution,
    FailureGroup,
    FleetReport,
    LabelGroup,
    PassRate,
)
from treadle.lib.text.bar_chart import ChartBar, render_bars
from treadle.lib.text.sanitize import escape_invisible, strip_escapes
from treadle.lib.text.text import (
    format_count,
    format_dollars,
    format_duration,
    format_seconds,
    plural,
    shorten_middle,
)

NAMED_RUNS = 5  # of a group of failures
EXAMPLE_CHARS = 200
STATE_WORDS = {
    "done": "done",
    "failed": "failed",
    "set_aside": "set aside",
    "cancelled": "cancelled",
    "running": "running",
    "waiting": "waiting for approval",
    "parked": "waiting for a time",
    "queued": "queued",
}


STATE_VERBS = {
    "done": "ended",
    "failed": "failed",
    "set_aside": "was set aside",
    "cancelled": "was cancelled",
}
DOLLARS, SECONDS = "${:,.{}f}", "{:.{}f}s"  # with as many digits as a scale needs


def format_report(report: FleetReport, width: int, *, plain: bool = False) -> list[str]:
    """Lines without escape sequences; `plain` is for terminals without Unicode."""
    if not report.runs:
        return ["no runs"]
    lines = format_summary(report)
    for label, groups in report.labels.items():
        bars = [_make_label_bar(group) for group in groups]
        lines += [
            "",
            f"pass rate by {label}",
            *render_bars(bars, width, ascii_only=plain, max_value=1.0),
        ]
    for title, distribution, format_value, template in (
        ("cost of a run", report.costs, format_dollars, DOLLARS),
        ("time of a run", report.seconds, format_seconds, SECONDS),
    ):
        if distribution is not None and distribution.highest > 0:
            bars = _make_bucket_bars(distribution, format_value, template)
            lines += ["", f"{title}: {format_figures(distribution, format_value)}"]
            lines += render_bars(bars, width, ascii_only=plain)
    if report.failures:
        lines += ["", "failures by cause"]
        errors = {run.id: run.error for run in report.runs}
        for group in report.failures:
            lines += _format_failure(group, errors)
    return [escape_invisible(line.rstrip()) for line in lines]


def format_summary(report: FleetReport) -> list[str]:
    """States, pass rate, cost and time, a line each."""
    states = [f"{count:,} {STATE_WORDS[state]}" for state, count in report.states.items()]
    lines = [f"{plural(len(report.runs), 'run')}: {', '.join(states)}"]
    lines.append(f"pass rate: {format_rate(report.pass_rate)}")
    unpriced = f" (that of {plural(report.unpriced, 'run')} is not known)" * bool(report.unpriced)
    lines.append(
        f"cost: {format_dollars(report.cost)}{unpriced}; {format_count(report.tokens)} tokens"
    )
    if report.began is not None and report.ended is not None:
        lines.append(f"took {format_duration(report.ended - report.began)}")
    return lines


def format_rate(rate: PassRate) -> str:
    """`75.0% (30 of 40; 95% interval 60% to 86%)`."""
    if rate.rate is None:
        return "no run has passed or failed"
    interval = f"95% interval {rate.low:.0%} to {rate.high:.0%}"
    return f"{rate.rate:.1%} ({rate.passed:,} of {rate.judged:,}; {interval})"


def format_figures(found: Distribution, format_value: Callable[[float], str]) -> str:
    names = {"median": found.median, "90% below": found.p90, "highest": found.highest}
    return ", ".join(f"{name} {format_value(value)}" for name, value in names.items())


def format_ranges(
    found: Distribution, format_value: Callable[[float], str], template: str
) -> list[str]:
    """`$0.10 to $0.20` of each bucket; with more digits where two bounds would look the same."""
    bounds = [*(bucket.low for bucket in found.buckets), found.buckets[-1].high]
    texts = [format_value(bound) for bound in bounds]
    if len({*texts}) < len(texts):
        step = bounds[1] - bounds[0]
        digits = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 2
        texts = [template.format(bound, digits) for bound in bounds]
    return [f"{low} to {high}" for low, high in pairwise(texts)]


def _make_bucket_bars(
    found: Distribution, format_value: Callable[[float], str], template: str
) -> list[ChartBar]:
    used = next(n for n, bucket in enumerate(found.buckets) if bucket.count)
    ranges = format_ranges(found, format_value, template)
    return [
        ChartBar(text, float(bucket.count), f"{bucket.count:,}")
        for text, bucket in zip(ranges[used:], found.buckets[used:], strict=True)
    ]


def _make_label_bar(group: LabelGroup) -> ChartBar:
    rate = group.pass_rate
    text = "not ended" if rate.rate is None else f"{rate.rate:.0%} ({rate.passed} of {rate.judged})"
    figures = f"{format_dollars(group.cost):>8} {format_seconds(group.median_seconds):>7}"
    return ChartBar(strip_escapes(group.value) or "(none)", rate.rate, f"{text}  {figures}")


def _format_failure(group: FailureGroup, errors: Mapping[str, str]) -> list[str]:
    """The runs that are named, and what each of them says; once what several say."""
    named = group.runs[:NAMED_RUNS]
    more = f", and {len(group.runs) - NAMED_RUNS} more" if len(group.runs) > NAMED_RUNS else ""
    lines = [f"  {group.cause}: {plural(len(group.runs), 'run')} ({', '.join(named)}{more})"]
    texts: dict[str, list[str]] = {}
    for run in named:
        text = shorten_middle(strip_escapes(errors[run]), EXAMPLE_CHARS)
        texts.setdefault(text, []).append(run)
    for text, runs in texts.items():
        if text:
            lines.append(f"    {', '.join(runs)}: {text}" if len(texts) > 1 else f"    {text}")
    return lines
