"""Sends spans to an OpenTelemetry collector: OTLP over HTTP, as JSON.

    OTEL_EXPORTER_OTLP_ENDPOINT         the collector; by default http://localhost:4318
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT  the whole address for spans, instead
    OTEL_EXPORTER_OTLP_HEADERS          key=value,key=value
    OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES   read by the SDK

The SDK calls it in a thread of its own. A collector that does not answer is logged once; spans are
dropped, the work goes on. Imports the SDK: only the program's telemetry switch loads this module.
"""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from treadle.core.errors import ConfigError
from treadle.lib.http.tls_context import make_tls_context
from treadle.lib.logger import logger

DEFAULT_ENDPOINT = "http://localhost:4318"
SEND_SECONDS = 3.0


class OtlpExporter(SpanExporter):
    """Posts spans as JSON."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        env = os.environ if environ is None else environ
        self._url = find_endpoint(env)
        headers = env.get("OTEL_EXPORTER_OTLP_HEADERS", "")
        pairs = [pair.partition("=") for pair in headers.split(",") if "=" in pair]
        self._headers = {unquote(key.strip()): unquote(value.strip()) for key, _, value in pairs}
        handlers: list[urllib.request.BaseHandler] = []
        if self._url.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=make_tls_context(env)))
        self._opener = urllib.request.build_opener(*handlers)
        self._has_failed = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        body = msgspec.json.encode(encode_spans(spans))
        headers = {"content-type": "application/json", **self._headers}
        request = urllib.request.Request(self._url, body, headers)
        try:
            with self._opener.open(request, timeout=SEND_SECONDS) as response:
                response.read()
        except OSError as error:  # also an HTTP status
            if not self._has_failed:
                self._has_failed = True
                logger.warning("telemetry: %s does not take spans: %s", self._url, error)
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS


def find_endpoint(environ: Mapping[str, str]) -> str:
    """The address for spans. ConfigError if it is not an HTTP address."""
    variable = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    url = environ.get(variable, "").strip()
    if not url:
        variable = "OTEL_EXPORTER_OTLP_ENDPOINT"
        base = environ.get(variable, "").strip() or DEFAULT_ENDPOINT
        url = base.rstrip("/") + "/v1/traces"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"{variable} is {url!r}; telemetry needs an address such as {DEFAULT_ENDPOINT}"
        )
    return url


def encode_spans(spans: Sequence[ReadableSpan]) -> dict[str, Any]:
    """The body of a request, by the JSON form of OTLP."""
    if not spans:
        return {"resourceSpans": []}
    resource = {"attributes": _encode_attributes(spans[0].resource.attributes)}
    scoped = [{"scope": {"name": "treadle"}, "spans": [_encode_span(span) for span in spans]}]
    return {"resourceSpans": [{"resource": resource, "scopeSpans": scoped}]}


def _encode_span(span: ReadableSpan) -> dict[str, Any]:
    context = span.get_span_context()
    assert context is not None, "an ended span has a context"
    encoded: dict[str, Any] = {
        "traceId": f"{context.trace_id:032x}",
        "spanId": f"{context.span_id:016x}",
        "name": span.name,
        "kind": span.kind.value + 1,  # OTLP counts from 1
        "startTimeUnixNano": str(span.start_time or 0),
        "endTimeUnixNano": str(span.end_time or 0),
        "attributes": _encode_attributes(span.attributes or {}),
        "events": [
            {
                "timeUnixNano": str(event.timestamp),
                "name": event.name,
                "attributes": _encode_attributes(event.attributes or {}),
            }
            for event in span.events
        ],
        "status": {"code": span.status.status_code.value},
    }
    if span.parent is not None:
        encoded["parentSpanId"] = f"{span.parent.span_id:016x}"
    if span.status.description:
        encoded["status"]["message"] = span.status.description
    return encoded


def _encode_attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _encode_value(value)} for key, value in attributes.items()]


def _encode_value(value: object) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, (list, tuple)):
        return {"arrayValue": {"values": [_encode_value(one) for one in value]}}
    return {"stringValue": str(value)}
