"""What a loop of this kind is expected to do, row by row, where no other story tells it."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import treadle.core.loop
from treadle import Agent, Transcript, tool
from treadle.context.compaction.compactor import COMPACT_SHARE, WARN_SHARE, Compactor
from treadle.core.contracts.gate import Admit, RequestEstimate, Stop
from treadle.core.contracts.hook import HookAnswer, HookInput
from treadle.core.contracts.model import ModelCard, ModelEvent, ModelRequest
from treadle.core.contracts.mutator import MutationContext
from treadle.core.contracts.policy import AllowAll, DefaultPolicy, PermissionRequest, Verdict
from treadle.core.contracts.tool import ToolContext
from treadle.core.errors import AccessDenied
from treadle.core.events import (
    InputAccepted,
    Notified,
    RequestStarted,
    ToolCallRequested,
    ToolStarted,
    TurnFinished,
)
from treadle.core.loop.loop_session import LoopSession
from treadle.core.steps import AfterToolResult, AwaitingInput, Finished
from treadle.core.transcript import (
    AssistantItem,
    Item,
    Text,
    ToolResultItem,
    Usage,
    UserItem,
    to_user_item,
)
from treadle.core.transcript.state import SessionState
from treadle.models import Anthropic, Pause, Say, Scripted
from treadle.testing.observers import RecordingObserver
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer
from treadle.testing.tools import RecordingTool
from treadle.tools.call_summary import summarize_call


@tool(effect="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def summing() -> Scripted:
    return Scripted([Say("Let me see.", calls=[("add", {"a": 2, "b": 3})]), "5"])


# --- the loop itself ---------------------------------------------------------------------


def test_the_engine_owns_a_provider_a_tool_set_and_a_configuration():
    model = Scripted([])
    equipment = Agent(model, [add], max_turns=7, max_result_chars=99).config
    assert equipment.model is model
    assert list(equipment.source.tools()) == [add]
    assert (equipment.gates[0].limit, equipment.max_result_chars) == (7, 99)  # type: ignore[attr-defined]


async def test_the_same_engine_works_with_any_provider():
    replies = [FakeReply(calls=(FakeCall("add", {"a": 2, "b": 3}),)), FakeReply(text="5")]
    async with ProviderServer(replies) as server:
        over_the_wire = Agent(Anthropic("claude", base_url=server.url, api_key="k"), [add])
        result = await over_the_wire.run("What is 2 + 3?")
        await over_the_wire.aclose()
    scripted = await Agent(summing(), [add]).run("What is 2 + 3?")
    assert result.text == scripted.text == "5"
    assert [type(i) for i in result.transcript] == [type(i) for i in scripted.transcript]


def test_the_defaults_of_an_agent():
    equipment = Agent(Scripted([])).config
    assert list(equipment.source.tools()) == []
    assert isinstance(equipment.policy, DefaultPolicy)
    assert (equipment.hooks, equipment.mutators, equipment.observers) == ((), (), ())
    assert (equipment.instructions, equipment.workspace) == ("", None)


async def test_a_stream_may_go_on_with_a_history():
    history: list[Item] = [to_user_item("I am Ada."), AssistantItem((Text("Hello, Ada."),))]
    model = Scripted(["You are Ada."])
    async with Agent(model).stream("Who am I?", history=history) as events:
        last = [event async for event in events][-1]
    assert isinstance(last, TurnFinished)
    assert last.result.text == "You are Ada."
    assert len(model.requests[0].transcript) == 3


async def test_single_turn_direct_response():
    step = await Agent(Scripted(["Hello!"])).start(prompt="Hi").next()
    assert isinstance(step, Finished)
    assert step.result.text == "Hello!"


async def test_single_turn_one_tool_call():
    driver = Agent(summing(), [add]).start(prompt="What is 2 + 3?")
    step = await driver.next()
    assert isinstance(step, AfterToolResult)
    assert [result.text for result in step.results] == ["5"]


async def test_single_turn_unknown_tool():
    driver = Agent(Scripted([Say(calls=[("foo", {})]), "Sorry."])).start(prompt="x")
    step = await driver.next()
    assert isinstance(step, AfterToolResult)
    assert step.results[0].text.startswith("error: unknown tool `foo`")


async def test_the_host_has_the_word_once_a_round():
    model = Scripted([Say(calls=[("add", {"a": n, "b": 1})] * 2) for n in range(3)] + ["done"])
    driver = Agent(model, [add]).start(prompt="x")
    steps = [await driver.next() for _ in range(4)]
    assert [type(step) for step in steps] == [AfterToolResult] * 3 + [Finished]


async def test_every_message_that_was_taken_in_is_told_once():
    pause, witness = Pause(), RecordingObserver()
    driver = Agent(Scripted([["a", pause], "b"]), observers=[witness]).start(prompt="first")
    step = asyncio.create_task(driver.next())
    await pause.reached.wait()
    driver.steer("second")
    assert [event.item.text for event in witness.events_of(InputAccepted)] == ["first"]
    pause.release()
    await step
    accepted = [event.item for event in witness.events_of(InputAccepted)]
    assert [(item.text, item.steered) for item in accepted] == [("first", False), ("second", True)]


def test_all_model_calls_of_the_loop_flow_through_one_function():
    found = [
        file.name
        for file in Path(treadle.core.loop.__path__[0]).glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "stream"
    ]
    assert found == ["model_call.py"]


async def test_the_state_is_a_value_that_is_replaced_and_never_changed(
    monkeypatch: pytest.MonkeyPatch,
):
    states: list[tuple[SessionState, bytes]] = []
    append = LoopSession.append

    def noting(self: LoopSession, item: Item, *more: Any) -> None:
        states.append((self.state, repr(self.state).encode()))
        append(self, item, *more)

    monkeypatch.setattr(LoopSession, "append", noting)
    await Agent(summing(), [add]).run("x")
    assert len(states) == 4
    assert all(repr(state).encode() == before for state, before in states)


async def test_a_model_may_be_chosen_anew_for_each_call():
    class Chooses(Scripted):
        """Quick for tool rounds, thorough for the end."""

        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            results = any(isinstance(item, ToolResultItem) for item in request.transcript)
            async for event in (thorough if results else quick).stream(request):
                yield event

    quick = Scripted([Say(calls=[("add", {"a": 1, "b": 1})])], name="quick")
    thorough = Scripted(["2, certainly."], name="thorough")
    result = await Agent(Chooses([]), [add]).run("x")
    replies = [item for item in result.transcript if isinstance(item, AssistantItem)]
    assert [reply.model for reply in replies] == ["quick", "thorough"]


async def test_session_and_turn_are_named_in_every_request():
    model = summing()
    driver = Agent(model, [add]).start(prompt="x", session_id="s1")
    while not isinstance(await driver.next(), Finished):
        pass
    assert {(request.session_id, request.turn_id) for request in model.requests} == {
        ("s1", "turn-1")
    }


# --- how turns end -----------------------------------------------------------------------


class Gate:
    def __init__(self, answer: Admit | Stop) -> None:
        self._answer = answer

    def admit(self, estimate: RequestEstimate) -> Admit | Stop:
        return self._answer

    def settle(self, estimate: RequestEstimate, used: Usage) -> None:
        return None


@pytest.mark.parametrize(
    ("agent", "reason"),
    [
        (Agent(Scripted(["done"])), "end_turn"),
        (
            Agent(Scripted([Say(calls=[("add", {"a": 1, "b": 1})])] * 2), [add], max_turns=1),
            "max_turns",
        ),
        (Agent(Scripted([]), gates=[Gate(Stop("budget_exceeded", "5 USD"))]), "budget_exceeded"),
        (Agent(Scripted([]), gates=[Gate(Stop("goal_not_met", "red"))]), "goal_not_met"),
        (Agent(Scripted([Say("no", stop="refusal")])), "refused"),
        (Agent(Scripted([AccessDenied("no key")])), "error"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_every_terminal_reason_is_typed(agent: Agent, reason: str):
    driver = agent.start(prompt="x")
    while not isinstance(step := await driver.next(), Finished):
        pass
    result = step.result
    assert (result.turn_id, result.reason) == ("turn-1", reason)
    assert (result.error is not None) == (reason == "error")
    assert isinstance(await driver.next(), AwaitingInput)


# --- the order of things -----------------------------------------------------------------


async def test_the_reply_is_in_the_transcript_before_its_calls_are_run():
    seen: list[list[type]] = []

    @tool
    async def look(context: ToolContext) -> str:
        seen.append([type(item) for item in context.history()])
        return "seen"

    await Agent(Scripted([Say(calls=[("look", {})]), "done"]), [look]).run("x")
    assert seen == [[UserItem, AssistantItem]]


async def test_every_call_of_a_reply_is_announced_before_any_that_acts_is_run():
    witness = RecordingObserver()
    act = RecordingTool("act", effect="irreversible")
    model = Scripted([Say(calls=[("act", {"n": n}) for n in range(3)]), "done"])
    await Agent(model, [act], observers=[witness]).run("x")
    kinds = [type(e) for e in witness.events if isinstance(e, (ToolCallRequested, ToolStarted))]
    assert kinds == [ToolCallRequested] * 3 + [ToolStarted] * 3


async def test_the_anatomy_of_a_turn():
    order: list[str] = []

    class Everyone(AllowAll):
        """A policy, a hook, a mutator and a gate that say when they are asked."""

        name = "everyone"
        points: frozenset[Any] = frozenset(
            {
                *("user_prompt_submit", "pre_tool_use", "post_tool_use", "stop"),
                *("before_model", "after_tool_result", "after_turn_ended"),
            }
        )

        async def decide(self, request: PermissionRequest) -> Verdict:
            order.append("policy")
            return await super().decide(request)

        async def run(self, hook_input: HookInput) -> HookAnswer | None:
            order.append(hook_input.point)
            return None

        async def mutate(self, context: MutationContext) -> Transcript | None:
            order.append(context.point)
            return None

        def admit(self, estimate: RequestEstimate) -> Admit | Stop:
            order.append("gate")
            return Admit()

        def settle(self, estimate: RequestEstimate, used: Usage) -> None:
            order.append("settled")

    def answer(request: ModelRequest) -> Say:
        order.append("model")
        return Say("done") if len(order) > 12 else Say(calls=[("act", {})])

    def act(given: Any) -> str:
        order.append("tool")
        return "ok"

    one = Everyone()
    agent = Agent(
        Scripted(answer),
        [RecordingTool("act", act, effect="irreversible")],
        policy=one,
        hooks=[one],
        mutators=[one],
        gates=[one],
    )
    await agent.run("x")
    assert order == [
        "user_prompt_submit",
        *("before_model", "gate", "model", "settled"),
        *("policy", "pre_tool_use", "tool", "post_tool_use", "after_tool_result"),
        *("before_model", "gate", "model", "settled"),
        "stop",
        "after_turn_ended",
    ]


# --- limits ------------------------------------------------------------------------------


async def test_the_levels_of_compaction_are_nothing_a_warning_and_a_compaction():
    assert (WARN_SHARE, COMPACT_SHARE) == (0.70, 0.85)
    card = ModelCard("m", window=10_000, max_output=1_000)

    async def told(share: float) -> list[str]:
        witness = RecordingObserver()
        filling = AssistantItem((Text("x" * int(share * 9_000 * 3.5)),))
        history: list[Item] = [to_user_item("a"), filling, to_user_item("b")]
        model = Scripted(lambda request: "ok", card=card)
        agent = Agent(model, mutators=[Compactor()], observers=[witness])
        await agent.run(history=history)
        return [event.text.split(" from ")[0] for event in witness.events_of(Notified)]

    assert await told(0.60) == []
    assert await told(0.78) == ["the context is 78% full"]
    assert "compacted the context" in await told(0.90)


async def test_a_tool_may_have_a_result_limit_of_its_own():
    small = RecordingTool("small", "x" * 100, max_result_chars=10)
    large = RecordingTool("large", "x" * 100)
    model = Scripted([Say(calls=[("small", {}), ("large", {})]), "done"])
    result = await Agent(model, [small, large]).run("x")
    cut, whole = [item for item in result.transcript if isinstance(item, ToolResultItem)]
    assert cut.model_text == "x" * 10 + "... [truncated, 100 chars total]"
    assert (cut.is_truncated, whole.is_truncated, result.reason) == (True, False, "end_turn")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"command": "ls -la"}, "[tool: ls -la]"),
        ({"path": "src/main.rs", "limit": 3}, "[tool: src/main.rs]"),
        ({"question": "Which\n one?"}, "[tool: Which one?]"),
        ({"other": "first of all"}, "[tool: first of all]"),
        ({}, "[tool]"),
    ],
)
def test_a_call_is_summed_up_in_one_line(arguments: dict[str, Any], line: str):
    assert summarize_call("tool", arguments) == line


# --- events and state --------------------------------------------------------------------


async def test_a_request_start_is_told_before_each_call_of_the_model():
    witness, told = RecordingObserver(), list[int]()

    def answer(request: ModelRequest) -> str:
        told.append(len(witness.events_of(RequestStarted)))
        return "ok"

    driver = Agent(Scripted(answer), observers=[witness]).start()
    for _ in range(3):
        driver.submit("x")
        await driver.next()
    assert told == [1, 2, 3]


async def test_a_history_that_was_saved_as_json_goes_on():
    history: list[Item] = [to_user_item("I am Ada.")]
    history = list((await Agent(summing(), [add]).run(history=history)).transcript)
    saved = msgspec.json.encode(history)
    again = msgspec.json.decode(saved, type=list[Item])
    again.append(to_user_item("And now?"))
    model = Scripted(["Now, too."])
    assert (await Agent(model, [add]).run(history=again)).text == "Now, too."
    assert list(model.requests[0].transcript)[:4] == history


async def test_whoever_follows_the_transcript_channel_has_the_transcript():
    class Replica:
        items = Transcript()

        def on_event(self, event: object) -> None:
            return None

        def on_item(self, position: int, item: Item) -> None:
            assert position == len(self.items)
            self.items = self.items.append(item)

    replica = Replica()
    driver = Agent(summing(), [add], observers=[replica]).start(prompt="x")
    while not isinstance(await driver.next(), Finished):
        assert replica.items == driver.transcript
    assert replica.items == driver.transcript


async def test_a_child_has_a_history_of_its_own():
    def answer(request: ModelRequest) -> Any:
        first = request.transcript[0]
        assert isinstance(first, UserItem)
        if first.text == "child":
            assert len(request.transcript) == 1
            return "I know nothing of you."
        results = any(isinstance(item, ToolResultItem) for item in request.transcript)
        call = ("task", {"description": "d", "prompt": "child"})
        return "ok" if results else Say(calls=[call])

    result = await Agent(Scripted(answer), subagents=[]).run("parent")
    assert result.text == "ok"
