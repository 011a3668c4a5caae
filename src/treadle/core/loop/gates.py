"""Asks the gates before a model call, and settles with them afterwards.

admit    every gate sees the worst case and reserves it, or the call is not made; if one says Wait,
         all are asked again later
settle   the real usage, with that of failed attempts, replaces the reservation; a gate that fails
         here is reported, and the paid reply is kept

Used by model_gateway.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from treadle.core.contracts.gate import Admit, Gate, RequestEstimate, Stop, Wait
from treadle.core.errors import ConfigError, error_text
from treadle.core.events import Notified, WarningRaised
from treadle.core.loop.emitter import Emitter
from treadle.core.transcript.usage import NO_USAGE, Usage
from treadle.lib.contained import call_contained


class Admitted(msgspec.Struct, frozen=True):
    """What several gates said about a call that they admit; see Admit."""

    notices: tuple[str, ...] = ()
    max_output: int | None = None
    call_stop: Stop | None = None


NO_REMARKS, ADMITTED = Admit(), Admitted()
# Reasons to end a turn: a call that is no reply of one is made nevertheless.
TURN_STOPS = frozenset({"end_turn", "max_turns", "repetition", "goal_not_met"})
OUTSIDE_TURNS = frozenset({"side_question", "summary", "title", "judge", "search"})


class Gates:
    """Asks every gate before a model call, and settles with those that admitted it."""

    def __init__(self, gates: Sequence[Gate], emitter: Emitter) -> None:
        self.set_gates(gates)
        self._emitter = emitter
        self._admitted: list[tuple[Gate, RequestEstimate]] = []

    def set_gates(self, gates: Sequence[Gate]) -> None:
        self.gates = gates
        self.reads_size = any(getattr(gate, "reads_size", True) for gate in gates)

    @property
    def has_reservations(self) -> bool:
        """Whether an admitted call is not settled yet."""
        return bool(self._admitted)

    async def admit(self, estimate: RequestEstimate) -> tuple[Stop | None, Admitted]:
        """Whether to stop, and what the gates said that admitted the call.

        Every gate is asked, so that each reserves what a closing reply costs. An `end_turn` stop
        wins over a budget stop. A closing reply is allowed only if every gate allows one.
        """
        if self._admitted:  # for a closing reply, before a new message continued the turn
            self.settle(NO_USAGE)
        notices: tuple[str, ...] = ()
        told = ""
        while True:
            admits, stops, wait = self._ask(estimate)
            if not stops and wait is None:
                return None, _combine(admits, notices) if admits or notices else ADMITTED
            notices = _combine(admits, notices).notices  # a gate says each only once
            if wait is None or any(not stop.closing_tokens for stop in stops):
                break
            self.settle(NO_USAGE)
            if wait.detail != told:
                told = wait.detail
                self._emitter.emit(Notified, told)
            await wait.until_freed()
        first = next((stop for stop in stops if stop.reason == "end_turn"), stops[0])
        closing = min(stop.closing_tokens for stop in stops)
        if not closing:
            self.settle(NO_USAGE)
        return msgspec.structs.replace(first, closing_tokens=closing), Admitted(notices)

    def _ask(self, estimate: RequestEstimate) -> tuple[list[Admit], list[Stop], Wait | None]:
        admits: list[Admit] = []
        stops: list[Stop] = []
        wait: Wait | None = None
        try:
            for gate in self.gates:
                answer: object = call_contained(gate.admit, estimate)
                if isinstance(answer, Admit):
                    if answer != NO_REMARKS:
                        admits.append(answer)
                elif isinstance(answer, Stop):
                    if answer.reason in TURN_STOPS and estimate.purpose in OUTSIDE_TURNS:
                        continue
                    stops.append(answer)
                    if not answer.closing_tokens:
                        continue
                elif isinstance(answer, Wait):
                    wait = wait or answer
                    continue
                else:
                    name = type(gate).__name__
                    expected = "expected Admit, Stop or Wait"
                    raise ConfigError(f"gate {name} returned {answer!r:.80}; {expected}")
                self._admitted.append((gate, estimate))
        except BaseException:
            self.settle(NO_USAGE)
            raise
        return admits, stops, wait

    def settle(self, used: Usage) -> None:
        admitted, self._admitted = self._admitted, []
        for gate, estimate in admitted:
            try:
                call_contained(gate.settle, estimate, used)
            except Exception as error:  # noqa: BLE001 - a gate may raise anything
                name = type(gate).__name__
                problem = f"gate {name} could not settle a model call: {error_text(error)}"
                self._emitter.emit(WarningRaised, f"{problem}; its account may be wrong")


def _combine(admits: Sequence[Admit], notices: tuple[str, ...] = ()) -> Admitted:
    limits = [admit.max_output for admit in admits if admit.max_output is not None]
    stops = [admit.call_stop for admit in admits if admit.call_stop is not None]
    return Admitted(
        (*notices, *[admit.notice for admit in admits if admit.notice]),
        min(limits, default=None),
        stops[0] if stops else None,
    )
