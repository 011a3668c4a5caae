"""The report of an evaluation: values, a table as text, JSON, and what changed since another one.

It knows nothing of agents: evaluate.py makes it, report_page.py shows it as HTML.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from treadle.core.argument_checks import check, number
from treadle.core.errors import ConfigError
from treadle.lib.text.sanitize import escape_invisible, strip_escapes
from treadle.lib.text.text import format_cost, plural, shorten_middle

AttemptState = Literal["passed", "failed", "error", "stopped"]
NAME_CHARS, PROBLEM_CHARS = 40, 100
SHARE = number("a number from 0 to 1", lambda value: 0 <= value <= 1)
TOLERANCE = 0.05  # a smaller difference of scores is none


class EvalScore(msgspec.Struct, frozen=True):
    """What one check said of an answer. `score` is from 0 to 1."""

    check: str
    passed: bool
    score: float
    reason: str = ""


class EvalAttempt(msgspec.Struct, frozen=True):
    """One run of a case. `error`: the run or a check of it failed; `stopped`: the budget did not
    pay for it. `problem` says why. `cost` is in USD, with that of judges; None: not known."""

    state: AttemptState
    text: str
    problem: str
    scores: tuple[EvalScore, ...]
    seconds: float
    cost: float | None
    tokens: int
    session_id: str

    @property
    def score(self) -> float:
        """The mean of its checks; without one, whether there is an answer."""
        if self.state in ("error", "stopped") or not self.scores:
            return float(self.state == "passed")
        return sum(one.score for one in self.scores) / len(self.scores)

    @property
    def reason(self) -> str:
        """Why it did not pass; "" if it did."""
        failed = [one for one in self.scores if not one.passed]
        texts = [f"{one.check}: {one.reason or f'score {one.score:.2f}'}" for one in failed]
        return self.problem or "; ".join(texts)


class EvalResult(msgspec.Struct, frozen=True):
    """A case and its attempts."""

    name: str
    prompt: str
    expected: str
    attempts: tuple[EvalAttempt, ...]

    @property
    def judged(self) -> tuple[EvalAttempt, ...]:
        """The attempts that the budget paid for."""
        return tuple(one for one in self.attempts if one.state != "stopped")

    @property
    def pass_rate(self) -> float | None:
        """None if no attempt was made."""
        judged = self.judged
        return sum(one.state == "passed" for one in judged) / len(judged) if judged else None

    @property
    def score(self) -> float | None:
        judged = self.judged
        return sum(one.score for one in judged) / len(judged) if judged else None

    @property
    def reason(self) -> str:
        """Why the first attempt that did not pass did not."""
        return next((one.reason for one in self.attempts if one.state != "passed"), "")


class EvalChange(msgspec.Struct, frozen=True):
    """A case of two reports, with its pass rates and scores."""

    name: str
    rate_before: float
    rate: float
    score_before: float
    score: float

    @property
    def direction(self) -> int:
        """1: better, -1: worse, 0: the same."""
        changed = self.rate - self.rate_before
        if not changed and abs(self.score - self.score_before) > TOLERANCE:
            changed = self.score - self.score_before
        return (changed > 0) - (changed < 0)

    def __str__(self) -> str:
        rates = f"passed {self.rate_before:.0%} before, {self.rate:.0%} now"
        return f"{_clean(self.name)}: {rates}; score {self.score_before:.2f}, {self.score:.2f}"


class EvalComparison(msgspec.Struct, frozen=True):
    """Two reports. `missing` are cases that only one of them has, or that were not run in one."""

    better: tuple[EvalChange, ...]
    worse: tuple[EvalChange, ...]
    same: tuple[EvalChange, ...]
    missing: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"{len(self.worse)} worse, {len(self.better)} better, {len(self.same)} the same",
            *(f"worse   {one}" for one in self.worse),
            *(f"better  {one}" for one in self.better),
            *(f"not in both  {_clean(name)}" for name in self.missing),
        ]
        return "\n".join(lines)


class EvalReport(msgspec.Struct, frozen=True):
    """What came out of an evaluation. `began` is in seconds, as time.time() gives it."""

    name: str
    model: str
    began: float
    cases: tuple[EvalResult, ...]

    @property
    def attempts(self) -> tuple[EvalAttempt, ...]:
        return tuple(one for case in self.cases for one in case.attempts)

    @property
    def passed(self) -> bool:
        """Whether every attempt passed, and there is one."""
        return bool(self.attempts) and all(one.state == "passed" for one in self.attempts)

    @property
    def pass_rate(self) -> float:
        """Of all attempts; one that the budget did not pay for has not passed."""
        attempts = self.attempts
        return sum(one.state == "passed" for one in attempts) / len(attempts) if attempts else 0.0

    @property
    def cost(self) -> float | None:
        """In USD, with that of judges; None when a price is not known."""
        costs = [one.cost for one in self.attempts]
        return None if None in costs else sum(one or 0.0 for one in costs)

    def assert_passed(self, rate: float = 1.0) -> None:
        """For tests: an AssertionError with the table, if a smaller part of the attempts than
        `rate`, 0 to 1, passed."""
        check("rate", rate, SHARE)
        if not self.attempts or self.pass_rate < rate:
            raise AssertionError(f"{self.pass_rate:.0%} passed, expected {rate:.0%}\n{self}")

    def __str__(self) -> str:
        """A table: what passed, and why the rest did not."""
        rows = [("case", "passed", "score", "seconds", "cost", ""), *map(_list_cells, self.cases)]
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        lines = [
            "  ".join(
                [
                    row[0].ljust(widths[0]),
                    *(row[at].rjust(widths[at]) for at in range(1, 5)),
                    row[5],
                ]
            ).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, self.summary])

    @property
    def summary(self) -> str:
        done = sum(one.state == "passed" for one in self.attempts)
        stopped = sum(one.state == "stopped" for one in self.attempts)
        runs = plural(len(self.attempts), "run")
        rest = f", {stopped} not run because of the budget" if stopped else ""
        return f"{_clean(self.name)}: {done} of {runs} passed, {format_cost(self.cost)}{rest}"

    def compare(self, earlier: EvalReport) -> EvalComparison:
        """Which cases are better or worse than in an earlier report: by their pass rates, then by
        their scores."""
        before = {case.name: case for case in earlier.cases}
        changes, both = [], set[str]()
        for case in self.cases:
            old = before.get(case.name)
            rates = (old and old.pass_rate, case.pass_rate, old and old.score, case.score)
            if any(one is None for one in rates):
                continue
            both.add(case.name)
            changes.append(EvalChange(case.name, *(one or 0.0 for one in rates)))
        names = dict.fromkeys([*before, *(case.name for case in self.cases)])
        by_direction = {at: tuple(c for c in changes if c.direction == at) for at in (1, -1, 0)}
        missing = tuple(name for name in names if name not in both)
        return EvalComparison(by_direction[1], by_direction[-1], by_direction[0], missing)

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        encoded = msgspec.json.format(msgspec.json.encode(self), indent=1)
        Path(path).write_bytes(encoded + b"\n")

    @staticmethod
    def load(path: str | Path) -> EvalReport:
        """Read what `save` wrote. ConfigError if the file is something else."""
        try:
            return msgspec.json.decode(Path(path).read_bytes(), type=EvalReport)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} is no report of an evaluation: {error}") from None


def _list_cells(case: EvalResult) -> tuple[str, ...]:
    judged = case.judged
    rate = f"{sum(one.state == 'passed' for one in judged)}/{len(case.attempts)}"
    seconds = sum(one.seconds for one in judged) / len(judged) if judged else 0.0
    costs = [one.cost for one in case.attempts]
    cost = None if None in costs else sum(one or 0.0 for one in costs)
    return (
        shorten_middle(_clean(case.name), NAME_CHARS),
        rate,
        "–" if case.score is None else f"{case.score:.2f}",
        f"{seconds:.1f}",
        format_cost(cost),
        shorten_middle(_clean(case.reason), PROBLEM_CHARS),
    )


def _clean(text: str) -> str:
    return escape_invisible(strip_escapes(text))
