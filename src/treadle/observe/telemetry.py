"""Spans and metrics for OpenTelemetry, by its conventions for generative AI.

    invoke_agent NAME          a turn; for a child agent, below the call that started it
      chat MODEL               one attempt at a model call
      execute_tool NAME        one tool call until it ends, also in the background

An observer. It needs the extra `otel`, imported when an instance is made; the program chooses
where they go (the exporters of the SDK). Spans hold names, counts, times and errors; the content of
the conversation only with `content`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from treadle.core import events
from treadle.core.contracts.observer import BaseObserver
from treadle.core.events import Event, TurnResult
from treadle.core.extras import require_extra
from treadle.core.transcript.items import AssistantItem, UserItem
from treadle.core.transcript.usage import REPLY_PURPOSES, UNKNOWN_USAGE, Usage

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider

# Providers that have another name in the conventions.
PROVIDER_NAMES = {
    "openai-chat": "openai",
    "gemini": "gcp.gemini",
    "azure": "azure.ai.openai",
    "mistral": "mistral_ai",
}
ABORTED = "aborted"


# The finish reasons of the conventions' messages.
FINISH_REASONS = {"end_turn": "stop", "tool_use": "tool_call", "max_tokens": "length"}


class _Operation(msgspec.Struct, frozen=True, eq=False):
    """An open span, and what its metrics need."""

    span: Span
    began: float
    labels: dict[str, str]


class _SessionSpans:
    """The open spans of one session."""

    def __init__(self, parent: _Operation | None) -> None:
        self.parent = parent
        self.turn: _Operation | None = None
        self.request: _Operation | None = None
        self.tools: dict[str, _Operation] = {}  # by call id
        self.arguments: dict[str, str] = {}  # by call id, if content is wanted
        self.tasks: dict[str, str] = {}  # task id -> call id


class Telemetry(BaseObserver):
    """The observer. `agent` is the name of an agent that has none of its own (`Agent(name=...)`);
    without `provider` and `meter_provider` the global ones are used. With `content`, spans have
    the messages of a turn, the arguments of calls and the beginning of their results."""

    def __init__(
        self,
        provider: TracerProvider | None = None,
        *,
        meter_provider: MeterProvider | None = None,
        agent: str = "treadle",
        content: bool = False,
    ) -> None:
        require_extra("otel")
        from opentelemetry import context, trace

        self._trace, self._context = trace, context
        self._tracer: Tracer = trace.get_tracer("treadle", tracer_provider=provider)
        self._metrics = TelemetryMetrics(meter_provider)
        self._agent = agent
        self._has_content = content
        self._sessions: dict[str, _SessionSpans] = {}

    def on_event(self, event: Event) -> None:
        parent = None
        while isinstance(event, events.ChildEvent):
            above = self._sessions.get(event.session_id)
            parent = above.tools.get(event.call_id) if above is not None else None
            event = event.child
        session = self._sessions.get(event.session_id)
        if session is None:
            session = self._sessions[event.session_id] = _SessionSpans(parent)
        self._handle_event(session, event)

    def _handle_event(self, session: _SessionSpans, event: Event) -> None:
        match event:
            case events.TurnStarted():
                self._begin_turn(session, event)
            case events.RequestStarted(model=model, attempt=attempt):
                self._begin_request(session, model, attempt)
            case events.RetryScheduled(reason=reason) | events.ModelChanged(reason=reason):
                self._end_request(session, reason)
            case events.UsageUpdated():
                self._add_usage(session, event)
            case events.ToolCallRequested(call=call) if self._has_content:
                session.arguments[call.id] = call.raw
            case events.ToolStarted(call_id=call_id, name=name):
                started = self._begin_tool(session, call_id, name)
                # The context of this event is that of the tool, and of no one else (execute.py):
                # spans that the tool opens are below this one, and nothing has to be detached.
                self._context.attach(self._trace.set_span_in_context(started.span))
            case events.ToolFinished(call_id=call_id, name=name, is_error=failed, result=result):
                if call_id not in session.tools:  # denied before it began
                    self._begin_tool(session, call_id, name)
                ended, kind = session.tools.pop(call_id), "tool_error"
                if (fault := event.fault) is not None:
                    kind = fault.type
                    told = {"type": kind, "message": fault.message, "stacktrace": fault.traceback}
                    attributes = {f"exception.{key}": value for key, value in told.items()}
                    ended.span.add_event("exception", attributes)
                if self._has_content:
                    ended.span.set_attribute("gen_ai.tool.call.result", result)
                self._end(ended, self._show_problem(result, kind) if failed else "", kind)
            case events.ToolDetached(call_id=call_id, task_id=task_id):
                session.tasks[task_id] = call_id
            case events.TaskFinished(task_id=task_id, result=result):
                task = session.tools.pop(session.tasks.pop(task_id, ""), None)
                if task is not None:  # cancelled; a call that ends by itself has no span left
                    self._end(task, self._show_problem(result, ABORTED), ABORTED)
            case events.ApprovalResolved(call_id=call_id, decision=decision) if session.turn:
                attributes = {"gen_ai.tool.call.id": call_id, "treadle.decision": decision}
                session.turn.span.add_event("treadle.approval", attributes)
            case events.WarningRaised(text=text) if session.turn is not None:
                session.turn.span.add_event("treadle.warning", {"message": text})
            case events.RunFailed(result=result, error=error, kind=kind):
                self._end_turn(session, event.session_id, result, error, kind)
            case events.TurnFinished(result=result):
                self._end_turn(session, event.session_id, result)
            case _:
                pass

    # --- start of spans --------------------------------------------------------------------

    def _begin_turn(self, session: _SessionSpans, event: events.TurnStarted) -> None:
        agent = event.agent or self._agent
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": agent,
            "gen_ai.conversation.id": event.session_id,
            "treadle.turn": event.turn_id,
        }
        name, context = f"invoke_agent {agent}", self._child_context(session.parent)
        span = self._tracer.start_span(name, context, attributes=attributes)
        labels = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent}
        session.turn = _Operation(span, monotonic(), labels)

    def _begin_request(self, session: _SessionSpans, model: str, attempt: int) -> None:
        self._end_request(session, "replaced by another attempt")
        labels = _label_model(model)
        attributes: dict[str, str | int] = {**labels, "treadle.attempt": attempt}
        context, kind = self._child_context(session.turn), self._trace.SpanKind.CLIENT
        name = f"chat {labels['gen_ai.request.model']}"
        span = self._tracer.start_span(name, context, kind=kind, attributes=attributes)
        session.request = _Operation(span, monotonic(), labels)

    def _begin_tool(self, session: _SessionSpans, call_id: str, name: str) -> _Operation:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.type": "function",
        }
        context = self._child_context(session.turn)
        if (arguments := session.arguments.pop(call_id, None)) is not None:
            attributes["gen_ai.tool.call.arguments"] = arguments
        span = self._tracer.start_span(f"execute_tool {name}", context, attributes=attributes)
        labels = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        started = session.tools[call_id] = _Operation(span, monotonic(), labels)
        return started

    def _child_context(self, above: _Operation | None) -> Context | None:
        """The context of a span; without one, the program's current context."""
        return self._trace.set_span_in_context(above.span) if above is not None else None

    def _add_usage(self, session: _SessionSpans, event: events.UsageUpdated) -> None:
        labels, is_known = _label_model(event.model), event.last != UNKNOWN_USAGE
        if is_known:
            self._metrics.add_usage(labels, event.last)
        if session.request is not None and event.purpose in REPLY_PURPOSES:
            span = session.request.span
            span.set_attribute("gen_ai.response.model", labels["gen_ai.request.model"])
            span.set_attributes(usage_attributes(event.last))
            if event.stop:
                span.set_attribute("gen_ai.response.finish_reasons", [event.stop])
            if is_known:  # not that of a reply that broke off
                self._end_request(session)

    # --- end of spans ----------------------------------------------------------------------

    def _end_request(
        self,
        session: _SessionSpans,
        problem: str = "",
        kind: str = "model_error",
        error: BaseException | None = None,
    ) -> None:
        request, session.request = session.request, None
        if request is not None:
            if error is not None:
                request.span.record_exception(error)
            self._end(request, problem, kind)

    def _end_turn(
        self,
        session: _SessionSpans,
        session_id: str,
        result: TurnResult,
        error: str = "",
        kind: str = "",
    ) -> None:
        self._end_request(session, error or ABORTED, kind or ABORTED, result.error)
        running = set(session.tasks.values())
        for call_id in [call_id for call_id in session.tools if call_id not in running]:
            self._end(session.tools.pop(call_id), "interrupted", ABORTED)
        turn, session.turn = session.turn, None
        if turn is not None:
            span = turn.span
            span.set_attributes({"treadle.reason": result.reason, "treadle.rounds": result.rounds})
            span.set_attributes(usage_attributes(result.usage))
            stops = [item.stop for item in result.items if isinstance(item, AssistantItem)]
            if stops:
                span.set_attribute("gen_ai.response.finish_reasons", stops)
            if self._has_content:
                span.set_attributes(message_attributes(result))
            if result.error is not None:
                span.record_exception(result.error)
            self._end(turn, error, kind)
        session.arguments.clear()
        if not session.tools:
            del self._sessions[session_id]

    def _show_problem(self, result: str, kind: str) -> str:
        """The result of a failed call is content."""
        return result if self._has_content else kind

    def _end(self, operation: _Operation, problem: str, kind: str) -> None:
        seconds, error = monotonic() - operation.began, kind if problem else ""
        self._metrics.add_duration(operation.labels, seconds, error)
        if problem:
            operation.span.set_attribute("error.type", kind)
            operation.span.set_status(self._trace.StatusCode.ERROR, problem)
        operation.span.end()


