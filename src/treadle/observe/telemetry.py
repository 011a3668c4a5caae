"""Spans for OpenTelemetry, by its conventions for generative AI.

    invoke_agent NAME          a turn; for a child agent, below the call that started it
      chat MODEL               one attempt at a model call
      execute_tool NAME        one tool call until it ends, also in the background

An observer. It needs the extra `otel`, imported when an instance is made; the program chooses
where spans go (the exporters of the SDK). Spans hold names, counts, times and errors; no content of
the conversation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.core import events
from treadle.core.contracts.observer import BaseObserver
from treadle.core.events import Event, TurnResult
from treadle.core.extras import require_extra
from treadle.core.transcript.usage import REPLY_PURPOSES, UNKNOWN_USAGE, Usage

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, Tracer, TracerProvider

# Providers that have another name in the conventions.
PROVIDER_NAMES = {
    "openai-chat": "openai",
    "gemini": "gcp.gemini",
    "azure": "azure.ai.openai",
    "mistral": "mistral_ai",
}
ABORTED = "aborted"


class _SessionSpans:
    """The open spans of one session."""

    def __init__(self, parent: Span | None) -> None:
        self.parent = parent
        self.turn: Span | None = None
        self.request: Span | None = None
        self.tools: dict[str, Span] = {}  # by call id
        self.tasks: dict[str, str] = {}  # task id -> call id


class Telemetry(BaseObserver):
    """The observer. `agent` is the name of an agent that has none of its own (`Agent(name=...)`);
    without `provider` the global one is used."""

    def __init__(self, provider: TracerProvider | None = None, *, agent: str = "treadle") -> None:
        require_extra("otel")
        from opentelemetry import context, trace

        self._trace, self._context = trace, context
        self._tracer: Tracer = trace.get_tracer("treadle", tracer_provider=provider)
        self._agent = agent
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
            case events.UsageUpdated(model=model, last=last, purpose=purpose) if (
                session.request is not None and purpose in REPLY_PURPOSES
            ):
                session.request.set_attribute("gen_ai.response.model", _split_model_name(model)[1])
                session.request.set_attributes(usage_attributes(last))
                if last != UNKNOWN_USAGE:  # that of a reply that broke off
                    self._end_request(session)
            case events.ToolStarted(call_id=call_id, name=name):
                started = self._begin_tool(session, call_id, name)
                # The context of this event is that of the tool, and of no one else (execute.py):
                # spans that the tool opens are below this one, and nothing has to be detached.
                self._context.attach(self._trace.set_span_in_context(started))
            case events.ToolFinished(call_id=call_id, name=name, is_error=failed, result=result):
                if call_id not in session.tools:  # denied before it began
                    self._begin_tool(session, call_id, name)
                ended, kind = session.tools.pop(call_id), "tool_error"
                if (fault := event.fault) is not None:
                    kind = fault.type
                    told = {"type": kind, "message": fault.message, "stacktrace": fault.traceback}
                    attributes = {f"exception.{key}": value for key, value in told.items()}
                    ended.add_event("exception", attributes)
                self._end(ended, result if failed else "", kind)
            case events.ToolDetached(call_id=call_id, task_id=task_id):
                session.tasks[task_id] = call_id
            case events.TaskFinished(task_id=task_id, result=result):
                span = session.tools.pop(session.tasks.pop(task_id, ""), None)
                if span is not None:  # cancelled; a call that ends by itself has no span left
                    self._end(span, result, ABORTED)
            case events.ApprovalResolved(call_id=call_id, decision=decision) if session.turn:
                attributes = {"gen_ai.tool.call.id": call_id, "treadle.decision": decision}
                session.turn.add_event("treadle.approval", attributes)
            case events.WarningRaised(text=text) if session.turn is not None:
                session.turn.add_event("treadle.warning", {"message": text})
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
        session.turn = self._tracer.start_span(name, context, attributes=attributes)

    def _begin_request(self, session: _SessionSpans, model: str, attempt: int) -> None:
        self._end_request(session, "replaced by another attempt")
        provider, name = _split_model_name(model)
        attributes: dict[str, str | int] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": PROVIDER_NAMES.get(provider, provider),
            "gen_ai.request.model": name,
            "treadle.attempt": attempt,
        }
        context, kind = self._child_context(session.turn), self._trace.SpanKind.CLIENT
        session.request = self._tracer.start_span(
            f"chat {name}", context, kind=kind, attributes=attributes
        )

    def _begin_tool(self, session: _SessionSpans, call_id: str, name: str) -> Span:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.type": "function",
        }
        context = self._child_context(session.turn)
        span = self._tracer.start_span(f"execute_tool {name}", context, attributes=attributes)
        session.tools[call_id] = span
        return span

    def _child_context(self, span: Span | None) -> Context | None:
        """The context of a span; without one, the program's current context."""
        return self._trace.set_span_in_context(span) if span is not None else None

    # --- end of spans ----------------------------------------------------------------------

    def _end_request(self, session: _SessionSpans, problem: str = "") -> None:
        span, session.request = session.request, None
        if span is not None:
            self._end(span, problem, "model_error")

    def _end_turn(
        self,
        session: _SessionSpans,
        session_id: str,
        result: TurnResult,
        error: str = "",
        kind: str = "",
    ) -> None:
        self._end_request(session, error or ABORTED)
        running = set(session.tasks.values())
        for call_id in [call_id for call_id in session.tools if call_id not in running]:
            self._end(session.tools.pop(call_id), "interrupted", ABORTED)
        span, session.turn = session.turn, None
        if span is not None:
            span.set_attributes({"treadle.reason": result.reason, "treadle.rounds": result.rounds})
            span.set_attributes(usage_attributes(result.usage))
            self._end(span, error, kind)
        if not session.tools:
            del self._sessions[session_id]

    def _end(self, span: Span, problem: str, kind: str) -> None:
        if problem:
            span.set_attribute("error.type", kind)
            span.set_status(self._trace.StatusCode.ERROR, problem)
        span.end()


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


def _split_model_name(model: str) -> tuple[str, str]:
    provider, slash, name = model.partition("/")
    return (provider, name) if slash else ("treadle", model)
