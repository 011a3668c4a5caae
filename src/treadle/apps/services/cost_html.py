"""What was spent, as one HTML page with plots: no scripts, nothing from elsewhere.

The numbers and their words are costs.py's, the bars those of observe/plots.
"""

from __future__ import annotations

import html
import time

from treadle.apps.services.costs import CostReport, CostTable, format_total, make_tables
from treadle.observe.bar_chart import ChartBar, render_svg_bar, render_svg_columns
from treadle.sessions.cost import format_local_day

_PAGE_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>What was spent</title>
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
</style></head><body><h1>What was spent</h1>
<p>{whole}</p><p class="faint">{when}</p>
{body}
</body></html>
"""


def render_cost_html(report: CostReport) -> str:
    now = time.strftime("%Y-%m-%d %H:%M")
    since = f"since {format_local_day(report.since)}" if report.since is not None else "in all"
    parts = make_tables(report) if report.total.calls else []
    return _PAGE_TEMPLATE.format(
        whole=html.escape(format_total(report.total)),
        when=html.escape(f"{since}; as of {now}"),
        body="\n".join(
            _render_days(part) if part.by == "day" else _render_table(part) for part in parts
        ),
    )


def _render_days(table: CostTable) -> str:
    """A plot, and its numbers for who wants them."""
    most = max(table.rows, key=lambda row: row.value or 0.0)
    highest = f"most: {most.value_text.partition('  ')[0]} on {most.label}"
    ends = [table.rows[0].label, highest, table.rows[-1].label]
    named = "".join(f"<span>{html.escape(text)}</span>" for text in ends)
    return (
        f"<h2>By day, in {table.unit}</h2><figure>{render_svg_columns(table.rows)}"
        f"<figcaption>{named}</figcaption></figure>"
        f"<details><summary>Numbers</summary>{_render_rows(table)}</details>"
    )


def _render_table(table: CostTable) -> str:
    return f"<h2>By {table.by}, in {table.unit}</h2>{_render_rows(table)}"


def _render_rows(table: CostTable) -> str:
    most = max((row.value or 0.0 for row in table.rows), default=0.0)
    rows = [
        f"<tr><td>{html.escape(row.label)}{render_svg_bar(row.value, most)}</td>"
        f"<td>{_format_number(row)}</td></tr>"
        for row in table.rows
    ]
    left = "".join(f'<p class="faint">{html.escape(text)}</p>' for text in table.omitted)
    return f"<table>{''.join(rows)}</table>{left}"


def _format_number(row: ChartBar) -> str:
    """The money first, and the tokens smaller."""
    money, _, rest = row.value_text.partition("  ")
    return f"{html.escape(money) or '0'} <small>{html.escape(' '.join(rest.split()))}</small>"
