from __future__ import annotations

from treadle.contracts import BaseObserver
from treadle.core import events
from treadle.observe import JsonLines, Telemetry, Totals
from treadle.testing import RecordingObserver, check_observer
from treadle.testing.conformance.observer import EVENTS


async def test_our_observers_keep_the_promises_of_an_observer():
    await check_observer(BaseObserver)
    await check_observer(RecordingObserver)
    await check_observer(Totals)
    await check_observer(Telemetry)
    lines: list[bytes] = []
    await check_observer(lambda: JsonLines(lines.append))
    assert lines


def test_the_suite_sends_every_kind_of_event():
    known = {
        kind
        for kind in vars(events).values()
        if isinstance(kind, type) and issubclass(kind, events.Event) and kind is not events.Event
    }
    assert {type(event) for event in EVENTS} == known
