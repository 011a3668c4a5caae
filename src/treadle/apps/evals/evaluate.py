"""Runs cases with an agent, checks the answers, and makes the report.

Each attempt is a run of its own. All of them, with the requests of judges, share the budget; what
it does not pay is not run, and the report says so.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec

from treadle.agents.agent import Agent
from treadle.agents.agent_base import disconnect
from treadle.agents.run import Result
from treadle.apps.evals.case import CHECKS_EXPECTED, AnswerT, Case, EvalCheck, contains, equals
from treadle.apps.evals.judge import ModelJudge
from treadle.apps.evals.recorded_tools import RecordedPolicy, RecordedTools
from treadle.apps.evals.report import SHARE, EvalAttempt, EvalReport, EvalResult, EvalScore
from treadle.budgets import CostBudget, SharedBudget
from treadle.core.argument_checks import check, instance_of, list_of, number, whole_number
from treadle.core.contracts.gate import Gate
from treadle.core.errors import ConfigError, LoopError, OutputMissing, error_message
from treadle.core.transcript.usage import NO_USAGE, Usage
from treadle.core.type_variables import DepsT
from treadle.lib.function_thread import run_in_thread
from treadle.lib.loop_thread import has_running_loop
from treadle.lib.tasks import await_contained

if TYPE_CHECKING:
    from treadle.apps.evals.fleet_runs import FleetRuns
    from treadle.apps.fleet.fleet import Fleet

BUDGET_EXCEEDED = "budget_exceeded"
CHECK_SECONDS = 600.0
RECORDED_CALLS = "recorded calls"  # the name of the check that a case with `recorded` has
_CASES = list_of(instance_of(Case, "a Case"), "cases")
_SECONDS = number("a number above 0", lambda value: value > 0)


async def evaluate(
    agent: Agent[DepsT, AnswerT],
    cases: Sequence[Case[AnswerT]],
    *,
    checks: Sequence[EvalCheck[AnswerT]] = (),
    repeats: int = 1,
    concurrency: int = 8,
    budget: float | SharedBudget | None = None,
    pass_score: float = 0.5,
    check_timeout: float = CHECK_SECONDS,
    name: str = "",
    fleet: Fleet | None = None,
) -> EvalReport:
    """Let the agent answer each case `repeats` times, `concurrency` runs at once.

    `checks` are for all cases, besides their own. A check that returns a score passes from
    `pass_score` on; one that takes longer than `check_timeout` seconds is an error. `budget` is in
    USD, for all runs and judges together. `name` is that of the report; that of the agent, or of
    its model, if it is not given. With a `fleet` that is open, its workers answer the cases through
    its queue, with the agent that it makes: `agent` names the report and tells what an answer is.
    """
    check("cases", cases, _CASES)
    check("checks", checks, CHECKS_EXPECTED)
    check("repeats", repeats, whole_number(1))
    check("concurrency", concurrency, whole_number(1))
    check("pass_score", pass_score, SHARE)
    check("check_timeout", check_timeout, _SECONDS)
    names = [case.name for case in cases]
    if twice := {one for one in names if names.count(one) > 1}:
        raise ConfigError(f"two cases have the name {min(twice)!r}; a report knows them by it")
    gates: list[Gate] = []
    if budget is not None and fleet is not None:
        raise ConfigError("budget: that of a fleet is Fleet(limits=FleetLimits(max_cost=...))")
    if budget is not None:
        if not isinstance(budget, SharedBudget):
            budget = SharedBudget(budget, when_reserved="wait")
        gates.append(CostBudget(budget))
    places = asyncio.Semaphore(concurrency)
    runs = None
    if fleet is not None:
        from treadle.apps.evals.fleet_runs import FleetRuns

        runs = FleetRuns(fleet, agent, cases, repeats)
    runner = _Runner(agent, checks, gates, pass_score, check_timeout, places, runs)
    began = time.time()
    judges = {one for case in cases for one in runner.find_checks(case)}
    try:
        async with asyncio.TaskGroup() as group:
            if runs is not None:
                group.create_task(runs.watch())
            tasks = [
                [group.create_task(runner.attempt(case, number)) for number in range(repeats)]
                for case in cases
            ]
    finally:
        for one in judges:
            if isinstance(one, ModelJudge):
                await one.aclose()
    results = [
        EvalResult(
            case.name,
            case.question,
            "" if case.expected is None else str(case.expected),
            tuple(task.result() for task in of_case),
        )
        for case, of_case in zip(cases, tasks, strict=True)
    ]
    model = agent.config.model.name
    return EvalReport(name or agent.config.name or model, model, began, tuple(results))


def evaluate_sync(
    agent: Agent[DepsT, AnswerT], cases: Sequence[Case[AnswerT]], **options: Any
) -> EvalReport:
    """`evaluate` for a program or a test without an event loop."""
    if has_running_loop():
        raise LoopError("evaluate_sync was called inside an event loop: await evaluate() instead")
    return asyncio.run(_evaluate_and_disconnect(agent, cases, options))


async def _evaluate_and_disconnect(
    agent: Agent[Any, Any], cases: Sequence[Case[Any]], options: dict[str, Any]
) -> EvalReport:
    try:
        return await evaluate(agent, cases, **options)
    finally:
        await disconnect(agent)


class _Runner:
    """One evaluation: what all of its attempts share."""

    def __init__(
        self,
        agent: Agent[Any, Any],
        checks: Sequence[EvalCheck[Any]],
        gates: Sequence[Gate],
        pass_score: float,
        check_timeout: float,
        places: asyncio.Semaphore,
        runs: FleetRuns | None,
    ) -> None:
        self._agent = agent
        self._checks = checks
        self._gates = gates
        self._pass_score = pass_score
        self._check_timeout = check_timeout
        self._places = places
        self._fleet_runs = runs

    def find_checks(self, case: Case[Any]) -> list[EvalCheck[Any]]:
        found = [*case.checks, *self._checks]
        if contains in found and case.expected is None:
            raise ConfigError(
                f"case {case.name!r}: the check contains needs what is expected; give "
                f'Case({case.name!r}, ..., expected="a text of the answer")'
            )
        return found or ([equals] if case.expected is not None else [])

    async def attempt(self, case: Case[Any], number: int) -> EvalAttempt:
        async with self._places:
            began = time.monotonic()
            usage, text, session_id = NO_USAGE, "", ""
            worked: float | None = None  # seconds of workers of the fleet
            scores: tuple[EvalScore, ...] = ()
            try:
                tools = RecordedTools(self._agent.config.source, case.recorded)
                if self._fleet_runs is not None:
                    result, worked = await self._fleet_runs.get_result(case, number)
                else:
                    result = await self._run(self._choose_agent(tools), case)
                usage, text, session_id = result.usage, result.text, result.session_id
                state, problem = _judge_end(result)
                if not state:
                    scores, spent = await self._check(case, result)
                    if tools.is_recorded:
                        wrong = tools.find_difference(result.transcript)
                        scores = (self._score(RECORDED_CALLS, wrong), *scores)
                    usage += spent
                    state = "passed" if all(one.passed for one in scores) else "failed"
            except Exception as error:  # noqa: BLE001 - of the agent or a provider; it is reported
                is_stopped = isinstance(error, OutputMissing) and error.reason == BUDGET_EXCEEDED
                state, problem = "stopped" if is_stopped else "error", _describe(error)
                usage += getattr(error, "usage", None) or NO_USAGE
            seconds = time.monotonic() - began if worked is None else worked
        return EvalAttempt(
            cast(Any, state), text, problem, scores, seconds, usage.cost, usage.total, session_id
        )

    def _choose_agent(self, tools: RecordedTools) -> Agent[Any, Any]:
        if not tools.is_recorded:
            return self._agent
        policy = RecordedPolicy(self._agent.config.policy, tools)
        return self._agent.replace(tools=[tools], policy=policy, subagents=None)

    async def _run(self, agent: Agent[Any, Any], case: Case[Any]) -> Result[Any]:
        """The answer to the prompt. Its usage is that of all messages."""
        run = partial(agent.run, deps=case.deps, gates=self._gates)
        first, *rest = (*case.earlier, case.prompt)
        result = await run(first)
        for message in rest:
            if result.reason != "end_turn":
                break
            last = await run(message, history=result.transcript)
            result = msgspec.structs.replace(last, usage=result.usage + last.usage)
        return result

    async def _check(
        self, case: Case[Any], result: Result[Any]
    ) -> tuple[tuple[EvalScore, ...], Usage]:
        """The scores, and what the judges used."""
        scores, usage = [], NO_USAGE
        for one in self.find_checks(case):
            name = getattr(one, "__name__", type(one).__name__)
            if isinstance(one, ModelJudge):
                decided = await one.decide(result, case, self._gates)
                usage += decided.usage
                verdict = decided.output
                scores.append(EvalScore(name, verdict.passed, verdict.score, verdict.reason))
                continue
            try:
                answer = await await_contained(_call(one, result, case), self._check_timeout)
            except AssertionError as wrong:
                answer = error_message(wrong) or "an assertion of the check failed"
            except Exception as error:
                raise RuntimeError(f"the check {name} raised {_describe(error)}") from error
            scores.append(self._score(name, answer))
        return tuple(scores), usage

    def _score(self, name: str, answer: object) -> EvalScore:
        if answer is None or isinstance(answer, str):
            return EvalScore(name, not answer, float(not answer), answer or "")
        if isinstance(answer, (bool, int, float)) and 0 <= answer <= 1:
            score = float(answer)
            return EvalScore(name, score >= self._pass_score, score, "")
        raise TypeError(
            f"the check {name} returned {answer!r:.80}; expected a bool, a score from 0 to 1, or "
            "what is wrong as a text"
        )


async def _call(one: EvalCheck[Any], result: Result[Any], case: Case[Any]) -> object:
    """A plain function runs in a thread, so that a slow one does not stop the runs."""
    if inspect.iscoroutinefunction(one):
        return await one(result, case)
    answer = await run_in_thread(partial(one, result, case))
    return await cast(Awaitable[object], answer) if inspect.isawaitable(answer) else answer


def _judge_end(result: Result[Any]) -> tuple[str, str]:
    """The state of an attempt whose run stopped before its answer; "" if it did not."""
    if result.reason == "end_turn":
        return "", ""
    problem = f"the run ended with {result.reason}"
    problem += f": {result.detail}" if result.detail else ""
    return "stopped" if result.reason == BUDGET_EXCEEDED else "error", problem


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error_message(error)}"
