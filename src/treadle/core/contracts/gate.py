"""The contract of a gate: may the next model call be made?

Every budget is a gate: rounds, tokens, money, time, repetition. Gates stand before each model
call, see its worst case, and are told afterwards what it really used.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from treadle.core.contracts.model import ModelCard
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage


class RequestEstimate(msgspec.Struct, frozen=True):
    """What a gate sees: the turn so far, and what the next request could cost at worst."""

    session_id: str
    turn_id: str
    rounds: int  # tool rounds finished in this turn
    calls: int  # tool calls answered in this turn
    usage: Usage  # of this turn
    session_usage: Usage
    transcript: Transcript
    card: ModelCard
    request_chars: int
    max_output: int


class Admit(msgspec.Struct, frozen=True):
    """Go on; `tell` is shown to the model, for example how much is left."""

    notice: str = ""


class Stop(msgspec.Struct, frozen=True):
    """Not this request: a budget is used up, or (`end_turn`) there is nothing left to ask.

    `closing` allows one last reply without tools, for a summary, of so many tokens.
    """

    reason: Literal["end_turn", "max_turns", "budget_exceeded", "goal_not_met", "error"]
    detail: str
    closing_tokens: int = 0


class Gate(Protocol):
    """Who may stop the spending.

    Promises: `admit` is asked before every model call, also of a mutator, and reserves what it
    admits; `settle` is called exactly once for each call that it admitted or allowed to close the
    turn, with what was used for it, or with an empty usage if it was not made.
    It must not wait.
    """

    def admit(self, estimate: RequestEstimate) -> Admit | Stop: ...

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None: ...


class BaseGate:
    """A gate that admits everything and keeps no account."""

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        return Admit()

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        return None
