"""Runs the gates before a model call, and settles with them afterwards.

admit    every gate sees the worst case and reserves it, or the call is not made
settle   the real usage, with that of failed attempts, replaces the reservation; a gate that fails
         here is reported, and the paid reply is kept
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from treadle.core.contracts.gate import Admit, Gate, RequestEstimate, Stop
from treadle.core.contracts.model import ModelCard, ModelOptions
from treadle.core.errors import ConfigError, error_text
from treadle.core.events import WarningRaised
from treadle.core.loop.config import DriverConfig
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.model_call import ModelCaller
from treadle.core.loop.prepare import Toolbox
from treadle.core.loop.session_state import SessionState
from treadle.core.transcript.items import NoticeItem
from treadle.core.transcript.size_estimate import estimate_text_chars
from treadle.core.transcript.usage import NO_USAGE, Usage


class GateRunner:
    """For the calls of the driver itself; mutators.py reserves for those of mutators."""

    def __init__(
        self,
        config: DriverConfig,
        emitter: Emitter,
        session: SessionState,
        toolbox: Toolbox,
        model_caller: ModelCaller,
    ) -> None:
        self._config = config
        self._session = session
        self._toolbox = toolbox
        self._model_caller = model_caller
        self._gates = Gates(config.gates, emitter)
        self.max_output: int | None = None  # of the reply to the admitted request; None: no limit
        self.call_stop: Stop | None = None  # how the turn ends if that reply calls tools

    def admit(self, system: str) -> Stop | None:
        """None if the next request may be sent, else why not."""
        self.max_output = self.call_stop = None
        is_closing = self._session.closing_stop is not None
        if not self._config.gates or (is_closing and self._gates.has_reservations):
            return None  # the closing reply is reserved already
        card = self._model_caller.model.card
        fixed = estimate_text_chars(system) + self._toolbox.spec_chars
        chars = self._session.chars + fixed
        max_output = _find_max_output(self._config.options, card)
        estimate = self._session.estimate_request(card, chars, max_output)
        self._gates.set_gates((*self._config.gates, *self._session.settings.gates))
        stop, admitted = self._gates.admit(estimate)
        self.max_output, self.call_stop = admitted.max_output, admitted.call_stop
        for text in admitted.notices:
            self._session.append(NoticeItem(text, kind="budget"))
        return None if is_closing and stop is not None and stop.closing_tokens else stop

    def settle(self, used: Usage = NO_USAGE) -> None:
        """Report the usage of the call to the gates, with that of attempts without a reply."""
        lost = self._model_caller.take_lost_usage()
        if lost is not NO_USAGE:
            self._session.add_usage(self._model_caller.last_model_name, lost, "turn")
            used = used + lost
        self._gates.settle(used)


class Admitted(msgspec.Struct, frozen=True):
    """What several gates said about a call that they admit; see Admit."""

    notices: tuple[str, ...] = ()
    max_output: int | None = None
    call_stop: Stop | None = None


NO_REMARKS, ADMITTED = Admit(), Admitted()


class Gates:
    """Asks every gate before a model call, and settles with those that admitted it."""

    def __init__(self, gates: Sequence[Gate], emitter: Emitter) -> None:
        self._gates = gates
        self._emitter = emitter
        self._admitted: list[tuple[Gate, RequestEstimate]] = []

    def set_gates(self, gates: Sequence[Gate]) -> None:
        self._gates = gates

    @property
    def has_reservations(self) -> bool:
        """Whether an admitted call is not settled yet."""
        return bool(self._admitted)

    def admit(self, estimate: RequestEstimate) -> tuple[Stop | None, Admitted]:
        """Whether to stop, and what the gates said that admitted the call.

        Every gate is asked, so that each reserves what a closing reply costs. An `end_turn` stop
        wins over a budget stop. A closing reply is allowed only if every gate allows one.
        """
        admits: list[Admit] = []
        stops: list[Stop] = []
        for gate in self._gates:
            answer: object = gate.admit(estimate)
            if isinstance(answer, Stop):
                stops.append(answer)
                if not answer.closing_tokens:
                    continue
            elif isinstance(answer, Admit):
                if answer != NO_REMARKS:
                    admits.append(answer)
            else:
                name = type(gate).__name__
                raise ConfigError(f"gate {name} returned {answer!r:.80}; expected Admit or Stop")
            self._admitted.append((gate, estimate))
        if not stops:
            return None, _combine(admits) if admits else ADMITTED
        first = next((stop for stop in stops if stop.reason == "end_turn"), stops[0])
        closing = min(stop.closing_tokens for stop in stops)
        if not closing:
            self.settle(Usage())
        admitted = Admitted(_combine(admits).notices)
        return msgspec.structs.replace(first, closing_tokens=closing), admitted

    def settle(self, used: Usage) -> None:
        admitted, self._admitted = self._admitted, []
        for gate, estimate in admitted:
            try:
                gate.settle(estimate, used)
            except Exception as error:  # noqa: BLE001 - a gate may raise anything
                name = type(gate).__name__
                problem = f"gate {name} could not settle a model call: {error_text(error)}"
                self._emitter.emit(WarningRaised, f"{problem}; its account may be wrong")


def _combine(admits: Sequence[Admit]) -> Admitted:
    limits = [admit.max_output for admit in admits if admit.max_output is not None]
    stops = [admit.call_stop for admit in admits if admit.call_stop is not None]
    return Admitted(
        tuple([admit.notice for admit in admits if admit.notice]),
        min(limits, default=None),
        stops[0] if stops else None,
    )


def _find_max_output(options: ModelOptions, card: ModelCard) -> int:
    """The most tokens that a model may use for a reply to a request with these options."""
    if options.max_tokens is not None:
        return options.max_tokens
    if options.thinking in (None, "auto") and card.default_output is not None:
        return card.default_output
    return card.max_output
