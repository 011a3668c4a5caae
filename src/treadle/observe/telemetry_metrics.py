"""Metrics for OpenTelemetry, by its conventions for generative AI.

    gen_ai.client.token.usage          tokens of a model call, by model and type (input, output)
    gen_ai.client.operation.duration   seconds of turns, model calls and tool calls; error.type
    treadle.cost                       USD, by model

Used by telemetry.py. No content of the conversation, no ids: each attribute has few values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from treadle.core.transcript.usage import Usage

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

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
