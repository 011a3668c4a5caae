from __future__ import annotations

import base64
import contextlib
import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.models.wires import WIRES, connect
from treadle import Agent, tool
from treadle.core.contracts.gate import Admit, BaseGate, RequestEstimate, Stop
from treadle.core.contracts.model import (
    ModelEvent,
    ModelNotified,
    ModelOptions,
    ModelRequest,
    ModelTextDelta,
    PartQuarantined,
    Reply,
    SettleUsage,
)
from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import BadRequest, ContextTooLong, StreamBroken
from treadle.core.events import Notified, WarningRaised
from treadle.core.transcript import (
    AssistantItem,
    Image,
    NoticeItem,
    Text,
    Thinking,
    ToolCall,
    ToolResultItem,
    Transcript,
    Usage,
    to_user_item,
)
from treadle.core.transcript.entries import UsageRecorded
from treadle.models.anthropic import Anthropic
from treadle.models.provider_base.error_map import (
    ProviderInfo,
    map_error_body,
)
from treadle.models.provider_base.error_types import ProviderErrorBody
from treadle.testing import provider
from treadle.testing.observers import RecordingObserver
from treadle.testing.provider import ProviderFault, ProviderServer, RequestViolation
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import RecordingTool


def picture(mark: str) -> Image:
    return Image("image/png", b"\x89PNG\r\n\x1a\n" + b"\0" * 16 + mark.encode() * 20)


class Picky(ProviderServer):
    """A provider that refuses what a rule refuses, with or without naming the place."""

    def __init__(self, refuses: Callable[[bytes], str | None]) -> None:
        reply = provider.FakeReply("well, this is an answer of some length")
        super().__init__(lambda request: reply)
        self._refuses = refuses

    @property
    def bodies(self) -> list[bytes]:
        return [request.body for request in self.requests]

    def _check_request(self, request: Any, *others: Any) -> list[RequestViolation]:
        problem = self._refuses(request.body)
        return [RequestViolation("", problem)] if problem else []


class Passing(ProviderServer):
    """A provider that refuses every n-th request for no reason of its content."""

    def __init__(self, *refused: int) -> None:
        reply = provider.FakeReply("an answer")
        super().__init__(lambda request: reply)
        self._refused = refused

    def _check_request(self, request: Any, *others: Any) -> list[RequestViolation]:
        is_refused = len(self.requests) in self._refused
        return [RequestViolation("", "try another prompt")] if is_refused else []


async def heal(picky: Picky, transcript: Transcript, **fields: Any) -> list[ModelEvent]:
    async with picky as server:
        who = Anthropic("claude-sonnet-4-5", base_url=server.url, api_key="k")
        return [event async for event in who.stream(ModelRequest(transcript, **fields))]


def quarantined(events: list[ModelEvent]) -> list[tuple[int, int]]:
    return [(e.position, e.part) for e in events if isinstance(e, PartQuarantined)]


def replies(events: list[ModelEvent]) -> list[AssistantItem]:
    return [event.item for event in events if isinstance(event, Reply)]


def refusing(
    needle: bytes, message: str = "Could not process image"
) -> Callable[[bytes], str | None]:
    return lambda body: message if needle in body else None


def with_pictures(count: int, poisoned: int) -> Transcript:
    transcript = Transcript([to_user_item("look at these")])
    for number in range(count):
        mark = "poison" if number == poisoned else f"fine{number:02}"
        transcript = transcript.extend(
            [to_user_item(picture(mark)), AssistantItem((Text("nice"),))]
        )
    return transcript.append(to_user_item("and now?"))


POISON = base64.b64encode(picture("poison").data)


@pytest.mark.parametrize("count", [1, 2, 7, 32])
@pytest.mark.parametrize("at", ["first", "last"])
async def test_a_refused_picture_is_found_and_the_conversation_goes_on(count: int, at: str):
    index = 0 if at == "first" else count - 1
    transcript = with_pictures(count, index)
    picky = Picky(refusing(POISON))
    events = await heal(picky, transcript)
    assert quarantined(events) == [(1 + 2 * index, 0)], "one part, reported once"
    assert len(replies(events)) == 1
    suspects = count + 2
    assert len(picky.bodies) <= math.log2(suspects) + 4
    refused = [body for body in picky.bodies if POISON in body]
    assert len(set(refused)) == len(refused), "no refused request was sent twice"
    assert picture("poison") in transcript[1 + 2 * index].content  # type: ignore[union-attr]


