"""Agents whose replies come from batches, through the fake of each interface."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.patience import until
from treadle import Agent, Retry, tool
from treadle.budgets import CostBudget
from treadle.core.contracts.model import ModelCard
from treadle.core.events import Event, Notified
from treadle.errors import ConfigError, ModelError, StoreError
from treadle.models import (
    Anthropic,
    Batched,
    BatchQueue,
    Gemini,
    OpenAIChat,
    OpenAIResponses,
    Scripted,
)
from treadle.models.batches.batch_store import BatchFolder
from treadle.models.provider_base.http_model import HTTPModel
from treadle.testing.clock import ManualClock
from treadle.testing.conformance.model import ConformanceRequests, check_model
from treadle.testing.observers import RecordingObserver
from treadle.testing.provider import FakeCall, FakeReply, FakeUsage, ProviderFault, ProviderServer
from treadle.testing.provider.http import ReceivedRequest

CARD = ModelCard("priced", window=100_000, max_output=1_000, input_price=10.0, output_price=100.0)
USAGE = FakeUsage(input=1_000, output=100)
FULL_PRICE = (1_000 * 10.0 + 100 * 100.0) / 1e6

MODELS: dict[str, Callable[[ProviderServer], HTTPModel]] = {
    "messages": lambda server: Anthropic("m", base_url=server.url, api_key="k", card=CARD),
    "chat": lambda server: OpenAIChat("m", base_url=f"{server.url}/v1", api_key="k", card=CARD),
    "responses": lambda server: OpenAIResponses(
        "m", base_url=f"{server.url}/v1", api_key="k", card=CARD
    ),
}
RESULT_MARKS = (b"tool_result", b"tool_call_id", b"function_call_output")
each_interface = pytest.mark.parametrize("kind", MODELS)


@tool(effect="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def make_queue(folder: Path, agents: int = 1) -> BatchQueue:
    """A batch is submitted when all agents wait, or soon after."""
    return BatchQueue(
        str(folder), collect_seconds=0.05, poll_seconds=0.01, count_running=lambda: agents
    )


def answer_by_prompt(request: ReceivedRequest) -> FakeReply:
    """Two rounds: a call of `add`, then the number of the prompt."""
    number = find_number(request)
    if not any(mark in request.body for mark in RESULT_MARKS):
        return FakeReply(calls=(FakeCall("add", {"a": number, "b": 1}),), usage=USAGE)
    return FakeReply(f"answer {number}", usage=USAGE)


def answer_text(request: ReceivedRequest) -> FakeReply:
    return FakeReply(f"answer {find_number(request)}", usage=USAGE)


def find_number(request: ReceivedRequest) -> int:
    return next(number for number in range(10) if b"question %d" % number in request.body)


def count_batches(server: ProviderServer) -> list[int]:
    return [len(batch.answers) for batch in server.batches.batches]


@each_interface
async def test_a_batched_model_keeps_the_promises_of_a_model(kind: str, tmp_path: Path):
    def reply(request: ReceivedRequest) -> FakeReply:
        if b"hello" in request.body:
            return FakeReply("Hello there, friend.")
        return FakeReply(calls=(FakeCall("add", {"a": 2, "b": 3}),))

    async with ProviderServer(reply) as server:
        queue = make_queue(tmp_path)
        await check_model(
            lambda: Batched(MODELS[kind](server), queue),
            ConformanceRequests(text_token_limit=None),
        )
        assert server.violations == []


@each_interface
async def test_agents_that_wait_at_once_share_a_batch_and_each_round_is_one(
    kind: str, tmp_path: Path
):
    async with ProviderServer(answer_by_prompt, api_key="k") as server:
        model = Batched(MODELS[kind](server), make_queue(tmp_path, agents=3))
        agent = Agent(model, [add])
        results = await asyncio.gather(*(agent.run(f"question {n}") for n in range(3)))
        assert server.violations == []
        assert count_batches(server) == [3, 3]
        assert len(server.generation_requests) == 6  # none was asked outside of a batch
    assert [result.text for result in results] == ["answer 0", "answer 1", "answer 2"]
    assert [result.usage.requests for result in results] == [2, 2, 2]
    assert [result.cost for result in results] == [pytest.approx(2 * FULL_PRICE / 2)] * 3


async def test_money_is_reserved_at_the_price_of_a_batch(tmp_path: Path):
    async with ProviderServer([FakeReply("yes", usage=USAGE)]) as server:
        model = Batched(MODELS["messages"](server), make_queue(tmp_path))
        assert (model.card.input_price, model.card.output_price) == (5.0, 50.0)
        # The longest reply costs 0.05 in a batch, and 0.1 otherwise.
        result = await Agent(model, gates=[CostBudget(0.06)]).run("hello")
    assert result.text == "yes"
    assert result.cost == pytest.approx(FULL_PRICE / 2)


@each_interface
async def test_an_item_that_failed_goes_into_the_next_batch_alone(kind: str, tmp_path: Path):
    def reply(request: ReceivedRequest) -> FakeReply:
        return FakeReply(f"hello {request.number}", usage=USAGE)

    async with ProviderServer(reply, faults=[ProviderFault("overloaded", at=1)]) as server:
        model = Batched(MODELS[kind](server), make_queue(tmp_path, agents=3))
        agent = Agent(model, clock=ManualClock())
        results = await asyncio.gather(*(agent.run(f"question {n}") for n in range(3)))
        assert count_batches(server) == [3, 1]
    assert [result.text for result in results] == ["hello 0", "hello 3", "hello 2"]
    assert sum(result.cost or 0 for result in results) == pytest.approx(3 * FULL_PRICE / 2)


@each_interface
async def test_a_refused_item_is_asked_without_a_batch_and_its_part_is_found(
    kind: str, tmp_path: Path
):
    async with ProviderServer(
        [FakeReply("fine", usage=USAGE)], faults=[ProviderFault("bad_request", times=2)]
    ) as server:
        agent = Agent(Batched(MODELS[kind](server), make_queue(tmp_path)))
        with contextlib.suppress(ModelError):  # as without a batch
            await agent.run("hello")
        direct = server.generation_requests[1]
        assert count_batches(server) == [1]
        assert direct.json.get("stream") is True


@each_interface
async def test_an_expired_batch_gives_what_it_has_and_the_rest_is_submitted_again(
    kind: str, tmp_path: Path
):
    async with ProviderServer(answer_text) as server:
        server.batches.hold = True
        model = Batched(MODELS[kind](server), make_queue(tmp_path, agents=2))
        agent = Agent(model, clock=ManualClock())
        runs = [asyncio.create_task(agent.run(f"question {n}")) for n in range(2)]
        await until(lambda: server.batches.batches)
        server.batches.end("expired", answered=1)
        results = await asyncio.gather(*runs)
        assert count_batches(server) == [2, 1]
    assert [result.text for result in results] == ["answer 0", "answer 1"]


@each_interface
async def test_a_cancelled_batch_is_an_error_and_running_again_submits_it(
    kind: str, tmp_path: Path
):
    async with ProviderServer(answer_text) as server:
        server.batches.hold = True
        agent = make_agent(kind, server, tmp_path)
        run = asyncio.create_task(agent.run("question 1", session="one"))
        await until(lambda: server.batches.batches)
        server.batches.end("cancelled", answered=0)
        with pytest.raises(ModelError, match=r"was cancelled at .*run it again"):
            await run
        later = make_agent(kind, server, tmp_path)
        assert (await later.run(session="one")).text == "answer 1"
        assert len(server.batches.batches) == 2


@each_interface
async def test_a_lost_connection_while_polling_is_told_and_waited_out(kind: str, tmp_path: Path):
    observer = RecordingObserver()
    async with ProviderServer(answer_text) as server:
        server.batches.poll_faults = [0, 503, 429, 200, 0, 500]
        queue = make_queue(tmp_path)
        agent = Agent(Batched(MODELS[kind](server), queue), observers=[observer])
        result = await agent.run("question 4")
        assert server.batches.poll_faults == []
        assert count_batches(server) == [1]
    assert result.text == "answer 4"
    lines = list_notices(observer.events)
    assert lines[0].startswith("submitted the batch ")
    assert lines[0].endswith("_0000 with 1 request: waiting for its results")
    assert [line for line in lines if "the batch is not lost; trying again" in line]


def list_notices(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Notified)]


@each_interface
async def test_a_batch_whose_submission_was_not_answered_is_found_and_not_made_again(
    kind: str, tmp_path: Path
):
    async with ProviderServer(answer_text) as server:
        server.batches.loses_answer = True
        server.batches.poll_faults = [0]
        waits = BatchQueue(str(tmp_path), count_running=lambda: 1)
        lost = asyncio.create_task(Agent(Batched(MODELS[kind](server), waits)).run("question 5"))
        await until(lambda: not server.batches.poll_faults)
        other = Batched(MODELS[kind](server), make_queue(tmp_path / "other"))
        await Agent(other).run("question 6")  # a batch of somebody else, with as many items
        assert (await lost).text == "answer 5"
        assert count_batches(server) == [1, 1]
        assert len(server.generation_requests) == 2


@each_interface
async def test_a_batch_that_was_not_accepted_is_submitted_again(kind: str, tmp_path: Path):
    async with ProviderServer(answer_text) as server:
        await server.stop_listening()
        agent = make_agent(kind, server, tmp_path, retry=Retry(attempts=1))
        with pytest.raises(ModelError, match="refused the connection"):
            await agent.run("question 2", session="two")
        assert await BatchFolder(tmp_path).load() == []
        await server.listen()
        assert (await agent.run(session="two")).text == "answer 2"
        assert count_batches(server) == [1]


async def start_and_cancel(
    agent: Agent, server: ProviderServer, session: str, prompt: str | None
) -> None:
    """Until the batch is submitted and polled for."""
    run = asyncio.create_task(agent.run(prompt, session=session))
    await until(lambda: server.batches.batches and server.requests[-1].method == "GET")
    run.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await run


def make_agent(kind: str, server: ProviderServer, folder: Path, **settings: Any) -> Agent:
    model = Batched(MODELS[kind](server), make_queue(folder))
    return Agent(model, store=folder / "logs", **settings)


@each_interface
async def test_a_cancelled_run_leaves_no_task_behind(kind: str, tmp_path: Path):
    async with ProviderServer(answer_text) as server:
        server.batches.hold = True
        tasks = asyncio.all_tasks()
        await start_and_cancel(make_agent(kind, server, tmp_path), server, "three", "question 3")
        ours = [task for task in asyncio.all_tasks() - tasks if "batches" in repr(task)]
        assert ours == []


async def test_a_file_of_openai_with_a_refused_line_is_submitted_without_it(tmp_path: Path):
    async with ProviderServer(answer_text) as server:
        server.batches.refuse_lines = {2: "the line is wrong"}
        model = Batched(MODELS["chat"](server), make_queue(tmp_path, agents=3))
        agent = Agent(model, clock=ManualClock())
        results = await asyncio.gather(*(agent.run(f"question {n}") for n in range(3)))
        direct = [request for request in server.generation_requests if request.connection]
        assert count_batches(server) in ([0, 2], [0, 1, 1])
        assert len(direct) == 1  # which says what is wrong with it, or answers
    assert [result.text for result in results] == ["answer 0", "answer 1", "answer 2"]


async def test_too_many_requests_for_one_batch_become_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from treadle.models.batches.anthropic_batches import AnthropicBatches

    monkeypatch.setattr(AnthropicBatches, "max_items", 2)
    async with ProviderServer(answer_text) as server:
        model = Batched(MODELS["messages"](server), make_queue(tmp_path, agents=5))
        results = await asyncio.gather(*(Agent(model).run(f"question {n}") for n in range(5)))
        assert sum(count_batches(server)) == 5
        assert max(count_batches(server)) == 2
    assert [result.text for result in results] == [f"answer {n}" for n in range(5)]


def test_a_model_without_a_batch_interface_is_an_error_that_says_what_to_do():
    for model in (Gemini("gemini-3-pro", api_key="k"), Scripted(["x"]), "groq/llama"):
        with pytest.raises(ConfigError, match=r"no batch interface .* run without batches"):
            Batched(model)


async def test_a_server_without_batches_and_a_wrong_key_are_told(tmp_path: Path):
    async with ProviderServer(answer_text, api_key="another") as server:
        agent = Agent(Batched(MODELS["messages"](server), make_queue(tmp_path)))
        with pytest.raises(ModelError, match="ANTHROPIC_API_KEY"):
            await agent.run("question 1")
    async with ProviderServer(answer_text) as server:
        url = f"{server.url}/elsewhere"
        server.batches.answer = lambda *_: None  # type: ignore[method-assign]
        model = Batched(Anthropic("m", base_url=url, api_key="k"), make_queue(tmp_path))
        with pytest.raises(ModelError, match="has no batch interface at this address"):
            await Agent(model).run("question 1")
    assert await BatchFolder(tmp_path).load() == []


async def test_nothing_is_submitted_that_cannot_be_recorded(tmp_path: Path):
    (tmp_path / "file").write_text("not a folder")
    async with ProviderServer(answer_text) as server:
        agent = Agent(Batched(MODELS["messages"](server), make_queue(tmp_path / "file")))
        with pytest.raises(StoreError, match="none is submitted"):
            await agent.run("question 1")
        assert server.requests == []
