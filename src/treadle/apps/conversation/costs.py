"""Cost reports, the same for every host.

    load_cost_report   cost, tokens and cache use of all sessions, by model, session, day, project,
                       purpose
    format_report      the report as text with bars, as wide as the terminal (HTML: pages/cost.py)

The numbers come from treadle.sessions.cost. A call without a known price is reported as unknown,
never as free.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

import msgspec

from treadle.core.transcript.usage import Usage
from treadle.lib.text.bar_chart import ChartBar, TruncateSide, render_bars
from treadle.lib.text.text import format_count, format_dollars, plural, shorten_home
from treadle.sessions.cost import (
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
ALL_GROUPINGS: tuple[GroupBy, ...] = ("day", "model", "project", "session", "purpose")


class CostReport(msgspec.Struct, frozen=True):
    """The costs from `since` on. `titles` maps session ids to titles; `thinking_cost` is the part
    of the total that is thinking, as far as the price is known."""

    since: float | None
    total: CostTotal
    groups: dict[GroupBy, list[CostTotal]]
    titles: dict[str, str] = {}
    thinking_cost: float = 0.0


class CostTable(msgspec.Struct, frozen=True):
    """One table of a report, formatted. `omitted` sums up the rows that are left out."""

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
    """The costs of all sessions of this machine, or of those of one folder."""
    library = library or Library()
    costs = read_costs(library, since=since, folder=folder)
    titles: dict[str, str] = {}
    if "session" in by and costs:
        titles = {summary.id: summary.title for summary in library.list_summaries(folder=folder)}
    groups = {key: group_costs(costs, key) for key in by}
    models = groups.get("model") or group_costs(costs, "model")
    return CostReport(since, sum_costs(costs), groups, titles, sum_thinking_cost(models))


def sum_thinking_cost(models: Sequence[CostTotal]) -> float:
    """What thinking cost, from totals by model; thinking without a known price is left out."""
    from treadle.models.catalog import compute_thinking_cost  # a large table

    return sum(compute_thinking_cost(total.key, total.usage) or 0.0 for total in models)


def load_session_cost(session_id: str, by: GroupBy = "model") -> list[CostTotal]:
    """The costs of one session and its subagents so far."""
    return group_costs(read_costs(Library(), sessions=[session_id]), by)


def list_purposes(session_id: str) -> list[tuple[str, str]]:
    """What the calls of a session were for, and their cost; empty if all were for the same."""
    totals = load_session_cost(session_id, "purpose")
    return [(total.key, format_cost(total)) for total in totals] if len(totals) > 1 else []


def report_to_dict(report: CostReport) -> dict[str, object]:
    """For JSON. `cost` is the known cost in USD, or null; it does not include `unpriced_calls`."""
    return {
        "version": 1,
        "since": report.since,
        "total": _total_to_dict(report.total),
        "thinking_cost": report.thinking_cost,
        **{f"by_{key}": list(map(_total_to_dict, sums)) for key, sums in report.groups.items()},
    }


def _total_to_dict(total: CostTotal) -> dict[str, object]:
    usage = total.usage
    return {
        "key": total.key,
        "cost": total.cost,
        "calls": total.calls,
        "unpriced_calls": total.unpriced_calls,
        "input": usage.input,
        "output": usage.output,
        "cache_read": usage.cache_read,
        "cache_write": usage.cache_write,
        "reasoning": usage.reasoning,
    }


# --- as text ---------------------------------------------------------------------------------


def format_report(report: CostReport, width: int, *, plain: bool = False) -> list[str]:
    """The report for a terminal."""
    if not report.total.calls:
        since = f" since {format_local_day(report.since)}" if report.since else ""
        return [f"no model calls{since}"]
    lines = [format_total(report.total, report.thinking_cost)]
    for table in make_tables(report):
        side: TruncateSide = "end" if table.by == "session" else "front"
        bars = render_bars(table.rows, width, truncate_side=side, ascii_only=plain)
        lines += ["", f"by {table.by}, bars in {table.unit}", *bars, *table.omitted]
    return lines


def format_total(total: CostTotal, thinking_cost: float = 0.0) -> str:
    """A total in one line."""
    usage = total.usage
    cache = ""
    if usage.cache_read or usage.cache_write:
        read = _format_share(usage.cache_read, usage)
        written = _format_share(usage.cache_write, usage)
        cache = f" ({read} read from the cache, {written} written to it)"
    tokens = f"{format_count(usage.total_input)} tokens in{cache}, {format_count(usage.output)} out"
    tokens += describe_thinking(usage, thinking_cost)
    return f"{format_cost(total)}, {plural(total.calls, 'model call')}, {tokens}"


def describe_thinking(usage: Usage, cost: float | None) -> str:
    """` (12k of it thinking, $0.18)`, or "" if the models did not think."""
    if not usage.reasoning:
        return ""
    price = f", {format_dollars(cost)}" if cost else ""
    return f" ({format_count(usage.reasoning)} of it thinking{price})"


def format_cost(total: CostTotal) -> str:
    """`$1.23`, `unknown`, or `$1.23 + unknown` if only some calls have a known price."""
    if total.cost is None:
        return "unknown"
    known = format_dollars(total.cost)
    return f"{known} + unknown" if total.unpriced_calls else known


def _format_share(part: int, usage: Usage) -> str:
    return f"{part / usage.total_input:.0%}" if usage.total_input else "0%"


def make_tables(report: CostReport) -> list[CostTable]:
    """The report as rows with bars; rows beyond the maximum are summed up in one line. One purpose
    alone tells nothing beside other tables."""
    groups = report.groups
    return [
        _make_table(by, sums, report)
        for by, sums in groups.items()
        if by != "purpose" or len(sums) > 1 or len(groups) == 1
    ]


def _make_table(by: GroupBy, sums: list[CostTotal], report: CostReport) -> CostTable:
    if by == "day":
        sums = fill_empty_days(sums, report.since)
        older, shown = sums[:-MAX_DAYS], sums[-MAX_DAYS:]
        omitted = [f"{plural(len(older), 'earlier day')}: {_format_omitted(older)}"]
    else:
        shown, older = sums[:MAX_ROWS], sums[MAX_ROWS:]
        omitted = [f"{len(older)} more: {_format_omitted(older)}"]
    priced = any(total.cost for total in shown)  # else the bars show tokens
    rows = [_make_row(_format_label(by, total, report), total, priced) for total in shown]
    return CostTable(by, "USD" if priced else "tokens", rows, omitted if older else [])


def _make_row(label: str, total: CostTotal, priced: bool) -> ChartBar:
    if not total.calls:
        return ChartBar(label, 0.0, "")
    usage, cost = total.usage, format_cost(total)
    cached = f" {_format_share(usage.cache_read, usage):>4} cached" if usage.cache_read else ""
    sizes = f"{format_count(usage.total_input):>6} in {format_count(usage.output):>6} out"
    tokens = f"{sizes}{cached:12}"
    value = total.cost if priced else float(usage.total)
    return ChartBar(label, value, f"{cost}  {tokens}")


def _format_label(by: GroupBy, total: CostTotal, report: CostReport) -> str:
    if by == "session":
        return f"{total.key} {report.titles.get(total.key, '')}".strip()[:48]
    if by == "project":
        return shorten_home(total.key) or "(none)"
    return total.key


def _format_omitted(totals: Sequence[CostTotal]) -> str:
    cost = sum(total.usage.cost or 0.0 for total in totals)
    unpriced = sum(total.unpriced_calls for total in totals)
    calls = sum(total.calls for total in totals)
    return format_cost(CostTotal("", calls, unpriced, Usage(cost=cost)))


def fill_empty_days(sums: list[CostTotal], since: float | None) -> list[CostTotal]:
    """Add the days without calls, if the report covers at most a month."""
    if not sums:
        return sums
    first, last = date.fromisoformat(sums[0].key), date.fromisoformat(format_local_day(time.time()))
    if since is not None:
        first = max(first, date.fromisoformat(format_local_day(since)))
    days = (last - first).days
    if not 0 <= days < MAX_DAYS:
        return sums
    known = {total.key: total for total in sums}
    names = [(first + timedelta(days=number)).isoformat() for number in range(days + 1)]
    return [known.get(name, CostTotal(name)) for name in names]
