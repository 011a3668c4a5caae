"""Stories of a host: who asks, metadata, queued messages, the next model, parts of a reply."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import msgspec
import pytest

from treadle import Agent, CacheRequest, ModelOptions
from treadle.agents.agent_definition import AgentDefinition
from treadle.core.contracts.gate import Admit, BaseGate, RequestEstimate
from treadle.core.contracts.hook import Block, HookAnswer, HookInput, HookPoint
from treadle.core.contracts.model import ModelCard
from treadle.core.errors import (
    AccessDenied,
    CacheUnsupported,
    ConfigError,
    Overloaded,
    QuotaExhausted,
    StreamBroken,
)
from treadle.core.events import (
    ChildEvent,
    Event,
    InputAccepted,
    MessageDropped,
    MessageQueued,
    ModelChanged,
    Notified,
    PartBegan,
    PartCommitted,
    ReplyDiscarded,
    RequestStarted,
    TextDelta,
    ThinkingDelta,
    ToolCallBegan,
    ToolCallRequested,
    TurnFinished,
    TurnStarted,
)
from treadle.core.loop.config import TurnSettings
from treadle.core.steps import AfterToolResult, DriverSnapshot, Finished
from treadle.core.transcript import Text, UserItem, to_user_item
from treadle.core.transcript.state import fold_entries
from treadle.models import Anthropic, Fallback, Pause, Say, Scripted
from treadle.testing.clock import ManualClock
from treadle.testing.observers import RecordingObserver
from treadle.testing.provider import FakeCall, FakeReply, FakeThinking, ProviderServer
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import RecordingTool

HELPER = AgentDefinition("helper", "helps", "Help.")
TASK = ("task", {"description": "work", "prompt": "child", "subagent_type": "helper"})


class PointHook:
    """Records its inputs; blocks the messages in `refused`."""

    def __init__(self, *points: HookPoint, refused: str = "") -> None:
        self.points = frozenset(points)
        self.inputs: list[HookInput] = []
        self._refused = refused

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        self.inputs.append(hook_input)
        return Block("no") if self._refused and hook_input.data["prompt"] == self._refused else None


async def all_events(agent: Agent, prompt: str = "go") -> list[Event]:
    async with agent.stream(prompt) as events:
        return [event async for event in events]


# --- who asks ----------------------------------------------------------------------------


async def test_the_model_the_events_and_the_hooks_are_told_who_asks():
    model, hook = Scripted(["done"]), PointHook("user_prompt_submit")
    events = await all_events(Agent(model, caller="terminal", hooks=[hook]))
    assert [event.caller for event in events if isinstance(event, TurnStarted)] == ["terminal"]
    assert [request.caller for request in model.requests] == ["terminal"]
    assert [hook_input.caller for hook_input in hook.inputs] == ["terminal"]
    assert Agent(model).config.caller == "library"


async def test_the_request_of_a_child_agent_says_that_a_child_asks():
    model = Scripted([Say(calls=[TASK]), "found", "done"])
    events = await all_events(Agent(model, subagents=[HELPER], caller="headless"))
    assert [request.caller for request in model.requests] == ["headless", "child", "headless"]
    inner = [event.child for event in events if isinstance(event, ChildEvent)]
    assert [event.caller for event in inner if isinstance(event, TurnStarted)] == ["child"]


# --- metadata ----------------------------------------------------------------------------


async def test_metadata_of_a_run_reaches_its_requests_and_its_result():
    model = Scripted(["one", "two"])
    agent = Agent(model)
    result = await agent.run("go", metadata={"user_id": "u7", "job": 3})
    assert result.turn.metadata == {"user_id": "u7", "job": 3}
    assert model.requests[0].metadata == {"user_id": "u7", "job": 3}
    async with agent.stream("again", metadata={"job": 4}) as stream:
        last = [event async for event in stream][-1]
    assert isinstance(last, TurnFinished)
    assert last.result.metadata == {"job": 4}


async def test_metadata_belongs_to_one_turn_and_steering_adds_to_it():
    model = Scripted([Say(calls=[("record", {})]), "one", "two"])
    driver = Agent(model, [RecordingTool()]).start(prompt="go", metadata={"job": 1})
    assert isinstance(await driver.next(), AfterToolResult)
    driver.steer("faster", metadata={"hurry": True})
    first = await driver.next()
    driver.submit("next")
    second = await driver.next()
    assert isinstance(first, Finished)
    assert isinstance(second, Finished)
    assert first.result.metadata == {"job": 1, "hurry": True}
    assert second.result.metadata == {}
    sent = [request.metadata for request in model.requests]
    assert sent == [{"job": 1}, {"job": 1, "hurry": True}, {}]


async def test_metadata_survives_a_crash_in_the_middle_of_the_turn():
    pause, store = Pause(), MemoryStore()
    driver = Agent(Scripted([[pause]])).start(prompt="go", metadata={"job": 1}, store=store)
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    view = fold_entries(store.entries)
    step.cancel()
    await asyncio.wait([step])
    model = Scripted(["done"])
    finished = await Agent(model).start(state=view).next()
    assert isinstance(finished, Finished)
    assert finished.result.metadata == {"job": 1}
    assert model.requests[0].metadata == {"job": 1}


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"job": object()}, "'job'"),
        ({"score": math.nan}, "'score': nan is not a finite number"),
        ({"score": math.inf}, "'score': inf is not a finite number"),
        ({"interrupted": True}, "'interrupted' is a name of the engine's own"),
        ({"detail": "mine"}, "'detail' is a name of the engine's own"),
        ("job 1", "a dict of names and values, not 'job 1'"),
    ],
)
async def test_metadata_that_cannot_be_stored_or_is_the_engines_is_refused_at_once(
    metadata: Any, reason: str
):
    model = Scripted(["x"])
    driver = Agent(model).start()
    for add in (driver.submit, driver.steer):
        with pytest.raises(TypeError, match=reason):
            add("go", metadata=metadata)
    with pytest.raises(TypeError, match=reason):
        await Agent(model).run("go", metadata=metadata)
    assert (model.requests, driver.queued_messages) == ([], ())


def test_a_message_with_a_number_that_no_session_can_store_cannot_be_made():
    with pytest.raises(TypeError, match="not a finite number"):
        UserItem((Text("go"),), metadata={"score": math.nan})


async def test_metadata_of_own_types_is_stored_as_plain_values():
    class Name(str):
        __slots__ = ()

    driver = Agent(Scripted(["x"])).start()
    driver.submit("go", metadata={"user": Name("u7"), "half": "\ud83d"})
    snapshot = DriverSnapshot.from_json(driver.snapshot().to_json())
    [message] = snapshot.pending_input
    assert isinstance(message, UserItem)
    assert message.metadata == {"user": "u7", "half": "\ufffd"}


async def test_chat_takes_the_metadata_of_the_last_message():
    model = Scripted(["x"])
    result = await Agent(model).run(history=[to_user_item("go", {"job": 1})])
    assert result.turn.metadata == {"job": 1}
    assert model.requests[0].metadata == {"job": 1}


# --- queued messages ---------------------------------------------------------------------


async def test_a_queued_message_has_an_id_and_events_tell_when_it_waits_and_when_it_is_taken():
    pause, seen = Pause(), RecordingObserver()
    driver = Agent(Scripted([["Working", pause], "In German."])).start(prompt="go")
    driver.watch(seen)
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    message_id = driver.steer("In German, please.")
    (waiting,) = driver.queued_messages
    assert (waiting.id, waiting.item.text) == (message_id, "In German, please.")
    pause.release()
    await step
    queued = [event for event in seen.events if isinstance(event, MessageQueued)]
    taken = [event for event in seen.events if isinstance(event, InputAccepted)]
    assert [event.message_id for event in queued] == [message_id]
    assert [event.item.text for event in taken] == ["go", "In German, please."]
    assert taken[1].message_id == message_id
    assert len({event.message_id for event in taken}) == 2
    assert driver.queued_messages == ()


@pytest.mark.parametrize("withdrawn", [0, 1, 2, None])
async def test_messages_that_wait_keep_their_order_over_close_and_resume(withdrawn: int | None):
    store = MemoryStore()
    driver = Agent(Scripted(["x"])).start(store=store)
    ids = [driver.submit("first"), driver.steer("second"), driver.submit("third")]
    if withdrawn is not None:
        assert driver.withdraw(ids[withdrawn])
    live = driver.queued_messages
    await driver.aclose()
    assert fold_entries(store.durable).queued == live
    assert len(live) == (3 if withdrawn is None else 2)


@pytest.mark.parametrize(
    ("moved", "by", "order"),
    [(0, 1, "bac"), (2, -1, "acb"), (0, 9, "bca"), (2, -9, "cab"), (1, 0, "abc"), (0, -1, "abc")],
)
async def test_a_queued_message_can_be_moved_and_keeps_its_place_after_resume(moved, by, order):
    store = MemoryStore()
    driver = Agent(Scripted(["x"])).start(store=store)
    ids = [driver.steer("a"), driver.steer("b"), driver.submit("c")]
    assert driver.move_message(ids[moved], by)
    assert not driver.move_message("msg_unknown", 1)
    live = driver.queued_messages
    assert "".join(message.item.text for message in live) == order
    await driver.aclose()
    assert fold_entries(store.durable).queued == live


async def test_a_queued_message_can_be_withdrawn_by_its_id():
    pause, seen = Pause(), RecordingObserver()
    driver = Agent(Scripted([["Working", pause], "never asked"])).start(prompt="go")
    driver.watch(seen)
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    first, second = driver.submit("one"), driver.submit("two")
    assert driver.withdraw(first)
    assert not driver.withdraw(first)
    assert driver.withdraw(second)
    assert not driver.withdraw("msg_unknown")
    pause.release()
    await step
    dropped = [event for event in seen.events if isinstance(event, MessageDropped)]
    assert [(event.message_id, event.reason) for event in dropped] == [
        (first, "withdrawn"),
        (second, "withdrawn"),
    ]
    assert [item.text for item in driver.transcript if isinstance(item, UserItem)] == ["go"]


async def test_a_message_that_a_hook_refuses_is_told_with_its_id_and_an_empty_one_has_none():
    hook, seen = PointHook("user_prompt_submit", refused="secret"), RecordingObserver()
    driver = Agent(Scripted(["ok"]), hooks=[hook]).start()
    driver.watch(seen)
    assert driver.submit("  ") == ""
    refused = driver.submit("secret")
    driver.submit("fine")
    await driver.next()
    dropped = [event for event in seen.events if isinstance(event, MessageDropped)]
    assert [(event.message_id, event.reason) for event in dropped] == [(refused, "refused")]


# --- the model of the next request -------------------------------------------------------


async def test_a_running_driver_uses_another_model_from_the_next_request_on():
    pause, seen = Pause(), RecordingObserver()
    first = Scripted([["Let me see", pause, Say(calls=[("record", {})])]], name="first")
    second = Scripted(["Done."], name="second")
    driver = Agent(first, [RecordingTool()]).start(prompt="go")
    driver.watch(seen)
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    driver.use_model(second)
    assert not any(isinstance(event, ModelChanged) for event in seen.events)
    pause.release()
    await step
    finished = await driver.next()
    assert isinstance(finished, Finished)
    assert finished.result.text == "Done."
    assert len(first.requests) == len(second.requests) == 1
    (changed,) = [event for event in seen.events if isinstance(event, ModelChanged)]
    assert (changed.old, changed.new, changed.is_choice) == ("first", "second", True)
    started = [event.model for event in seen.events if isinstance(event, RequestStarted)]
    assert started == ["first", "second"]


async def test_a_model_that_is_chosen_during_a_retry_wait_makes_the_next_attempt_at_once():
    clock, seen = ManualClock(blocked=True), RecordingObserver()
    first = Scripted([Overloaded("busy")], name="first")
    second = Scripted(["rescued"], name="second")
    driver = Agent(first, clock=clock, observers=[seen]).start()
    driver.submit("go")
    step = asyncio.create_task(driver.next())
    await clock.sleeping.wait()
    driver.use_model(second)
    finished = await step
    assert isinstance(finished, Finished)
    assert finished.result.text == "rescued"
    started = [event.model for event in seen.events if isinstance(event, RequestStarted)]
    assert started == ["first", "second"]
    await driver.aclose()


async def test_a_model_that_is_chosen_while_a_reply_breaks_makes_the_next_attempt():
    pause = Pause()
    first = Scripted([["Let me", pause, AccessDenied("the key is revoked")]], name="first")
    second = Scripted(["rescued"], name="second")
    driver = Agent(first, clock=ManualClock()).start()
    driver.submit("go")
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    driver.use_model(second)
    pause.release()
    finished = await step
    assert isinstance(finished, Finished)
    assert (finished.result.text, len(first.requests)) == ("rescued", 1)
    await driver.aclose()


@pytest.mark.parametrize("model", ["opus", 5, None, Scripted])
async def test_what_is_not_a_model_is_refused_when_it_is_chosen(model: Any):
    driver = Agent(Scripted(["fine"])).start()
    with pytest.raises(TypeError, match="is not a model"):
        driver.use_model(model)
    driver.submit("go")
    step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.text == "fine"


async def test_a_chosen_model_has_its_own_fallback_and_the_next_turn_keeps_it():
    bad = Scripted([Overloaded("busy")] * 4, name="bad")
    good = Scripted(["one", "two"], name="good")
    driver = Agent(Scripted([], name="first"), clock=ManualClock()).start(prompt="go")
    driver.use_model(Fallback(bad, good))
    assert isinstance(await driver.next(), Finished)
    driver.submit("more")
    step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.text == "two"


async def test_thinking_of_the_model_before_is_not_sent_to_the_chosen_one():
    script = [
        FakeReply(parts=(FakeThinking("hm"), FakeCall("record", {}, id="toolu_1"))),
        FakeReply("done"),
    ]
    async with ProviderServer(script) as server:
        options = ModelOptions(thinking=2_000)
        first = Anthropic("claude-opus-4-1", base_url=server.url, api_key="k")
        second = Anthropic("claude-opus-4", base_url=server.url, api_key="k")
        driver = Agent(first, [RecordingTool()], options=options).start(prompt="go")
        await driver.next()
        driver.use_model(second)
        step = await driver.next()
    assert isinstance(step, Finished)
    assert step.result.reason == "end_turn"
    assert server.violations == []
    assert b"hm" not in server.requests[1].body


# --- parts of a reply --------------------------------------------------------------------


async def test_text_and_thinking_parts_begin_and_are_committed():
    reply = Say("Let me see.", thinking="hm, ", calls=[("record", {})])
    events = await all_events(Agent(Scripted([reply, "done"]), [RecordingTool()]))
    kinds = (PartBegan, PartCommitted, TextDelta, ThinkingDelta, ToolCallBegan)
    told = [
        f"{type(event).__name__} {getattr(event, 'kind', '')}".strip()
        for event in events
        if isinstance(event, kinds)
    ]
    assert told == [
        "PartBegan thinking",
        "ThinkingDelta",
        "PartCommitted thinking",
        "PartBegan text",
        "TextDelta",
        "PartCommitted text",
        "ToolCallBegan",
        "PartBegan text",
        "TextDelta",
        "PartCommitted text",
    ]


async def test_a_part_of_a_broken_reply_is_not_committed():
    model = Scripted([["Half a th", Overloaded("busy")], "Whole."])
    events = await all_events(Agent(model, clock=ManualClock()))
    told = [type(event).__name__ for event in events if type(event).__name__.startswith("Part")]
    assert told == ["PartBegan", "PartBegan", "PartCommitted"]


# --- the cache ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "attempt",
    [
        [Say(thinking="some thoughts"), StreamBroken("gone")],
        [Say(calls=[("record", {"n": 1})]), StreamBroken("gone")],
    ],
)
async def test_thinking_and_calls_of_a_broken_reply_are_discarded_for_observers_too(attempt: Any):
    events = await all_events(Agent(Scripted([attempt, "fine"]), clock=ManualClock()))
    kinds = (RequestStarted, ThinkingDelta, ToolCallRequested, ReplyDiscarded, TextDelta)
    told = [type(event).__name__ for event in events if isinstance(event, kinds)]
    shown = "ThinkingDelta" if told[1] == "ThinkingDelta" else "ToolCallRequested"
    assert told == ["RequestStarted", shown, "ReplyDiscarded", "RequestStarted", "TextDelta"]


async def test_an_attempt_that_showed_nothing_is_not_discarded():
    events = await all_events(Agent(Scripted([Overloaded("busy"), "fine"]), clock=ManualClock()))
    assert not any(isinstance(event, ReplyDiscarded) for event in events)


async def test_the_text_that_an_interruption_keeps_is_committed():
    pause, seen = Pause(), RecordingObserver()
    driver = Agent(Scripted([["Let me", pause, "never"]]), observers=[seen]).start()
    driver.submit("go")
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    driver.interrupt()
    finished = await step
    assert isinstance(finished, Finished)
    assert finished.result.text == "Let me"
    parts = [event for event in seen.events if isinstance(event, (PartBegan, PartCommitted))]
    assert [type(part) for part in parts] == [PartBegan, PartCommitted]
    await driver.aclose()


async def test_a_required_prompt_cache_is_an_error_before_a_model_without_one_is_called():
    model = Scripted(["x"], name="plain")
    with pytest.raises(CacheUnsupported, match="plain has no prompt cache"):
        await Agent(model, cache=CacheRequest(required=True)).run("go")
    assert model.requests == []
    with pytest.raises(ConfigError):
        CacheRequest(enabled=False, required=True)


async def test_a_required_prompt_cache_is_looked_for_at_the_fallback():
    card = ModelCard("cached", abilities=frozenset({"cache"}))
    model = Fallback(Scripted(["x"], name="plain"), Scripted(["y"], card=card))
    result = await Agent(model, cache=CacheRequest(required=True)).run("go")
    assert result.text == "y"


async def test_a_model_that_takes_no_task_budget_is_named_once():
    witness = RecordingObserver()
    able = Scripted(
        ["b"], name="able", card=ModelCard("able", abilities=frozenset({"task_budget"}))
    )
    model = Scripted(
        [Say(calls=[("add", {})]), QuotaExhausted("none")], name="plain", fallback=able
    )
    options = ModelOptions(task_budget=50_000)
    result = await Agent(model, [RecordingTool("add")], options=options, observers=[witness]).run(
        "go"
    )
    assert result.text == "b"
    lines = [event.text for event in witness.events_of(Notified)]
    assert [line.partition(":")[0] for line in lines] == ["plain takes no task_budget"]


def test_a_task_budget_below_the_smallest_one_is_refused():
    with pytest.raises(ConfigError, match="20,000"):
        ModelOptions(task_budget=5_000)
    assert msgspec.structs.replace(ModelOptions(), task_budget=20_000).task_budget == 20_000


async def test_settings_of_a_turn_change_its_options_gates_and_observers_and_no_other_turn():
    class Counts(BaseGate):
        admitted = 0

        def admit(self, estimate: RequestEstimate) -> Admit:
            self.admitted += 1
            return Admit()

    gate, observer, model = Counts(), RecordingObserver(), Scripted(["a", "b", "c"])
    driver = Agent(model).start("one")
    await driver.next()
    options = ModelOptions(max_tokens=77)
    driver.configure_turns(TurnSettings(options, gates=(gate,), observers=(observer,)))
    driver.submit("two")
    await driver.next()
    seen = len(observer.events_of(TurnFinished))
    driver.configure_turns(TurnSettings())
    driver.submit("three")
    await driver.next()
    assert [request.options.max_tokens for request in model.requests] == [None, 77, None]
    assert (gate.admitted, seen, len(observer.events_of(TurnFinished))) == (1, 1, 1)
