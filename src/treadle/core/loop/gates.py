"""What a model call may cost: the gates are asked before each, and told afterwards what it was.

    admit    every gate sees the worst case and reserves it, or the call is not made
    settle   what was used, and what failed attempts have lost, takes the reservation's place

Gates judge; the books are the ledger's; the driver asks at the one place where models are called.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from treadle.core.contracts.gate import Gate, RequestEstimate, Stop
from treadle.core.loop.config import DriverConfig
from treadle.core.loop.model_call import ModelCaller
from treadle.core.loop.prepare import Toolbox
from treadle.core.loop.session_state import SessionState
from treadle.core.transcript.items import NoticeItem
from treadle.core.transcript.usage import NO_USAGE, Usage


class GateRunner:
    """The driver's own calls. What a mutator asks of a model is paid for in mutators.py."""

    def __init__(
        self,
        config: DriverConfig,
        session: SessionState,
        toolbox: Toolbox,
        model_caller: ModelCaller,
    ) -> None:
        self._config = config
        self._session = session
        self._toolbox = toolbox
        self._model_caller = model_caller
        self._gates = Gates(config.gates)

    def admit(self, system: str) -> Stop | None:
        """Whether the next request may be sent; None if nothing speaks against it."""
        is_closing = self._session.turn.closing_stop is not None
        if not self._config.gates or (is_closing and self._gates.has_reservations):
            return None  # for a closing reply it was set aside when a gate closed
        card = self._model_caller.model.card
        chars = self._session.state.chars + len(system) + self._toolbox.spec_chars
        most = self._config.options.max_tokens or card.max_output
        stop, told = self._gates.admit(self._session.estimate_request(card, chars, most))
        for text in told:
            self._session.append(NoticeItem(text, kind="budget"))
        return None if is_closing and stop is not None and stop.closing_tokens else stop

    def settle(self, used: Usage = NO_USAGE) -> None:
        """Tell the gates what the call has used, with what attempts lost that gave no reply."""
        lost = self._model_caller.take_lost_usage()
        if lost is not NO_USAGE:
            self._session.add_lost_usage(self._model_caller.last_model_name, lost)
            used = used + lost
        self._gates.settle(used)


class Gates:
    """Asks every gate before a model call, and settles with each that admitted it."""

    def __init__(self, gates: Sequence[Gate]) -> None:
        self._gates = gates
        self._admitted: list[tuple[Gate, RequestEstimate]] = []

    @property
    def has_reservations(self) -> bool:
        """Whether a call is still to be made, or settled, that was admitted."""
        return bool(self._admitted)

    def admit(self, estimate: RequestEstimate) -> tuple[Stop | None, list[str]]:
        """Whether to stop, and what the gates want the model to know.

        All are asked, so that each has reserved what a closing reply costs. Nothing left to ask
        goes before a budget that is used up; there is a closing reply if nobody objects to it.
        """
        told: list[str] = []
        stops: list[Stop] = []
        for gate in self._gates:
            answer = gate.admit(estimate)
            if isinstance(answer, Stop):
                stops.append(answer)
                if not answer.closing_tokens:
                    continue
            elif answer.notice:
                told.append(answer.notice)
            self._admitted.append((gate, estimate))
        if not stops:
            return None, told
        first = next((stop for stop in stops if stop.reason == "end_turn"), stops[0])
        closing = min(stop.closing_tokens for stop in stops)
        if not closing:
            self.settle(Usage())
        return msgspec.structs.replace(first, closing_tokens=closing), told

    def settle(self, used: Usage) -> None:
        for gate, account in self._admitted:
            gate.settle(account, used)
        self._admitted.clear()
