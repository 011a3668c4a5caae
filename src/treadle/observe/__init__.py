"""Observers that write, count or forward events.

    jsonlines   every event and item as a line of JSON    totals      usage of a run, by model
    telemetry   spans and metrics for OpenTelemetry       timings     how long things took

Uses the Observer contract of the core. Used by the hosts. The names below load at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.lib.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from treadle.observe.jsonlines import JsonLines, encode_line
    from treadle.observe.telemetry import Telemetry
    from treadle.observe.totals import Totals

__all__ = [
    "JsonLines",
    "Telemetry",
    "Totals",
    "encode_line",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "JsonLines": "jsonlines",
        "Telemetry": "telemetry",
        "Totals": "totals",
        "encode_line": "jsonlines",
    },
)
