from __future__ import annotations

import asyncio
from typing import Literal

import msgspec
import pytest

from treadle import Agent, RunContext
from treadle.agents.run import Run
from treadle.agents.structured_output import StructuredOutput
from treadle.core.contracts.model import ModelCard
from treadle.core.errors import ConfigError, OutputMismatch, OutputMissing, StreamBroken
from treadle.core.steps import AwaitingInput
from treadle.core.transcript import ToolResultItem, UserItem
from treadle.core.transcript.entries import ItemAdded
from treadle.core.transcript.state import fold_entries
from treadle.models import Pause, Say, Scripted
from treadle.testing.clock import ManualClock
from treadle.testing.stores import MemoryStore
from treadle.testing.tools import ChangingSource, RecordingTool


class Weather(msgspec.Struct):
    city: str
    degrees: int


SCHEMA_ABLE = ModelCard("scripted", abilities=frozenset({"schema"}))
GOOD = '{"city": "Oslo", "degrees": 4}'


async def test_a_model_that_can_is_held_to_the_schema():
    model = Scripted([GOOD], card=SCHEMA_ABLE)
    result = await Agent(model).run("Weather?", output=Weather)
    assert result.output == Weather("Oslo", 4)
    schema = model.requests[0].options.output_schema
    assert schema is not None
    assert set(schema["properties"]) == {"city", "degrees"}


async def test_an_answer_that_does_not_fit_is_returned_with_the_reason():
    model = Scripted(['{"city": "Oslo"}', GOOD], card=SCHEMA_ABLE)
    result = await Agent(model).run("Weather?", output=Weather)
    assert result.output == Weather("Oslo", 4)
    complaint = model.requests[1].transcript[-1]
    assert isinstance(complaint, UserItem)
    assert "degrees" in complaint.text
    assert result.usage.requests == 2


@pytest.mark.parametrize("output", [str, Weather])
async def test_the_arguments_of_a_tool_are_no_part_of_the_answer(output):
    seen: list[object] = []

    async def look(city: str, degrees: int) -> str:
        seen.append(events.partial_output)
        return "4 degrees"

    arguments = {"city": "Graz", "degrees": 1}
    final = "Cold." if output is str else Say(calls=[("final_answer", arguments)])
    model = Scripted([Say("I look.", calls=[("look", arguments)]), final])
    async with Agent(model, [look], output_type=output).stream("Weather?") as events:
        await events.wait()
    assert seen == [None]
    assert events.partial_output == events.result.output


async def test_after_a_bounded_number_of_tries_it_is_a_typed_error():
    model = Scripted(lambda request: "no idea", card=SCHEMA_ABLE)
    with pytest.raises(OutputMismatch, match="3 attempts"):
        await Agent(model).run("Weather?", output=Weather)
    assert len(model.requests) == 3


async def test_the_error_says_what_did_not_fit_what_was_said_last_and_what_it_cost():
    model = Scripted(lambda request: '{"city": "Oslo"}', card=SCHEMA_ABLE)
    with pytest.raises(OutputMismatch) as caught:
        await Agent(model).run("Weather?", output=Weather, output_retries=1)
    error = caught.value
    assert str(error) == (
        "scripted gave no answer that fits in 2 attempts: degrees: missing, expected an integer. "
        'It said last: {"city": "Oslo"}'
    )
    assert error.problem == "degrees: missing, expected an integer"
    assert error.answer == '{"city": "Oslo"}'
    assert len([item for item in error.transcript if isinstance(item, UserItem)]) == 2
    assert error.usage is not None
    assert error.usage.requests == 2


async def test_calls_of_the_last_tool_that_do_not_fit_are_bounded_too():
    wrong = Say(calls=[("final_answer", {"city": "Oslo", "degrees": "cold"})])
    model = Scripted(lambda request: wrong)
    with pytest.raises(
        OutputMismatch, match="in 2 attempts: degrees: expected an integer"
    ) as caught:
        await Agent(model).run("Weather?", output=Weather, output_retries=1)
    assert len(model.requests) == 2
    assert '"cold"' in caught.value.answer
    assert caught.value.usage.requests == 2


