"""Spans for OpenTelemetry, seen through the SDK's own exporter in memory."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import SpanContext, StatusCode

from treadle import Agent, Usage, tool
from treadle.core.errors import AccessDenied, MissingExtra, Overloaded, ToolError
from treadle.core.transcript import UserItem
from treadle.models import Pause, Say, Scripted
from treadle.observe.telemetry import Telemetry
from treadle.testing.clock import ManualClock
from treadle.testing.tools import RecordingTool

USED = Usage(10, 5, cache_read=80, cache_write=10, reasoning=2, requests=1, cost=0.5)


class Traced:
    """An agent with spans, and the spans that ended."""

    def __init__(
        self,
        model: Any,
        *tools: Any,
        provider: TracerProvider | None = None,
        content: bool = False,
        **settings: Any,
    ) -> None:
        self._kept = InMemorySpanExporter()
        provider = provider or TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        observers = [Telemetry(provider, content=content)]
        self.agent = Agent(model, tools, observers=observers, clock=ManualClock(), **settings)

    @property
    def spans(self) -> list[ReadableSpan]:
        return sorted(self._kept.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def identity(span: ReadableSpan) -> SpanContext:
    known = span.get_span_context()
    assert known is not None
    return known


def is_below(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return span.parent is not None and span.parent.span_id == identity(parent).span_id


async def test_a_turn_holds_its_model_calls_and_its_tool_calls():
    model = Scripted(
        [Say(calls=[("record", {"secret": "x"})], usage=USED), Say("done", usage=USED)],
        name="anthropic/claude-x",
    )
    traced = Traced(model, RecordingTool())
    result = await traced.agent.run("a secret")
    [turn] = traced.named("invoke_agent treadle")
    chats, [tool] = traced.named("chat claude-x"), traced.named("execute_tool record")
    assert len(chats) == 2
    assert all(is_below(span, turn) for span in (*chats, tool))
    given = attributes(chats[0])
    assert given["gen_ai.provider.name"] == "anthropic"
    assert given["gen_ai.usage.input_tokens"] == 100
    assert given["gen_ai.usage.cache_read.input_tokens"] == 80
    assert given["treadle.cost_usd"] == 0.5
    assert attributes(turn)["gen_ai.conversation.id"] == result.session_id
    assert attributes(turn)["treadle.reason"] == "end_turn"
    assert attributes(turn)["gen_ai.usage.output_tokens"] == 10
    assert "secret" not in str([attributes(span) for span in traced.spans])


async def test_what_a_failed_call_said_is_content():
    for content in (False, True):
        model = Scripted([Say(calls=[("record", {})]), "done"])
        traced = Traced(model, RecordingTool(answer=ToolError("a secret")), content=content)
        await traced.agent.run("go")
        [tool] = traced.named("execute_tool record")
        assert tool.status.status_code is StatusCode.ERROR
        assert ("a secret" in tool.to_json()) is content


@pytest.mark.skipif(
    not hasattr(gen_ai_attributes, "GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS"),
    reason="the installed list of names is older than the conventions that we follow",
)
async def test_every_name_is_one_of_the_conventions():
    model = Scripted([Say(calls=[("record", {})], usage=USED), "done"], name="openai/gpt-x")
    traced = Traced(model, RecordingTool())
    await traced.agent.run("go")
    known = {value for value in vars(gen_ai_attributes).values() if isinstance(value, str)}
    used = {name for span in traced.spans for name in attributes(span)}
    assert {name for name in used if name.startswith("gen_ai.")} <= known
    assert {name.partition(".")[0] for name in used} == {"gen_ai", "treadle"}


async def test_a_failed_attempt_is_a_span_of_its_own_with_its_error():
    traced = Traced(Scripted([Overloaded("busy"), Say("done", usage=USED)]))
    await traced.agent.run("go")
    failed, good = traced.named("chat scripted")
    assert failed.status.status_code is StatusCode.ERROR
    assert "busy" in str(failed.status.description)
    assert good.status.status_code is StatusCode.UNSET
    assert [attributes(span)["treadle.attempt"] for span in (failed, good)] == [1, 2]


async def test_a_turn_that_fails_says_why():
    traced = Traced(Scripted([AccessDenied("the key is wrong")]))
    with pytest.raises(AccessDenied):
        await traced.agent.run("go")
    [turn] = traced.named("invoke_agent treadle")
    assert turn.status.status_code is StatusCode.ERROR
    assert attributes(turn)["error.type"] == "AccessDenied"


async def test_a_tool_that_fails_or_is_not_there_is_an_error():
    traced = Traced(
        Scripted([Say(calls=[("record", {}), ("nothing", {})]), "done"]),
        RecordingTool(answer=RuntimeError("no")),
    )
    await traced.agent.run("go")
    for name in ("execute_tool record", "execute_tool nothing"):
        [span] = traced.named(name)
        assert span.status.status_code is StatusCode.ERROR
    [failed] = traced.named("execute_tool record")
    [fault] = failed.events
    told = dict(fault.attributes or {})
    assert (fault.name, told["exception.type"], told["exception.message"]) == (
        "exception",
        "RuntimeError",
        "no",
    )
    assert "Traceback" in str(told["exception.stacktrace"])
    assert attributes(failed)["error.type"] == "RuntimeError"


async def test_a_child_agents_turn_stands_below_the_call_that_started_it():
    def answer(request):
        first = request.transcript[0]
        assert isinstance(first, UserItem)
        if first.text == "child":
            return "found" if len(request.transcript) > 1 else Say(calls=[("record", {})])
        if len(request.transcript) > 1:
            return "done"
        return Say(calls=[("task", {"description": "look", "prompt": "child"})])

    traced = Traced(Scripted(answer), RecordingTool(), subagents=[])
    await traced.agent.run("parent")
    [task], [parent] = traced.named("execute_tool task"), traced.named("invoke_agent treadle")
    [child] = traced.named("invoke_agent general")
    assert is_below(task, parent)
    assert is_below(child, task)
    [record] = traced.named("execute_tool record")
    assert is_below(record, child)
    assert len({identity(span).trace_id for span in traced.spans}) == 1


async def test_an_interrupted_turn_leaves_no_span_open():
    pause = Pause()
    traced = Traced(Scripted([["Let me ", pause]]))
    driver = traced.agent.start(prompt="go")
    running = asyncio.create_task(driver.next())
    await pause.reached.wait()
    driver.interrupt()
    await running
    await driver.aclose()
    [turn], [chat] = traced.named("invoke_agent treadle"), traced.named("chat scripted")
    assert attributes(turn)["treadle.reason"] == "aborted"
    assert chat.status.status_code is StatusCode.ERROR


def test_without_opentelemetry_the_error_names_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingExtra) as raised:
        Telemetry()
    assert str(raised.value) == (
        "the extra 'otel' (telemetry) is not installed: pip install 'treadle[otel]'"
    )


# --- spans inside a tool -----------------------------------------------------------------


async def test_spans_that_a_tool_opens_are_below_the_span_of_its_call():
    provider = TracerProvider()
    tracer = provider.get_tracer("shop")

    @tool
    async def book() -> str:
        """Book."""
        with tracer.start_as_current_span("query"):
            await asyncio.sleep(0)
        return "booked"

    @tool
    def pay() -> str:
        """Pay, in a thread."""
        with tracer.start_as_current_span("charge"):
            return "paid"

    calls: list[tuple[str, dict[str, Any]]] = [("book", {}), ("pay", {}), ("book", {})]
    traced = Traced(
        Scripted([Say(calls=calls), "done", "again"]), book, pay, provider=provider, max_parallel=3
    )
    with tracer.start_as_current_span("request"):
        await traced.agent.run("go")
        await traced.agent.run("go")
    [request] = traced.named("request")
    assert {span.name for span in traced.named("invoke_agent treadle")} != set()
    assert all(is_below(span, request) for span in traced.named("invoke_agent treadle"))
    books, [paid] = traced.named("execute_tool book"), traced.named("execute_tool pay")
    [charge] = traced.named("charge")
    assert is_below(charge, paid)
    queries = traced.named("query")
    assert len(queries) == 2
    assert all(any(is_below(query, call) for call in books) for query in queries)
    assert queries[0].parent != queries[1].parent


async def test_a_span_of_a_tool_ends_with_it_and_the_next_turn_is_not_below_it():
    traced = Traced(Scripted([Say(calls=[("record", {})]), "done", "more"]), RecordingTool())
    driver = traced.agent.start(prompt="go")
    await driver.next()
    await driver.next()
    driver.submit("go on")
    await driver.next()
    await driver.aclose()
    first, second = traced.named("invoke_agent treadle")
    assert first.parent is None
    assert second.parent is None


async def test_the_name_of_an_agent_is_in_its_spans():
    traced = Traced(Scripted(["done"]), name="booking")
    await traced.agent.run("go")
    [turn] = traced.named("invoke_agent booking")
    assert attributes(turn)["gen_ai.agent.name"] == "booking"
