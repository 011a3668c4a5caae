"""Functions as tools: plain ones run in threads, and what they return becomes an output."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from treadle import Agent, tool
from treadle.core.contracts.observer import BaseObserver
from treadle.core.contracts.tool import Preview, ToolContext
from treadle.core.errors import ConfigError, ToolError
from treadle.core.events import Event, ToolDetached, ToolFinished, ToolProgress
from treadle.core.loop.calls import tool_runner
from treadle.core.steps import AfterToolResult, PendingApproval
from treadle.core.transcript import Image, Text, ToolResultItem, Transcript
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.entries import NoticeShown
from treadle.models import Say, Scripted
from treadle.models.scripted import ScriptElement
from treadle.sessions import Journal
from treadle.tools.function import FunctionTool


def results(transcript: Transcript) -> list[ToolResultItem]:
    return [item for item in transcript if isinstance(item, ToolResultItem)]


async def call(function: FunctionTool[..., Any]) -> ToolResultItem:
    model = Scripted([Say(calls=[(function.spec.name, {})]), "done"])
    [result] = results((await Agent(model, [function]).run("go")).transcript)
    return result


# --- threads -----------------------------------------------------------------------------


@pytest.mark.parametrize("error", [StopIteration("no more"), SystemExit(3), KeyboardInterrupt()])
async def test_a_plain_function_that_raises_something_odd_gives_an_error_at_once(error):
    @tool
    def odd() -> str:
        raise error

    result = await call(odd)
    assert result.is_error
    assert "odd failed: a fault in its code" in result.text


async def test_as_many_plain_functions_run_at_once_as_max_parallel_says():
    barrier = threading.Barrier(24)

    @tool(effect="pure")
    def meet(n: int) -> int:
        barrier.wait(30)
        return n

    model = Scripted([Say(calls=[("meet", {"n": n}) for n in range(24)]), "done"])
    result = await Agent(model, [meet], max_parallel=24).run("go")
    assert [item.text for item in results(result.transcript)] == [str(n) for n in range(24)]


async def test_a_plain_function_that_is_interrupted_may_look_and_stop():
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    @tool
    def patient(context: ToolContext) -> str:
        loop.call_soon_threadsafe(started.set)
        while not context.is_cancelled():
            threading.Event().wait(0.001)
        return "stopped in the middle"

    driver = Agent(Scripted([Say(calls=[("patient", {})])]), [patient]).start(prompt="go")
    step = asyncio.create_task(driver.next())
    await started.wait()
    driver.interrupt()
    await step
    [result] = results(driver.transcript)
    assert result.text == "stopped in the middle"


async def test_a_plain_function_that_is_interrupted_and_runs_on_is_told_to_the_model():
    started, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @tool
    def deaf() -> str:
        loop.call_soon_threadsafe(started.set)
        release.wait(60)
        return "too late"

    driver = Agent(Scripted([Say(calls=[("deaf", {})])]), [deaf]).start(prompt="go")
    step = asyncio.create_task(driver.next())
    await started.wait()
    driver.interrupt()
    await step
    [result] = results(driver.transcript)
    assert result.outcome == "unknown"
    assert "may still be running" in result.text
    release.set()
    await driver.aclose()


async def test_a_session_is_written_while_many_plain_functions_block(tmp_path: Path):
    release, started = threading.Event(), threading.Semaphore(0)

    @tool(effect="pure")
    def block(n: int) -> None:
        started.release()
        release.wait(60)

    calls = Say(calls=[("block", {"n": n}) for n in range(40)])
    agent = Agent(Scripted([calls, "done"]), [block], max_parallel=40)
    journal = Journal.create(tmp_path / "session")
    run = asyncio.create_task(agent.run("go", session=journal))
    try:
        for _ in range(40):
            await asyncio.to_thread(started.acquire)
        journal.append(NoticeShown("written at once"))
        await asyncio.wait_for(journal.flush(), PATIENCE)
        assert b"written at once" in (journal.session_dir / "journal.jsonl").read_bytes()
    finally:
        release.set()
    assert (await run).text == "done"


def test_run_sync_does_not_wait_for_a_function_that_never_ends(monkeypatch):
    monkeypatch.setattr(tool_runner, "TIMEOUT_GRACE_SECONDS", 0.01)
    ended, release = threading.Event(), threading.Event()

    @tool(timeout=0.01)
    def endless() -> None:
        release.wait(60)
        ended.set()

    model = Scripted([Say(calls=[("endless", {})]), "done"])
    result = Agent(model, [endless]).run_sync("go")
    assert not ended.is_set()
    [answer] = results(result.transcript)
    assert answer.outcome == "unknown"
    assert "timed out after 0.01 s" in answer.text
    assert "may still be running" in answer.text
    release.set()
    assert ended.wait(30)


async def test_progress_of_a_plain_function_is_reported_on_the_event_loop_and_in_order():
    class Threads(BaseObserver):
        def __init__(self) -> None:
            self.seen: list[tuple[str, int]] = []

        def on_event(self, event: Event) -> None:
            if isinstance(event, ToolProgress):
                self.seen.append((event.text, threading.get_ident()))
            elif isinstance(event, ToolFinished):
                self.seen.append(("end", threading.get_ident()))

    @tool
    def talk(context: ToolContext) -> str:
        for n in range(5):
            context.report_progress(f"{n}")
        return "ok"

    threads = Threads()
    await Agent(Scripted([Say(calls=[("talk", {})]), "done"]), [talk], observers=[threads]).run(
        "go"
    )
    here = threading.get_ident()
    assert threads.seen == [*((f"{n}", here) for n in range(5)), ("end", here)]


async def test_a_plain_function_can_detach_itself():
    release = threading.Event()

    @tool(detachable=True)
    def build(context: ToolContext) -> str:
        context.detach()
        release.wait(60)
        return "built"

    detached: list[Event] = []

    class Sees(BaseObserver):
        def on_event(self, event: Event) -> None:
            if isinstance(event, ToolDetached):
                detached.append(event)

    model = Scripted([Say(calls=[("build", {})]), "done"])
    driver = Agent(model, [build], observers=[Sees()]).start(prompt="go")
    assert isinstance(await driver.next(), AfterToolResult)
    assert len(detached) == 1
    release.set()
    await driver.tasks.wait()
    [task] = driver.tasks.list()
    assert (task.state, task.output) == ("done", "built")
    await driver.aclose()


# --- what a function returns -------------------------------------------------------------


async def test_texts_and_images_that_are_returned_together_are_parts():
    image = Image("image/png", b"\x89PNG")

    @tool
    def look() -> object:
        return (Text("This is it:"), image, "and", {"width": 3})

    result = await call(look)
    assert result.content == (Text("This is it:"), image, Text("and"), Text('{"width":3}'))


class Thing:
    pass


class Told:
    def __str__(self) -> str:
        return "told"


@pytest.mark.parametrize("value", [Thing(), {"thing": Thing()}, {(1, 2): 3}, iter([1]), print])
async def test_an_object_that_cannot_be_encoded_is_an_error_and_not_its_repr(value):
    @tool
    def give() -> object:
        return value

    result = await call(give)
    assert result.is_error
    assert "cannot be shown" in result.text
    assert " at 0x" not in result.text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Path("/tmp/x"), '"/tmp/x"'),
        (Told(), '"told"'),
        (["a", "b"], '["a","b"]'),
        (Decimal("1.5"), '"1.5"'),
        ((), "[]"),
    ],
)
async def test_values_with_a_text_of_their_own_are_encoded(value, text):
    @tool
    async def give() -> object:
        return value

    result = await call(give)
    assert (result.text, result.is_error) == (text, False)


def test_a_generator_is_refused_where_it_is_decorated():
    async def stream() -> AsyncIterator[str]:
        yield "a"

    def count() -> Iterator[int]:
        yield 1

    for function in (stream, count):
        with pytest.raises(ConfigError, match="is a generator; let it return its result"):
            tool(function)


async def test_an_approver_sees_every_argument_and_what_the_call_would_do():
    async def describe(arguments: Arguments) -> str:
        if arguments["to"] == "closed":
            raise ToolError("the account is closed")
        return f"{arguments['amount']} leave the account"

    @tool(approval=True, preview=describe)
    def wire(amount: int, to: str, currency: str = "EUR") -> str:
        """Wire money."""
        return "wired"

    asked: list[PendingApproval] = []

    def approve(approval: PendingApproval) -> bool:
        asked.append(approval)
        return True

    given = {"amount": 1, "to": "attacker" * 20, "currency": "BTC"}
    calls: list[ScriptElement] = [
        Say(calls=[("wire", given)]),
        Say(calls=[("wire", {**given, "to": "closed"})]),
        "k",
    ]
    result = await Agent(Scripted(calls), [wire], approve=approve).run("x")
    [shown] = asked
    begin, end = ("attacker" * 20)[:29], ("attacker" * 20)[-29:]
    assert shown.summary == f"[wire: amount=1, to={begin}…{end}, currency=BTC]"
    assert shown.preview == Preview("text", "1 leave the account")
    refused = results(result.transcript)[-1]
    assert refused.is_error
    assert "the account is closed" in refused.text
