"""The contract of a mutator: someone who may rewrite the view of the history.

Compaction, redaction and reminders are mutators. They decide by themselves whether to act.
The log keeps what they replace, and the loop checks every law after each one that changed
something; the new view is not taken over if one is broken.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol

import msgspec

from treadle.core.contracts.model import ModelCard
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage

# before_model: at the top of each iteration. context_too_long: the provider said so, once a turn.
# on_request: a person asked for it.
MutationPoint = Literal[
    "before_model", "after_tool_result", "after_turn_ended", "context_too_long", "on_request"
]


# With the model's card, the characters it is shown and the tokens it may answer: None says that
# the budget does not allow it; otherwise what it gives is called once, with what was used.
ReserveBudget = Callable[[ModelCard, int, int], Callable[[Usage], None] | None]


def no_reservation(card: ModelCard, chars: int, max_output: int) -> Callable[[Usage], None]:
    """Where nobody keeps books."""
    return lambda used: None


class MutationContext(msgspec.Struct, frozen=True):
    """What a mutator sees. `last_usage` is what the provider measured at the last call.

    tell     one line for the person
    consult  asks the pre_compact hooks: None forbids it, a text is added to the focus
    reserve  asks the budgets for a model call of its own; see Reserve
    """

    point: MutationPoint
    transcript: Transcript
    session_id: str
    turn_id: str
    card: ModelCard
    last_usage: Usage
    overhead_chars: int  # system prompt and tool definitions
    notify: Callable[[str], None]
    run_pre_compact_hooks: Callable[[], Awaitable[str | None]]
    focus: str = ""  # what the person wants to be kept above all
    reserve: ReserveBudget = no_reservation


class Mutator(Protocol):
    """Who may rewrite the view.

    Promises: returns None, or the very same transcript, when it has nothing to do; a changed
    view keeps every law; items that it keeps are the same objects.
    It must not drop the open calls of the last reply, or the answers to them.
    """

    @property
    def name(self) -> str: ...

    @property
    def points(self) -> frozenset[MutationPoint]: ...

    async def mutate(self, context: MutationContext) -> Transcript | None: ...
