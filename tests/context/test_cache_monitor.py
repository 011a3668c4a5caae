"""The cached beginning of a request: kept from turn to turn, and accounted for when it breaks."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from treadle import Agent, Transcript, Usage
from treadle.context.cache_monitor import (
    CacheMonitor,
    HeadLog,
    describe_first_change,
    describe_head_change,
    make_head,
)
from treadle.context.compaction import Compactor
from treadle.core.contracts.hook import HookInput, HookPoint
from treadle.core.contracts.model import ModelCard, ModelOptions, ModelRequest
from treadle.core.contracts.policy import Allow, AllowAll, Deny, PermissionRequest, Verdict
from treadle.core.contracts.tool import ToolSpec
from treadle.core.events import Notified
from treadle.core.loop.session_log import SessionLog
from treadle.core.steps import Finished
from treadle.core.transcript import (
    AssistantItem,
    Item,
    NoticeItem,
    Text,
    ToolResultItem,
    to_user_item,
)
from treadle.core.transcript.entries import HeadRecorded, Intent
from treadle.core.transcript.state import fold_entries
from treadle.models import Anthropic, Say, Scripted
from treadle.testing.observers import RecordingObserver
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import ChangingSource, RecordingTool
from treadle.tools.late_tools import StableToolList

ONE = ToolSpec("one", "d", {"type": "object"})
TWO = ToolSpec("two", "d", {"type": "object"})


def request(items: str = "ab", system: str = "s", tools: tuple[ToolSpec, ...] = (ONE,)):
    return ModelRequest(Transcript([to_user_item(text) for text in items]), system, tools)


def test_a_change_of_thinking_is_named():
    old = request()
    new = msgspec.structs.replace(old, options=ModelOptions(thinking="high"))
    assert describe_first_change(old, new) == "thinking changed from off to high"
    assert describe_first_change(new, old) == "thinking changed from high to off"


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (request("abc"), ""),
        (request("axc"), "message 2 of 2 was rewritten"),
        (request("a"), ""),  # the cache holds the beginning
        (request(system="t"), "line 1 of the instructions changed to 't'"),
        (request(tools=(ONE, TWO)), "the tool two was added"),
        (request(tools=()), "the tool one was removed"),
        (request(tools=(TWO,)), "tool 1 was one and is two"),
        (request(tools=(ToolSpec("one", "e", {}),)), "the definition of tool one changed"),
    ],
)
def test_the_first_change_is_named(new: ModelRequest, words: str):
    assert describe_first_change(request(), new) == words


async def test_a_broken_cache_is_told_once_with_what_it_cost():
    card = ModelCard("m", input_price=10.0, cache_read_price=1.0, cache_write_price=12.5)
    used = Usage(0, 5, cache_write=100_000, requests=1)
    model = CacheMonitor(Scripted([Say("x", usage=used)] * 3, card=card))
    witness, said = RecordingObserver(), ["Be brief."]
    driver = Agent(model, instructions=lambda: said[0], observers=[witness]).start(prompt="a")
    await driver.next()
    said[0] = "Be long."
    for _ in range(2):
        driver.submit("b")
        await driver.next()
    told = [event.text for event in witness.events_of(Notified)]
    assert told == [
        "the prompt cache broke: line 1 of the instructions changed to 'Be long.'; "
        "about 100,000 tokens are sent uncached (+$1.15)"
    ]


@pytest.mark.parametrize(
    ("used", "seconds", "is_told"),
    [
        (Usage(0, 5, cache_write=100_000, requests=1), 299, True),
        (Usage(0, 5, cache_write=100_000, requests=1), 3_600, False),  # the cache has ended
        (Usage(100_000, 5, requests=1), 1, False),  # nothing was cached
    ],
)
async def test_only_a_cache_that_is_there_breaks(used: Usage, seconds: int, is_told: bool):
    now = [1_000.0]
    model = CacheMonitor(Scripted([Say("x", usage=used)] * 2), get_time=lambda: now[0])
    witness, said = RecordingObserver(), ["Be brief."]
    driver = Agent(model, instructions=lambda: said[0], observers=[witness]).start(prompt="a")
    await driver.next()
    said[0], now[0] = "Be long.", now[0] + seconds
    driver.submit("b")
    await driver.next()
    assert bool(witness.events_of(Notified)) == is_told


async def test_only_the_cached_part_of_a_request_counts_as_lost():
    used = Usage(60_000, 5, cache_read=40_000, requests=1)
    model = CacheMonitor(Scripted([Say("x", usage=used)] * 2))
    witness, said = RecordingObserver(), ["Be brief."]
    driver = Agent(model, instructions=lambda: said[0], observers=[witness]).start(prompt="a")
    await driver.next()
    said[0] = "Be long."
    driver.submit("b")
    await driver.next()
    [told] = [event.text for event in witness.events_of(Notified)]
    assert "about 40,000 tokens are sent uncached" in told


async def test_the_cache_of_an_earlier_process_ends_as_well():
    head = make_head("scripted", request())
    for until, is_told in ((2_000.0, True), (900.0, False)):
        saved: list[HeadRecorded] = []
        log = HeadLog("s", saved.append, head, 1_000, until)
        model = CacheMonitor(Scripted(["x"]), log, get_time=lambda: 1_000.0)
        witness = RecordingObserver()
        agent = Agent(model, observers=[witness], instructions="other")
        await agent.start(prompt="a", session_id="s").next()
        assert bool(witness.events_of(Notified)) == is_told, until


async def test_after_a_compaction_only_what_is_sent_uncached_is_counted():
    used = Usage(10, 5, cache_read=99_990, requests=1)
    notes = Scripted(["Known: all."])
    model = CacheMonitor(Scripted([Say("x", usage=used), Say("y", usage=used)]))
    witness = RecordingObserver()
    agent = Agent(model, instructions="s" * 1_000, mutators=[Compactor(notes)], observers=[witness])
    long: list[Item] = [to_user_item("a")]
    for _ in range(10):
        long += [AssistantItem((Text("word " * 400),)), to_user_item("b")]
    driver = agent.start(history=long)
    await driver.next()
    assert await driver.compact()
    driver.submit("c")
    await driver.next()
    [told] = [e.text for e in witness.events_of(Notified) if "broke" in e.text]
    lost = int(re.search(r"about ([\d,]+) tokens", told)[1].replace(",", ""))  # type: ignore[index]
    sent = sum(len(item.text) for item in driver.transcript[:-1])
    assert lost == pytest.approx(100_000 * sent / 21_012, rel=0.02), "without the instructions"


HEAD = make_head("m", request())


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (request("ab"), ""),
        (request(tools=(ONE, TWO)), "the tool two was added since the session was last used"),
        (request(tools=()), "the tool one was removed since the session was last used"),
        (
            request(tools=(ToolSpec("one", "e", {}),)),
            "the definitions of the tools changed since the session was last used",
        ),
        (request(system="t"), "the instructions changed since the session was last used"),
    ],
)
def test_what_changed_between_two_processes_is_named(new: ModelRequest, words: str):
    assert describe_head_change(HEAD, make_head("m", new)) == words
    assert describe_head_change(HEAD, make_head("other", new)) == ""


async def test_a_cache_that_another_process_breaks_is_told_with_its_price_and_the_head_is_logged():
    card = ModelCard("m", input_price=10.0, cache_read_price=1.0, cache_write_price=12.5)
    store = MemoryStore()

    async def use(thinking: str, tokens: int) -> list[str]:
        view = fold_entries(store.durable)
        session = SessionLog(store, view)
        log = HeadLog("session", session.append, view.request_head, tokens)
        model = CacheMonitor(Scripted(["x", "y"], card=card), log)
        witness = RecordingObserver()
        agent = Agent(model, observers=[witness], options=ModelOptions(thinking=thinking))
        driver = agent.start(store=session, prompt="a")
        await driver.next()
        driver.submit("b")
        await driver.next()
        await session.flush()
        return [event.text for event in witness.events_of(Notified)]

    assert await use("low", 0) == []
    assert await use("low", 100_000) == []
    assert await use("high", 100_000) == [
        "the prompt cache broke: thinking changed from low to high; "
        "about 100,000 tokens are sent uncached (+$1.15)"
    ]
    heads = [entry for entry in store.durable if isinstance(entry, HeadRecorded)]
    assert [head.thinking for head in heads] == ["low", "high"]  # one for each change


async def test_a_child_agent_does_not_write_its_head_into_the_log_of_its_parent():
    saved: list[HeadRecorded] = []
    task = ("task", {"description": "work", "prompt": "child"})
    model = CacheMonitor(Scripted([Say(calls=[task]), "found", "done"]), HeadLog("s", saved.append))
    driver = Agent(model, subagents=[]).start(prompt="go", session_id="s")
    while not isinstance(await driver.next(), Finished):
        pass
    assert [head.tools for head in saved] == [("task",)]


async def test_a_tool_that_comes_late_is_announced_and_called_without_touching_the_list():
    source = ChangingSource([RecordingTool("first")])
    late = RecordingTool("late", "late answer")
    steady = StableToolList(source)
    model = Scripted(
        ["hi", Say(calls=[("use_tool", {"name": "late", "arguments": {"n": 1}})]), "done"]
    )
    driver = Agent(model, [steady], mutators=[steady]).start(prompt="a")
    await driver.next()
    source.set_tools([RecordingTool("first"), late])
    driver.submit("b")
    while not isinstance(await driver.next(), Finished):
        pass
    assert late.calls == [{"n": 1}]
    assert model.requests[0].tools == model.requests[-1].tools
    assert sum(isinstance(item, NoticeItem) for item in driver.transcript) == 1
    assert driver.history == driver.transcript


async def test_a_tool_that_comes_late_is_judged_and_told_as_itself():
    class Careful(AllowAll):
        async def decide(self, request: PermissionRequest) -> Verdict:
            asked.append((request.tool.name, request.arguments))
            return Deny("never") if request.tool.name == "danger" else Allow()

    class Hears:
        points: frozenset[HookPoint] = frozenset({"pre_tool_use"})

        async def run(self, hook_input: HookInput) -> None:
            asked.append((hook_input.data["tool_name"], hook_input.data["tool_input"]))

    asked: list[tuple[str, Any]] = []
    source = ChangingSource([RecordingTool("first")])
    steady = StableToolList(source)
    danger, fine = RecordingTool("danger"), RecordingTool("fine", effect="irreversible")
    calls = [("use_tool", {"name": name, "arguments": {"n": 1}}) for name in ("danger", "fine")]
    model = Scripted(["hi", Say(calls=calls), "done"])
    agent = Agent(model, [steady], mutators=[steady], policy=Careful(), hooks=[Hears()])
    driver = agent.start(prompt="a", store=(store := MemoryStore()))
    await driver.next()
    source.set_tools([RecordingTool("first"), danger, fine])
    driver.submit("b")
    while not isinstance(await driver.next(), Finished):
        pass
    assert danger.calls == []
    assert fine.calls == [{"n": 1}]
    assert asked == [("danger", {"n": 1}), ("fine", {"n": 1}), ("fine", {"n": 1})]
    assert [entry.tool for entry in store.entries if isinstance(entry, Intent)] == ["fine"]


async def test_a_tool_that_goes_away_stays_listed_and_says_so():
    source = ChangingSource([RecordingTool("first")])
    steady = StableToolList(source)
    model = Scripted(["hi", Say(calls=[("first", {}), ("use_tool", {"name": "x"})]), "done"])
    driver = Agent(model, [steady], mutators=[steady]).start(prompt="a")
    await driver.next()
    source.set_tools([])
    driver.submit("b")
    while not isinstance(await driver.next(), Finished):
        pass
    answers = [item.text for item in driver.transcript if isinstance(item, ToolResultItem)]
    assert answers[0] == "error: first is not available any more"
    assert answers[1].startswith("error: give the tool's name")


def without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_marks(v) for k, v in value.items() if k != "cache_control"}
    return [without_marks(v) for v in value] if isinstance(value, list) else value


async def test_fifty_turns_keep_the_cached_prefix_with_new_modes_tools_and_memories():
    replies: list[FakeReply] = []
    for turn in range(50):
        replies += [
            FakeReply(calls=(FakeCall("first", {"n": turn}),)),
            FakeReply(text=f"done {turn}"),
        ]
    source = ChangingSource([RecordingTool("first")])
    steady = StableToolList(source)
    async with ProviderServer(replies) as server:
        model = Anthropic("claude-sonnet-4-5", base_url=server.url, api_key="k")
        driver = Agent(model, [steady], mutators=[steady], instructions="Be brief.").start()
        for turn in range(50):
            if turn == 10:
                source.set_tools([RecordingTool("first"), RecordingTool("late")])
            if turn == 20:
                driver.steer("(plan mode is on)")
            if turn == 30:
                driver.steer("(AGENTS.md changed: use tabs)")
            driver.submit(f"turn {turn}")
            while not isinstance(step := await driver.next(), Finished):
                pass
            assert step.result.reason == "end_turn"
        await driver.aclose()
        await model.aclose()
        bodies = [json.loads(request.body) for request in server.requests]
        assert server.violations == []
    assert len(bodies) == 100
    for before, after in pairwise(bodies):
        assert without_marks(after["tools"]) == without_marks(before["tools"])
        assert without_marks(after["system"]) == without_marks(before["system"])
        old, new = without_marks(before["messages"]), without_marks(after["messages"])
        assert json.dumps(new[: len(old)]) == json.dumps(old)


async def test_a_side_question_does_not_pass_for_a_broken_cache():
    used = Usage(input=10, cache_read=100_000, output=5, requests=1)
    model, witness = Scripted(lambda request: Say("ok", usage=used)), RecordingObserver()
    agent = Agent(CacheMonitor(model), observers=[witness])
    driver = agent.start("one")
    await agent.finish_turn(driver)
    await driver.ask_aside("what is that?")
    driver.submit("two")
    await agent.finish_turn(driver)
    assert not witness.events_of(Notified)