def usage_attributes(usage: Usage) -> dict[str, int | float]:
    """Usage as attributes. An unknown cost is left out."""
    attributes: dict[str, int | float] = {
        "gen_ai.usage.input_tokens": usage.total_input,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning,
    }
    return attributes if usage.cost is None else {**attributes, "treadle.cost_usd": usage.cost}


def message_attributes(result: TurnResult) -> dict[str, str]:
    """The messages of a turn, in the JSON of the conventions: the user's, and the answer."""
    said = [item for item in result.items if isinstance(item, UserItem)]
    stops = [item.stop for item in result.items if isinstance(item, AssistantItem)]
    answer = _make_message("assistant", result.text)
    if stops:
        answer["finish_reason"] = FINISH_REASONS.get(stops[-1], stops[-1])
    return {
        "gen_ai.input.messages": json.dumps([_make_message("user", one.text) for one in said]),
        "gen_ai.output.messages": json.dumps([answer]),
    }


def _make_message(role: str, text: str) -> dict[str, object]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _label_model(model: str) -> dict[str, str]:
    """What spans and metrics of a model call say of it."""
    provider, slash, name = model.partition("/")
    provider, name = (provider, name) if slash else ("treadle", model)
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": PROVIDER_NAMES.get(provider, provider),
        "gen_ai.request.model": name,
    }


