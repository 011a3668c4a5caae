"""What a model call may cost: the gates are asked before each, and told afterwards what it was.

    admit    every gate sees the worst case and reserves it, or the call is not made
    settle   what was used, and what failed attempts have lost, takes the reservation's place

Gates judge; the books are the ledger's; the driver asks at the one place where models are called.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from treadle.core.contracts.gate import Account, Gate, Stop
from treadle.core.loop.asking import Asking
from treadle.core.loop.equipment import Equipment
from treadle.core.loop.ledger import Ledger
from treadle.core.loop.toolbox import Toolbox
from treadle.core.transcript.items import NoticeItem
from treadle.core.transcript.usage import NOTHING, Usage


class Paying:
    """The driver's own calls. What a mutator asks of a model is paid for in rewriting.py."""

    def __init__(
        self, equipment: Equipment, ledger: Ledger, toolbox: Toolbox, asking: Asking
    ) -> None:
        self._equipment = equipment
        self._ledger = ledger
        self._toolbox = toolbox
        self._asking = asking
        self._gates = Gates(equipment.gates)

    def admit(self, system: str) -> Stop | None:
        """Whether the next request may be sent; None if nothing speaks against it."""
        is_closing = self._ledger.turn.closing is not None
        if not self._equipment.gates or (is_closing and self._gates.hold_something):
            return None  # for a closing reply it was set aside when a gate closed
        card = self._asking.model.card
        chars = self._ledger.state.chars + len(system) + self._toolbox.chars
        most = self._equipment.options.max_tokens or card.max_output
        stop, told = self._gates.admit(self._ledger.account(card, chars, most))
        for text in told:
            self._ledger.append(NoticeItem(text, kind="budget"))
        return None if is_closing and stop is not None and stop.closing else stop

    def settle(self, used: Usage = NOTHING) -> None:
        """Tell the gates what the call has used, with what attempts lost that gave no reply."""
        lost = self._asking.lost()
        if lost is not NOTHING:
            self._ledger.waste(self._asking.asked, lost)
            used = used + lost
        self._gates.settle(used)


class Gates:
    """Asks every gate before a model call, and settles with each that admitted it."""

    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = gates
        self._admitted: list[tuple[Gate, Account]] = []

    @property
    def hold_something(self) -> bool:
        """Whether a call is still to be made, or settled, that was admitted."""
        return bool(self._admitted)

    def admit(self, account: Account) -> tuple[Stop | None, list[str]]:
        """Whether to stop, and what the gates want the model to know.

        All are asked, so that each has reserved what a closing reply costs. Nothing left to ask
        goes before a budget that is used up; there is a closing reply if nobody objects to it.
        """
        told: list[str] = []
        stops: list[Stop] = []
        for gate in self._gates:
            answer = gate.admit(account)
            if isinstance(answer, Stop):
                stops.append(answer)
                if not answer.closing:
                    continue
            elif answer.tell:
                told.append(answer.tell)
            self._admitted.append((gate, account))
        if not stops:
            return None, told
        first = next((stop for stop in stops if stop.reason == "end_turn"), stops[0])
        closing = min(stop.closing for stop in stops)
        if not closing:
            self.settle(Usage())
        return msgspec.structs.replace(first, closing=closing), told

    def settle(self, used: Usage) -> None:
        for gate, account in self._admitted:
            gate.settle(account, used)
        self._admitted.clear()
