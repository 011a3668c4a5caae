"""The timeline of a session: steps, requests and calls, with their times."""

from __future__ import annotations

from pathlib import Path

from treadle.apps.pages.gantt import render_gantt
from treadle.apps.pages.timeline import read_call_seconds, read_timeline
from treadle.core import events
from treadle.core.transcript import AssistantItem, Text, ToolCall, ToolResultItem, UserItem
from treadle.core.transcript.entries import ItemAdded, Rewound, TurnBegan
from treadle.core.transcript.items import Item
from treadle.observe.timings import TimingRecorder
from treadle.sessions import Library
from treadle.sessions.history import fork

EVENT = ("session", "turn-1", 0)
CALL = ToolCall("1", "write", '{"file_path": "x"}')


async def write_log(*entries: Item | TurnBegan | Rewound) -> Path:
    journal = Library().create(Path())
    for entry in entries:
        journal.append(entry if isinstance(entry, TurnBegan | Rewound) else ItemAdded(entry))
    await journal.aclose()
    return journal.session_dir


def make_clock(*times: float):
    moments = iter(times)
    return lambda: next(moments)


async def test_a_call_whose_question_is_open_waits_since_it_was_asked() -> None:
    place = await write_log(TurnBegan("turn-1"), UserItem((Text("go"),)), AssistantItem((CALL,)))
    recorder = TimingRecorder(place, make_clock(7.0))
    recorder.on_event(events.ApprovalRequired(*EVENT, CALL, "", "why"))
    [call] = read_timeline(place).calls
    assert (call.asked, call.answered, call.is_open) == (7.0, 0.0, True)
    assert read_call_seconds(place) == {}


async def test_an_answered_call_has_all_its_times() -> None:
    result = ToolResultItem("1", "write", (Text("done"),))
    items = (UserItem((Text("go"),)), AssistantItem((CALL,)), result)
    place = await write_log(TurnBegan("turn-1"), *items)
    recorder = TimingRecorder(place, make_clock(7.0, 9.0, 9.5, 11.0))
    recorder.on_event(events.ApprovalRequired(*EVENT, CALL, "", "why"))
    recorder.on_event(events.ApprovalResolved(*EVENT, "1", "allow"))
    recorder.on_event(events.ToolStarted(*EVENT, "1", "write", ""))
    recorder.on_event(events.ToolFinished(*EVENT, "1", "write", "done"))
    recorder.on_event(events.TurnFinished(*EVENT, events.TurnResult("turn-1", "end_turn")))
    [call] = read_timeline(place).calls
    assert (call.asked, call.answered, call.start, call.end) == (7.0, 9.0, 9.5, 11.0)
    assert read_call_seconds(place) == {"1": 1.5}


async def test_an_edited_call_has_the_arguments_that_ran() -> None:
    edited = '{"file_path": "y"}'
    data = {"approval": {"by": "user", "edited": edited}}
    result = ToolResultItem("1", "write", (Text("done"),), data=data)
    items = (UserItem((Text("go"),)), AssistantItem((CALL,)), result)
    timeline = read_timeline(await write_log(TurnBegan("turn-1"), *items))
    assert [call.edited for call in timeline.calls] == [edited]
    chart = render_gantt(timeline.requests, timeline.calls, 0)
    assert '<b>write (edited)</b><span class="a">y</span>' in chart


async def test_the_turns_of_steps_are_known_by_their_ids_also_after_a_rewind() -> None:
    place = await write_log(
        *(TurnBegan("turn-1"), UserItem((Text("one"),)), Rewound("turn-1")),
        *(TurnBegan("turn-2"), UserItem((Text("two"),)), AssistantItem((Text("hello"),))),
    )
    steps = read_timeline(place).steps
    assert [(step.kind, step.turn_id) for step in steps] == [
        *(("message", "turn-1"), ("rewind", "turn-1")),
        *(("message", "turn-2"), ("request", "turn-2")),
    ]


async def test_a_fork_has_the_times_of_its_parent_up_to_where_it_began() -> None:
    result = ToolResultItem("1", "write", (Text("done"),))
    items = (UserItem((Text("go"),)), AssistantItem((CALL,)), result)
    parent = await write_log(TurnBegan("turn-1"), *items)
    recorder = TimingRecorder(parent, make_clock(1.0, 3.0, 9e12, 9e12))
    for call_id in ("1", "later"):
        recorder.on_event(events.ToolStarted(*EVENT, call_id, "write", ""))
        recorder.on_event(events.ToolFinished(*EVENT, call_id, "write", "done"))
    recorder.on_event(events.TurnFinished(*EVENT, events.TurnResult("turn-1", "end_turn")))
    journal, _ = fork(Library(), parent, folder=Path())
    journal.append(TurnBegan("turn-2"))
    await journal.aclose()
    assert read_call_seconds(journal.session_dir) == {"1": 2.0}
