"""Reports of evaluations: a table, a page, a file, and the comparison of two."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from treadle.errors import ConfigError
from treadle.evals import EvalAttempt, EvalReport, EvalResult, EvalScore, render_report_page


def make_attempt(state: Literal["passed", "failed", "stopped"], score: float = 1.0) -> EvalAttempt:
    one = EvalScore("polite", state == "passed", score, "" if state == "passed" else "rude")
    scores = (one,) if state != "stopped" else ()
    return EvalAttempt(state, "<b>Hi</b>", "", scores, 1.5, 0.25, 100, "s")


def make_report(**cases: list[EvalAttempt]) -> EvalReport:
    results = [EvalResult(name, "Say hi", "", tuple(given)) for name, given in cases.items()]
    return EvalReport("bot", "scripted", 0.0, tuple(results))


GOOD, BAD, STOPPED = make_attempt("passed"), make_attempt("failed", 0.0), make_attempt("stopped")


def test_the_table_says_what_passed_and_why_the_rest_did_not():
    report = make_report(greet=[GOOD, BAD], ask=[GOOD, GOOD])
    assert str(report).splitlines() == [
        "case   passed  score  seconds   cost",
        "greet     1/2   0.50      1.5  $0.50  polite: rude",
        "ask       2/2   1.00      1.5  $0.50",
        "bot: 3 of 4 runs passed, $1.00",
    ]


def test_a_test_fails_with_the_table():
    report = make_report(greet=[GOOD, BAD])
    report.assert_passed(0.5)
    with pytest.raises(AssertionError, match=r"50% passed, expected 100%\n(.*\n)*greet .*rude"):
        report.assert_passed()
    with pytest.raises(AssertionError):
        make_report().assert_passed(0.0)  # nothing was evaluated


@pytest.mark.parametrize("rate", [90, -1, "x", float("nan")])
def test_a_rate_is_a_number_from_0_to_1(rate: Any):
    with pytest.raises(ConfigError, match=r"rate is .*; expected a number from 0 to 1"):
        make_report(greet=[GOOD]).assert_passed(rate)


def test_two_reports_show_what_is_better_and_worse():
    before = make_report(
        a=[GOOD, BAD], b=[GOOD], c=[make_attempt("passed", 0.9)], d=[GOOD], e=[BAD], gone=[GOOD]
    )
    after = make_report(
        a=[GOOD, GOOD], b=[BAD], c=[make_attempt("passed", 0.6)], d=[GOOD], e=[STOPPED], new=[GOOD]
    )
    found = after.compare(before)
    assert [one.name for one in found.better] == ["a"]
    assert [one.name for one in found.worse] == ["b", "c"]
    assert [one.name for one in found.same] == ["d"]
    assert found.missing == ("e", "gone", "new")
    assert str(found).splitlines()[:2] == [
        "2 worse, 1 better, 1 the same",
        "worse   b: passed 100% before, 0% now; score 1.00, 0.00",
    ]


def test_a_report_is_saved_and_loaded(tmp_path: Path):
    report = make_report(greet=[GOOD, BAD])
    report.save(tmp_path / "report.json")
    assert EvalReport.load(tmp_path / "report.json") == report
    (tmp_path / "other.json").write_text('{"name": 7}')
    with pytest.raises(ConfigError, match=r"other\.json is no report of an evaluation"):
        EvalReport.load(tmp_path / "other.json")


def test_the_page_is_one_file_and_shows_text_as_text():
    before, after = make_report(greet=[GOOD]), make_report(greet=[GOOD, BAD])
    page = render_report_page(after, before)
    assert "&lt;b&gt;Hi&lt;/b&gt;" in page
    assert "Since the earlier report" in page
    assert '<span class="tag error">worse</span>' in page
    assert not any(one in page for one in ("<b>Hi", "<script", "src=", "<link"))


def test_every_text_of_a_report_is_escaped():
    score = EvalScore("<u>check", False, 0.0, "<u>reason")
    attempt = EvalAttempt("failed", "<u>text", "<u>problem", (score,), 1.0, None, 1, "s")
    case = EvalResult("<u>case", "<u>prompt", "<u>expected", (attempt,))
    report = EvalReport("<u>name", "<u>model", 0.0, (case,))
    page = render_report_page(report, make_report(greet=[GOOD]))
    assert "<u>" not in page
    words = ("check", "reason", "text", "problem", "case", "prompt", "expected", "name", "model")
    assert all(f"&lt;u&gt;{word}" in page for word in words)