async def test_wrong_calls_and_wrong_texts_count_together():
    wrong = Say(calls=[("final_answer", {"city": "Oslo"})])
    model = Scripted([wrong, "It is cold.", wrong, "never asked for"])
    with pytest.raises(OutputMismatch, match="3 attempts"):
        await Agent(model).run("Weather?", output=Weather)
    assert len(model.requests) == 3


async def test_without_retries_the_first_wrong_answer_is_the_last():
    for card in (SCHEMA_ABLE, ModelCard("scripted")):
        model = Scripted(["no idea", "never asked for"], card=card)
        with pytest.raises(OutputMismatch, match="1 attempt:"):
            await Agent(model).run("Weather?", output=Weather, output_retries=0)


async def test_json_text_is_an_answer_even_if_the_tool_was_offered():
    for text in (GOOD, f"Here it is:\n```json\n{GOOD}\n```"):
        model = Scripted([text])
        result = await Agent(model).run("Weather?", output=Weather)
        assert result.output == Weather("Oslo", 4)
        assert len(model.requests) == 1


async def test_outputs_that_are_no_objects_work_in_both_modes():
    by_schema = Scripted(['{"value": [1, 2]}'], card=SCHEMA_ABLE)
    assert (await Agent(by_schema).run("Numbers?", output=list[int])).output == [1, 2]
    by_tool = Scripted([Say(calls=[("final_answer", {"value": [1, 2]})])])
    assert (await Agent(by_tool).run("Numbers?", output=list[int])).output == [1, 2]
    plain = Scripted(["red"])
    assert (await Agent(plain).run("Colour?", output=Literal["red", "blue"])).output == "red"


async def test_a_run_that_ends_otherwise_has_an_error_with_its_reason():
    model = Scripted(lambda request: Say(calls=[("probe", {})]))
    output = StructuredOutput(Weather, model)
    agent = Agent(model, [RecordingTool("probe")], max_turns=1, structured_output=output)
    driver = agent.start(prompt="Weather?")
    with pytest.raises(OutputMissing) as caught:
        await Run(driver, agent.finish_turn, output).finish()
    error = caught.value
    assert error.reason == "max_turns"
    assert str(error).startswith("the run ended with max_turns before it gave its answer")
    assert error.transcript == driver.transcript
    assert error.usage.requests == 3  # the last one is the closing request
    await driver.aclose()


async def test_runs_of_one_agent_count_their_attempts_apart():
    wrong = Say(calls=[("final_answer", {"city": "Oslo"})])
    right = Say(calls=[("final_answer", {"city": "Oslo", "degrees": 4})])
    model = Scripted(lambda request: right if len(request.transcript) > 2 else wrong)
    agent = Agent(model, output_type=Weather)
    answers = await asyncio.gather(*[agent.run("Weather?", output_retries=1) for _ in range(4)])
    assert [answer.output for answer in answers] == [Weather("Oslo", 4)] * 4


async def test_an_output_that_is_no_type_is_refused_before_the_model_is_asked():
    model = Scripted(["never asked for"])
    with pytest.raises(ConfigError, match=r"For one of several types write Weather \| str"):
        Agent(Scripted([]), output_type=[Weather, str])  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="the output cannot be"):
        await Agent(model).run("Weather?", output=object())  # type: ignore[call-overload]
    assert model.requests == []


async def test_any_other_model_answers_by_a_last_tool():
    model = Scripted([Say(calls=[("final_answer", {"city": "Oslo", "degrees": 4})])])
    result = await Agent(model).run("Weather?", output=Weather)
    assert result.output == Weather("Oslo", 4)
    assert result.reason == "end_turn"
    assert len(model.requests) == 1


