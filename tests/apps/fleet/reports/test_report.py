from __future__ import annotations

import io
import re

import msgspec
import pytest

from treadle.apps.fleet.reports.live_table import (
    LiveTable,
    estimate_seconds_left,
    format_progress,
    format_table,
)
from treadle.apps.fleet.reports.report import (
    FleetReport,
    find_quantile,
    make_distribution,
    make_report,
)
from treadle.apps.fleet.reports.report_page import render_page
from treadle.apps.fleet.reports.report_text import (
    DOLLARS,
    SECONDS,
    format_ranges,
    format_report,
)
from treadle.apps.fleet.run_record import FleetCheck, FleetResult, FleetRun, RunState
from treadle.apps.fleet.task import FleetTask
from treadle.core.transcript.usage import Usage
from treadle.lib.text.text import format_dollars, format_seconds


def make_run(
    name: str,
    *,
    state: RunState = "done",
    cause: str = "",
    cost: float | None = 0.5,
    seconds: float = 10.0,
    output: str = "",
    error: str = "",
    **labels: str,
) -> FleetRun:
    check = FleetCheck(not cause, 1 if cause else 0, output)
    result = FleetResult("end_turn", "ok", cost, Usage(input=100), seconds, check, cause)
    has_ended = state in ("done", "failed", "cancelled", "set_aside")
    return FleetRun(
        id=name,
        task=FleetTask(prompt=f"do {name}", id=name, labels=labels, model="scripted"),
        state=state,
        attempts=1,
        session=f"session-{name}",
        result=result if state in ("done", "failed") else None,
        error=error,
        created=1000.0,
        started=1000.0 if state != "queued" else None,
        ended=1000.0 + seconds if has_ended else None,
    )


@pytest.mark.parametrize("scale", [1e-6, 1e-5, 3e-4, 0.001, 0.07, 1.0, 40.0, 9_000.0])
def test_no_two_rows_of_a_histogram_have_the_same_bounds(scale):
    values = [scale * number / 7 for number in range(1, 8)]
    found = make_distribution(values)
    assert found is not None
    for format_value, template in ((format_dollars, DOLLARS), (format_seconds, SECONDS)):
        ranges = format_ranges(found, format_value, template)
        assert len({*ranges}) == len(found.buckets)
        assert all(low != high for low, _, high in (text.partition(" to ") for text in ranges))


RUNS = [
    make_run("a", language="go"),
    make_run("b", language="go", cause="check_failed", output="1 != 2", cost=1.5, seconds=30.0),
    make_run("c", language="rust", cause="check_failed"),
    make_run("d", language="rust", state="failed", cause="max_turns", cost=None),
    make_run("e", language="rust", state="set_aside", error="it ended 3 workers"),
    make_run("f", state="cancelled"),
    make_run("g", state="running"),
    make_run("h", state="queued"),
]


def test_the_report_counts_what_passed_by_label_and_groups_failures_by_cause():
    report = make_report(RUNS, now=2000.0)
    assert (report.pass_rate.passed, report.pass_rate.judged) == (1, 5)
    assert report.states["cancelled"] == 1
    rates = {group.value: group.pass_rate for group in report.labels["language"]}
    assert (rates["go"].passed, rates["go"].judged) == (1, 2)
    assert (rates["rust"].passed, rates["rust"].judged) == (0, 3)
    causes = {group.cause: group.runs for group in report.failures}
    assert causes == {"check_failed": ("b", "c"), "max_turns": ("d",), "set_aside": ("e",)}
    assert report.failures[0].example == "the check ended with exit code 1\n1 != 2"
    assert (report.cost, report.unpriced) == (2.5, 2)
    assert report.ended is None, "a run is still at work"


def test_the_interval_of_a_rate_is_wide_for_few_runs_and_never_outside_of_0_to_1():
    few = make_report([make_run("a")], 0.0).pass_rate
    many = make_report([make_run(str(n)) for n in range(500)], 0.0).pass_rate
    assert (few.rate, many.rate) == (1.0, 1.0)
    assert few.low == pytest.approx(0.2065, abs=1e-3)
    assert few.low < many.low < many.high <= 1.0


def test_a_distribution_has_quantiles_and_buckets_that_hold_every_value():
    found = make_distribution([0.0, 1.0, 2.0, 3.0, 100.0])
    assert found is not None
    assert (found.median, found.highest) == (2.0, 100.0)
    assert sum(bucket.count for bucket in found.buckets) == 5
    assert found.buckets[-1].high >= 100.0
    assert len(found.buckets) <= 13
    assert find_quantile([1.0, 2.0], 0.5) == 1.5
    assert make_distribution([]) is None
    zero = make_distribution([0.0, 0.0])
    assert zero is not None
    assert zero.buckets[0].count == 2


def test_the_report_as_json_is_read_back_as_the_same_report():
    report = make_report(RUNS, now=2000.0)
    assert msgspec.json.decode(msgspec.json.encode(report), type=FleetReport) == report