# Those that the conventions recommend.
TOKEN_BUCKETS = [4.0**power for power in range(14)]
SECOND_BUCKETS = [0.01 * 2.0**power for power in range(14)]


class TelemetryMetrics:
    """The instruments; without `provider` those of the global one."""

    def __init__(self, provider: MeterProvider | None) -> None:
        from opentelemetry import metrics

        meter = metrics.get_meter("treadle", meter_provider=provider)
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=TOKEN_BUCKETS,
        )
        self._seconds = meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "GenAI operation duration.",
            explicit_bucket_boundaries_advisory=SECOND_BUCKETS,
        )
        self._cost = meter.create_counter("treadle.cost", "USD", "What model calls cost.")

    def add_usage(self, attributes: Mapping[str, str], usage: Usage) -> None:
        """What a model call used. An unknown cost is left out."""
        for kind, count in (("input", usage.total_input), ("output", usage.output)):
            self._tokens.record(count, {**attributes, "gen_ai.token.type": kind})
        if usage.cost:
            self._cost.add(usage.cost, dict(attributes))

    def add_duration(self, attributes: Mapping[str, str], seconds: float, error: str) -> None:
        """How long an operation took; `error` is the type of its error, if it failed."""
        failed = {"error.type": error} if error else {}
        self._seconds.record(seconds, {**attributes, **failed})
