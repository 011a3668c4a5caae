"""Metrics of a fleet for OpenTelemetry, sent by its workers at intervals.

    treadle.fleet.runs        runs by `state`, of the whole fleet
    treadle.fleet.queue.age   seconds since the oldest run in the queue was submitted
    treadle.fleet.cost        USD that all runs have cost
    treadle.fleet.calls       model calls of this worker

With the setting `telemetry`; the variables of OpenTelemetry say where to. Used by worker.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from treadle.apps.assembly.telemetry_export import SEND_SECONDS, describe_service
from treadle.apps.fleet.database import FleetDatabase
from treadle.apps.fleet.run_record import FleetTotals

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation


class FleetMetrics:
    """What one worker reports. `update` reads the numbers; OpenTelemetry's thread sends them."""

    def __init__(self, database: FleetDatabase, worker: str) -> None:
        resource = describe_service("METRICS")
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.metrics import Observation
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource

        self._database = database
        self._totals = FleetTotals({})
        self._observe = Observation
        self._attributes = {"treadle.fleet": database.fleet_id}
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(timeout=SEND_SECONDS))
        resource = resource.merge(Resource({"service.instance.id": worker}))
        self._provider = MeterProvider([reader], resource, shutdown_on_exit=False)
        meter = self._provider.get_meter("treadle")
        meter.create_observable_gauge("treadle.fleet.runs", [self._count_runs], unit="{run}")
        meter.create_observable_gauge("treadle.fleet.queue.age", [self._get_age], unit="s")
        meter.create_observable_counter("treadle.fleet.cost", [self._get_cost], unit="{USD}")
        self._calls = meter.create_counter("treadle.fleet.calls", unit="{call}")

    async def update(self) -> None:
        self._totals = await self._database.totals()

    def count_calls(self, count: int) -> None:
        self._calls.add(count, self._attributes)

    def close(self) -> None:
        """Send what there is; it waits for the collector, for a moment."""
        self._provider.shutdown(timeout_millis=2_000 * SEND_SECONDS)

    def _count_runs(self, _: CallbackOptions) -> Iterable[Observation]:
        for state, count in self._totals.states.items():
            yield self._observe(count, self._attributes | {"state": state})

    def _get_age(self, _: CallbackOptions) -> Iterable[Observation]:
        yield self._observe(self._totals.queue_age, self._attributes)

    def _get_cost(self, _: CallbackOptions) -> Iterable[Observation]:
        yield self._observe(self._totals.cost, self._attributes)
