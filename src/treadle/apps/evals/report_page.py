"""The report of an evaluation as one HTML file: no script, nothing loaded; all text is escaped."""

from __future__ import annotations

import time

from treadle.apps.evals.report import EvalAttempt, EvalReport, EvalResult
from treadle.apps.pages.charts import BarRow, draw_bar_list
from treadle.apps.pages.elements import escape_html, render_section, render_sums, render_table
from treadle.apps.pages.static_page import render_static_page
from treadle.lib.text.text import format_cost, format_count, plural

_TAGS = {"passed": "ok", "failed": "error", "error": "error", "stopped": "warn"}
_HEADS = ("State", "Checks", "Answer", "Score", "Seconds", "Cost", "Tokens")


def render_report_page(report: EvalReport, earlier: EvalReport | None = None) -> str:
    """The page; with an `earlier` report, what is better and worse since then."""
    parts = [_render_sums(report)]
    if earlier is not None:
        parts.append(_render_changes(report, earlier))
    parts.append(render_section("rates", "Cases", draw_bar_list([*map(_bar, report.cases)])))
    parts += [_render_case(at, case) for at, case in enumerate(report.cases)]
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(report.began))
    return render_static_page(
        f"Evaluation: {report.name}",
        '<section class="sub" aria-label="What and when">'
        f"<h1>Evaluation: {escape_html(report.name)}</h1>"
        f'<span class="where">{escape_html(report.model)}, {when}</span></section>'
        f'<main class="cost-main" id="main">{"".join(parts)}</main>',
    )


def _render_sums(report: EvalReport) -> str:
    attempts = report.attempts
    passed = sum(one.state == "passed" for one in attempts)
    rows = [
        ("Passed", f"{report.pass_rate:.0%}", f"{passed} of {plural(len(attempts), 'run')}"),
        ("Cases", str(len(report.cases)), ""),
        ("Cost in USD", format_cost(report.cost), ""),
        ("Tokens", format_count(sum(one.tokens for one in attempts)), ""),
    ]
    return render_sums(rows)


def _bar(case: EvalResult) -> BarRow:
    rate = case.pass_rate
    return BarRow(
        case.name, "–" if rate is None else f"{rate:.0%}", rate or 0.0, "s-good", case.reason
    )


def _render_changes(report: EvalReport, earlier: EvalReport) -> str:
    found = report.compare(earlier)
    kinds = (("worse", "error", found.worse), ("better", "ok", found.better))
    rows = [
        (
            f'<span class="tag {style}">{kind}</span>',
            escape_html(one.name),
            f"{one.rate_before:.0%}",
            f"{one.rate:.0%}",
            f"{one.score_before:.2f}",
            f"{one.score:.2f}",
        )
        for kind, style, changes in kinds
        for one in changes
    ]
    heads = ("", "Case", "Passed before", "Passed now", "Score before", "Score now")
    table = render_table("Changes", heads, rows, texts=(0, 1)) if rows else ""
    caption = f"{plural(len(found.same), 'case')} the same"
    if found.missing:
        caption += f"; not in both: {', '.join(found.missing)}"
    return render_section("changes", "Since the earlier report", table, escape_html(caption))


def _render_case(at: int, case: EvalResult) -> str:
    rows = [_list_cells(one) for one in case.attempts]
    table = render_table(case.name, _HEADS, rows, texts=(0, 1, 2))
    expected = f"<p>Expected: {escape_html(case.expected)}</p>" if case.expected else ""
    asked = f"<pre>{escape_html(case.prompt)}</pre>{expected}"
    return render_section(f"case-{at}", escape_html(case.name), f"{asked}{table}")


def _list_cells(one: EvalAttempt) -> tuple[str, ...]:
    checks = "<br>".join(
        f'<span class="tag {"ok" if score.passed else "error"}">{escape_html(score.check)}</span> '
        f"{score.score:.2f} <small>{escape_html(score.reason)}</small>"
        for score in one.scores
    )
    return (
        f'<span class="tag {_TAGS[one.state]}">{one.state}</span>',
        f"{checks} {escape_html(one.problem)}",
        escape_html(one.text),
        f"{one.score:.2f}",
        f"{one.seconds:.1f}",
        format_cost(one.cost),
        format_count(one.tokens),
    )
