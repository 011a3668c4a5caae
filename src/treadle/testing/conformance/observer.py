"""The promises of an Observer (core/contracts/observer.py), as checks.

    await check_observer(make)

The observer gets every kind of event and item.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from treadle.core.contracts.observer import Observer
from treadle.core.events import (
    ApprovalRequired,
    ApprovalResolved,
    AuthenticationRequired,
    ChildEvent,
    Event,
    InputAccepted,
    LoopContinued,
    MessageDropped,
    MessageQueued,
    ModelChanged,
    MutationFinished,
    MutationStarted,
    Notified,
    PartBegan,
    PartCommitted,
    ReplyDiscarded,
    RequestStarted,
    RetryScheduled,
    RunFailed,
    RunStarted,
    TaskFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallBegan,
    ToolCallDelta,
    ToolCallRequested,
    ToolDetached,
    ToolFinished,
    ToolProgress,
    ToolsChanged,
    ToolsSummarized,
    ToolStarted,
    TurnFinished,
    TurnResult,
    TurnStarted,
    UsageUpdated,
    WarningRaised,
)
from treadle.core.transcript.content import Image, Text, Thinking, ToolCall
from treadle.core.transcript.items import (
    AssistantItem,
    Item,
    NoticeItem,
    SummaryItem,
    ToolResultItem,
    UserItem,
)
from treadle.core.transcript.usage import Usage
from treadle.testing.conformance.promises import (
    Promise,
    assert_returns_at_once,
    build,
    keep_promises,
)

MakeObserver = Callable[[], Observer | Awaitable[Observer]]

_CALL = ToolCall("call_1", "bash", '{"command": "ls"}')
_SAID = UserItem((Text("Hello \ud800"), Image("image/png", b"\x00")), metadata={"job": 3})
_REPLY = AssistantItem((Thinking("Hm."), Text("I look."), _CALL), "tool_use", "m", Usage(3, 4))
_RESULT = ToolResultItem("call_1", "bash", (Text("a.txt"),), data={"cwd": "/x"})
ITEMS: Sequence[Item] = (
    _SAID,
    _REPLY,
    _RESULT,
    NoticeItem("A note.", data={"n": 1}),
    SummaryItem("They talked.", 2),
)
_IDS = ("session", "turn-1", 1)
_ENDED = TurnResult("turn-1", "end_turn", tuple(ITEMS), Usage(3, 4), 1, {"job": 3})
EVENTS: Sequence[Event] = (
    RunStarted(*_IDS),
    TurnStarted(*_IDS),
    MessageQueued(*_IDS, "m1", _SAID),
    MessageDropped(*_IDS, "m1", "withdrawn"),
    InputAccepted(*_IDS, _SAID),
    MutationStarted(*_IDS, "compaction", "before_model"),
    MutationFinished(*_IDS, "compaction", "before_model", True),
    RequestStarted(*_IDS, "m"),
    RetryScheduled(*_IDS, 1, 0.5, "overloaded"),
    ReplyDiscarded(*_IDS, 10),
    ModelChanged(*_IDS, "m", "n", "fallback"),
    PartBegan(*_IDS, "thinking"),
    ThinkingDelta(*_IDS, "Hm."),
    PartCommitted(*_IDS, "thinking"),
    PartBegan(*_IDS, "text"),
    TextDelta(*_IDS, "I look. \ud800"),
    PartCommitted(*_IDS, "text"),
    ToolCallBegan(*_IDS, "call_1", "bash"),
    ToolCallDelta(*_IDS, "call_1", "{"),
    ToolCallRequested(*_IDS, _CALL),
    UsageUpdated(*_IDS, "m", Usage(3, 4, cost=None), Usage(3, 4)),
    ApprovalRequired(*_IDS, _CALL, "[bash: ls]", "a command"),
    ApprovalResolved(*_IDS, "call_1", "allow"),
    ToolStarted(*_IDS, "call_1", "bash", "[bash: ls]"),
    ToolProgress(*_IDS, "call_1", "a"),
    ToolFinished(*_IDS, "call_1", "bash", "a.txt"),
    ToolDetached(*_IDS, "call_2", "task-1"),
    TaskFinished(*_IDS, "task-1", "bash", "done"),
    AuthenticationRequired(*_IDS, "call_3", "db", "http://x.test", "Bearer"),
    ChildEvent(*_IDS, "call_4", ChildEvent("child", "turn-1", 1, "call_5", RunStarted(*_IDS))),
    ToolsSummarized(*_IDS, "Looked around.", ("call_1",)),
    ToolsChanged(*_IDS, ("add",), ("read",)),
    LoopContinued(*_IDS, "stop_hook"),
    Notified(*_IDS, "A line."),
    WarningRaised(*_IDS, "A warning."),
    TurnFinished(*_IDS, _ENDED),
    RunFailed(*_IDS, "it broke", "StreamBroken", TurnResult("turn-2", "error")),
)


async def check_observer(make: MakeObserver) -> None:
    """Raise an AssertionError that names the first broken promise."""
    await keep_promises("observer", OBSERVER_PROMISES, make)


async def accepts_every_event_and_item(make: MakeObserver) -> None:
    observer = await build(make)
    for event in EVENTS:
        _assert_plain(observer.on_event(event), "on_event")  # type: ignore[func-returns-value]
    for position, item in enumerate(ITEMS):
        _assert_plain(observer.on_item(position, item), "on_item")  # type: ignore[func-returns-value]


async def accepts_events_of_a_run_that_it_joins_late(make: MakeObserver) -> None:
    """An observer may be added while the agent works: the beginning is missing."""
    observer = await build(make)
    for event in reversed(EVENTS):
        observer.on_event(event)
    for position, item in reversed([*enumerate(ITEMS)]):
        observer.on_item(position, item)


async def returns_at_once(make: MakeObserver) -> None:
    observer = await build(make)
    event = TextDelta(*_IDS, "x")
    assert_returns_at_once(lambda: observer.on_event(event), "on_event()")
    assert_returns_at_once(lambda: observer.on_item(0, _SAID), "on_item()")


async def changes_nothing(make: MakeObserver) -> None:
    observer = await build(make)
    for event in EVENTS:
        before = msgspec.to_builtins(event)
        observer.on_event(event)
        assert msgspec.to_builtins(event) == before, f"{type(event).__name__} is changed"
    for position, item in enumerate(ITEMS):
        before = msgspec.to_builtins(item)
        observer.on_item(position, item)
        assert msgspec.to_builtins(item) == before, f"{type(item).__name__} is changed"


OBSERVER_PROMISES: tuple[Promise, ...] = (
    accepts_every_event_and_item,
    accepts_events_of_a_run_that_it_joins_late,
    returns_at_once,
    changes_nothing,
)


def _assert_plain(returned: object, name: str) -> None:
    if inspect.iscoroutine(returned):
        returned.close()
        raise AssertionError(f"{name} is an async function; the loop calls it without await")
