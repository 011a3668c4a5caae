from __future__ import annotations

import json
import resource
import signal
from pathlib import Path

import pytest

from treadle import Agent
from treadle.core.contracts.model import (
    Model,
    ModelCard,
    ModelEvent,
    ModelNotified,
    ModelOptions,
    ModelRequest,
    PartQuarantined,
    Reply,
)
from treadle.core.contracts.tool import ToolSpec
from treadle.core.contracts.wrapped import open_stream
from treadle.core.errors import BadRequest, ConfigError, ModelError, RateLimited
from treadle.core.transcript import (
    AssistantItem,
    Image,
    Text,
    ToolCall,
    ToolResultItem,
    Transcript,
    Usage,
    UserItem,
    to_user_item,
)
from treadle.models import Fallback, Recorded, Say, Scripted
from treadle.models.recorded import RecordingMode
from treadle.models.scripted import ScriptElement
from treadle.models.secret_redactor import SecretRedactor

ADD = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})
SECRET = "sk-ant-api03-" + "Ab3_" * 8


def redacted(text: str) -> str:
    return SecretRedactor({}).redact_text(text)


def asking(*texts: str, system: str = "Be brief.", key: str = "") -> ModelRequest:
    return ModelRequest(
        Transcript([to_user_item(text) for text in texts]),
        system=system,
        tools=(ADD,),
        idempotency_key=key,
    )


async def collect_events(model: Model, request: ModelRequest) -> list[ModelEvent]:
    return [event async for event in model.stream(request)]


async def recording(path: Path, *talk: tuple[ModelRequest, Model]) -> list[list[ModelEvent]]:
    model = Recorded(talk[0][1], path)
    replies = [await collect_events(model, request) for request, _ in talk]
    await model.aclose()
    return replies


async def test_what_was_recorded_is_replayed_event_for_event(tmp_path):
    path = tmp_path / "deep" / "talk.jsonl"
    usage = Usage(input=5, output=3, cache_read=9, requests=1, cost=0.25)
    script: list[ScriptElement] = [
        [ModelNotified("hello"), Say(thinking="hm", text="I add two numbers.", usage=usage)],
        Say(calls=[("add", {"a": 1}), ("add", '{"a": ')]),
        [PartQuarantined(0, 0, "too big"), "done"],
    ]
    live = Scripted(script, name="test/live", card=ModelCard("test/live", window=999))
    requests = [asking("one"), asking("one", "two"), asking("one", "two", "three")]
    replies = await recording(path, *[(request, live) for request in requests])
    again = Recorded(None, path, mode="replay")
    assert (again.name, again.card) == ("test/live", ModelCard("test/live", window=999))
    assert [await collect_events(again, request) for request in requests] == replies
    await again.aclose()


async def test_requests_match_by_what_the_model_is_shown_in_any_order(tmp_path):
    path = tmp_path / "talk.jsonl"
    live = Scripted(["first", "second"])
    await recording(path, (asking("a", key="k1"), live), (asking("b", key="k2"), live))
    again = Recorded(None, path, mode="replay")
    for word, text in (("b", "second"), ("a", "first")):
        last = (await collect_events(again, asking(word, key="other")))[-1]
        assert isinstance(last, Reply)
        assert last.item.text == text


async def test_a_long_talk_is_written_without_repeating_its_history(tmp_path):
    path = tmp_path / "talk.jsonl"
    model = Recorded(Scripted(lambda request: "ok"), path)
    transcript = Transcript()
    for number in range(50):
        transcript = transcript.append(to_user_item(f"message {number} " + "x" * 1000))
        await collect_events(model, ModelRequest(transcript))
    assert path.stat().st_size < 100_000
    again = Recorded(None, path, mode="replay")
    for number in (50, 1, 25):
        assert await collect_events(again, ModelRequest(Transcript(transcript[:number])))


async def test_every_kind_of_item_can_be_recorded(tmp_path):
    path = tmp_path / "talk.jsonl"
    request = ModelRequest(
        Transcript(
            [
                UserItem((Text("see"), Image("image/png", b"\x89PNG\x00"))),
                AssistantItem((ToolCall("c1", "add", '{"a": 1}'),), "tool_use"),
                ToolResultItem("c1", "add", (Text("1"),)),
            ]
        ),
        options=ModelOptions(max_tokens=10, extra={"top_k": 3}),
        quarantine=frozenset({(0, 1)}),
    )
    await recording(path, (request, Scripted(["fine"])))
    assert await collect_events(Recorded(None, path, mode="replay"), request)