async def test_each_request_of_a_search_has_its_own_idempotency_key():
    picky = Picky(refusing(POISON))
    await heal(picky, with_pictures(5, 2), idempotency_key="turn")
    keys = [request.headers["idempotency-key"] for request in picky.requests]
    assert keys[0] == "turn"
    assert len(set(keys)) == len(keys) > 3


async def test_only_the_last_attempt_is_heard():
    picky = Picky(refusing(POISON))
    events = await heal(picky, with_pictures(5, 2))
    text = "".join(event.text for event in events if isinstance(event, ModelTextDelta))
    assert text == "well, this is an answer of some length"
    (reply,) = replies(events)
    assert reply.usage.requests == 1, "the reply has what its own request used"


async def test_each_probe_is_admitted_and_its_usage_is_settled_once():
    settled: list[Usage] = []

    async def admit(probe: ModelRequest) -> SettleUsage:
        return settled.append

    picky = Picky(refusing(POISON))
    await heal(picky, with_pictures(5, 2), admit_probe=admit)
    assert len(settled) == len(picky.bodies) - 2, "all but the request itself, twice"
    accepted = [body for body in picky.bodies if POISON not in body]
    assert sum(used.requests for used in settled) == len(accepted) - 1


async def test_a_search_that_is_not_admitted_ends_with_the_refusal():
    async def admit_none(probe: ModelRequest) -> None:
        return None

    picky = Picky(refusing(POISON))
    with pytest.raises(BadRequest, match="Could not process image"):
        await heal(picky, with_pictures(5, 2), admit_probe=admit_none)
    assert len(picky.bodies) == 1


async def test_the_part_that_the_error_names_goes_first():
    picky = Picky(refusing(POISON, "messages.4.content.0.image.source.base64: cannot be decoded"))
    events = await heal(picky, with_pictures(30, 2))
    assert quarantined(events) == [(5, 0)]
    assert len(picky.bodies) == 2


async def test_a_refused_text_of_the_newest_message_is_left_out():
    transcript = Transcript(
        [
            to_user_item("hello"),
            AssistantItem((Text("hi"),)),
            to_user_item((Text("fine"), Text("POISON"))),
        ]
    )
    picky = Picky(refusing(b"POISON", "invalid text"))
    assert quarantined(await heal(picky, transcript)) == [(2, 1)]


async def test_a_refused_tool_result_is_left_out_and_its_call_stays_answered():
    calls = tuple(ToolCall(f"c{n}", "f", "{}") for n in range(4))
    results = [
        ToolResultItem(f"c{n}", "f", (Text("POISON" if n == 2 else "ok"),)) for n in range(4)
    ]
    transcript = Transcript([to_user_item("go"), AssistantItem(calls), *results])
    picky = Picky(refusing(b"POISON", "invalid text"))
    assert quarantined(await heal(picky, transcript)) == [(4, 0)]
    assert picky.bodies[-1].count(b'"tool_result"') == 4


async def test_all_thinking_goes_when_one_signature_after_the_other_is_refused():
    transcript = Transcript([to_user_item("go")])
    for number in range(40):
        thinking = Thinking(f"thought {number}", "stale", origin="anthropic")
        transcript = transcript.extend([AssistantItem((thinking, Text("x"))), to_user_item("on")])

    def first_stale(body: bytes) -> str | None:
        for number, message in enumerate(msgspec.json.decode(body)["messages"]):
            if any(block.get("signature") == "stale" for block in message["content"]):
                return f"messages.{number}.content.0: Invalid `signature` in `thinking` block"
        return None

    picky = Picky(first_stale)
    events = await heal(picky, transcript)
    assert len(picky.bodies) == 3
    assert len(quarantined(events)) == 40
    assert len(replies(events)) == 1


async def test_two_refused_parts_are_both_found():
    transcript = with_pictures(8, 2).append(to_user_item("POISON"))
    both = POISON
    picky = Picky(lambda body: "no" if both in body or b"POISON" in body else None)
    events = await heal(picky, transcript)
    assert sorted(quarantined(events)) == [(5, 0), (len(transcript) - 1, 0)]
    assert len(replies(events)) == 1


async def test_what_no_part_is_to_blame_for_stays_an_error():
    picky = Picky(lambda body: "this model is not for you")
    with pytest.raises(BadRequest, match="not for you"):
        await heal(picky, with_pictures(20, 3))
    assert len(picky.bodies) == 2
    assert len(set(picky.bodies)) == 2


