"""The program's switch for telemetry: the setting `telemetry`, off by default.

Spans go to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names (observe/otlp_exporter.py). They
hold names, counts, times and errors, no content of the conversation. Used by coding_agent.py.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from treadle.core.errors import ConfigError
from treadle.observe.telemetry import Telemetry

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


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
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from treadle.observe.otlp_exporter import OtlpExporter
    except ImportError as error:
        raise ConfigError(
            "the setting telemetry needs OpenTelemetry: pip install 'treadle[otel]'"
        ) from error
    detected = Resource.create()
    if str(detected.attributes.get("service.name", "")).startswith("unknown_service"):
        detected = detected.merge(Resource({"service.name": "treadle"}))
    provider = TracerProvider(resource=detected, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OtlpExporter()))
    return TelemetryExport(Telemetry(provider), provider)