async def test_an_error_is_replayed_with_its_type_and_what_came_before_it(tmp_path):
    path = tmp_path / "talk.jsonl"
    live = Scripted(
        [
            ["half", RateLimited("wait", provider="test", status=429, retry_after=7.5)],
            BadRequest("no", status=400, position=3, part=1),
        ]
    )
    model = Recorded(live, path)
    for error in (RateLimited, BadRequest):
        with pytest.raises(error):
            await collect_events(model, asking("x"))
    again = Recorded(None, path, mode="replay")
    with pytest.raises(RateLimited, match="wait") as limited:
        await collect_events(again, asking("x"))
    assert (limited.value.status, limited.value.retry_after) == (429, 7.5)
    with pytest.raises(BadRequest) as refused:
        await collect_events(again, asking("x"))
    assert (refused.value.position, refused.value.part) == (3, 1)


async def test_a_request_that_was_not_recorded_shows_the_first_difference(tmp_path):
    path = tmp_path / "talk.jsonl"
    await recording(path, (asking("What is two and two?"), Scripted(["4"])))
    again = Recorded(None, path, mode="replay")
    with pytest.raises(ModelError, match=r"items\[0\]\.content\[0\]\.text.*and two\?.*and three"):
        await collect_events(again, asking("What is two and three?"))
    with pytest.raises(ModelError, match=r"system was .*Be brief.* is .*Be long"):
        await collect_events(again, asking("What is two and two?", system="Be long."))
    with pytest.raises(ModelError, match=r"items\[1\] was missing"):
        await collect_events(again, asking("What is two and two?", "And?"))
    await collect_events(again, asking("What is two and two?"))
    with pytest.raises(ModelError, match="no exchange left"):
        await collect_events(again, asking("What is two and two?"))


async def test_leaving_a_recording_half_way_ends_the_models_stream(tmp_path):
    live = Scripted(["a text that comes in several pieces, of which one is read"])
    stream = Recorded(live, tmp_path / "talk.jsonl").stream(asking("x"))
    await anext(stream)
    assert live.open_streams == 1
    await stream.aclose()  # type: ignore[attr-defined]
    assert live.open_streams == 0


async def test_an_exchange_is_recorded_although_the_listener_leaves_with_the_reply(tmp_path):
    path = tmp_path / "talk.jsonl"
    async with open_stream(Recorded(Scripted(["hello"]), path), asking("a")) as events:
        async for event in events:
            if isinstance(event, Reply):
                break
    last = (await collect_events(Recorded(None, path, mode="replay"), asking("a")))[-1]
    assert isinstance(last, Reply)
    assert last.item.text == "hello"


async def test_what_an_agent_was_told_is_told_again_from_the_recording(tmp_path):
    path = tmp_path / "talk.jsonl"
    first = await Agent(Recorded(Scripted(["hello"]), path)).run("hi")
    again = await Agent(f"recorded/{path}").run("hi")
    assert again.text == first.text == "hello"


async def test_fallbacks_are_on_the_same_tape(tmp_path):
    path = tmp_path / "talk.jsonl"
    live = Fallback(Scripted([RateLimited("no")], name="one"), Scripted(["yes"], name="two"))
    modes: tuple[RecordingMode, ...] = ("record", "replay")
    for mode in modes:
        model = Recorded(live, path, mode=mode)
        with pytest.raises(RateLimited):
            await collect_events(model, asking("x"))
        second = model.fallback
        assert second is not None
        assert second.name == "two"
        assert second.fallback is None
        last = (await collect_events(second, asking("x")))[-1]
        assert isinstance(last, Reply)
        assert last.item.text == "yes"


async def test_no_secret_reaches_the_file_even_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a strange but secret value")
    path = tmp_path / "talk.jsonl"
    live = Scripted(
        [Say(text=f"the key is {SECRET}!", calls=[("add", {"a": SECRET})], deltas=9)], name="t"
    )
    request = asking(f"use {SECRET}", system="a strange but secret value")
    await recording(path, (request, live))
    written = path.read_text()
    assert "Ab3_" not in written
    assert "strange but secret" not in written
    assert path.stat().st_mode & 0o077 == 0
    monkeypatch.delenv("OPENAI_API_KEY")
    again = Recorded(None, path, mode="replay")
    clean = asking("use [redacted]", system="[redacted]")
    last = (await collect_events(again, clean))[-1]
    assert isinstance(last, Reply)
    assert last.item.text == "the key is [redacted]!"
    assert last.item.calls[0].arguments == {"a": "[redacted]"}


