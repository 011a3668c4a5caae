"""The result of a run, for the caller."""

from __future__ import annotations

from typing import Any

import msgspec

from treadle.core.events import TerminalReason, TurnResult
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage


class Result(msgspec.Struct, frozen=True):
    """How a run ended. `output` is the instance of the output type, if one was given; `usage` and
    `cost` include child agents."""

    text: str
    reason: TerminalReason
    transcript: Transcript
    usage: Usage
    turn: TurnResult
    session_id: str
    output: Any = None

    @property
    def cost(self) -> float | None:
        """In USD; None when a price is not known."""
        return self.usage.cost
