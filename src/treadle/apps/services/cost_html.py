"""A cost report as one HTML page with charts, without scripts and external resources.

Numbers and labels come from costs.py, the bars from observe/bar_chart.py.
"""

from __future__ import annotations

import html
import time

from treadle.apps.services.costs import CostReport, CostRow, CostTable, format_total, make_tables
from treadle.observe.bar_chart import render_svg_bar, render_svg_columns
from treadle.sessions.cost import format_local_day

_PAGE_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Treadle costs</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; --bar: #36c; }}
@media (prefers-color-scheme: dark) {{ :root {{ --bar: #7af; }} }}
body {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
h2 {{ font-size: 1.1rem; margin: 2rem 0 .5rem; }}
.faint, figcaption {{ opacity: .7; font-size: .875rem; }}
figure {{ margin: 0; }} figcaption {{ display: flex; justify-content: space-between; }}
svg {{ display: block; width: 100%; }} svg rect {{ fill: var(--bar); }}
.columns {{ height: 10rem; border-bottom: 1px solid #8886; }}
.bar {{ height: .5rem; }} .bar rect {{ height: 100%; rx: 2px; }}
.columns .room {{ fill: transparent; }} .columns g:hover .room {{ fill: #8883; }}
table {{ border-collapse: collapse; width: 100%; }}
td {{ padding: .25rem 0; vertical-align: top; border-bottom: 1px solid #8883; }}
td:first-child {{ overflow-wrap: anywhere; }}
td:last-child {{ text-align: right; white-space: nowrap; padding-left: 1rem; }}
td, figcaption {{ font-variant-numeric: tabular-nums; }}
small {{ opacity: .7; padding-left: .5rem; }}
@media (max-width: 40rem) {{ small {{ display: block; }}
  td:last-child {{ white-space: normal; width: 8rem; }} figcaption {{ font-size: .75rem; }} }}
</style></head><body><h1>Treadle costs</h1>
<p>{total}</p><p class="faint">{period}</p>
{body}
</body></html>
"""


def render_cost_html(report: CostReport) -> str:
    now = time.strftime("%Y-%m-%d %H:%M")
    since = f"since {format_local_day(report.since)}" if report.since is not None else "all time"
    tables = make_tables(report) if report.total.calls else []
    parts = [(_render_days if table.by == "day" else _render_table)(table) for table in tables]
    return _PAGE_TEMPLATE.format(
        total=html.escape(format_total(report.total)),
        period=html.escape(f"{since}; as of {now}"),
        body="\n".join(parts),
    )


def _render_days(table: CostTable) -> str:
    """A chart, and its numbers on request."""
    highest = max(table.rows, key=lambda row: row.value or 0.0)
    maximum = f"maximum: {highest.cost_text} on {highest.label}"
    labels = [table.rows[0].label, maximum, table.rows[-1].label]
    caption = "".join(f"<span>{html.escape(text)}</span>" for text in labels)
    return (
        f"<h2>By day, in {table.unit}</h2><figure>{render_svg_columns(table.rows)}"
        f"<figcaption>{caption}</figcaption></figure>"
        f"<details><summary>Numbers</summary>{_render_rows(table)}</details>"
    )


def _render_table(table: CostTable) -> str:
    return f"<h2>By {table.by}, in {table.unit}</h2>{_render_rows(table)}"


def _render_rows(table: CostTable) -> str:
    maximum = max((row.value or 0.0 for row in table.rows), default=0.0)
    rows = [
        f"<tr><td>{html.escape(row.label)}{render_svg_bar(row.value, maximum)}</td>"
        f"<td>{_format_number(row)}</td></tr>"
        for row in table.rows
    ]
    omitted = "".join(f'<p class="faint">{html.escape(text)}</p>' for text in table.omitted)
    return f"<table>{''.join(rows)}</table>{omitted}"


def _format_number(row: CostRow) -> str:
    tokens = " ".join(row.tokens_text.split())
    return f"{html.escape(row.cost_text) or '0'} <small>{html.escape(tokens)}</small>"