@pytest.mark.parametrize(
    "secret",
    [
        SECRET,
        "sk-proj-abcdefghijklmnop1234",
        "ghp_" + "a1" * 18,
        "AKIA" + "A1B2" * 4,
        "AIza" + "x" * 35,
        "gsk_" + "a" * 40,
        "xoxb-123456789012-abcdef",
        "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSMeKKF2QT4",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_well_known_tokens_are_recognised(secret):
    assert redacted(f"before {secret} after") == "before [redacted] after"


@pytest.mark.parametrize(
    "text",
    ["sk-learn is a library", "a task-oriented-design-for-everyone", "ask-me-anything-later-on"],
)
def test_ordinary_words_are_left_alone(text):
    assert redacted(text) == text


def test_bearer_tokens_and_passwords_in_addresses_are_recognised():
    assert redacted("Authorization: Bearer abcdef1234567890").endswith("Bearer [redacted]")
    assert redacted("https://me:hunter22@example.org/x") == "https://[redacted]@example.org/x"


async def test_the_file_says_what_it_is_and_wrong_files_are_refused_by_name(tmp_path):
    path = tmp_path / "talk.jsonl"
    await recording(path, (asking("x"), Scripted(["y"])))
    head = json.loads(path.read_text().splitlines()[0])
    assert (head["kind"], head["version"]) == ("recording", 1)
    for content, problem in (
        (json.dumps(head) + '\n{"kind": "exchange"}', "line 2: not a line of a recording"),
        (json.dumps(head) + '\n{"kind": "exch\n', "line 2: not JSON"),
        ("", "is not a recording"),
        ('{"kind": "other"}', "is not a recording"),
        ('{"kind": "recording", "version": 99}', "version 99"),
        ("not json", "line 1: not JSON"),
    ):
        path.write_text(content)
        with pytest.raises(ConfigError, match=problem):
            Recorded(None, path, mode="replay")
    with pytest.raises(ConfigError, match="cannot read"):
        Recorded(None, tmp_path / "absent.jsonl", mode="replay")


async def test_a_recording_whose_last_line_is_torn_is_replayed_up_to_there(tmp_path):
    tape = tmp_path / "talk.jsonl"
    first, second = asking("one"), asking("one", "two")
    model = Scripted(["eins", "zwei"])
    told = await recording(tape, (first, model), (second, model))
    whole = tape.read_bytes()
    last_line = whole.rindex(b"\n", 0, -1) + 1
    for cut in (last_line + 1, (last_line + len(whole)) // 2, len(whole) - 2):
        tape.write_bytes(whole[:cut])
        replayed = Recorded(None, tape, mode="replay")
        assert await collect_events(replayed, first) == told[0]
        with pytest.raises(ModelError, match="its last line is incomplete: record it again"):
            await collect_events(replayed, second)


async def test_a_full_disk_leaves_no_part_of_a_line_in_a_recording(tmp_path):
    tape, request = tmp_path / "talk.jsonl", asking("one")
    model = Recorded(Scripted(["eins", "x" * 50_000, "drei"]), tape)
    told = await collect_events(model, request)
    size = tape.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1_000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            await collect_events(model, request)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)
    assert tape.stat().st_size == size
    again = await collect_events(model, request)
    replayed = Recorded(None, tape, mode="replay")
    assert [await collect_events(replayed, request) for _ in range(2)] == [told, again]


def test_recording_needs_a_model_and_a_known_mode(tmp_path):
    with pytest.raises(ConfigError, match="needs a model"):
        Recorded(None, tmp_path / "x.jsonl")
    with pytest.raises(ConfigError, match="expected record or replay"):
        Recorded(Scripted([]), tmp_path / "x.jsonl", mode="listen")  # type: ignore[arg-type]


async def test_a_replay_may_have_other_metadata_than_the_recording(tmp_path):
    path = tmp_path / "talk.jsonl"
    agent = Agent(Recorded(Scripted(["hello"]), path, mode="record"))
    await agent.run("hi", metadata={"job": 1})
    replay = Recorded(Scripted([]), path, mode="replay")
    replayed = await Agent(replay).run("hi", metadata={"job": 2})
    assert replayed.text == "hello"


def test_a_recording_replaces_an_earlier_one_and_no_other_file(tmp_path):
    file = tmp_path / "talk.jsonl"
    Recorded(Scripted(["one"]), file)
    Recorded(Scripted(["two"]), file)
    file.write_text("my notes")
    with pytest.raises(ConfigError, match="exists and is no recording"):
        Recorded(Scripted(["three"]), file)
    assert file.read_text() == "my notes"
