"""Answers to cases by the workers of a fleet: each attempt is a run of its queue.

The fleet makes the agent of a run, on whichever machine; the checks are called here. Used by
evaluate.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast
from uuid import uuid4

from treadle.agents.agent import Agent
from treadle.agents.run import Result
from treadle.apps.evals.case import Case
from treadle.apps.fleet.fleet import Fleet
from treadle.apps.fleet.run_record import FleetRun
from treadle.apps.fleet.task import FleetTask
from treadle.core.errors import ConfigError, LoopError
from treadle.core.events import TerminalReason, TurnResult
from treadle.core.transcript.state import fold_entries


class FleetRuns:
    """The runs of one evaluation. `watch` has to run while results are awaited."""

    def __init__(
        self, fleet: Fleet, agent: Agent[Any, Any], cases: Sequence[Case[Any]], repeats: int
    ) -> None:
        self._fleet, self._agent, self._evaluation = fleet, agent, uuid4().hex[:12]
        self._positions = {case.name: position for position, case in enumerate(cases)}
        self._tasks = [
            FleetTask(id=self._make_id(case, number), prompt=_get_prompt(case), labels=_label(case))
            for case in cases
            for number in range(repeats)
        ]
        self._ends: dict[str, asyncio.Future[FleetRun]] = {}

    async def watch(self) -> None:
        """Submit the runs and note each end; an error of the fleet is that of the runs left."""
        try:
            async for run in self._fleet.run(self._tasks):
                self._get_end(run.id).set_result(run)
        except Exception as error:  # noqa: BLE001 - the attempts report it
            for task in self._tasks:
                if not (end := self._get_end(task.id)).done():
                    end.set_exception(error)

    async def get_result(self, case: Case[Any], number: int) -> tuple[Result[Any], float]:
        """As `agent.run` gives it, and the seconds that workers have worked on it."""
        run = await self._get_end(self._make_id(case, number))
        end = run.result
        if end is None or (run.error and end.reason in ("end_turn", "error")):
            raise LoopError(f"run {run.id} of the fleet is {run.state}: {run.error or 'no answer'}")
        state = fold_entries(await self._fleet.database.load_session(run.id))
        reason = cast(TerminalReason, end.reason)
        turn = TurnResult(run.id, reason, metadata={"detail": run.error})
        output: Any = end.text
        wanted = self._agent._structured_output
        if wanted is not None and reason == "end_turn":
            output = wanted.parse(wanted.find_answer(turn, state.transcript) or end.text)
        result = Result(
            end.text, reason, state.transcript, end.usage, turn, run.session, output=output
        )
        return result, end.seconds

    def _get_end(self, run_id: str) -> asyncio.Future[FleetRun]:
        return self._ends.setdefault(run_id, asyncio.get_running_loop().create_future())

    def _make_id(self, case: Case[Any], number: int) -> str:
        return f"eval-{self._evaluation}-{self._positions[case.name]}-{number}"


def _get_prompt(case: Case[Any]) -> str:
    given = {"deps": case.deps is not None, "earlier": case.earlier, "recorded": case.recorded}
    for name in (name for name, is_given in given.items() if is_given):
        raise ConfigError(f"case {case.name!r} has {name}: a run of a fleet has a prompt only")
    if not isinstance(case.prompt, str):
        raise ConfigError(f"the prompt of case {case.name!r} is not a text, as a fleet needs it")
    return case.prompt


def _label(case: Case[Any]) -> dict[str, str]:
    return {"case": case.name}
