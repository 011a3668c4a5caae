"""Cases, checks of answers, and reports that can be compared. See docs/evals.md."""

from __future__ import annotations

from treadle.apps.evals.case import Case, EvalCheck, contains, equals, same_calls
from treadle.apps.evals.evaluate import evaluate, evaluate_sync
from treadle.apps.evals.judge import judge
from treadle.apps.evals.report import (
    EvalAttempt,
    EvalChange,
    EvalComparison,
    EvalReport,
    EvalResult,
    EvalScore,
)
from treadle.apps.evals.report_page import render_report_page

__all__ = [
    "Case",
    "evaluate",
    "evaluate_sync",
    "EvalReport",
    "judge",
    "equals",
    "contains",
    "same_calls",
    "EvalCheck",
    "EvalAttempt",
    "EvalResult",
    "EvalScore",
    "EvalChange",
    "EvalComparison",
    "render_report_page",
]