def test_a_long_example_of_a_failure_keeps_its_begin_and_its_end():
    run = make_run("a", state="set_aside", error=f"anthropic needs {'a key ' * 60}: log in")
    [line] = [line for line in format_report(make_report([run], 0.0), 80) if "log in" in line]
    assert line.startswith("    anthropic needs a key")
    assert len(line) < 220


def test_the_report_says_which_runs_of_a_group_said_what():
    errors = {"a": "no such folder", "b": "no such model", "c": "no such folder"}
    runs = [make_run(name, state="set_aside", error=text) for name, text in errors.items()]
    lines = format_report(make_report(runs, 0.0), 80)
    at = lines.index("  set_aside: 3 runs (a, b, c)")
    assert lines[at + 1 : at + 3] == ["    a, c: no such folder", "    b: no such model"]


def test_the_report_for_a_terminal_says_the_same_and_fits_its_width():
    lines = format_report(make_report(RUNS, now=2000.0), 80, plain=True)
    text = "\n".join(lines)
    assert "8 runs: 3 done, 1 failed, 1 set aside, 1 cancelled, 1 running, 1 queued" in text
    assert "pass rate: 20.0% (1 of 5; 95% interval" in text
    assert "pass rate by language" in text
    assert "check_failed: 2 runs (b, c)" in text
    assert "it ended 3 workers" in text
    assert text.isascii()
    assert format_report(make_report([], 0.0), 80) == ["no runs"]


def test_the_page_shows_every_run_loads_nothing_and_escapes_the_text_of_models():
    evil = "<script>alert(1)</script>\x1b[2J"
    runs = [*RUNS, make_run("x", cause="check_failed", output=evil, note=evil)]
    page = render_page(make_report(runs, 2000.0), store="sqlite:f.db", links={"a": "s/a.html"})
    assert "<script" not in page
    assert "\x1b" not in page
    assert not re.search(r'(src|href)="(?!s/a\.html|#)', page)
    for run in runs:
        assert f"<code>{run.id}</code>" in page
        assert run.session in page
    assert '<a href="s/a.html"><code>a</code></a>' in page
    assert "treadle fleet open RUN --store sqlite:f.db" in page
    assert page.count("<svg") >= 5


def test_the_names_of_two_marks_at_one_place_do_not_overlap():
    alike = [make_run(name, cost=0.5, seconds=10.0) for name in "abc"]
    page = render_page(make_report(alike, 2000.0))
    assert page.count(">median, 90%</text>") == 2
    assert ">median</text>" not in page
    apart = [make_run(str(n), cost=n / 10, seconds=float(n)) for n in range(1, 11)]
    page = render_page(make_report(apart, 2000.0))
    assert page.count(">median</text>") == page.count(">90%</text>") == 2


def test_a_page_without_runs_is_a_page():
    assert "Fleet report" in render_page(make_report([], 0.0))


def test_one_line_says_how_far_the_runs_are_and_how_long_it_takes():
    runs = [
        *RUNS[:4],
        make_run("w", state="waiting"),
        *(make_run(f"q{n}", state="queued") for n in range(3)),
    ]
    line = format_progress(runs, now=1040.0)
    assert line == (
        "4 of 8 ended · 25% passed · 1 waiting for approval, 3 queued · $2.50 · about 40s left"
    )
    assert estimate_seconds_left(RUNS[:1], 1040.0) is None, "all have ended"
    assert estimate_seconds_left(RUNS[5:], 1040.0) is None, "too few have ended to know"


def test_the_table_shows_what_waits_for_the_user_first():
    lines = format_table(
        [make_run("r", state="running"), make_run("w", state="waiting")], 1005.0, 60
    )
    assert [line.split()[0] for line in lines[1:]] == ["waits", "w", "r"]
    assert all(len(line) <= 60 for line in lines)


def test_without_a_terminal_each_run_that_ends_is_one_line_once():
    out = io.StringIO()
    table = LiveTable(out)
    table.update(RUNS[:2], 1000.0)
    table.update(RUNS[:2], 1001.0)
    table.finish(RUNS[:5], 1002.0)
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["a: passed, 10s, $0.50", "b: check_failed, 30s, $1.50"]
    assert lines[4] == "e: set aside: it ended 3 workers"
    assert lines[5].startswith("5 of 5 ended · 20% passed")
    assert "\x1b" not in out.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_table_is_drawn_over_itself():
    out = Terminal()
    table = LiveTable(out)
    table.update([make_run("r", state="running"), make_run("q", state="running")], 1000.0)
    table.update([make_run("r"), make_run("q")], 1001.0)
    assert "\x1b[3A2 of 2 ended" in out.getvalue()
    assert out.getvalue().endswith("\x1b[K\n\x1b[K\n\x1b[K\n\x1b[2A")
