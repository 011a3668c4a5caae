"""The result of a run, for the caller."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Generic, cast

import msgspec

from treadle.core.contracts.task_manager import TaskInfo
from treadle.core.errors import AccessDenied, QuotaExhausted, TreadleError, UnknownModel
from treadle.core.events import TerminalReason, TurnResult
from treadle.core.loop.driver import Driver
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage
from treadle.core.type_variables import OutputT

# The message says all about these: they are raised without the frames of the loop, so that it
# stands near the caller's own line.
ACCOUNT_ERRORS = (AccessDenied, QuotaExhausted, UnknownModel)


class Result(msgspec.Struct, Generic[OutputT], frozen=True):
    """How a run ended.

    `output` is the answer: an instance of the output type, or the text if there is none.
    `reason` is `end_turn`, or why the run stopped before; `detail` says it in words. `usage` and
    `cost` include child agents. `background` are the calls that went to the background, with what
    became of them: one that is `running` ends with its session, or with the run if there is none.
    """

    text: str
    reason: TerminalReason
    transcript: Transcript
    usage: Usage
    turn: TurnResult
    session_id: str
    output: OutputT = cast(OutputT, None)
    background: tuple[TaskInfo, ...] = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            from treadle.agents.foreign_names import unknown_attribute

            raise unknown_attribute("Result", name, self)

    @property
    def detail(self) -> str:
        """Why the run stopped, in words, such as the limit that was reached; "" if it did not."""
        return self.turn.detail

    @property
    def cost(self) -> float | None:
        """In USD; None when a price is not known."""
        return self.usage.cost


def attach_run(error: BaseException, driver: Driver, usage: Usage) -> BaseException:
    """The error, which leaves a run, with it: `transcript`, `usage`, `cost` and `session_id`."""
    carried = {"transcript": driver.transcript, "usage": usage, "session_id": driver.session_id}
    if not isinstance(error, TreadleError):
        carried["cost"] = usage.cost
    for name, value in carried.items():
        with contextlib.suppress(AttributeError):  # a class without room for it
            setattr(error, name, value)
    return error
