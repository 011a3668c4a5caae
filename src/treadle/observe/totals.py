"""Totals of a run: tokens and cost by model, model calls, tool calls, errors.

An observer for a status line, a final report or a test. Child agents are included. The costs of
past sessions are read from their logs by treadle.sessions.cost.
"""

from __future__ import annotations

from collections import Counter

from treadle.core import events
from treadle.core.contracts.observer import BaseObserver
from treadle.core.events import Event
from treadle.core.transcript.usage import Usage
from treadle.lib.text.text import format_cost, plural


class Totals(BaseObserver):
    """Sums since its creation. `usage.cost` is None once a call has no known price.

    known_cost        the cost of the calls that have a price
    requests          model calls started, retries included
    failed_requests   attempts without a reply
    calls_by_tool     finished calls of each tool; tool_errors of them ended with an error
    """

    def __init__(self) -> None:
        self.usage = Usage()
        self.by_model: dict[str, Usage] = {}
        self.requests = 0
        self.failed_requests = 0
        self.turns = 0
        self.calls_by_tool: Counter[str] = Counter()
        self.tool_errors = 0
        self.denied_calls = 0
        self.compactions = 0
        self.child_sessions: set[str] = set()
        self.turn_reasons: Counter[str] = Counter()  # terminal reasons, without child agents

    @property
    def known_cost(self) -> float:
        return self.usage.known_cost

    @property
    def tool_calls(self) -> int:
        return self.calls_by_tool.total()

    def on_event(self, event: Event) -> None:
        is_child = isinstance(event, events.ChildEvent)
        event = events.unwrap(event)
        if is_child:
            self.child_sessions.add(event.session_id)
        elif isinstance(event, events.TurnFinished | events.RunFailed):
            self.turns += 1
            self.turn_reasons[event.result.reason] += 1
        self._count(event)

    def _count(self, event: Event) -> None:
        match event:
            case events.UsageUpdated(model=model, last=last):
                self.usage = self.usage + last
                self.by_model[model] = self.by_model.get(model, Usage()) + last
            case events.RequestStarted():
                self.requests += 1
            case events.RetryScheduled() | events.ModelChanged(is_choice=False):
                self.failed_requests += 1
            case events.ToolFinished(name=name, is_error=is_error):
                self.calls_by_tool[name] += 1
                self.tool_errors += is_error
            case events.ApprovalResolved(decision="deny"):
                self.denied_calls += 1
            case events.MutationFinished(mutator="compaction", changed=True):
                self.compactions += 1
            case _:
                pass

    def __str__(self) -> str:
        used = self.usage
        cost = format_cost(used.cost, used.known_cost) + " cost" * (used.cost is None)
        calls = f"{plural(self.requests, 'model call')}, {plural(self.tool_calls, 'tool call')}"
        return (
            f"{used.total_input:,} tokens in, {used.output:,} out, {cost}; "
            f"{calls}, {plural(self.tool_errors, 'error')}"
        )
