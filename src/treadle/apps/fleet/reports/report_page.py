"""The report on a fleet as one HTML page with SVG plots; it has no scripts and loads nothing.

Numbers come from report.py, their words from report_text.py, frame and charts from apps/pages. Text
of tasks and models is escaped.
"""

from __future__ import annotations

import html
import time
from collections import Counter
from collections.abc import Callable, Mapping

from treadle.apps.fleet.reports.report import (
    Distribution,
    FailureGroup,
    FleetReport,
    LabelGroup,
    ReportRun,
)
from treadle.apps.fleet.reports.report_text import (
    DOLLARS,
    SECONDS,
    STATE_WORDS,
    format_figures,
    format_ranges,
    format_rate,
)
from treadle.apps.pages.charts import (
    BarPart,
    BarRow,
    Column,
    draw_axis,
    draw_bar_list,
    draw_columns,
    draw_key,
    draw_labels,
)
from treadle.apps.pages.elements import escape_html, render_section, render_sums, render_table
from treadle.apps.pages.static_page import render_static_page
from treadle.lib.text.text import (
    format_count,
    format_dollars,
    format_duration,
    format_seconds,
    plural,
)

MAX_RUNS = 2_000  # rows of the table; failed runs come first
PLOT_HEIGHT = 130
CLOSE_MARKS = 0.1  # of the width: two names have no room so near to each other
# The colour of a state, in the order in which states are shown, and the style of its tag.
_TAGS = {"good": "ok", "bad": "error", "run": "accent", "wait": "warn", "idle": ""}
_COLOURS = {"done": "good", "failed": "bad", "set_aside": "bad", "running": "run"}
_COLOURS |= {"waiting": "wait", "parked": "wait", "cancelled": "idle", "queued": "idle"}


def render_page(
    report: FleetReport, *, store: str = "", links: Mapping[str, str] | None = None
) -> str:
    """The page, as one file."""
    return render_static_page("Fleet report", render_report(report, store=store, links=links))


def render_report(
    report: FleetReport,
    *,
    store: str = "",
    links: Mapping[str, str] | None = None,
    top: str = "",
) -> str:
    """The report. `links` are pages of sessions by the ids of runs; `store` is the fleet's address,
    for the commands that open a run. `top` is HTML of the caller before the rest."""
    parts = [top, _render_sums(report), _render_states(report)]
    for at, (label, groups) in enumerate(report.labels.items()):
        bars = draw_bar_list([_make_bar(group) for group in groups])
        parts.append(render_section(f"l{at}", f"Pass rate by {escape_html(label)}", bars))
    parts += [_render_plots(report), _render_failures(report, links or {})]
    parts.append(_render_runs(report, store, links or {}))
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(report.generated))
    return (
        '<section class="sub" aria-label="What and when"><h1>Fleet report</h1>'
        f'<span class="where">as of {when}</span></section>'
        f'<main class="cost-main" id="main">{"".join(parts)}</main>'
    )


# --- summary -------------------------------------------------------------------------------


def _render_sums(report: FleetReport) -> str:
    rate = report.pass_rate
    share, detail = "–", format_rate(rate)
    if rate.rate is not None:
        share, _, detail = detail.partition(" ")
    unpriced = f"not known of {plural(report.unpriced, 'run')}" if report.unpriced else ""
    rows = [
        ("Passed", share, detail.strip("()")),
        ("Runs", f"{len(report.runs):,}", ""),
        ("Cost in USD", format_dollars(report.cost), unpriced),
        ("Tokens", format_count(report.tokens), ""),
    ]
    if report.began is not None and report.ended is not None:
        rows.append(("From start to end", format_duration(report.ended - report.began), ""))
    return render_sums(rows)


def _render_states(report: FleetReport) -> str:
    """Runs that passed and runs that did not are apart, also among those that are done."""
    order = list(_TAGS)
    counts = Counter(_name_outcome(run) for run in report.runs)
    found = sorted(counts.items(), key=lambda one: (order.index(one[0][1]), one[0]))
    bars, keys, left = "", "", 0.0
    for (name, colour), count in found:
        share = 100 * count / len(report.runs)
        place = f'x="{left:.2f}%" width="{share:.2f}%"'
        bars += f'<rect class="s-{colour}" {place} height="16"/>'
        keys += draw_key(f"s-{colour}", f"{count:,} {escape_html(name)}")
        left += share
    chart = f'<svg class="chart" height="16" aria-hidden="true">{bars}</svg>'
    return f'<section aria-label="States">{chart}<ul class="key">{keys}</ul></section>'


def _name_outcome(run: ReportRun) -> tuple[str, str]:
    """What the legend says of a run, and its colour."""
    if run.passed:
        return "passed", "good"
    if run.state == "done":
        return "did not pass", "bad"
    return STATE_WORDS[run.state], _COLOURS[run.state]


