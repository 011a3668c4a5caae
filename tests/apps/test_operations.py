"""Operations: timeouts, retries and telemetry of the program, set in its settings."""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]  # no stubs
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.apps.program import run
from treadle.apps.console import exit_codes
from treadle.testing.provider import (
    FakeCall,
    FakeReply,
    ProviderFault,
    ProviderServer,
    unused_url,
)

HELLO = FakeReply("Hello.")


def config(text: str) -> Path:
    file = Path.home() / ".treadle" / "config.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return file


# --- timeouts and retries ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "setting"),
    [
        # A ping every millisecond would keep a busy machine behind, whose own delay does not count.
        (ProviderFault("pings_only", seconds=0.1), "first_content_timeout"),
        (ProviderFault("stall_headers"), "first_byte_timeout"),
        (ProviderFault("stall_in_text"), "idle_timeout"),
        (ProviderFault("slow_loris", seconds=0.1), "total_timeout"),
    ],
    ids=["first_content", "first_byte", "idle", "total"],
)
async def test_a_timeout_is_named_by_a_setting_that_exists(fault: ProviderFault, setting: str):
    config(f'{setting} = "0.3s"\nretry_attempts = 1\n')
    async with ProviderServer([HELLO], faults=[fault]) as server:
        ran = await run(server, "-p", "go")
    assert ran.code == exit_codes.UNAVAILABLE
    assert f"raise {setting}" in ran.err
    assert "0.3 s" in ran.err
    assert len(server.requests) == 1
    shown = await run(None, "config", setting)
    assert "0.3" in shown.out


async def test_a_failed_call_is_repeated_as_often_as_the_settings_say():
    config('retry_attempts = 2\nretry_max_wait = "0.01s"\n')
    busy = [ProviderFault("overloaded", times=9)]
    async with ProviderServer([HELLO], faults=busy) as server:
        ran = await run(server, "-p", "go")
        assert ran.code == exit_codes.UNAVAILABLE
        assert len(server.requests) == 2
        ran = await run(server, "-p", "go", TREADLE_RETRY_ATTEMPTS="3")
        assert len(server.requests) == 5
        ran = await run(server, "-p", "go", TREADLE_RETRY_ATTEMPTS="9")
    assert (ran.code, ran.out) == (0, "Hello.\n")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("retry_attempts = 0", "a whole number, 1 or more"),
        ("retry_attempts = 1.5", "a whole number, 1 or more"),
        ('first_content_timeout = "soon"', "a time above 0"),
        ("idle_timeout = 0", "a time above 0"),
        ('telemetry = "maybe"', "true or false"),
    ],
)
async def test_a_wrong_value_is_an_error_with_file_and_line(line: str, expected: str):
    file = config(f"\n{line}\n")
    ran = await run(None, "-p", "go")
    assert ran.code == exit_codes.USAGE_ERROR
    assert f"{file}:2" in ran.err
    assert expected in ran.err


# --- telemetry ---------------------------------------------------------------------------


class Collector:
    """An OpenTelemetry collector that keeps what it gets."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []

    async def __aenter__(self) -> Collector:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (x.partition(": ") for x in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        is_trace = first.split()[1] == "/v1/traces"
        kind = ExportTraceServiceRequest if is_trace else ExportMetricsServiceRequest
        sent = MessageToDict(kind.FromString(body))
        self.requests.append((first.split()[1], headers, sent))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    @property
    def spans(self) -> list[dict[str, Any]]:
        return [
            span
            for _, _, body in self.requests
            for resource in body["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]


def named(spans: list[dict[str, Any]], name: str) -> dict[str, Any]:
    [span] = [span for span in spans if span["name"] == name]
    return span


async def test_with_the_switch_on_the_program_sends_spans_to_the_collector():
    Path("notes.txt").write_text("a private note")
    call = FakeReply(calls=(FakeCall("read", {"file_path": "notes.txt"}),))
    async with Collector() as collector, ProviderServer([call, HELLO]) as server:
        ran = await run(
            server,
            "-p",
            "a private prompt",
            "--model",
            "claude-sonnet-4-5",
            TREADLE_TELEMETRY="true",
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            OTEL_EXPORTER_OTLP_HEADERS="x-team=shop",
        )
    assert (ran.code, ran.out) == (0, "Hello.\n")
    path, headers, body = collector.requests[0]
    assert (path, headers["x-team"]) == ("/v1/traces", "shop")
    service = {"key": "service.name", "value": {"stringValue": "treadle"}}
    assert service in body["resourceSpans"][0]["resource"]["attributes"]
    turn = named(collector.spans, "invoke_agent treadle")
    read = named(collector.spans, "execute_tool read")
    assert read["parentSpanId"] == turn["spanId"]
    assert len([s for s in collector.spans if s["name"] == "chat claude-sonnet-4-5"]) == 2
    assert "private" not in json.dumps(collector.spans)


async def test_telemetry_is_off_by_default():
    async with Collector() as collector, ProviderServer([HELLO]) as server:
        ran = await run(server, "-p", "go", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
    assert ran.code == 0
    assert collector.requests == []


async def test_a_collector_that_is_not_there_does_not_disturb_the_work():
    config("telemetry = true\n")
    async with ProviderServer([HELLO]) as server:
        ran = await run(server, "-p", "go", OTEL_EXPORTER_OTLP_ENDPOINT=unused_url())
    assert (ran.code, ran.out, ran.err) == (0, "Hello.\n", "")


async def test_an_address_of_a_collector_that_is_none_is_an_error():
    ran = await run(
        None, "-p", "go", TREADLE_TELEMETRY="on", OTEL_EXPORTER_OTLP_ENDPOINT="collector:4317"
    )
    assert ran.code == exit_codes.USAGE_ERROR
    assert "OTEL_EXPORTER_OTLP_ENDPOINT is" in ran.err


async def test_a_limit_that_is_not_set_is_not_shown_as_no_limit():
    shown = await run(None, "config", "first_content_timeout")
    assert shown.out == "-\n"
