"""Metrics for OpenTelemetry, and content in spans, seen through the SDK's own readers in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

from treadle import Agent, Usage
from treadle.errors import AccessDenied, Overloaded
from treadle.models import Say, Scripted
from treadle.observe import Telemetry
from treadle.testing import ManualClock, RecordingTool

USED = Usage(10, 5, cache_read=80, cache_write=10, requests=1, cost=0.5)
MODEL = "anthropic/claude-x"


class Measured:
    """An agent with metrics and spans, and what they came to."""

    def __init__(self, model: Any, *tools: Any, content: bool = False) -> None:
        self._reader, self._kept = InMemoryMetricReader(), InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        meters = MeterProvider([self._reader], shutdown_on_exit=False)
        telemetry = Telemetry(provider, meter_provider=meters, content=content)
        self.agent = Agent(model, tools, observers=[telemetry], clock=ManualClock(), name="shop")

    def find_points(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        data = self._reader.get_metrics_data()
        assert data is not None
        metrics = [
            metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]
        [found] = [metric for metric in metrics if metric.name == name]
        return [(dict(point.attributes or {}), point) for point in found.data.data_points]

    def list_spans(self, prefix: str) -> list[ReadableSpan]:
        return [span for span in self._kept.get_finished_spans() if span.name.startswith(prefix)]

    def find_span(self, name: str) -> ReadableSpan:
        [found] = [span for span in self.list_spans(name) if span.name == name]
        return found


async def test_tokens_and_cost_are_counted_by_model():
    measured = Measured(Scripted([Say("a", usage=USED), Say("b", usage=USED)], name=MODEL))
    for _ in range(2):
        await measured.agent.run("go")
    model = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "anthropic"}
    model |= {"gen_ai.request.model": "claude-x"}
    tokens = measured.find_points(gen_ai_metrics.GEN_AI_CLIENT_TOKEN_USAGE)
    assert [(labels, point.count, point.sum) for labels, point in tokens] == [
        ({**model, "gen_ai.token.type": "input"}, 2, 200),
        ({**model, "gen_ai.token.type": "output"}, 2, 10),
    ]
    [(labels, cost)] = measured.find_points("treadle.cost")
    assert (labels, cost.value) == (model, 1.0)


async def test_durations_are_those_of_turns_model_calls_and_tools_with_their_errors():
    model = Scripted(
        [Overloaded("busy"), Say(calls=[("record", {})]), AccessDenied("no")], name=MODEL
    )
    measured = Measured(model, RecordingTool(answer=RuntimeError("bug")))
    with pytest.raises(AccessDenied):
        await measured.agent.run("go")
    points = measured.find_points(gen_ai_metrics.GEN_AI_CLIENT_OPERATION_DURATION)
    found = [(one["gen_ai.operation.name"], one.get("error.type"), p.count) for one, p in points]
    assert sorted(found, key=str) == [
        ("chat", "AccessDenied", 1),
        ("chat", "model_error", 1),
        ("chat", None, 1),
        ("execute_tool", "RuntimeError", 1),
        ("invoke_agent", "AccessDenied", 1),
    ]
    assert all(point.sum >= 0 for _, point in points)
    [error] = measured.find_span("invoke_agent shop").events
    assert (error.name, dict(error.attributes or {})["exception.message"]) == ("exception", "no")


async def test_a_model_call_has_its_finish_reason_and_a_turn_those_of_its_replies():
    model = Scripted([Say(calls=[("record", {})]), "done"])
    measured = Measured(model, RecordingTool())
    await measured.agent.run("go")
    given = dict(measured.find_span("invoke_agent shop").attributes or {})
    assert given["gen_ai.response.finish_reasons"] == ("tool_use", "end_turn")
    chats = measured.list_spans("chat ")
    found = [dict(span.attributes or {})["gen_ai.response.finish_reasons"] for span in chats]
    assert found == [("tool_use",), ("end_turn",)]


async def test_content_is_in_spans_only_if_it_is_wanted():
    for content in (False, True):
        model = Scripted([Say(calls=[("record", {"word": "hidden"})]), "The secret is out."])
        measured = Measured(model, RecordingTool(answer="a result"), content=content)
        await measured.agent.run("Tell a secret")
        turn = dict(measured.find_span("invoke_agent shop").attributes or {})
        call = dict(measured.find_span("execute_tool record").attributes or {})
        if not content:
            assert not any(word in str([turn, call]) for word in ("secret", "hidden", "a result"))
            continue
        [asked] = json.loads(str(turn["gen_ai.input.messages"]))
        [answer] = json.loads(str(turn["gen_ai.output.messages"]))
        assert asked["parts"] == [{"type": "text", "content": "Tell a secret"}]
        assert answer["parts"] == [{"type": "text", "content": "The secret is out."}]
        assert (asked["role"], answer["role"], answer["finish_reason"]) == (
            *("user", "assistant"),
            "stop",
        )
        assert json.loads(str(call["gen_ai.tool.call.arguments"])) == {"word": "hidden"}
        assert call["gen_ai.tool.call.result"] == "a result"
