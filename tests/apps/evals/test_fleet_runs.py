"""Evaluations whose cases are answered by the workers of a fleet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle import Agent, Result, Usage, tool
from treadle.contracts import ModelCard, ModelRequest
from treadle.errors import ConfigError, ModelError
from treadle.evals import Case, contains, evaluate
from treadle.fleet import Fleet, FleetLimits
from treadle.models import Say, Scripted

CARD = ModelCard("priced", input_price=1.0, output_price=1.0, max_output=1_000)


def open_fleet(folder: Path, agent: Agent[Any, Any], **more: Any) -> Fleet:
    store = f"sqlite:{folder / 'fleet.db'}"
    return Fleet(store, agent=lambda task, _: agent, poll=0.01, folder=folder / "runs", **more)


@tool(effect="pure")
def look() -> str:
    "Look."
    return "seen"


def echo(request: ModelRequest) -> Any:
    text = request.transcript[-1].text
    return Say(calls=[("look", {})]) if text == "look" else text


def has_looked(result: Result[str], case: Case[str]) -> bool:
    return any(getattr(item, "name", "") == "look" for item in result.transcript)


async def test_the_workers_answer_and_the_checks_see_the_whole_run(tmp_path: Path):
    agent = Agent(Scripted(echo), [look], name="echo")
    cases = [
        Case("same", "one", expected="one"),
        Case("other", "two", expected="three", checks=[contains]),
        Case("look", "look", checks=[has_looked]),
    ]
    async with open_fleet(tmp_path, agent) as fleet:
        report = await evaluate(agent, cases, repeats=3, fleet=fleet)
        runs = await fleet.database.runs()
    assert [case.pass_rate for case in report.cases] == [1.0, 0.0, 1.0]
    assert [len(case.attempts) for case in report.cases] == [3, 3, 3]
    assert (len(runs), report.name) == (9, "echo")
    sessions = {one.session_id for case in report.cases for one in case.attempts}
    assert sessions == {run.session for run in runs}


async def test_an_evaluation_is_not_answered_by_the_runs_of_an_earlier_one(tmp_path: Path):
    replies = iter(["one", "two"])
    agent = Agent(Scripted(lambda request: next(replies)))
    async with open_fleet(tmp_path, agent) as fleet:
        first = await evaluate(agent, [Case("a", "x", expected="one")], fleet=fleet)
        second = await evaluate(agent, [Case("a", "x", expected="two")], fleet=fleet)
    assert first.passed
    assert second.passed


class Town(msgspec.Struct):
    name: str


async def test_an_answer_has_the_type_of_the_agent(tmp_path: Path):
    agent = Agent(Scripted(lambda request: '{"name": "Graz"}'), output_type=Town)
    async with open_fleet(tmp_path, agent) as fleet:
        report = await evaluate(agent, [Case("t", "Which?", expected=Town("Graz"))], fleet=fleet)
    assert report.passed


async def test_a_run_that_fails_is_an_error_with_its_reason(tmp_path: Path):
    def fail(request: ModelRequest) -> str:
        raise ModelError("the model is broken")

    agent = Agent(Scripted(fail))
    async with open_fleet(tmp_path, agent) as fleet:
        report = await evaluate(agent, [Case("t", "Which?")], fleet=fleet)
    [attempt] = report.cases[0].attempts
    assert (attempt.state, "the model is broken" in attempt.problem) == ("error", True)


async def test_what_the_limits_of_the_fleet_do_not_pay_is_told(tmp_path: Path):
    reply = Say("one", usage=Usage(input=1_000_000))
    agent = Agent(Scripted(lambda request: reply, card=CARD))
    limits = FleetLimits(max_cost=0.9)
    async with open_fleet(tmp_path, agent, limits=limits, concurrency=1) as fleet:
        report = await evaluate(agent, [Case("a", "one"), Case("b", "two")], fleet=fleet)
    assert not report.passed
    assert "max_cost" in str([one.problem for case in report.cases for one in case.attempts])


@pytest.mark.parametrize(
    ("case", "options", "message"),
    [
        (Case("t", "x", deps=3), {}, "has deps"),
        (Case("t", "x", earlier=["y"]), {}, "has earlier"),
        (Case("t", ["x", "y"]), {}, "is not a text"),
        (Case("t", "x"), {"budget": 1.0}, "FleetLimits"),
    ],
)
async def test_what_a_fleet_cannot_do_is_refused(
    tmp_path: Path, case: Case[Any], options: dict[str, Any], message: str
):
    agent = Agent(Scripted(echo))
    async with open_fleet(tmp_path, agent) as fleet:
        with pytest.raises(ConfigError, match=message):
            await evaluate(agent, [case], fleet=fleet, **options)
        assert await fleet.database.runs() == []
