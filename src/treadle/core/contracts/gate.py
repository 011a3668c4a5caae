"""The contract of a gate: may the next model call be made?

Every budget is a gate: rounds, tokens, money, time, repetition. The loop asks the gates before
each model call, with the worst case of the call, and reports afterwards what the call used.
Used by core/loop/gates.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

import msgspec

from treadle.core.contracts.model import ModelCard
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import CallPurpose, Usage


class RequestEstimate(msgspec.Struct, frozen=True):
    """What a gate decides on: the turn so far, and the worst case of the next request."""

    session_id: str
    turn_id: str
    rounds: int  # tool rounds finished in this turn
    calls: int  # tool calls answered in this turn
    usage: Usage  # of this turn
    session_usage: Usage  # with that of its children; of a reopened session, all that it used
    transcript: Transcript
    card: ModelCard
    request_chars: int
    max_output: int
    purpose: CallPurpose = "turn"
    parent_ids: tuple[str, ...] = ()  # of a child agent: its parent's session, then that one's, …


class Admit(msgspec.Struct, frozen=True):
    """The call may be made. `notice` is shown to the model, for example how much is left.

    `max_output` limits the tokens of the reply to what was reserved; None: the request stays as
    it is. With `call_stop` the reply may only be an answer: if it calls tools, its text is kept,
    the calls are not run, and the turn ends as this Stop says, with its closing reply if it allows
    one.
    """

    notice: str = ""
    max_output: int | None = None
    call_stop: Stop | None = None


class Stop(msgspec.Struct, frozen=True):
    """The call must not be made: a budget is used up, the model repeats itself, or (`end_turn`) the
    work is done.

    `closing_tokens` allows one last reply of that many tokens, without tools, for a summary.
    """

    reason: Literal[
        "end_turn", "max_turns", "budget_exceeded", "repetition", "goal_not_met", "error"
    ]
    detail: str
    closing_tokens: int = 0


class Wait(msgspec.Struct, frozen=True):
    """The call may be made later: `until_freed` ends when another call has settled. All gates are
    asked again then; what they reserved meanwhile is released."""

    detail: str
    until_freed: Callable[[], Awaitable[None]]


class Gate(Protocol):
    """A budget or another reason to stop.

    Promises: the loop calls `admit` before every model call, also before one of a mutator, and
    `admit` reserves what it admits. The loop calls `settle` exactly once for each call that was
    admitted or allowed as the closing reply: with what the call used, or with an empty usage if the
    call was not made. A gate must not block; sessions of several threads may share it.
    """

    def admit(self, estimate: RequestEstimate) -> Admit | Stop | Wait: ...

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None: ...


class BaseGate:
    """A gate that admits everything and keeps no account."""

    # False: `admit` does not read `request_chars`, which is 0 if no gate does. Estimating it costs
    # a part of each round.
    reads_size = True

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        return Admit()

    def settle(self, estimate: RequestEstimate, usage: Usage) -> None:
        return None