@pytest.mark.parametrize("name", ["tools.0.custom.input_schema: bad", "temperature: too hot"])
async def test_settings_that_are_refused_are_not_looked_for_in_the_history(name: str):
    picky = Picky(lambda body: name)
    with pytest.raises(BadRequest):
        await heal(picky, with_pictures(20, 3))
    assert len(picky.bodies) == 1


async def test_a_request_that_is_too_long_is_left_to_compaction():
    picky = Picky(lambda body: "prompt is too long: 9 tokens > 8 maximum")
    with pytest.raises(ContextTooLong):
        await heal(picky, with_pictures(20, 3))
    assert len(picky.bodies) == 1


async def test_a_refusal_in_the_middle_of_an_answer_is_not_hidden():
    fault = ProviderFault("error_event", value="invalid_request_error", count=4)
    async with ProviderServer([provider.FakeReply("words " * 20)], faults=[fault]) as server:
        who = Anthropic("claude-sonnet-4-5", base_url=server.url, api_key="k")
        with pytest.raises(BadRequest):
            [event async for event in who.stream(ModelRequest(with_pictures(3, 1)))]
    assert len(server.requests) == 1


async def test_notices_can_be_left_out_too():
    transcript = Transcript([to_user_item("go"), AssistantItem((Text("x"),)), NoticeItem("POISON")])
    picky = Picky(refusing(b"POISON", "no"))
    assert quarantined(await heal(picky, transcript)) == [(2, 0)]


async def test_what_was_quarantined_before_stays_out_without_a_word():
    picky = Picky(refusing(POISON))
    events = await heal(picky, with_pictures(5, 2), quarantine=frozenset({(5, 0)}))
    assert quarantined(events) == []
    assert len(picky.bodies) == 1


@pytest.mark.parametrize("turns", [0, 1, 3])
async def test_the_words_of_the_user_stay_when_a_refusal_was_only_a_passing_one(turns: int):
    transcript = Transcript([to_user_item("first")])
    for number in range(turns):
        transcript = transcript.extend([AssistantItem((Text("ok"),)), to_user_item(f"no {number}")])
    server = Passing(1)
    async with server:
        model = Anthropic("claude-sonnet-4-5", base_url=server.url, api_key="k")
        events = [event async for event in model.stream(ModelRequest(transcript))]
    assert quarantined(events) == []
    assert replies(events)[0].text == "an answer"
    assert b"left out" not in server.requests[-1].body


@pytest.mark.parametrize("second", range(2, 7))
async def test_the_words_of_the_user_stay_when_two_refusals_were_passing_ones(second: int):
    history = (to_user_item("first"), AssistantItem((Text("ok"),)), to_user_item("MY WORDS"))
    server = Passing(1, second)
    async with server:
        model = Anthropic("claude-sonnet-4-5", base_url=server.url, api_key="k")
        events: list[ModelEvent] = []
        with contextlib.suppress(BadRequest):  # the turn fails, and can be tried again
            events += [event async for event in model.stream(ModelRequest(Transcript(history)))]
    assert (2, 0) not in quarantined(events)
    assert not replies(events) or b"MY WORDS" in server.requests[-1].body


async def test_words_that_are_refused_twice_by_themselves_are_left_out_and_told():
    picky = Picky(refusing(b"POISON", "invalid text"))
    events = await heal(picky, Transcript([to_user_item("POISON")]))
    assert quarantined(events) == [(0, 0)]
    assert len(replies(events)) == 1


@pytest.mark.parametrize("code", ["tool_use_failed", "json_validate_failed"])
@pytest.mark.parametrize("status", [400, None])
def test_a_reply_that_the_provider_could_not_use_is_asked_for_again(code: str, status: int | None):
    body = ProviderErrorBody("Failed to call a function.", "invalid_request_error", code)
    error = map_error_body(ProviderInfo("groq"), body, status)
    assert type(error) is StreamBroken, "the loop asks again; nothing of the request is blamed"


async def test_refused_arguments_of_a_call_are_found_and_left_out():
    calls = tuple(ToolCall(f"c{n}", "f", '{"a":"POISON"}' if n == 1 else "{}") for n in range(3))
    results = [ToolResultItem(f"c{n}", "f", (Text("ok"),)) for n in range(3)]
    transcript = Transcript([to_user_item("go"), AssistantItem(calls), *results])
    picky = Picky(refusing(b"POISON", "invalid request"))
    assert quarantined(await heal(picky, transcript)) == [(1, 1)]
    assert picky.bodies[-1].count(b'"tool_use"') == 3


