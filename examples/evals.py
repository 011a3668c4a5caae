"""Evals: cases, checks by functions and by a judging model, and what a change made worse.

The test is three lines of pytest. The agent of the show is a script; so is the judge.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from treadle import Agent, Result
from treadle.contracts import Model, ModelCard, ModelRequest
from treadle.evals import Case, EvalReport, contains, evaluate_sync, judge, render_report_page
from treadle.models import Scripted


def is_brief(result: Result, case: Case) -> str:
    """A check says what is wrong, or nothing; a bool or a score would do, too."""
    words = len(result.text.split())
    return "" if words < 10 else f"{words} words"


def make_cases(judging: str | Model) -> list[Case[str]]:
    polite = judge("The answer is polite", model=judging)
    return [
        Case("Graz", "How is it in Graz?", expected="sunny", checks=[contains, polite]),
        Case("Bergen", "How is it in Bergen?", checks=[is_brief]),
    ]


def check_answers(agent: Agent[None, str], cases: list[Case[str]]) -> None:
    report = evaluate_sync(agent, cases, repeats=3, budget=0.50)
    report.assert_passed(rate=0.9)


def compare(agent: Agent[None, str], cases: list[Case[str]], folder: Path) -> None:
    before = EvalReport.load(folder / "before.json")
    after = evaluate_sync(agent, cases, repeats=2)
    (folder / "report.html").write_text(render_report_page(after, before))
    print(after)
    print(after.compare(before))


# --- the show: what real models would do -----------------------------------------------------

CARD = ModelCard("script", input_price=1.0, output_price=5.0)  # USD for a million tokens


def answer(request: ModelRequest) -> str:
    question = request.transcript[-1].text
    return "It is sunny in Graz." if "Graz" in question else "Take an umbrella to Bergen."


def decide(request: ModelRequest) -> str:
    is_polite = "shut up" not in request.transcript[-1].text
    said = "passed" if is_polite else "rude"
    return f'{{"passed": {str(is_polite).lower()}, "score": {int(is_polite)}, "reason": "{said}"}}'


agent = Agent(Scripted(answer, card=CARD), name="weather")
cases = make_cases(Scripted(decide, card=CARD))


def test_the_answers_are_good() -> None:
    check_answers(agent, cases)


def main(folder: Path) -> None:
    test_the_answers_are_good()
    evaluate_sync(agent, cases, repeats=2).save(folder / "before.json")
    rude = Scripted(lambda request: "Look out of the window, and shut up.")
    compare(agent.replace(model=rude), cases, folder)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(Path(name))