async def test_a_wrong_last_call_is_an_error_result_and_tried_again():
    model = Scripted(
        [
            Say(calls=[("final_answer", {"city": "Oslo", "degrees": "cold"})]),
            Say(calls=[("final_answer", {"city": "Oslo", "degrees": 4})]),
        ]
    )
    result = await Agent(model).run("Weather?", output=Weather)
    assert result.output == Weather("Oslo", 4)
    first = next(item for item in result.transcript if isinstance(item, ToolResultItem))
    assert first.is_error


async def test_a_model_that_only_talks_is_reminded_of_the_tool():
    model = Scripted(["It is cold.", Say(calls=[("final_answer", {"city": "O", "degrees": 4})])])
    assert (await Agent(model).run("Weather?", output=Weather)).output == Weather("O", 4)


async def test_an_answer_in_the_last_round_that_is_allowed_is_an_answer():
    model = Scripted([Say(calls=[("final_answer", {"city": "Oslo", "degrees": 4})])])
    result = await Agent(model, max_turns=1).run("Weather?", output=Weather)
    assert result.output == Weather("Oslo", 4)
    assert result.reason == "end_turn"


async def test_an_answer_of_a_stream_that_broke_is_no_answer():
    wrong = Say(calls=[("final_answer", {"city": "Rome", "degrees": 30})])
    reached = asyncio.Event()

    async def broken(request):
        asyncio.get_running_loop().call_later(0.01, reached.set)
        return [wrong, Pause(reached), StreamBroken("cut")]

    right = Say(calls=[("final_answer", {"city": "Oslo", "degrees": 4})])
    model = Scripted([broken, "It is cold.", right])
    agent = Agent(model, clock=ManualClock())
    assert (await agent.run("Weather?", output=Weather)).output == Weather("Oslo", 4)


def task(prompt: str) -> tuple[str, dict[str, object]]:
    return "task", {"description": "a piece of work", "prompt": prompt}


async def test_a_child_of_a_structured_run_has_no_final_answer_tool_and_cannot_end_the_turn():
    right = Say(calls=[("final_answer", {"city": "Oslo", "degrees": 4})])
    wrong = Say(calls=[("final_answer", {"city": "Rome", "degrees": 30})])
    model = Scripted([Say(calls=[task("Look it up")]), wrong, "It is cold in Oslo.", right])
    result = await Agent(model, subagents=[]).run("Weather?", output=Weather)
    assert result.output == Weather("Oslo", 4)
    offered = [[spec.name for spec in request.tools] for request in model.requests]
    assert offered == [["task", "final_answer"], ["task"], ["task"], ["task", "final_answer"]]


async def test_a_child_of_a_structured_run_is_not_held_to_the_schema():
    model = Scripted([Say(calls=[task("Look it up")]), "It is cold.", GOOD], card=SCHEMA_ABLE)
    result = await Agent(model, subagents=[]).run("Weather?", output=Weather)
    assert result.output == Weather("Oslo", 4)
    schemas = [request.options.output_schema is not None for request in model.requests]
    assert schemas == [True, False, True]


async def test_structured_runs_use_the_agents_own_model_and_open_its_tools_once(monkeypatch):
    made: list[Scripted] = []

    def make_model(name: str) -> Scripted:
        made.append(Scripted([GOOD, GOOD], card=SCHEMA_ABLE))
        return made[-1]

    monkeypatch.setattr("treadle.models.registry.model", make_model)
    source = ChangingSource([RecordingTool()])
    agent = Agent("some/model", [source])
    await agent.run("Weather?", output=Weather)
    await agent.run("Weather?", output=Weather)
    assert len(made) == source.open_count == 1
    assert not made[0].closed
    await agent.aclose()
    assert made[0].closed


