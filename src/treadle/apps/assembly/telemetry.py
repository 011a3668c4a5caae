"""The program's switch for telemetry: the setting `telemetry`, off by default.

Spans go to the collector of OTEL_EXPORTER_OTLP_ENDPOINT, by OpenTelemetry's exporter and its
variables. They hold names, counts, times and errors, no content of the conversation. Used by
coding_agent.py.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from treadle.core.errors import ConfigError
from treadle.observe.telemetry import Telemetry

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

# A collector that does not answer delays the end of the program by no more than this.
SEND_SECONDS = 2.0


class TelemetryExport:
    """The observer, and the provider that sends its spans."""

    def __init__(self, observer: Telemetry, provider: TracerProvider) -> None:
        self.observer = observer
        self._provider = provider

    async def aclose(self) -> None:
        """Send what is not sent yet, and stop."""
        await asyncio.to_thread(self._provider.shutdown)


def make_telemetry() -> TelemetryExport:
    """ConfigError if OpenTelemetry is not installed, or the address of the collector is wrong."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(
            "the setting telemetry needs OpenTelemetry: pip install 'treadle[otel]'"
        ) from error
    _check_endpoint(os.environ)
    # Like our own logger: a lost span is no line on standard error.
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
    detected = Resource.create()
    if str(detected.attributes.get("service.name", "")).startswith("unknown_service"):
        detected = detected.merge(Resource({"service.name": "treadle"}))
    provider = TracerProvider(resource=detected, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(timeout=SEND_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return TelemetryExport(Telemetry(provider), provider)


def _check_endpoint(environ: Mapping[str, str]) -> None:
    for variable in ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        url = environ.get(variable, "").strip()
        parts = urlsplit(url)
        if url and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ConfigError(
                f"{variable} is {url!r}; telemetry needs an address such as http://localhost:4318"
            )
