"""The result of a run, for the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, cast

import msgspec

from treadle.core.errors import AccessDenied, QuotaExhausted, UnknownModel
from treadle.core.events import TerminalReason, TurnResult
from treadle.core.loop.driver import Driver
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage
from treadle.core.type_variables import OutputT

if TYPE_CHECKING:
    from treadle.agents.structured_output import StructuredOutput

# The message says all about these: they are raised without the frames of the loop, so that it
# stands near the caller's own line.
ACCOUNT_ERRORS = (AccessDenied, QuotaExhausted, UnknownModel)


class Result(msgspec.Struct, Generic[OutputT], frozen=True):
    """How a run ended.

    `output` is the answer: an instance of the output type, or the text if there is none.
    `reason` is `end_turn`, or why the run stopped before; `detail` says it in words. `usage` and
    `cost` include child agents.
    """

    text: str
    reason: TerminalReason
    transcript: Transcript
    usage: Usage
    turn: TurnResult
    session_id: str
    output: OutputT = cast(OutputT, None)

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


class RunAnswer(msgspec.Struct, frozen=True):
    """The last turn of a run; with a JSON `text` and its `value` if an output type was wanted and
    that turn ended with an answer."""

    turn: TurnResult
    text: str | None = None
    value: Any = None


def make_result(driver: Driver, answer: RunAnswer, output: StructuredOutput | None) -> Result[Any]:
    """The result of a run. Raises the error of a failed turn, and OutputMissing if the run stopped
    before it gave an answer of the output type."""
    turn = answer.turn
    if isinstance(turn.error, ACCOUNT_ERRORS):
        raise turn.error.with_traceback(None)
    if turn.error is not None:
        raise turn.error
    text, value, used = turn.text, turn.text, turn.total_usage
    if output is not None:
        if answer.text is None:
            raise output.make_missing_error(turn, driver)
        text, value, used = answer.text, answer.value, driver.total_usage
    return Result(text, turn.reason, driver.transcript, used, turn, driver.session_id, value)
