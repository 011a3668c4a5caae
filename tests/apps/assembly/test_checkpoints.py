"""When a turn is idle: only then a change of files is surely not the agent's."""

from __future__ import annotations

from collections.abc import Iterator

from treadle.apps.assembly.checkpoints import IdleTimes
from treadle.core.events import (
    ApprovalResolved,
    RequestStarted,
    TaskFinished,
    ToolDetached,
    ToolFinished,
    ToolStarted,
    TurnStarted,
    UsageUpdated,
)
from treadle.core.transcript.usage import Usage

SECOND = 1_000_000_000
TICK = SECOND // 50
STARTED = RequestStarted("s", "turn-1", 1, "m", 1)
ANSWERED = UsageUpdated("s", "turn-1", 1, "m", Usage(), Usage())


def seconds() -> Iterator[int]:
    number = 0
    while True:
        number += SECOND
        yield number


def test_a_turn_is_idle_from_a_request_to_its_answer_and_while_an_approval_is_open():
    clock = seconds()
    times = IdleTimes(lambda: next(clock))
    for event in (TurnStarted("s", "turn-1", 1), STARTED, ANSWERED):
        times.on_event(event)
    times.on_event(ToolStarted("s", "turn-1", 1, "call-1", "bash", ""))
    times.on_event(ToolFinished("s", "turn-1", 1, "call-1", "bash", ""))
    times.on_event(STARTED)
    times.on_event(ApprovalResolved("s", "turn-1", 1, "call-2", "allow"))
    assert times.periods == [(SECOND, 2 * SECOND - TICK), (3 * SECOND, 4 * SECOND - TICK)]
    times.on_event(TurnStarted("s", "turn-2", 1))
    assert times.periods == []


def test_a_turn_is_not_idle_while_a_command_runs_in_the_background():
    clock = seconds()
    times = IdleTimes(lambda: next(clock))
    times.on_event(ToolStarted("s", "turn-1", 1, "call-1", "bash", ""))
    times.on_event(ToolDetached("s", "turn-1", 1, "call-1", "task-1"))
    times.on_event(ToolFinished("s", "turn-1", 1, "call-1", "bash", ""))
    for event in (STARTED, ANSWERED):
        times.on_event(event)
    assert times.periods == []
    times.on_event(TaskFinished("s", "turn-1", 1, "task-1", "bash", ""))
    for event in (STARTED, ANSWERED):
        times.on_event(event)
    assert len(times.periods) == 1
