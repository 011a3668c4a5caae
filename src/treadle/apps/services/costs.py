"""What was spent, as numbers and as text: the same for every host.

    report   money, tokens and cache of all sessions, by model, session, day or project
    lines    that as text with bars, as wide as the terminal (cost_html.py: as a page)

The numbers come from treadle.sessions.cost. What has no known price is said to be unknown and
never counted as nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

import msgspec

from treadle.core.transcript.usage import Usage
from treadle.observe.bar_chart import ChartBar, TruncateSide, render_bars
from treadle.sessions.cost import (
    CostBucket,
    CostTotal,
    GroupBy,
    format_local_day,
    group_costs,
    read_costs,
    sum_costs,
)
from treadle.sessions.library import Library

MAX_ROWS = 20
MAX_DAYS = 31
ALL_GROUPINGS: tuple[GroupBy, ...] = ("day", "model", "project", "session")


class CostReport(msgspec.Struct, frozen=True):
    """The sums from `since` on. `titles` names sessions by what was asked in them."""

    since: float | None
    total: CostTotal
    groups: dict[GroupBy, list[CostTotal]]
    titles: dict[str, str] = {}


class CostTable(msgspec.Struct, frozen=True):
    """One table of a report, ready to be drawn."""

    by: GroupBy
    unit: str
    rows: list[ChartBar]
    omitted: list[str]


def load_cost_report(
    by: Sequence[GroupBy] = ALL_GROUPINGS,
    *,
    since: float | None = None,
    folder: Path | None = None,
    library: Library | None = None,
) -> CostReport:
    """What all sessions of this machine spent, or those of one folder."""
    library = library or Library()
    spent = read_costs(library, since=since, folder=folder)
    titles: dict[str, str] = {}
    if "session" in by and spent:
        titles = {one.id: one.title for one in library.list_summaries(folder=folder)}
    return CostReport(since, sum_costs(spent), {key: group_costs(spent, key) for key in by}, titles)


def load_session_cost(session_id: str, library: Library | None = None) -> list[CostTotal]:
    """What one session and its child agents spent so far, by model."""
    return group_costs(_filter_session(session_id, read_costs(library or Library())), "model")


def _filter_session(session_id: str, spent: Sequence[CostBucket]) -> list[CostBucket]:
    return [expense for expense in spent if expense.session == session_id]


def report_to_dict(report: CostReport) -> dict[str, object]:
    """For JSON. `cost` is what is known of it in USD, null if nothing is; `unpriced_calls` are the
    calls whose price is not in it."""
    return {
        "version": 1,
        "since": report.since,
        "total": _total_to_dict(report.total),
        **{
            f"by_{key}": [_total_to_dict(one) for one in sums]
            for key, sums in report.groups.items()
        },
    }


def _total_to_dict(one: CostTotal) -> dict[str, object]:
    used = one.usage
    return {
        "key": one.key,
        "cost": one.cost,
        "calls": one.calls,
        "unpriced_calls": one.unpriced_calls,
        "input": used.input,
        "output": used.output,
        "cache_read": used.cache_read,
        "cache_write": used.cache_write,
        "reasoning": used.reasoning,
    }


# --- as text ---------------------------------------------------------------------------------


def format_report(report: CostReport, width: int, *, plain: bool = False) -> list[str]:
    """The report for a terminal."""
    if not report.total.calls:
        return [
            "nothing was spent"
            + (f" since {format_local_day(report.since)}" if report.since else "")
        ]
    text = [format_total(report.total)]
    for part in make_tables(report):
        cut: TruncateSide = "end" if part.by == "session" else "front"
        drawn = render_bars(part.rows, width, truncate_side=cut, ascii_only=plain)
        text += ["", f"by {part.by}, bars in {part.unit}", *drawn, *part.omitted]
    return text


def format_total(one: CostTotal) -> str:
    """A sum in one line."""
    used = one.usage
    cache = ""
    if used.cache_read or used.cache_write:
        read, written = _format_share(used.cache_read, used), _format_share(used.cache_write, used)
        cache = f" ({read} read from the cache, {written} written to it)"
    counted = f"{format_count(used.total_input)} tokens in{cache}, {format_count(used.output)} out"
    calls = f"{one.calls:,} model call{'s' if one.calls != 1 else ''}"
    return f"{format_cost(one)} USD, {calls}, {counted}"


def format_cost(one: CostTotal) -> str:
    """`1.23`, `unknown`, or `1.23 + unknown` where only a part has a known price."""
    cost = one.cost
    if cost is None:
        return "unknown"
    known = f"{cost:.4f}" if 0 < cost < 0.1 else f"{cost:,.2f}"
    return f"{known} + unknown" if one.unpriced_calls else known


def format_count(tokens: int) -> str:
    """`950`, `12.3k`, `4.5M`."""
    if tokens < 1_000:
        return str(tokens)
    return f"{tokens / 1_000:.1f}k" if tokens < 999_950 else f"{tokens / 1e6:.1f}M"


def _format_share(part: int, used: Usage) -> str:
    return f"{part / used.total_input:.0%}" if used.total_input else "0%"


def make_tables(report: CostReport) -> list[CostTable]:
    """The report as rows with bars; what is too much for them is summed up in a line."""
    return [_make_table(by, sums, report) for by, sums in report.groups.items()]


def _make_table(by: GroupBy, sums: list[CostTotal], report: CostReport) -> CostTable:
    if by == "day":
        sums = fill_empty_days(sums, report.since)
        older, shown = sums[:-MAX_DAYS], sums[-MAX_DAYS:]
        left = [f"and {len(older)} earlier days: {_format_omitted(older)} USD"] if older else []
    else:
        shown, rest = sums[:MAX_ROWS], sums[MAX_ROWS:]
        left = [f"and {len(rest)} more: {_format_omitted(rest)} USD"] if rest else []
    # Without any price the bars show tokens: what cannot be told in money can be told in work.
    priced = any(one.cost for one in shown)
    rows = [
        ChartBar(
            _format_label(by, one, report),
            (one.cost if priced else float(one.usage.total)) if one.calls else 0.0,
            _format_numbers(one) if one.calls else "",
        )
        for one in shown
    ]
    return CostTable(by, "USD" if priced else "tokens", rows, left)


def _format_label(by: GroupBy, one: CostTotal, report: CostReport) -> str:
    if by == "session":
        return f"{one.key} {report.titles.get(one.key, '')}".strip()[:48]
    if by == "project":
        home = str(Path.home())
        return one.key.replace(home, "~", 1) if one.key.startswith(home) else one.key or "(none)"
    return one.key


def _format_numbers(one: CostTotal) -> str:
    used = one.usage
    read = f" {_format_share(used.cache_read, used):>4} cached" if used.cache_read else " " * 12
    return f"{format_cost(one)}  {format_count(used.total_input):>6} in {format_count(used.output):>6} out{read}"


def _format_omitted(sums: Sequence[CostTotal]) -> str:
    cost, unpriced = (
        sum(one.usage.cost or 0.0 for one in sums),
        sum(one.unpriced_calls for one in sums),
    )
    calls = sum(one.calls for one in sums)
    return format_cost(CostTotal("", calls, unpriced, Usage(cost=cost)))


def fill_empty_days(sums: list[CostTotal], since: float | None) -> list[CostTotal]:
    """Days without spending as well, if that is a month at most: a gap says something too."""
    if not sums:
        return sums
    first, last = date.fromisoformat(sums[0].key), date.fromisoformat(format_local_day(time.time()))
    if since is not None:
        first = max(first, date.fromisoformat(format_local_day(since)))
    days = (last - first).days
    if not 0 <= days < MAX_DAYS:
        return sums
    known = {one.key: one for one in sums}
    names = [(first + timedelta(days=number)).isoformat() for number in range(days + 1)]
    return [known.get(name, CostTotal(name)) for name in names]
