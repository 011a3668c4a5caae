"""Events as lines of JSON: whole, in order, and the same wherever they are written."""

from __future__ import annotations

import json
import os
from typing import Any, get_args

import msgspec

from treadle import Agent, Usage
from treadle.apps.cli import output
from treadle.apps.cli.stream_json import StreamJsonWriter
from treadle.core import events
from treadle.core.errors import Overloaded
from treadle.core.events import Event, ToolFault, TurnResult
from treadle.core.transcript import AssistantItem, to_user_item
from treadle.core.transcript.content import Text, ToolCall
from treadle.models import Say, Scripted
from treadle.observe.jsonlines import FORMAT_VERSION, JsonLines, encode_line, without_items
from treadle.testing.tools import RecordingTool

SAMPLES: dict[Any, Any] = {
    str: "é\n",
    int: 3,
    float: 0.5,
    bool: True,
    ToolFault | None: ToolFault("KeyError", "'x'", "Traceback …"),
    ToolCall: ToolCall("c1", "read", '{"path": "a"}'),
    Usage: Usage(1, 2, cost=None),
    TurnResult: TurnResult("turn-1", "error", (to_user_item("x"),), error=Overloaded("busy")),
}


def sample(kind: type[Event]) -> Event:
    """An event of this kind with something in every field."""
    given: list[Any] = []
    for field in msgspec.structs.fields(kind):
        if field.name == "child":
            given.append(events.TextDelta("child", "turn-1", 1, "hi"))
        elif field.name == "item":
            given.append(to_user_item("hello"))
        elif field.type in SAMPLES:
            given.append(SAMPLES[field.type])
        elif field.name in ("added", "removed", "call_ids"):
            given.append(("a", "b"))
        else:
            given.append(get_args(field.type)[0])
    return kind(*given)


def every_kind() -> list[type[Event]]:
    found = [kind for kind in vars(events).values() if isinstance(kind, type)]
    return [kind for kind in found if issubclass(kind, Event) and kind is not Event]


def test_every_event_is_one_line_that_names_its_type():
    kinds = every_kind()
    assert len(kinds) > 25
    for kind in kinds:
        line = encode_line(sample(kind))
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        assert json.loads(line)["type"] == kind.__struct_config__.tag


async def test_the_command_line_writes_the_same_lines_of_the_same_version():
    assert output.FORMAT_VERSION == FORMAT_VERSION
    reading, writing = os.pipe()
    out = output.Stdout(lambda error: None, fd=writing)
    lines, same = StreamJsonWriter(out), list[bytes]()
    observer = JsonLines(same.append, session_id="s")
    lines.session_id = "s"
    for kind in every_kind():
        lines.on_event(sample(kind))
        observer.on_event(sample(kind))
    lines.on_item(0, to_user_item("x"))
    observer.on_item(0, to_user_item("x"))
    await out.drain()
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.readlines() == same


async def test_a_run_can_be_read_off_its_lines():
    lines: list[bytes] = []
    model = Scripted([Say("Let me see.", calls=[("record", {"n": 1})]), "Done."])
    result = await Agent(model, [RecordingTool()], observers=[JsonLines(lines.append)]).run("go")
    read = [json.loads(line) for line in lines]
    events = [line for line in read if line["type"] != "item"]
    assert [line["seq"] for line in events] == sorted(line["seq"] for line in events)
    assert (events[0]["type"], events[-1]["type"]) == ("run_started", "turn_finished")
    items = [line for line in read if line["type"] == "item"]
    assert [line["position"] for line in items] == list(range(len(result.transcript)))
    assert {line["session_id"] for line in read} == {result.session_id}
    text = "".join(line["text"] for line in read if line["type"] == "text_delta")
    assert text == "Let me see.Done."


def test_the_end_of_a_turn_does_not_repeat_its_items():
    result = TurnResult("turn-1", "end_turn", (to_user_item("x"), AssistantItem((Text("y"),))))
    end = events.TurnFinished("s", "turn-1", 9, result)
    assert b'"items":[]' in encode_line(without_items(end))
    child = events.ChildEvent("p", "turn-1", 4, "call", end)
    assert without_items(child) is child  # its items are told nowhere else
    delta = events.TextDelta("s", "turn-1", 1, "x")
    assert without_items(delta) is delta


def test_a_reader_that_lags_loses_deltas_and_nothing_else():
    lines: list[bytes] = []
    observer = JsonLines(lines.append, session_id="s", is_lagging=lambda: True)
    observer.on_event(events.TextDelta("s", "t", 1, "x"))
    observer.on_event(events.ToolProgress("s", "t", 2, "c", "x"))
    observer.on_event(events.Notified("s", "t", 3, "x"))
    observer.on_item(0, to_user_item("hello"))
    assert [json.loads(line)["type"] for line in lines] == ["notified", "item"]


def test_half_a_surrogate_pair_of_a_model_is_written_as_an_escape():
    lines: list[bytes] = []
    JsonLines(lines.append).on_event(events.TextDelta("s", "t", 1, "half \ud83d"))
    assert json.loads(lines[0])["text"] == "half \ud83d"
    assert json.loads(lines[0])["type"] == "text_delta"