# ------------------------------------------------------------------ tools


def spec(name: str, mark: str = "") -> ToolSpec:
    properties = {"a": {"type": "string", "description": mark}}
    return ToolSpec(name, "Does it.", {"type": "object", "properties": properties})


REFUSALS = {
    "messages": "tools.1.custom.input_schema: JSON schema is invalid",
    "chat": "Invalid schema for function 'bad': 'str' is not valid",
    "responses": "Invalid 'tools[1].parameters': 'str' is not valid",
    "gemini": "* GenerateContentRequest.tools[0].function_declarations[1].parameters: is not valid",
    "converse": "The value at toolConfig.tools.1.toolSpec.inputSchema.json is not valid",
}


@pytest.mark.parametrize("wire", WIRES)
async def test_a_tool_that_the_provider_refuses_is_left_out_with_one_line(wire: str):
    picky = Picky(refusing(b"POISON", REFUSALS[wire]))
    async with picky as server:
        model = connect(wire, server.url)
        transcript = Transcript([to_user_item("go")])
        tools = (spec("good"), spec("bad", "POISON"), spec("fine"))
        lines: list[list[str]] = []
        for _ in range(2):
            request = ModelRequest(transcript, tools=tools)
            events = [event async for event in model.stream(request)]
            assert len(replies(events)) == 1
            transcript = transcript.extend([replies(events)[0], to_user_item("on")])
            lines.append([event.text for event in events if isinstance(event, ModelNotified)])
    assert [len(told) for told in lines] == [1, 0], "the line comes once"
    assert "'bad'" in lines[0][0]
    assert len(picky.bodies) == 3, "the refused tool is not sent again"
    assert b'"fine"' in picky.bodies[-1]


async def test_a_tool_that_must_be_called_is_not_left_out():
    picky = Picky(refusing(b"POISON", "tools.0.custom.input_schema: bad"))
    options = ModelOptions(tool_choice="bad")
    with pytest.raises(BadRequest, match="input_schema"):
        await heal(
            picky,
            Transcript([to_user_item("go")]),
            tools=(spec("bad", "POISON"),),
            options=options,
        )
    assert len(picky.bodies) == 1


UNNAMED = "Invalid JSON payload received."


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("message", [UNNAMED, "tools: a schema is not valid"])
@pytest.mark.parametrize("bad", [{0}, {4}, {9}, {2, 7}, {0, 5, 9}, set(range(1, 10))])
async def test_tools_that_are_refused_without_a_name_are_found_and_the_session_goes_on(
    wire: str, message: str, bad: set[int]
):
    tools = tuple(spec(f"t{n}", "POISON" if n in bad else "") for n in range(10))
    picky = Picky(refusing(b"POISON", message))
    async with picky as server:
        model = connect(wire, server.url)
        transcript = Transcript([to_user_item("MY WORDS")])
        events = [event async for event in model.stream(ModelRequest(transcript, tools=tools))]
        count = len(picky.bodies)
        again = [event async for event in model.stream(ModelRequest(transcript, tools=tools))]
    assert len(replies(events)) == len(replies(again)) == 1
    assert quarantined(events) == []
    lines = [event.text for event in events if isinstance(event, ModelNotified)]
    assert 1 <= len(lines) <= 4
    assert all(f"'t{n}'" in "".join(lines) for n in bad)
    if len(bad) <= 3:
        assert len(lines) == len(bad)
        kept = [f'"t{n}"'.encode() for n in range(10) if n not in bad]
        assert all(name in picky.bodies[-1] for name in kept)
    assert b"MY WORDS" in picky.bodies[-1]
    assert count <= 3 + 3 * (math.ceil(math.log2(10)) + 1) + 1, "a bounded number of requests"
    assert len(picky.bodies) == count + 1, "later requests are sent once"