def _make_bar(group: LabelGroup) -> BarRow:
    """The pass rate, and its 95 % interval as a line."""
    rate = group.pass_rate
    detail = f"{rate.passed} of {rate.judged} passed · {format_dollars(group.cost)} · median "
    return BarRow(
        group.value or "(none)",
        "–" if rate.rate is None else f"{rate.rate:.0%}",
        rate.rate or 0.0,
        "s-good",
        detail + format_seconds(group.median_seconds),
        None if rate.rate is None else (rate.low, rate.high),
    )


def _render_failures(report: FleetReport, links: Mapping[str, str]) -> str:
    if not report.failures:
        return ""
    runs = {run.id: run for run in report.runs}
    groups = "".join(_render_failure(group, runs, links) for group in report.failures)
    return render_section("f", "Failures by cause", groups)


def _render_failure(
    group: FailureGroup, runs: Mapping[str, ReportRun], links: Mapping[str, str]
) -> str:
    names = ", ".join(_render_name(runs[name], links) for name in group.runs)
    example = f"<pre>{escape_html(group.example)}</pre>" if group.example.strip() else ""
    return (
        f'<details class="cause"><summary><span class="tag error">{escape_html(group.cause)}</span>'
        f" <small>{plural(len(group.runs), 'run')}</small></summary>"
        f"<div>{names}{example}</div></details>"
    )


def _render_name(run: ReportRun, links: Mapping[str, str]) -> str:
    name = f"<code>{escape_html(run.id)}</code>"
    link = links.get(run.id)
    return f'<a href="{html.escape(link)}">{name}</a>' if link else name


# --- plots ---------------------------------------------------------------------------------


def _render_plots(report: FleetReport) -> str:
    plots = [
        _render_histogram(name, title, found, format_value, template)
        for name, title, found, format_value, template in (
            ("c", "Cost of a run", report.costs, format_dollars, DOLLARS),
            ("s", "Time of a run", report.seconds, format_seconds, SECONDS),
        )
        if found is not None and found.highest > 0
    ]
    return f'<div class="two even">{"".join(plots)}</div>' if plots else ""


def _render_histogram(
    name: str, title: str, found: Distribution, format_value: Callable[[float], str], template: str
) -> str:
    """Columns of counts over a scale, with marks at the median and the 90 % quantile."""
    ranges = format_ranges(found, format_value, template)
    columns = [
        Column((BarPart(bucket.count, "m-1"),), title=f"{label}: {plural(bucket.count, 'run')}")
        for bucket, label in zip(found.buckets, ranges, strict=True)
    ]
    end = found.buckets[-1].high
    median, p90 = found.median / end, found.p90 / end
    marks = [(median, "median"), (p90, "90%")]
    if p90 - median < CLOSE_MARKS:
        marks = [(median, ""), (p90, "median, 90%")]
    chart = draw_columns(columns, PLOT_HEIGHT, title, marks=marks)
    most = max(bucket.count for bucket in found.buckets)
    axis = draw_axis([(10, f"{most:,}"), (PLOT_HEIGHT - 1, "0")], PLOT_HEIGHT)
    names = draw_labels([label.partition(" to ")[0] for label in ranges])
    content = f'<div class="with-axis">{chart}{axis}{names}</div>'
    return render_section(name, title, content, escape_html(format_figures(found, format_value)))


# --- runs ----------------------------------------------------------------------------------


def _render_runs(report: FleetReport, store: str, links: Mapping[str, str]) -> str:
    ordered = sorted(report.runs, key=lambda run: (run.passed is not False, run.passed is True))
    heads = ("Run", "Outcome", "Cost", "Time", "Tokens", "Attempts", "Session")
    rows = [_list_cells(run, links) for run in ordered[:MAX_RUNS]]
    table = render_table("Runs", heads, rows, texts=(0, 1, 6))
    left_out = len(ordered) - MAX_RUNS
    note = f"<p>{plural(left_out, 'run')} not shown</p>" if left_out > 0 else ""
    where = f" --store {store}" if store else ""
    command = f"<code>{escape_html(f'treadle fleet open RUN{where}')}</code>"
    caption = f"open, replay or fork the session of a run: {command}"
    return render_section("runs", "Runs", f"{table}{note}", caption)


def _list_cells(run: ReportRun, links: Mapping[str, str]) -> tuple[str, ...]:
    name, colour = _name_outcome(run)
    cause = f" <small>{escape_html(run.cause)}</small>" if run.cause else ""
    is_priced = bool(run.cost) or (run.passed is not None and run.cost is not None)
    return (
        f"{_render_name(run, links)}<br><small>{escape_html(run.prompt)}</small>",
        f'<span class="tag {_TAGS[colour]}">{escape_html(name)}</span>{cause}',
        format_dollars(run.cost or 0.0) if is_priced else "",
        "" if run.seconds is None else format_seconds(run.seconds),
        format_count(run.tokens) if run.tokens else "",
        str(run.attempts),
        f"<code>{escape_html(run.session)}</code>",
    )
