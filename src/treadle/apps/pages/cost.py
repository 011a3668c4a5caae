"""The cost page: sums, by day, by model, by folder, and a table of sessions."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import date, timedelta

from treadle.apps.conversation.costs import (
    CostReport,
    describe_thinking,
    fill_empty_days,
    format_cost,
    format_total,
)
from treadle.apps.pages.charts import (
    BarPart,
    BarRow,
    Column,
    draw_axis,
    draw_bar_list,
    draw_columns,
    draw_labels,
)
from treadle.apps.pages.elements import (
    escape_html,
    mark_current,
    render_section,
    render_sums,
    render_table,
)
from treadle.apps.pages.frame import render_page
from treadle.apps.pages.static_page import render_static_page
from treadle.core.transcript.usage import Usage
from treadle.lib.text.text import format_count, format_dollars, plural, shorten_home
from treadle.sessions.cost import CostTotal, format_local_day

PERIODS = (("7d", "7 days"), ("30d", "30 days"), ("90d", "90 days"), ("all", "All"))
MAX_ROWS = 50
MIN_DAYS = 7  # in the chart
_STYLES = ("m-1", "m-2", "m-3", "m-4")


def render_cost_page(report: CostReport, period: str) -> str:
    """The page for a period."""
    links = "".join(
        f'<a href="/cost?since={name}"{mark_current(name == period)}>{label}</a>'
        for name, label in PERIODS
    )
    body = (
        f'<section class="sub" aria-label="What and when"><h1>Cost</h1>'
        f'<span class="where not-small">the sessions of this machine</span><div class="acts">'
        f'<span class="seg" role="group" aria-label="Time">{links}</span></div></section>'
        f'<main class="cost-main" id="cost">{render_cost_body(report)}</main>'
    )
    return render_page("Cost", "cost", "", body, "page", script="plain")


def render_cost_file(report: CostReport) -> str:
    """The page as one file."""
    since = f"since {format_local_day(report.since)}" if report.since is not None else "all time"
    now = time.strftime("%Y-%m-%d %H:%M")
    body = (
        f'<header class="sub"><h1>Treadle costs</h1><span class="where">{since}; as of {now}; '
        f"{format_total(report.total, report.thinking_cost)}</span></header>"
        f'<main class="cost-main">{render_cost_body(report, has_links=False)}</main>'
    )
    return render_static_page("Treadle costs", body)


def render_cost_body(report: CostReport, *, has_links: bool = True) -> str:
    """The figures and plots that the report has, without the frame of the page."""
    if not report.total.calls:
        return "<p>There are no model calls in this time.</p>"
    groups = report.groups
    bars = _render_models(report) if "model" in groups else ""
    bars += _render_folders(report) if "project" in groups else ""
    return (
        _render_sums(report)
        + (_render_days(report) if "day" in groups else "")
        + (f'<div class="two">{bars}</div>' if bars else "")
        + (_render_sessions(report, has_links=has_links) if "session" in groups else "")
    )


def _render_sums(report: CostReport) -> str:
    total, usage = report.total, report.total.usage
    thinking = describe_thinking(usage, report.thinking_cost).strip(" ()")
    unknown = f"+ unknown for {plural(total.unpriced_calls, 'call')} without a price"
    rows = (
        ("Cost in USD", format_dollars(usage.cost or 0.0), unknown if total.unpriced_calls else ""),
        ("Model calls", f"{total.calls:,}", ""),
        ("Tokens in", format_count(usage.total_input), _describe_cache(usage)),
        ("Tokens out", format_count(usage.output), thinking),
    )
    return render_sums(rows)


def _describe_cache(usage: Usage) -> str:
    if not usage.total_input:
        return ""
    return f"{usage.cache_read / usage.total_input:.0%} from the cache"


def _render_days(report: CostReport) -> str:
    days = _add_earlier_days(fill_empty_days(report.groups["day"], report.since))
    is_priced = any(day.cost for day in days)
    columns = [
        Column(
            (BarPart(_value(day, is_priced), "m-1"),),
            title=f"{day.key}: {format_cost(day)}, {plural(day.calls, 'call')}",
        )
        for day in days
    ]
    top = max(_value(day, is_priced) for day in days)
    label = f"{'Cost' if is_priced else 'Tokens'} by day, {days[0].key} to {days[-1].key}"
    highest = format_dollars(top) if is_priced else format_count(int(top))
    chart = draw_columns(columns, 176, label) + draw_axis([(10, highest), (175, "0")], 176)
    names = draw_labels([day.key[5:] for day in days])
    caption = f"{'cost' if is_priced else 'tokens'}, {days[0].key} to {days[-1].key}"
    return render_section("d", "By day", f'<div class="with-axis">{chart}{names}</div>', caption)


def _add_earlier_days(days: Sequence[CostTotal]) -> list[CostTotal]:
    """At least a week, so that one day is not as wide as the page."""
    first, missing = date.fromisoformat(days[0].key), MIN_DAYS - len(days)
    earlier = [first - timedelta(days=number) for number in range(missing, 0, -1)]
    return [*(CostTotal(day.isoformat()) for day in earlier), *days]


def _value(total: CostTotal, is_priced: bool) -> float:
    return (total.cost or 0.0) if is_priced else float(total.usage.total)


def _render_models(report: CostReport) -> str:
    return _render_bars("m", "By model", report.groups["model"], {})


def _render_folders(report: CostReport) -> str:
    folders = report.groups["project"]
    names = {one.key: shorten_home(one.key) or "(none)" for one in folders}
    return _render_bars("f", "By folder", folders, names)


def _render_bars(
    name: str, title: str, totals: Sequence[CostTotal], names: Mapping[str, str]
) -> str:
    is_priced = any(one.cost for one in totals)
    top = max(_value(one, is_priced) for one in totals) or 1.0
    rows = [
        BarRow(
            names.get(one.key, one.key),
            format_cost(one),
            _value(one, is_priced) / top,
            _STYLES[at % len(_STYLES)],
            f"{plural(one.calls, 'call')} · {format_count(one.usage.total_input)} in, "
            f"{_describe_cache(one.usage) or 'none from the cache'} · "
            f"{format_count(one.usage.output)} out",
        )
        for at, one in enumerate(totals[:MAX_ROWS])
    ]
    return render_section(name, title, draw_bar_list(rows))


def _render_sessions(report: CostReport, *, has_links: bool) -> str:
    totals = report.groups["session"]
    rows = []
    for one in totals[:MAX_ROWS]:
        usage, link = one.usage, escape_html(report.titles.get(one.key) or one.key)
        if has_links:
            link = f'<a href="/inspect/{escape_html(one.key)}">{link}</a>'
        cached = f"{usage.cache_read / (usage.total_input or 1):.0%}"
        sizes = format_count(usage.total_input), format_count(usage.output)
        rows.append((link, format_cost(one), f"{one.calls:,}", *sizes, cached))
    heads = ("Session", "Cost", "Calls", "In", "Out", "From cache")
    rest = len(totals) - len(rows)
    more = f"<p>{rest} more sessions are not listed</p>" if rest > 0 else ""
    table = render_table("Sessions by cost", heads, rows)
    return render_section("t", "By session", f"{table}{more}")
