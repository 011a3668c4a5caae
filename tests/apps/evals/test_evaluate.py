"""Evaluations: cases are answered and checked; the budget holds for all of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle import Agent, Result, Usage
from treadle.contracts import ModelCard, ModelRequest
from treadle.errors import ConfigError, LoopError, SessionNotFound
from treadle.evals import Case, contains, evaluate, evaluate_sync, judge
from treadle.models import Say, Scripted

CARD = ModelCard("priced", input_price=1.0, output_price=1.0, max_output=1_000)


def echo(request: ModelRequest) -> str:
    return request.transcript[-1].text


def make_agent(**settings: Any) -> Agent:
    return Agent(Scripted(echo), **settings)


async def test_without_a_check_the_answer_is_equal_to_what_is_expected():
    cases = [Case("same", "one", expected="one"), Case("other", "two", expected="three")]
    report = await evaluate(make_agent(), cases)
    assert [case.pass_rate for case in report.cases] == [1.0, 0.0]
    assert report.cases[1].reason == "equals: expected 'three', got 'two'"
    assert (report.passed, report.pass_rate) == (False, 0.5)


def is_short(result: Result[str], case: Case[str]) -> bool:
    return len(result.text) < 5


async def rate(result: Result[str], case: Case[str]) -> float:
    return len(result.text) / 10


def explain(result: Result[str], case: Case[str]) -> str | None:
    return None if "o" in result.text else "there is no o"


def claim(result: Result[str], case: Case[str]) -> None:
    assert "n" in result.text, "there is no n"


@pytest.mark.parametrize(
    ("check", "good", "bad", "score", "reason"),
    [
        (is_short, "one", "longer", 0.0, "is_short: score 0.00"),
        (rate, "five!", "two", 0.3, "rate: score 0.30"),
        (explain, "one", "axe", 0.0, "explain: there is no o"),
        (claim, "one", "axe", 0.0, "claim: there is no n"),
        (contains, "It is WANTED.", "It is not.", 0.0, "contains: 'wanted' is not in the answer"),
    ],
)
async def test_a_check_returns_a_bool_a_score_or_what_is_wrong(check, good, bad, score, reason):
    cases = [Case("good", good, expected="wanted"), Case("bad", bad, expected="wanted")]
    report = await evaluate(make_agent(), cases, checks=[check])
    assert [case.attempts[0].state for case in report.cases] == ["passed", "failed"]
    assert report.cases[1].score == score
    assert report.cases[1].reason.startswith(reason)  # pytest adds to that of an assertion


async def test_the_check_for_what_is_expected_needs_it():
    with pytest.raises(ConfigError, match=r"case 'a': .* give Case\('a', \.\.\., expected="):
        await evaluate(make_agent(), [Case("a", "x", checks=[contains])])
    with pytest.raises(ConfigError, match="case 'a'"):
        await evaluate(make_agent(), [Case("a", "x")], checks=[contains])


async def test_a_check_that_fails_or_returns_something_else_is_named():
    def broken(result: Result[str], case: Case[str]) -> bool:
        raise ZeroDivisionError("no")

    def odd(result: Result[str], case: Case[str]) -> Any:
        return ["odd"]

    cases = [Case("broken", "x", checks=[broken]), Case("odd", "x", checks=[odd])]
    report = await evaluate(make_agent(), cases)
    assert [case.attempts[0].state for case in report.cases] == ["error", "error"]
    assert "the check broken raised ZeroDivisionError: no" in report.cases[0].reason
    assert "the check odd returned ['odd']" in report.cases[1].reason


async def test_a_run_that_fails_is_an_error_of_its_case_only():
    model = Scripted([ValueError("strange"), "fine"])
    report = await evaluate(Agent(model), [Case("a", "x"), Case("b", "y")], concurrency=1)
    assert [case.attempts[0].state for case in report.cases] == ["error", "passed"]
    assert "strange" in report.cases[0].reason


async def test_repeats_run_at_once_and_no_more_than_wanted():
    running, most, meet = 0, 0, asyncio.Barrier(2)

    async def reply(request: ModelRequest) -> str:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        await meet.wait()
        running -= 1
        return "done"

    report = await evaluate(Agent(Scripted(reply)), [Case("a", "x")], repeats=6, concurrency=2)
    assert (len(report.attempts), most) == (6, 2)


async def test_a_judge_is_shown_the_answer_and_its_cost_is_in_the_report():
    verdicts = [
        '{"passed": false, "score": 0.2, "reason": "It is rude."}',
        '{"passed": true, "score": 1, "reason": "It is kind."}',
    ]
    used = Usage(10, 5, requests=1, cost=0.25)
    judging = Scripted([Say(one, usage=used) for one in verdicts])
    case = Case("greet", "Go away", expected="Hi", checks=[judge("It is polite", model=judging)])
    report = await evaluate(make_agent(), [case], repeats=2, concurrency=1)
    assert report.cases[0].pass_rate == 0.5
    assert report.cases[0].reason == "judge: It is polite: It is rude."
    assert report.cost == 0.5
    shown = judging.requests[0].transcript[-1].text
    assert all(text in shown for text in ("It is polite", "Go away", "Hi"))


async def test_the_budget_is_one_for_all_and_what_it_does_not_pay_is_not_run():
    used = Usage(1_000, 1_000, requests=1, cost=0.002)
    model = Scripted(lambda request: Say("ok", usage=used), card=CARD, name="priced")
    cases = [Case(f"case {at}", "x") for at in range(10)]
    report = await evaluate(Agent(model), cases, budget=0.01)
    states = [case.attempts[0].state for case in report.cases]
    assert set(states) == {"passed", "stopped"}
    assert report.cost is not None
    assert report.cost <= 0.01
    assert len(model.requests) == states.count("passed")
    assert not report.passed
    assert "not run because of the budget" in report.summary


async def test_an_output_that_the_budget_does_not_pay_is_not_run():
    class Answer(msgspec.Struct):
        text: str

    model = Scripted([], card=CARD, name="priced")
    report = await evaluate(Agent(model, output_type=Answer), [Case("a", "x")], budget=0.0)
    assert report.attempts[0].state == "stopped"


async def test_deps_and_earlier_messages_are_those_of_the_case():
    seen: list[object] = []

    def instruct(context: Any) -> str:
        seen.append(context.deps)
        return "Be brief."

    model = Scripted(lambda request: f"{len(request.transcript)} items")
    agent = Agent(model, deps_type=int, instructions=instruct)
    case = Case("talk", "third", deps=7, expected="5 items", earlier=["first", "second"])
    report = await evaluate(agent, [case])
    assert report.passed
    assert set(seen) == {7}


async def test_a_stored_session_is_a_case(tmp_path: Path):
    agent = make_agent(store=tmp_path)
    async with agent.session("talk") as session:
        await session.run("Hi")
        await session.run("Bye")
    case = await Case.from_session(agent, "talk")
    assert (case.name, case.question, case.expected, len(case.earlier)) == ("talk", "Bye", "Bye", 1)
    assert (await evaluate(agent, [case])).passed
    changed = agent.replace(model=Scripted(lambda request: "No."))
    report = await evaluate(changed, [case])
    assert report.cases[0].reason == "equals: expected 'Bye', got 'No.'"
    with pytest.raises(SessionNotFound):
        await Case.from_session(agent, "unknown")


async def test_wrong_arguments_are_named():
    agent = make_agent()
    with pytest.raises(ConfigError, match="two cases have the name 'a'"):
        await evaluate(agent, [Case("a", "x"), Case("a", "y")])
    with pytest.raises(ConfigError, match="repeats is 0"):
        await evaluate(agent, [], repeats=0)
    with pytest.raises(ConfigError, match=r"checks\[0\] is 'polite'"):
        Case("a", "x", checks=["polite"])  # type: ignore[list-item]
    with pytest.raises(LoopError, match="await evaluate"):
        evaluate_sync(agent, [])


@pytest.mark.parametrize("answer", [3, -0.5, float("nan"), [1]])
async def test_a_check_that_returns_no_score_is_an_error(answer):
    case = Case("a", "x", checks=[lambda result, case: answer])
    report = await evaluate(make_agent(), [case])
    assert not report.passed
    assert "expected a bool, a score from 0 to 1" in report.cases[0].reason


def test_a_program_without_an_event_loop_evaluates():
    assert evaluate_sync(make_agent(), [Case("a", "x", expected="x")], repeats=2).passed
