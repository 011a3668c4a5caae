from __future__ import annotations

from pathlib import Path

from treadle import Agent
from treadle.budgets.goal import MAX_OUTPUT_CHARS, Goal
from treadle.core.contracts.workspace import CommandResult
from treadle.core.errors import WorkspaceError
from treadle.core.steps import Finished
from treadle.models import Say, Scripted


class Commands:
    """A workspace whose command ends with the given results, one after the other."""

    root = Path("/")

    def __init__(self, *ends: CommandResult | WorkspaceError) -> None:
        self._ends = list(ends)
        self.ran: list[str] = []

    async def run(self, command: str, **options: object) -> CommandResult:
        self.ran.append(command)
        end = self._ends.pop(0)
        if isinstance(end, WorkspaceError):
            raise end
        return end


GOOD, BAD = CommandResult(0, "fine"), CommandResult(1, "test_a failed: 1 != 2")


def agent(goal: Goal, replies: int) -> tuple[Agent, Scripted]:
    model = Scripted([Say(f"Reply {number}.") for number in range(replies)])
    return Agent(model, hooks=[goal], gates=[goal]), model


async def test_the_turn_is_over_only_when_the_command_succeeds():
    commands = Commands(BAD, GOOD)
    goal = Goal("make test", commands)  # type: ignore[arg-type]
    asked, _ = agent(goal, 2)
    result = await asked.run("repair it")
    assert (result.reason, result.text, goal.is_met) == ("end_turn", "Reply 1.", True)
    assert commands.ran == ["make test"] * 2


async def test_the_model_gets_the_output_of_the_command():
    goal = Goal("make test", Commands(BAD, GOOD))  # type: ignore[arg-type]
    asked, _ = agent(goal, 2)
    result = await asked.run("repair it")
    notice = next(item for item in result.transcript if getattr(item, "kind", "") == "stop_hook")
    assert "`make test` failed with exit code 1 (attempt 1 of 10)" in notice.text
    assert "test_a failed: 1 != 2" in notice.text


async def test_after_so_many_attempts_the_turn_ends_goal_not_met():
    goal = Goal("false", Commands(BAD, BAD), max_attempts=2)  # type: ignore[arg-type]
    asked, _ = agent(goal, 2)
    result = await asked.run("repair it")
    assert result.reason == "goal_not_met"
    assert result.turn.metadata["detail"] == "`false` failed with exit code 1 after 2 attempts"


async def test_a_command_that_does_not_exist_ends_the_turn_at_once():
    missing = CommandResult(127, "sh: 1: all: not found")
    goal = Goal("all tests pass", Commands(missing))  # type: ignore[arg-type]
    asked, model = agent(goal, 2)
    result = await asked.run("repair it")
    assert (result.reason, len(model.requests)) == ("goal_not_met", 1)
    detail = "`all tests pass` cannot run: command not found (exit code 127) after 1 attempt"
    assert result.turn.metadata["detail"] == detail


async def test_each_failed_attempt_is_reported_and_the_next_turn_has_its_own_attempts():
    reports: list[str] = []
    commands = Commands(BAD, BAD, GOOD)
    goal = Goal("x", commands, max_attempts=2, report=reports.append)  # type: ignore[arg-type]
    asked, _ = agent(goal, 3)
    driver = asked.start()
    results = []
    for text in ("repair it", "again"):
        driver.submit(text)
        while not isinstance(step := await driver.next(), Finished):
            pass
        results.append(step.result.reason)
    await driver.aclose()
    assert results == ["goal_not_met", "end_turn"]
    assert reports[1] == "goal, attempt 2 of 2: `x` failed with exit code 1\n  " + BAD.output


async def test_a_command_that_cannot_run_or_ends_badly_is_a_failure_in_words():
    ends = [WorkspaceError("no such folder"), CommandResult(None, "", timed_out=True), BAD]
    goal = Goal("x", Commands(*ends), max_attempts=3)  # type: ignore[arg-type]
    asked, _ = agent(goal, 3)
    result = await asked.run("go")
    notices = [item.text for item in result.transcript if getattr(item, "kind", "") == "stop_hook"]
    assert "could not be run" in notices[0]
    assert "no such folder" in notices[0]
    assert "timed out" in notices[1]
    assert "(It printed nothing.)" in notices[1]


async def test_of_a_long_output_the_end_is_shown():
    long = CommandResult(1, "x" * 100_000 + "the cause")
    goal = Goal("x", Commands(long), max_attempts=1)  # type: ignore[arg-type]
    asked, _ = agent(goal, 1)
    result = await asked.run("go")
    notice = next(item for item in result.transcript if getattr(item, "kind", "") == "stop_hook")
    assert notice.text.count("xthe cause") == 1
    assert len(notice.text) < MAX_OUTPUT_CHARS + 500


async def test_a_child_of_the_session_may_stop_without_the_goal():
    commands = Commands(GOOD)
    goal = Goal("x", commands)  # type: ignore[arg-type]
    parent, _ = agent(goal, 1)
    child, _ = agent(goal, 1)
    await parent.run("go")
    await child.run("go")
    assert commands.ran == ["x"]
