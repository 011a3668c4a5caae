"""What a compaction keeps of the work: a long summary, whole results, the files in use."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from treadle import Agent, Usage, tool
from treadle.context.compaction import Compactor
from treadle.context.compaction.recent_files import list_recent_files, make_recent_files_notice
from treadle.context.compaction.summary import format_items, get_summary_tokens, summarize
from treadle.context.compaction.trims import trim_old_items, truncate_results
from treadle.core.contracts.model import ModelCard, ModelRequest
from treadle.core.errors import Overloaded
from treadle.core.events import Notified
from treadle.core.loop.driver import Driver
from treadle.core.transcript import (
    AssistantItem,
    Image,
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
    async def read_files(paths: Sequence[str]) -> Sequence[tuple[str, str]]:
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


# --- a summary by the model of the session ----------------------------------------------------


async def test_the_wish_for_a_summary_is_appended_to_the_last_request():
    """So nearly all of it is read from the provider's cache."""

    def answer(request: ModelRequest) -> Say:
        used = Usage(sum(len(repr(item)) for item in request.transcript) // 3, 9, requests=1)
        if request.purpose == "summary":
            return Say("Known: all.", usage=used)
        requests = [one for one in model.requests if one.purpose == "turn"]
        return Say("ok", calls=[("work", {"n": n}) for n in range(len(requests) < 40)], usage=used)

    model = Scripted(answer, card=ModelCard("m", window=16_000, max_output=1_000))
    agent = Agent(model, [work], instructions="Be brief.", mutators=[Compactor()], max_turns=99)
    driver = agent.start("Never touch a.py.")
    while not (asked := [one for one in model.requests if one.purpose == "summary"]):
        await driver.next()
    wish, before = asked[0], model.requests[model.requests.index(asked[0]) - 1]
    assert list(wish.transcript)[:-1] == list(before.transcript)
    assert (wish.system, wish.tools, wish.cache) == (before.system, before.tools, before.cache)
    assert wish.options == msgspec.structs.replace(before.options, tool_choice="none")
    assert wish.session_id == before.session_id, "the key of the cache of some providers"
    frame, said, summary, *rest = driver.transcript
    assert isinstance(frame, NoticeItem)
    assert "before this point was cut" in frame.text
    assert "Never touch a.py." in said.text
    assert summary.text == "Known: all."
    assert isinstance(rest[0], AssistantItem)


async def test_a_summary_by_another_model_is_not_written_to_a_cache():
    notes = Scripted(["Notes."])
    assert await summarize(notes, make_rounds(1, 10), 10_000) == "Notes."
    assert not notes.requests[0].cache.enabled


async def test_a_call_instead_of_a_summary_is_not_run_and_forbidden_the_second_time():
    model = Scripted([Say(calls=[("work", {"n": 1})]), "Known: all."])
    driver = Agent(model, [work], mutators=[Compactor()]).start(
        history=[*make_rounds(9, 900), AssistantItem((Text("ok"),))]
    )
    assert await driver.compact()
    assert list_summaries(driver) == ["Known: all."]
    assert [one.cache.enabled for one in model.requests] == [True, False]


def test_files_in_use_are_read_off_the_conversation():
    def use(call_id: str, name: str, path: str, **data: Any) -> list[Item]:
        call = ToolCall(call_id, name, json.dumps({"file_path": path} if path else {}))
        result = ToolResultItem(call_id, name, (Text("x"),), data=data or None)
        return [AssistantItem((call,)), result]

    items = [
        NoticeItem("files", "recent_files", data={"paths": ["/w/old.py", "/w/a.py"]}),
        *use("1", "read", "/w/a.py"),
        *use("2", "bash", "", cwd="/w/sub"),
        *use("3", "read", "b.py"),
        *use("4", "apply_patch", "", changed_files=["/w/c.py"]),
        AssistantItem((ToolCall("5", "read", '{"file_path":"/w/none.py"}'),)),
        ToolResultItem("5", "read", (Text("no such file"),), is_error=True),
    ]
    assert list_recent_files(items) == ["/w/c.py", "/w/sub/b.py", "/w/a.py", "/w/old.py"]


def test_a_trimmed_read_says_to_read_again_and_a_picture_is_called_one():
    read, shell = (ToolResultItem("c", name, (Text("x" * 9_000),)) for name in ("read", "bash"))
    picture = ToolResultItem("p", "read", (Image("image/png", b"data"),))
    texts = [item.text for item in trim_old_items([read, shell, picture], 0)]
    assert texts[0].endswith("9,000 characters are out of view; read the file again to see them]")
    assert texts[1].endswith('recall with id "c" shows them]')
    assert texts[2] == "[a picture (image/png) that was shown before]"
    cut = [item.text for item in truncate_results([read, shell], 500)]
    assert "characters left out; read the file again to see them ...]" in cut[0]
    assert 'characters left out; recall with id "c" shows them ...]' in cut[1]


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
    while len(notes.requests) < 8:
        whole += 2
        await driver.next()
    assert list_summaries(driver) == [], "work is not replaced by a count of calls"
    results = [item for item in driver.transcript if isinstance(item, ToolResultItem)]
    assert any("characters left out" in item.text for item in results)
    assert len(driver.transcript) == whole, "every call is still there"


async def test_a_compaction_that_the_user_wants_needs_its_summary():
    notes = Scripted([Overloaded("busy")] * 4 + ["Known: all."])
    agent = Agent(Scripted([]), mutators=[Compactor(notes)], clock=ManualClock())
    driver = agent.start(history=[*make_rounds(9, 900), AssistantItem((Text("ok"),))])
    assert not await driver.compact()
    assert list_summaries(driver) == []
    assert await driver.compact()
    assert list_summaries(driver) == ["Known: all."]
