"""What a compaction keeps of the work: a long summary, whole results, the files in use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from treadle import Agent, Usage, tool
from treadle.context.compaction import Compactor
from treadle.context.compaction.recent_files import make_recent_files_notice
from treadle.context.compaction.summary import format_items, get_summary_tokens, summarize
from treadle.core.contracts.model import ModelCard, ModelRequest
from treadle.core.errors import Overloaded
from treadle.core.events import Notified
from treadle.core.loop.driver import Driver
from treadle.core.transcript import (
    AssistantItem,
    Item,
    NoticeItem,
    SummaryItem,
    Text,
    ToolCall,
    ToolResultItem,
    to_user_item,
)
from treadle.core.transcript.integrity import find_violations
from treadle.models import Say, Scripted
from treadle.models.catalog import card_for
from treadle.testing.clock import ManualClock
from treadle.testing.observers import RecordingObserver

BIG = card_for("anthropic/claude-opus-5-5")


def make_rounds(count: int, chars: int) -> list[Item]:
    items: list[Item] = [to_user_item("go")]
    for number in range(count):
        call = ToolCall(f"c{number}", "read", '{"file_path":"a.py"}')
        result = ToolResultItem(
            call.id, "read", (Text(f"<{number}>" + "x" * chars + f"</{number}>"),)
        )
        items += [AssistantItem((call,)), result]
    return items


@pytest.mark.parametrize(
    ("window", "max_output", "tokens"),
    [
        (1_000_000, 128_000, 16_000),
        (64_000, 64_000, 8_000),
        (32_768, 4_096, 4_096),
        (4_000, 500, 500),
    ],
)
def test_a_summary_has_room_as_the_window_has(window: int, max_output: int, tokens: int):
    assert get_summary_tokens(ModelCard("m", window=window, max_output=max_output)) == tokens


async def test_a_summary_is_written_with_low_effort_by_a_model_that_thinks():
    thinks, plain = Scripted(["Notes."], card=BIG), Scripted(["Notes."], card=ModelCard("m"))
    for model, effort in ((thinks, "low"), (plain, None)):
        assert await summarize(model, make_rounds(1, 10), 10_000) == "Notes."
        assert model.requests[0].options.thinking == effort
    assert thinks.requests[0].options.max_tokens == 16_000


@pytest.mark.parametrize("first", [Say(""), Say(thinking="Hm, let me see.")])
async def test_an_empty_summary_is_asked_for_once_more(first: Say):
    assert await summarize(Scripted([first, "Notes."]), make_rounds(1, 10), 10_000) == "Notes."
    twice = Scripted([first, first, "Notes."])
    assert await summarize(twice, make_rounds(1, 10), 10_000) == ""
    assert len(twice.requests) == 2


def test_results_are_shown_whole_if_they_fit_and_otherwise_get_a_fair_share():
    items = make_rounds(4, 20_000)
    whole = format_items(items, 200_000)
    assert "x" * 20_000 in whole
    assert "left out" not in whole
    mixed = [*items, *make_rounds(3, 100)]
    shared = format_items(mixed, 30_000)
    assert len(shared) <= 30_000
    assert shared.count("x" * 100) >= 3, "short results are whole"
    assert all(f"</{number}>" in shared for number in range(4)), "the end of each long one is kept"
    assert shared.count("characters left out") == 4
    crowded = format_items(make_rounds(100, 20_000), 30_000)
    assert crowded.startswith("[earlier items are left out]")
    assert "<99>" in crowded


# --- the files in use -------------------------------------------------------------------------

FILES = [("/w/new.py", "def new():\n    pass\n"), ("/w/old.py", "def old():\n    pass\n")]


def test_files_are_shown_again_within_their_limit_unless_a_kept_result_shows_them():
    notice = make_recent_files_notice(FILES, [], 10_000)
    assert notice is not None
    assert notice.text.index("/w/new.py") < notice.text.index("/w/old.py")
    kept = [ToolResultItem("c", "read", (Text("1\tdef new():\n2\t    pass\n"),))]
    notice = make_recent_files_notice(FILES, kept, 10_000)
    assert notice is not None
    assert "new.py" not in notice.text
    many = [(f"/w/{number}.py", f"x{number} = 1\n" * 9_000) for number in range(9)]
    notice = make_recent_files_notice(many, [], 30_000)
    assert notice is not None
    assert len(notice.text) < 31_000
    assert "more characters; read shows them" in notice.text
    assert make_recent_files_notice([], [], 10_000) is None


@tool(effect="pure")
async def work(n: int) -> str:
    return f"line {n}\n" * 150


async def run_long_session(compactor: Compactor, card: ModelCard) -> tuple[list[ModelRequest], str]:
    def answer(request: ModelRequest) -> Say:
        chars = sum(len(repr(item)) for item in request.transcript)
        calls = [("work", {"n": len(requests)})] if len(requests) < 60 else []
        requests.append(request)
        return Say("ok", calls=calls, usage=Usage(chars // 3, 9, requests=1))

    requests: list[ModelRequest] = []
    agent = Agent(Scripted(answer, card=card), [work], mutators=[compactor], max_turns=99)
    result = await agent.run("go")
    assert not any(find_violations(request.transcript) for request in requests)
    return requests, result.text


async def test_after_a_summary_the_model_sees_the_files_that_it_used_last():
    async def read_files(session_id: str) -> Sequence[tuple[str, str]]:
        return FILES

    notes = Scripted(lambda request: "Goal: go on.", card=ModelCard("notes"))
    card = ModelCard("m", window=16_000, max_output=1_000)
    requests, _ = await run_long_session(Compactor(notes, read_recent_files=read_files), card)
    summed = [one for one in requests if any(isinstance(x, SummaryItem) for x in one.transcript)]
    assert summed
    kinds = [item.kind for item in summed[-1].transcript if isinstance(item, NoticeItem)]
    assert kinds.count("recent_files") == 1
    assert "line 0\n" * 150 in notes.requests[0].transcript[0].text, "results are given whole"


async def test_the_trigger_is_a_share_or_a_number_of_tokens():
    card = ModelCard("m", window=1_000_000, max_output=1_000)
    for compact_at, limit in ((None, None), (0.02, 20_000), (9_000, 9_000)):
        notes = Scripted(lambda request: "Goal: go on.", card=ModelCard("notes"))
        requests, _ = await run_long_session(Compactor(notes, compact_at=compact_at), card)
        sizes = [sum(len(repr(item)) for item in one.transcript) // 3 for one in requests]
        assert len(sizes) == 61
        assert max(sizes) <= (limit + 1_500 if limit else 10**6)
        assert bool(notes.requests) is (limit is not None)


# --- a model that fails to write a summary ----------------------------------------------------

FULL = ModelCard("m", window=16_000, max_output=1_000)


async def work_until_summary(notes: Scripted, **options: Any) -> tuple[Driver, list[str]]:
    """Rounds until the first compaction was tried; what the user was told since."""

    def answer(request: ModelRequest) -> Say:
        chars = sum(len(repr(item)) for item in request.transcript)
        calls = [("work", {"n": len(model.requests)})]
        return Say("ok", calls=calls, usage=Usage(chars // 3, 9, requests=1))

    witness, model = RecordingObserver(), Scripted(answer, card=FULL)
    agent = Agent(model, [work], mutators=[Compactor(notes)], observers=[witness], **options)
    driver = agent.start("go")
    while not notes.requests:
        await driver.next()
    return driver, [event.text for event in witness.events_of(Notified)]


def list_summaries(driver: Driver) -> list[str]:
    return [item.text for item in driver.transcript if isinstance(item, SummaryItem)]


async def test_a_summary_is_asked_for_again_after_a_passing_error():
    notes = Scripted([Overloaded("busy"), "Known: line 0 to 9."])
    driver, _ = await work_until_summary(notes, clock=ManualClock())
    assert list_summaries(driver) == ["Known: line 0 to 9."]
    assert len(notes.requests) == 2


async def test_a_compaction_without_a_summary_is_put_off_while_there_is_room():
    notes = Scripted(lambda request: Overloaded("busy"))
    driver, told = await work_until_summary(notes, clock=ManualClock())
    whole = len(driver.transcript)
    assert list_summaries(driver) == []
    assert told[-1].startswith("there is no usable summary; the compaction is put off")
    while not list_summaries(driver):
        whole += 2
        await driver.next()
    assert len(driver.transcript) < whole
    assert len(notes.requests) == 8, "it was tried once more, when the room was full"
    assert "Earlier work is out of view (work: " in list_summaries(driver)[0]


async def test_a_compaction_that_the_user_wants_needs_its_summary():
    notes = Scripted([Overloaded("busy")] * 4 + ["Known: all."])
    agent = Agent(Scripted([]), mutators=[Compactor(notes)], clock=ManualClock())
    driver = agent.start(history=[*make_rounds(9, 900), AssistantItem((Text("ok"),))])
    assert not await driver.compact()
    assert list_summaries(driver) == []
    assert await driver.compact()
    assert list_summaries(driver) == ["Known: all."]
