"""The report on a fleet as one HTML page with SVG plots; it has no scripts and loads nothing.

Numbers come from report.py, their words from report_text.py. Text of tasks and models is escaped.
"""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Mapping

from treadle.apps.fleet.reports.report import (
    Distribution,
    FailureGroup,
    FleetReport,
    LabelGroup,
    PassRate,
    ReportRun,
)
from treadle.apps.fleet.reports.report_text import (
    DOLLARS,
    SECONDS,
    STATE_WORDS,
    format_figures,
    format_ranges,
    format_rate,
    format_seconds,
)
from treadle.lib.text.sanitize import strip_escapes
from treadle.lib.text.text import format_count, format_dollars, format_duration, plural

MAX_RUNS = 2_000  # rows of the table; failed runs come first
PLOT_WIDTH, PLOT_HEIGHT = 460, 170
CLOSE_MARKS = 40  # two names have no room so near to each other
_LEFT, _BOTTOM, _TOP = 34, 26, 16

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer">{refresh}
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; --faint: #666;
  --line: #ddd; --soft: #f5f5f4; --bar: #36c; --good: #2a8a4a; --bad: #c0392b; --wait: #b7791f;
  --idle: #a3a3a3; }}
@media (prefers-color-scheme: dark) {{ :root {{ --faint: #aaa; --line: #3a3a3a; --soft: #1d1d1d;
  --bar: #7aa5ff; --good: #5dbb7b; --bad: #ef7d72; --wait: #e0b050; --idle: #777; }} }}
body {{ max-width: 66rem; margin: 2rem auto 4rem; padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; margin: 0; }} h2 {{ font-size: 1.1rem; margin: 2.2rem 0 .6rem; }}
.faint, small {{ color: var(--faint); font-size: .875rem; }}
.tiles {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .75rem;
  margin: 1.2rem 0; }}
.tiles div {{ background: var(--soft); border-radius: .5rem; padding: .7rem .9rem; }}
.tiles b {{ display: block; font-size: 1.6rem; line-height: 1.25; }}
.states {{ display: flex; height: 1rem; border-radius: .3rem; overflow: hidden; gap: 1px; }}
.legend {{ display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin-top: .4rem;
  font-size: .875rem; }}
.legend i {{ display: inline-block; width: .7rem; height: .7rem; border-radius: .15rem;
  margin-right: .35rem; }}
.good {{ background: var(--good); }} .bad {{ background: var(--bad); }}
.wait {{ background: var(--wait); }} .idle {{ background: var(--idle); }}
.run {{ background: var(--bar); }}
.plots {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr));
  gap: 1.5rem; }}
figure {{ margin: 0; }} figcaption {{ font-size: .875rem; color: var(--faint); }}
svg {{ display: block; width: 100%; height: auto; overflow: visible; }}
svg text {{ fill: var(--faint); font: 11px system-ui, sans-serif; }}
svg .column {{ fill: var(--bar); }} svg .axis {{ stroke: var(--line); }}
svg .mark {{ stroke: CanvasText; opacity: .6; stroke-dasharray: 3 3; }}
svg .track {{ fill: var(--soft); }} svg .rate {{ fill: var(--good); }}
svg .interval {{ stroke: CanvasText; stroke-width: 1.5; opacity: .65; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
th {{ text-align: left; font-weight: 600; font-size: .8125rem; color: var(--faint); }}
td, th {{ padding: .3rem .8rem .3rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line); }}
td.number, th.number {{ text-align: right; white-space: nowrap; }}
td:first-child {{ overflow-wrap: anywhere; }} td.rate {{ padding-top: .55rem; }}
.groups {{ table-layout: fixed; }} .groups th {{ width: 6rem; }}
.groups th:nth-child(1) {{ width: 26%; }} .groups th:nth-child(2) {{ width: auto; }}
.scroll {{ overflow-x: auto; }} .scroll td:first-child {{ min-width: 10rem; }}
.tag {{ white-space: nowrap; }} .tag i {{ display: inline-block; width: .6rem; height: .6rem;
  border-radius: 50%; margin-right: .35rem; }}
details {{ border: 1px solid var(--line); border-radius: .4rem; margin: .4rem 0; }}
summary {{ padding: .4rem .7rem; cursor: pointer; }} details > div {{ padding: 0 .7rem .6rem; }}
form {{ border: 1px solid var(--wait); border-radius: .5rem; padding: 0 .9rem; margin: .6rem 0; }}
button, input {{ font: inherit; padding: .2rem .6rem; }}
pre, code {{ font: .8125rem/1.45 ui-monospace, monospace; }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; background: var(--soft); margin: .4rem 0;
  padding: .5rem .7rem; max-height: 20rem; overflow: auto; border-radius: .3rem; }}
