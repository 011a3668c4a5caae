"""Pins decide by the outcome of a result and the data of a notice; logs of 0.1 have only texts."""

import msgspec
import pytest

from treadle.context.compaction.pins import (
    collect_pins,
    collect_user_messages,
    list_open_todos,
    make_user_messages_notice,
)
from treadle.core.transcript.content import Text, ToolCall
from treadle.core.transcript.items import AssistantItem, Item, NoticeItem, ToolResultItem, UserItem

TODOS = '{"todos": [{"content": "a", "status": "completed"}, {"content": "[ ] b"}]}'


def kinds(items: list[Item]) -> list[str]:
    return [item.kind for item in collect_pins(items) if isinstance(item, NoticeItem)]


def result(text: str, **fields: object) -> ToolResultItem:
    return ToolResultItem("1", "rm", (Text(text),), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("item", "is_pinned"),
    [
        (result("Not today.", is_error=True, outcome="denied"), True),
        (result("denied: an error text of the tool's own", outcome="interrupted"), False),
        (result("denied: this is the file's content"), False),
        (result("denied: never delete", is_error=True), True),  # written by 0.1
    ],
)
def test_a_denied_call_is_known_by_its_outcome(item: ToolResultItem, is_pinned: bool):
    call = AssistantItem((ToolCall("1", "rm", "{}"),))
    assert kinds([call, item]) == ["ruling"] * is_pinned


def test_the_newest_accepted_plan_stays_known_over_compactions():
    plans = [{"plan": {"text": text, "mode": "auto"}} for text in ("old", "new")]
    results = [msgspec.structs.replace(result("Yes."), name="present_plan", data=d) for d in plans]
    others: list[Item] = [result("Of another tool.", data=data) for data in ({"plan": 1}, plans[0])]
    pins = collect_pins([*results, *others])
    (plan,) = [pin for pin in pins if isinstance(pin, NoticeItem) and pin.kind == "plan"]
    assert plan.text == "The plan that the user accepted:\nnew"
    assert [pin for pin in collect_pins(pins) if isinstance(pin, NoticeItem)] == [plan]


def test_user_messages_are_gathered_from_data_and_from_old_texts():
    messages = ["one\n---\nstill one", "two"]
    notice = make_user_messages_notice(messages)
    assert collect_user_messages([notice, UserItem((Text("three"),))]) == [*messages, "three"]
    old = NoticeItem("What the user said so far, word for word:\none\n---\ntwo", "said")
    assert collect_user_messages([old]) == ["one", "two"]


def test_open_todos_and_edited_files_stay_known_over_compactions():
    items: list[Item] = [
        AssistantItem(
            (ToolCall("1", "todo", TODOS), ToolCall("2", "edit", '{"file_path": "x.py"}'))
        ),
        ToolResultItem("1", "todo", (Text("kept"),), display="shown to the user"),
        ToolResultItem("2", "edit", (Text("done"),)),
    ]
    first = collect_pins(items)
    assert collect_pins(first) == first
    todos, files = first
    assert isinstance(todos, NoticeItem)
    assert isinstance(files, NoticeItem)
    assert list_open_todos(todos) == ["[ ] b"]
    assert files.data == {"paths": ["x.py"]}
    old = NoticeItem("Files that were changed in this session:\nx.py", "files")
    assert collect_pins([old]) == [files]


def test_answers_of_the_user_are_user_messages_after_every_compaction():
    ask = ToolCall("1", "ask", '{"question": "Which color?"}')
    data = {"user_answer": "Blue, please."}
    answer = ToolResultItem("1", "ask", (Text("The user answered: ..."),), data=data)
    pins = collect_pins([UserItem((Text("Paint it."),)), AssistantItem((ask,)), answer])
    expected = ["Paint it.", "(answer to: Which color?) Blue, please."]
    assert collect_user_messages(pins) == expected
    assert collect_user_messages(collect_pins(pins)) == expected
    old = ToolResultItem("1", "ask", (Text("The user answered: Blue."),))
    assert collect_user_messages([AssistantItem((ask,)), old]) == [
        "(answer to: Which color?) Blue."
    ]


def test_approved_and_edited_calls_stay_known_over_compactions():
    calls = (ToolCall("1", "bash", '{"command": "ls"}'), ToolCall("2", "bash", '{"command": "rm"}'))
    edited = {"by": "user", "edited": '{"command": "rm -i"}'}
    items: list[Item] = [
        AssistantItem(calls),
        ToolResultItem("1", "bash", (), data={"approval": {"by": "user", "edited": None}}),
        ToolResultItem("2", "bash", (), data={"approval": edited}),
    ]
    first = collect_pins(items)
    assert collect_pins(first) == first
    assert [pin.text for pin in first if isinstance(pin, NoticeItem)] == [
        'The user allowed this call: bash {"command": "ls"}',
        'The user changed the call bash {"command": "rm"}\nIt ran with: {"command": "rm -i"}',
    ]
