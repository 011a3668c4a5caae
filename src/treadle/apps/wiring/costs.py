"""What was spent, as numbers and as text: the same for every host.

    report   money, tokens and cache of all sessions, by model, session, day or project
    lines    that as text with bars, as wide as the terminal (costpage.py: as a page)

The numbers come from treadle.sessions.spending. What has no known price is said to be unknown and
never counted as nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

import msgspec

from treadle.core.transcript.usage import Usage
from treadle.observe.plots import Bar, Cut, bars
from treadle.sessions.library import Library
from treadle.sessions.spending import By, Expense, Total, day_of, expenses, total, totals

MOST_ROWS = 20
MOST_DAYS = 31
ALL: tuple[By, ...] = ("day", "model", "project", "session")


class CostReport(msgspec.Struct, frozen=True):
    """The sums from `since` on. `titles` names sessions by what was asked in them."""

    since: float | None
    whole: Total
    sums: dict[By, list[Total]]
    titles: dict[str, str] = {}


class Section(msgspec.Struct, frozen=True):
    """One table of a report, ready to be drawn."""

    by: By
    unit: str
    rows: list[Bar]
    left: list[str]


def report(
    by: Sequence[By] = ALL,
    *,
    since: float | None = None,
    folder: Path | None = None,
    library: Library | None = None,
) -> CostReport:
    """What all sessions of this machine spent, or those of one folder."""
    library = library or Library()
    spent = expenses(library, since=since, folder=folder)
    titles: dict[str, str] = {}
    if "session" in by and spent:
        titles = {one.id: one.title for one in library.summaries(folder=folder)}
    return CostReport(since, total(spent), {key: totals(spent, key) for key in by}, titles)


def session_cost(session_id: str, library: Library | None = None) -> list[Total]:
    """What one session and its child agents spent so far, by model."""
    return totals(_of(session_id, expenses(library or Library())), "model")


def _of(session_id: str, spent: Sequence[Expense]) -> list[Expense]:
    return [expense for expense in spent if expense.session == session_id]


def as_values(given: CostReport) -> dict[str, object]:
    """For JSON. `cost` is what is known of it in USD, null if nothing is; `unpriced_calls` are the
    calls whose price is not in it."""
    return {
        "version": 1,
        "since": given.since,
        "total": _values(given.whole),
        **{f"by_{key}": [_values(one) for one in sums] for key, sums in given.sums.items()},
    }


def _values(one: Total) -> dict[str, object]:
    used = one.usage
    return {
        "key": one.key,
        "cost": one.cost,
        "calls": one.calls,
        "unpriced_calls": one.unpriced,
        "input": used.input,
        "output": used.output,
        "cache_read": used.cache_read,
        "cache_write": used.cache_write,
        "reasoning": used.reasoning,
    }


# --- as text ---------------------------------------------------------------------------------


def lines(given: CostReport, width: int, *, plain: bool = False) -> list[str]:
    """The report for a terminal."""
    if not given.whole.calls:
        return ["nothing was spent" + (f" since {day_of(given.since)}" if given.since else "")]
    text = [sentence(given.whole)]
    for part in sections(given):
        cut: Cut = "end" if part.by == "session" else "front"
        drawn = bars(part.rows, width, cut=cut, plain=plain)
        text += ["", f"by {part.by}, bars in {part.unit}", *drawn, *part.left]
    return text


def sentence(one: Total) -> str:
    """A sum in one line."""
    used = one.usage
    cache = ""
    if used.cache_read or used.cache_write:
        read, written = _share(used.cache_read, used), _share(used.cache_write, used)
        cache = f" ({read} read from the cache, {written} written to it)"
    counted = f"{count(used.total_input)} tokens in{cache}, {count(used.output)} out"
    calls = f"{one.calls:,} model call{'s' if one.calls != 1 else ''}"
    return f"{money(one)} USD, {calls}, {counted}"


def money(one: Total) -> str:
    """`1.23`, `unknown`, or `1.23 + unknown` where only a part has a known price."""
    cost = one.cost
    if cost is None:
        return "unknown"
    known = f"{cost:.4f}" if 0 < cost < 0.1 else f"{cost:,.2f}"
    return f"{known} + unknown" if one.unpriced else known


def count(tokens: int) -> str:
    """`950`, `12.3k`, `4.5M`."""
    if tokens < 1_000:
        return str(tokens)
    return f"{tokens / 1_000:.1f}k" if tokens < 999_950 else f"{tokens / 1e6:.1f}M"


def _share(part: int, used: Usage) -> str:
    return f"{part / used.total_input:.0%}" if used.total_input else "0%"


def sections(given: CostReport) -> list[Section]:
    """The report as rows with bars; what is too much for them is summed up in a line."""
    return [_section(by, sums, given) for by, sums in given.sums.items()]


def _section(by: By, sums: list[Total], given: CostReport) -> Section:
    if by == "day":
        sums = with_empty_days(sums, given.since)
        older, shown = sums[:-MOST_DAYS], sums[-MOST_DAYS:]
        left = [f"and {len(older)} earlier days: {_left(older)} USD"] if older else []
    else:
        shown, rest = sums[:MOST_ROWS], sums[MOST_ROWS:]
        left = [f"and {len(rest)} more: {_left(rest)} USD"] if rest else []
    # Without any price the bars show tokens: what cannot be told in money can be told in work.
    priced = any(one.cost for one in shown)
    rows = [
        Bar(
            _label(by, one, given),
            (one.cost if priced else float(one.usage.total)) if one.calls else 0.0,
            _numbers(one) if one.calls else "",
        )
        for one in shown
    ]
    return Section(by, "USD" if priced else "tokens", rows, left)


def _label(by: By, one: Total, given: CostReport) -> str:
    if by == "session":
        return f"{one.key} {given.titles.get(one.key, '')}".strip()[:48]
    if by == "project":
        home = str(Path.home())
        return one.key.replace(home, "~", 1) if one.key.startswith(home) else one.key or "(none)"
    return one.key


def _numbers(one: Total) -> str:
    used = one.usage
    read = f" {_share(used.cache_read, used):>4} cached" if used.cache_read else " " * 12
    return f"{money(one)}  {count(used.total_input):>6} in {count(used.output):>6} out{read}"


def _left(sums: Sequence[Total]) -> str:
    cost, unpriced = sum(one.usage.cost or 0.0 for one in sums), sum(one.unpriced for one in sums)
    calls = sum(one.calls for one in sums)
    return money(Total("", calls, unpriced, Usage(cost=cost)))


def with_empty_days(sums: list[Total], since: float | None) -> list[Total]:
    """Days without spending as well, if that is a month at most: a gap says something too."""
    if not sums:
        return sums
    first, last = date.fromisoformat(sums[0].key), date.fromisoformat(day_of(time.time()))
    if since is not None:
        first = max(first, date.fromisoformat(day_of(since)))
    days = (last - first).days
    if not 0 <= days < MOST_DAYS:
        return sums
    known = {one.key: one for one in sums}
    names = [(first + timedelta(days=number)).isoformat() for number in range(days + 1)]
    return [known.get(name, Total(name)) for name in names]