async def test_a_finished_structured_session_that_is_resumed_asks_the_model_nothing():
    store = MemoryStore()
    model = Scripted([Say(calls=[("final_answer", {"city": "Oslo", "degrees": 4})])])
    agent = Agent(model)
    await agent.run("Weather?", output=Weather, session=store)
    driver = agent.start(state=fold_entries(await store.load()))
    assert isinstance(await driver.next(), AwaitingInput)
    assert len(model.requests) == 1


async def test_an_answer_that_was_given_before_a_crash_is_not_asked_for_again():
    store = MemoryStore()
    model = Scripted([Say(calls=[("final_answer", {"city": "Oslo", "degrees": 4})])])
    await Agent(model).run("Weather?", output=Weather, session=store)
    given = next(n for n, entry in enumerate(store.durable) if _is_result(entry))
    agent = Agent(model)
    driver = agent.start(state=fold_entries(store.durable[: given + 1]))
    run = Run(driver, agent.finish_turn, StructuredOutput(Weather, model))
    run.begin(None)
    assert (await run.finish()).output == Weather("Oslo", 4)
    assert len(model.requests) == 1


def _is_result(entry: object) -> bool:
    return isinstance(entry, ItemAdded) and isinstance(entry.item, ToolResultItem)


@pytest.mark.parametrize("place", ["sessions", "sessions.db"])
async def test_corrections_of_an_answer_belong_to_the_turn_of_the_user(tmp_path, place: str):
    model = Scripted(["one", "wrong", "wrong again", GOOD, "last"], card=SCHEMA_ABLE)
    async with Agent(model, store=tmp_path / place).session("s") as session:
        await session.run("first")
        await session.run("second", output=Weather)
        forked = await session.fork(turns_back=1)
        await session.rewind(1)
        assert [one.text for one in session.transcript] == ["first", "one"]
        with pytest.raises(ConfigError, match="has 1 turn;"):
            await session.rewind(2)
    async with Agent(model, store=tmp_path / place).session(forked) as session:
        assert [one.text for one in session.transcript] == ["first", "one"]


class Order(msgspec.Struct):
    seats: int


class Hall(msgspec.Struct):
    free: int


async def check_seats(order: Order, context: RunContext[Hall]) -> str | None:
    free = context.deps.free
    return f"only {free} seats are free" if order.seats > free else None


async def test_a_check_of_the_answer_sees_the_deps_and_its_refusal_goes_to_the_model():
    model = Scripted([answer(seats=9), answer(seats=2)])
    agent = Agent(model, deps_type=Hall, output_type=Order, check_output=check_seats)
    result = await agent.run("book", deps=Hall(3))
    assert result.output == Order(2)
    [said] = [item.text for item in model.requests[1].transcript if isinstance(item, UserItem)][1:]
    assert said == "The answer was refused: only 3 seats are free. Answer again."
    refused = Agent(
        Scripted(lambda request: answer(seats=9)),
        deps_type=Hall,
        output_type=Order,
        check_output=check_seats,
    )
    with pytest.raises(OutputMismatch, match="in 2 attempts: only 3 seats are free"):
        await refused.run("book", deps=Hall(3), output_retries=1)


async def test_a_text_is_checked_too_and_a_stream_gives_the_answer_that_is_good():
    def no_shouting(text: str, context: object) -> str | None:
        return "do not shout" if text.isupper() else None

    agent = Agent(Scripted(["HELLO", "hello", "HELLO", "hello"]), check_output=no_shouting)
    assert (await agent.run("x")).output == "hello"
    async with agent.stream("x") as events:
        async for _ in events:
            pass
    assert events.result.output == "hello"
    shouting = Agent(Scripted(lambda request: "HELLO"), check_output=no_shouting)
    with pytest.raises(OutputMismatch, match="in 3 attempts: do not shout"):
        await shouting.run("x")
    wrong = Agent(Scripted(["x"]), check_output=lambda text, context: False)  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match="check_output returned False"):
        await wrong.run("x")


def answer(**values: object) -> Say:
    return Say(calls=[("final_answer", values)])
