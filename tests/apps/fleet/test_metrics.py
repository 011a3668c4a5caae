"""What a worker tells a collector of OpenTelemetry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.apps.fleet.conftest import working
from tests.apps.fleet.processes import until_state
from tests.apps.test_operations import Collector
from treadle.apps.fleet.database import open_database
from treadle.apps.fleet.task import FleetTask


async def test_runs_by_state_calls_cost_and_the_age_of_the_queue_are_sent(
    own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await open_database(f"sqlite:{own_place / 'fleet.db'}")
    await database.submit([FleetTask(id="a", prompt="look"), FleetTask(id="b", prompt="raise")])
    await database.submit([FleetTask(id="later", prompt="look")])
    await database.cancel(["later"])
    assert (await database.totals()).queue_age > 0
    async with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        async with working(database, has_metrics=True):
            await until_state(database, "a", "done")
            await until_state(database, "b", "done")
        path, _, body = collector.requests[-1]
    fleet_id = database.fleet_id
    await database.aclose()
    assert path == "/v1/metrics"
    [resource] = body["resourceMetrics"]
    [scope] = resource["scopeMetrics"]
    metrics = {one["name"]: one for one in scope["metrics"]}
    runs = read_points(metrics["treadle.fleet.runs"]["gauge"])
    assert runs == {("done", fleet_id): 2, ("cancelled", fleet_id): 1}
    assert read_points(metrics["treadle.fleet.queue.age"]["gauge"]) == {("", fleet_id): 0}
    assert read_points(metrics["treadle.fleet.calls"]["sum"]) == {("", fleet_id): 4}
    cost = read_points(metrics["treadle.fleet.cost"]["sum"])
    assert cost == {("", fleet_id): pytest.approx(0.04)}


def read_points(data: dict[str, Any]) -> dict[tuple[str, str], float]:
    """The numbers by the state and the fleet that their attributes name."""
    found: dict[tuple[str, str], float] = {}
    for point in data["dataPoints"]:
        names = {one["key"]: one["value"]["stringValue"] for one in point["attributes"]}
        key = (names.get("state", ""), names["treadle.fleet"])
        found[key] = float(point.get("asDouble", point.get("asInt", 0)))
    return found