@media (max-width: 40rem) {{ td, th {{ padding-right: .4rem; }}
  .groups th {{ width: 5rem; }}
  .groups :is(th, td):nth-child(n+5) {{ display: none; }} }}
</style></head><body><h1>{title}</h1>
<p class="faint">{about}</p>
{body}
</body></html>
"""
_CLASSES = {"done": "good", "failed": "bad", "set_aside": "bad", "running": "run"}
_CLASSES |= {"waiting": "wait", "parked": "wait", "cancelled": "idle", "queued": "idle"}


def render_page(
    report: FleetReport,
    *,
    store: str = "",
    links: Mapping[str, str] | None = None,
    top: str = "",
    refresh: int | None = None,
) -> str:
    """The page. `links` are pages of sessions by the ids of runs; `store` is the fleet's address,
    for the commands that open a run. `top` is HTML of the caller before the rest; `refresh` is
    after how many seconds the browser loads the page again."""
    parts = [top, _render_tiles(report), _render_states(report)]
    parts += [_render_label(label, groups) for label, groups in report.labels.items()]
    parts += [_render_plots(report), _render_failures(report, links or {})]
    parts.append(_render_runs(report, store, links or {}))
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(report.generated))
    again = f'<meta http-equiv="refresh" content="{refresh}">' if refresh is not None else ""
    return _PAGE.format(
        title="Fleet report", refresh=again, about=f"as of {when}", body="\n".join(parts)
    )


def _escape(text: str) -> str:
    return html.escape(strip_escapes(text))


# --- summary -------------------------------------------------------------------------------


def _render_tiles(report: FleetReport) -> str:
    rate = report.pass_rate
    share = "–" if rate.rate is None else f"{rate.rate:.1%}"
    detail = format_rate(rate)
    if rate.rate is not None:
        detail = f"passed {detail.partition(' ')[2]}"
    unpriced = f"cost of {plural(report.unpriced, 'run')} not known" if report.unpriced else ""
    tiles = [
        (share, detail),
        (f"{len(report.runs):,}", "runs"),
        (format_dollars(report.cost), unpriced or "cost of all runs"),
        (format_count(report.tokens), "tokens"),
    ]
    if report.began is not None and report.ended is not None:
        tiles.append((format_duration(report.ended - report.began), "from start to end"))
    cells = [
        f"<div><b>{_escape(value)}</b><small>{_escape(text)}</small></div>" for value, text in tiles
    ]
    return f'<div class="tiles">{"".join(cells)}</div>'


def _render_states(report: FleetReport) -> str:
    """Runs that passed and runs that did not are apart, also among those that are done."""
    counts: dict[tuple[str, str], int] = {}
    for run in report.runs:
        key = _name_outcome(run)
        counts[key] = counts.get(key, 0) + 1
    order = ["good", "bad", "run", "wait", "idle"]
    found = sorted(counts.items(), key=lambda one: (order.index(one[0][1]), one[0]))
    bars = [f'<span class="{css}" style="flex: {n}"></span>' for (_, css), n in found]
    legend = [
        f'<span><i class="{css}"></i>{n:,} {_escape(name)}</span>' for (name, css), n in found
    ]
    return (
        f'<div class="states" aria-hidden="true">{"".join(bars)}</div>'
        f'<div class="legend">{"".join(legend)}</div>'
    )


def _name_outcome(run: ReportRun) -> tuple[str, str]:
    """What the legend says of a run, and its colour."""
    if run.passed:
        return "passed", "good"
    if run.state == "done":
        return "did not pass", "bad"
    return STATE_WORDS[run.state], _CLASSES[run.state]


# --- groups --------------------------------------------------------------------------------


def _render_label(label: str, groups: tuple[LabelGroup, ...]) -> str:
    rows = [
        f"<tr><td>{_escape(group.value) or '(none)'}</td>"
        f'<td class="rate">{_render_rate_bar(group.pass_rate)}</td>'
        f'<td class="number">{_format_share(group.pass_rate)}</td>'
        f'<td class="number">{group.pass_rate.passed} of {group.pass_rate.judged}</td>'
        f'<td class="number">{format_dollars(group.cost)}</td>'
        f'<td class="number">{format_seconds(group.median_seconds)}</td></tr>'
        for group in groups
    ]
    names = ("", "passed", "runs", "cost", "median time")
    head = f"<th>{_escape(label)}</th>" + "".join(f'<th class="number">{n}</th>' for n in names)
    return (
        f'<h2>Pass rate by {_escape(label)}</h2><table class="groups"><tr>{head}</tr>'
        f"{''.join(rows)}</table>"
    )


def _format_share(rate: PassRate) -> str:
    return "–" if rate.rate is None else f"{rate.rate:.0%}"


def _render_rate_bar(rate: PassRate) -> str:
    """The rate, and its 95 % interval as a line."""
    if rate.rate is None:
        return ""
    low, high = f"{rate.low:.2%}", f"{rate.high:.2%}"
    return (
        f'<svg style="height: 12px" role="img"><title>{_escape(format_rate(rate))}</title>'
        f'<rect class="track" width="100%" height="12" rx="2"/>'
        f'<rect class="rate" width="{rate.rate:.2%}" height="12" rx="2"/>'
        f'<line class="interval" x1="{low}" x2="{high}" y1="6" y2="6"/></svg>'
    )


def _render_failures(report: FleetReport, links: Mapping[str, str]) -> str:
    if not report.failures:
        return ""
    runs = {run.id: run for run in report.runs}
    return "<h2>Failures by cause</h2>" + "".join(
        _render_failure(group, runs, links) for group in report.failures
    )


def _render_failure(
    group: FailureGroup, runs: Mapping[str, ReportRun], links: Mapping[str, str]
) -> str:
    names = ", ".join(_render_name(runs[name], links) for name in group.runs)
    example = f"<pre>{_escape(group.example)}</pre>" if group.example.strip() else ""
    return (
        f'<details><summary><span class="tag"><i class="bad"></i>{_escape(group.cause)}</span> '
        f"<small>{plural(len(group.runs), 'run')}</small></summary>"
        f"<div>{names}{example}</div></details>"
    )


def _render_name(run: ReportRun, links: Mapping[str, str]) -> str:
    name = f"<code>{_escape(run.id)}</code>"
    link = links.get(run.id)
    return f'<a href="{html.escape(link)}">{name}</a>' if link else name


# --- plots ---------------------------------------------------------------------------------


def _render_plots(report: FleetReport) -> str:
    plots = [
        _render_histogram(title, found, format_value, template)
        for title, found, format_value, template in (
            ("Cost of a run", report.costs, format_dollars, DOLLARS),
            ("Time of a run", report.seconds, format_seconds, SECONDS),
        )
        if found is not None and found.highest > 0
    ]
    return f'<div class="plots">{"".join(plots)}</div>' if plots else ""


def _render_histogram(
    title: str, found: Distribution, format_value: Callable[[float], str], template: str
) -> str:
    """Columns of counts over a scale, with marks at the median and the 90 % quantile."""
    most = max(bucket.count for bucket in found.buckets)
    end = found.buckets[-1].high
    room, height = PLOT_WIDTH - _LEFT, PLOT_HEIGHT - _BOTTOM - _TOP
    base = PLOT_HEIGHT - _BOTTOM

    def to_x(value: float) -> float:
        return _LEFT + value / end * room

    shapes = [f'<line class="axis" x1="{_LEFT}" x2="{PLOT_WIDTH}" y1="{base}" y2="{base}"/>']
    shapes += [_text(_LEFT - 6, _TOP + 4, f"{most:,}", "end"), _text(_LEFT - 6, base, "0", "end")]
    ranges = format_ranges(found, format_value, template)
    for bucket, label in zip(found.buckets, ranges, strict=True):
        tall = bucket.count / most * height
        left, right = to_x(bucket.low), to_x(bucket.high)
        shapes.append(
            f'<rect class="column" x="{left + 1:.1f}" y="{base - tall:.1f}" '
            f'width="{max(1.0, right - left - 2):.1f}" height="{tall:.1f}">'
            f"<title>{_escape(label)}: {plural(bucket.count, 'run')}</title></rect>"
        )
    ticks = (0.0, end / 2, end)
    anchors = ("start", "middle", "end")
    for value, anchor in zip(ticks, anchors, strict=True):
        shapes.append(_text(to_x(value), base + 16, format_value(value), anchor))
    marks = [("median", found.median), ("90%", found.p90)]
    is_close = to_x(found.p90) - to_x(found.median) < CLOSE_MARKS
    for name, value in [("", found.median), ("median, 90%", found.p90)] if is_close else marks:
        x = to_x(value)
        shapes.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{base}"/>')
        anchor = "end" if x >= PLOT_WIDTH - CLOSE_MARKS else "middle"
        shapes += [_text(x, _TOP - 4, name, anchor)] * bool(name)
    size = f'viewBox="0 0 {PLOT_WIDTH} {PLOT_HEIGHT}"'
    figures = _escape(format_figures(found, format_value))
    return (
        f'<figure><h2>{title}</h2><svg {size} role="img">{"".join(shapes)}</svg>'
        f"<figcaption>{figures}</figcaption></figure>"
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{_escape(text)}</text>'


# --- runs ----------------------------------------------------------------------------------


def _render_runs(report: FleetReport, store: str, links: Mapping[str, str]) -> str:
    ordered = sorted(report.runs, key=lambda run: (run.passed is not False, run.passed is True))
    rows = "".join(_render_run(run, links) for run in ordered[:MAX_RUNS])
    names = ("run", "outcome", "cost", "time", "tokens", "attempts", "session")
    head = "".join(
        f'<th class="{"number" if name in names[2:6] else ""}">{name}</th>' for name in names
    )
    left_out = len(ordered) - MAX_RUNS
    note = f'<p class="faint">{plural(left_out, "run")} not shown</p>' if left_out > 0 else ""
    where = f" --store {store}" if store else ""
    command = f"treadle fleet open RUN{where}"
    return (
        f'<h2>Runs</h2><p class="faint">Open, replay or fork the session of a run: '
        f"<code>{_escape(command)}</code></p>"
        f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>{note}'
    )


def _render_run(run: ReportRun, links: Mapping[str, str]) -> str:
    name, css = _name_outcome(run)
    cause = f" <small>{_escape(run.cause)}</small>" if run.cause else ""
    is_priced = bool(run.cost) or (run.passed is not None and run.cost is not None)
    cost = format_dollars(run.cost or 0.0) if is_priced else ""
    seconds = "" if run.seconds is None else format_seconds(run.seconds)
    numbers = (cost, seconds, format_count(run.tokens) if run.tokens else "", str(run.attempts))
    cells = "".join(f'<td class="number">{text}</td>' for text in numbers)
    return (
        f"<tr><td>{_render_name(run, links)}<br><small>{_escape(run.prompt)}</small></td>"
        f'<td><span class="tag"><i class="{css}"></i>{_escape(name)}</span>{cause}</td>'
        f"{cells}<td><code>{_escape(run.session)}</code></td></tr>"
    )
