"""Where telemetry goes: what spans of an agent and metrics of a fleet have in common.

OpenTelemetry's exporters read its variables; here are the name of the service and the check of the
address. Used by hooks.py and apps/fleet/metrics.py.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from treadle.core.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

# A collector that does not answer delays the end of the program by no more than this.
SEND_SECONDS = 2.0


def describe_service(signal: Literal["TRACES", "METRICS"]) -> Resource:
    """Who sends. ConfigError if OpenTelemetry is not installed, or the address of the collector is
    wrong."""
    try:
        from opentelemetry.exporter.otlp.proto.http import Compression  # noqa: F401 - the extra
        from opentelemetry.sdk.resources import Resource
    except ImportError as error:
        raise ConfigError(
            "the setting telemetry needs OpenTelemetry: pip install 'treadle[otel]'"
        ) from error
    _check_endpoint(signal)
    # Like our own logger: what is lost is no line on standard error.
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
    detected = Resource.create()
    if str(detected.attributes.get("service.name", "")).startswith("unknown_service"):
        detected = detected.merge(Resource({"service.name": "treadle"}))
    return detected


def _check_endpoint(signal: str) -> None:
    for variable in (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        url = os.environ.get(variable, "").strip()
        parts = urlsplit(url)
        if url and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ConfigError(
                f"{variable} is {url!r}; telemetry needs an address such as http://localhost:4318"
            )