async def test_a_tool_that_is_refused_in_a_session_with_calls_is_found():
    """A provider that wants tools in every request that has calls."""
    history = Transcript(
        [
            to_user_item("go"),
            AssistantItem((ToolCall("c", "t0", "{}"),)),
            ToolResultItem("c", "t0", (Text("ok"),)),
        ]
    )

    def refuse(body: bytes) -> str | None:
        has_tools = bool(msgspec.json.decode(body).get("tools"))
        return UNNAMED if b"POISON" in body or not has_tools else None

    tools = tuple(spec(f"t{n}", "POISON" if n == 2 else "") for n in range(4))
    events = await heal(Picky(refuse), history, tools=tools)
    assert len(replies(events)) == 1
    assert len([event for event in events if isinstance(event, ModelNotified)]) == 1
    assert quarantined(events) == []


@pytest.mark.parametrize("refused", [(1,), (1, 2), (1, 2, 3)])
async def test_a_tool_stays_when_a_refusal_was_only_a_passing_one(refused: tuple[int, ...]):
    tools = tuple(spec(f"t{n}") for n in range(3))
    server = Passing(*refused)
    async with server:
        model = Anthropic("claude-sonnet-4-5", base_url=server.url, api_key="k")
        request = ModelRequest(Transcript([to_user_item("go")]), tools=tools)
        events = [event async for event in model.stream(request)]
    assert not [event for event in events if isinstance(event, ModelNotified)]
    assert all(f'"t{n}"'.encode() in server.requests[-1].body for n in range(3))


async def test_a_refusal_that_no_tool_causes_stays_an_error_after_a_few_requests():
    picky = Picky(lambda body: "this model is not for you")
    tools = tuple(spec(f"t{n}") for n in range(60))
    with pytest.raises(BadRequest, match="not for you"):
        await heal(picky, Transcript([to_user_item("go")]), tools=tools)
    assert len(picky.bodies) == 4


# ------------------------------------------------------------------ in a session


@pytest.mark.parametrize("wire", WIRES)
async def test_a_refused_tool_is_remembered_when_the_reply_is_there(wire: str):
    picky, witness = Picky(refusing(b"POISON", REFUSALS[wire])), RecordingObserver()
    async with picky as server:
        bad = tool(lambda: "", name="bad", description="POISON")
        model = connect(wire, server.url)
        agent = Agent(model, [RecordingTool("good"), bad], observers=[witness])
        driver = agent.start("one")
        for text in ("two", "three", ""):
            await agent.finish_turn(driver)
            driver.submit(text)
    assert len(picky.bodies) == 4, "one request was refused, once"
    [line] = [event.text for event in witness.events_of(Notified)]
    assert "'bad' is left out" in line
    keys = [request.headers["idempotency-key"] for request in picky.requests]
    assert len(set(keys)) == 4


@pytest.mark.parametrize("wire", WIRES)
async def test_the_probes_of_a_search_are_in_the_log_with_what_they_used(wire: str):
    picky, store, gate = Picky(refusing(POISON)), MemoryStore(), Admits()
    async with picky as server:
        agent = Agent(connect(wire, server.url), gates=[gate])
        result = await agent.run(history=list(with_pictures(5, 2)), session=store)
    paid = [entry for entry in store.entries if isinstance(entry, UsageRecorded)]
    accepted = [body for body in picky.bodies if POISON not in body]
    assert [entry.purpose for entry in paid] == ["search"] * (len(accepted) - 1) + ["turn"]
    assert result.usage.requests == len(accepted)
    assert result.usage.input == len(accepted) * paid[-1].usage.input  # also if it comes last
    assert gate.purposes == ["turn"] + ["search"] * (len(picky.bodies) - 2)


class Admits(BaseGate):
    def __init__(self) -> None:
        self.purposes: list[str] = []

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        self.purposes.append(estimate.purpose)
        return Admit()


async def test_a_search_without_a_budget_ends_the_turn_and_says_why():
    class NoSearch(BaseGate):
        def admit(self, estimate: RequestEstimate) -> Admit | Stop:
            is_search = estimate.purpose == "search"
            return Stop("budget_exceeded", "nothing is left") if is_search else Admit()

    picky, witness = Picky(refusing(POISON)), RecordingObserver()
    async with picky as server:
        agent = Agent(connect("messages", server.url), gates=[NoSearch()], observers=[witness])
        driver = agent.start(history=list(with_pictures(5, 2)))
        turn = await agent.finish_turn(driver)
    assert isinstance(turn.error, BadRequest)
    assert len(picky.bodies) == 1
    [warning] = witness.events_of(WarningRaised)
    assert "is not searched for: the search is not asked: nothing is left" in warning.text
