"""Where the loop stands: an immutable value, replaced with the reason why.

Nothing here is needed to go on after a crash: it is either the folded log (entries.py) or
counters of the running turn. The reasons, kept in order, are the trace.
"""

from __future__ import annotations

import msgspec

from treadle.core.contracts.gate import Stop
from treadle.core.transcript.entries import Intent, ApprovalDecision
from treadle.core.transcript.items import ToolResultItem
from treadle.core.transcript.transcript import Transcript
from treadle.core.transcript.usage import Usage


class TurnState(msgspec.Struct, frozen=True):
    """The counters of the turn that is running."""

    id: str
    rounds: int = 0
    calls: int = 0
    usage: Usage = Usage()
    continuations: int = 0
    pauses: int = 0
    stop_hook_blocks: int = 0  # of stop hooks
    had_empty_reply: bool = False
    was_compacted: bool = False
    closing_stop: Stop | None = None


class LoopState(msgspec.Struct, frozen=True):
    transcript: Transcript
    turn: TurnState | None = None
    turns: int = 0
    usage: Usage = Usage()
    last_usage: Usage = Usage()
    chars: int = 0
    decisions: dict[str, ApprovalDecision] = {}
    intents: dict[str, Intent] = {}
    early_results: dict[str, ToolResultItem] = {}
    quarantine: frozenset[tuple[int, int]] = frozenset()


class Transition(msgspec.Struct, frozen=True, gc=False):
    """Why the loop went on: one line of the trace."""

    turn_id: str
    reason: str

    def __str__(self) -> str:
        return f"{self.turn_id}  {self.reason}"
