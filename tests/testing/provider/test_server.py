import asyncio
import inspect
import json
import signal
import subprocess
import sys
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec
import pytest

from tests.testing.provider.exchanges import HEADERS, PATHS, ask, request, said
from treadle.lib.http.client import Client
from treadle.lib.http.sse import SSEReader
from treadle.lib.http.timeouts import Timeouts
from treadle.lib.http.transport import BadRedirect, ConnectFailed, Disconnected, TimedOut
from treadle.testing.provider import (
    BAD_ARGUMENTS,
    FAULTS,
    FakeCall,
    FakeReply,
    FakeUsage,
    ProviderFault,
    ProviderServer,
    ReplyScript,
    ServerLimits,
    make_retry_after,
)
from treadle.testing.provider.__main__ import EPILOG, ScriptFile

DIALECTS = list(PATHS)
CALLING = FakeReply("Let me add.", calls=(FakeCall("add", {"a": 1, "b": 2}),))
each_dialect = pytest.mark.parametrize("dialect", DIALECTS)


@each_dialect
async def test_replies_come_in_order_and_every_request_is_remembered(dialect, no_leaks):
    async with ProviderServer([FakeReply("One fine day"), FakeReply("Two")]) as server:
        assert said(dialect, await ask(server, dialect)) == "One fine day"
        assert said(dialect, await ask(server, dialect)) == "Two"
        over = await ask(server, dialect)
        assert (over.status, over.json["error"]["message"]) == (400, "the script is over")
    assert [r.number for r in server.requests] == [0, 1, 2]
    assert server.requests[0].json == request(dialect)
    assert server.requests[0].headers["content-type"] == "application/json"
    assert [r.connection for r in server.requests] == [1, 2, 3]
    assert server.violations == []


@each_dialect
async def test_the_same_reply_without_a_stream_is_one_object(dialect):
    async with ProviderServer([CALLING]) as server:
        answer = await ask(server, dialect, stream=False)
    assert answer.status == 200
    assert "add" in answer.body.decode()
    assert "Let me add." in answer.body.decode()


async def test_replies_by_turn_serve_many_conversations_at_once():
    script = ReplyScript((FakeReply("first"), FakeReply("second")), by="turn")
    history = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "first"},
        {"role": "user", "content": "b"},
    ]
    async with ProviderServer(script) as server:
        for _ in range(2):
            assert said("chat", await ask(server, "chat")) == "first"
            assert said("chat", await ask(server, "chat", messages=history)) == "second"
            assert said("anthropic", await ask(server, "anthropic", messages=history)) == "second"


async def test_a_function_can_be_the_script():
    async with ProviderServer(lambda request: FakeReply(f"{len(request.body)} bytes")) as server:
        assert said("chat", await ask(server, "chat")).endswith(" bytes")


async def test_a_reply_may_be_a_text_and_nothing_else():
    async with ProviderServer(["Hello"]) as server:
        assert said("chat", await ask(server, "chat")) == "Hello"
    with pytest.raises(TypeError, match="has a dict: each of its replies is a FakeReply or a text"):
        ProviderServer([{"text": "Hello"}])  # type: ignore[list-item]


async def test_models_and_token_counts_are_answered_beside_the_script():
    async with ProviderServer([]) as server:
        client = Client()
        async with client.get(server.url + "/v1/models", {}) as response:
            assert json.loads(await response.read())["data"][0]["id"] == "loopback"
        url = server.url + "/v1/messages/count_tokens"
        async with client.post(url, HEADERS, b"{}" * 100) as response:
            assert json.loads(await response.read()) == {"input_tokens": 50}


async def test_an_unknown_fault_is_refused_with_the_list_of_known_ones():
    with pytest.raises(ValueError, match="overloaded"):
        ProviderServer([], faults=["no_such_fault"])


# -- faults by number


@pytest.mark.parametrize("form", ["seconds", "date", "absent", "negative", "huge", "past", "words"])
async def test_fault_30_every_form_of_retry_after(form):
    fault = ProviderFault("rate_limited", value=make_retry_after(form))
    async with ProviderServer([FakeReply("ok")], faults=[fault]) as server:
        refused = await ask(server, "anthropic")
        assert refused.status == 429
        assert refused.headers.get("retry-after") == fault.value
        assert said("anthropic", await ask(server, "anthropic")) == "ok"
    if form == "date":
        assert fault.value is not None
        assert parsedate_to_datetime(fault.value) > datetime.now(UTC)


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_fault_31_three_failures_then_success(status):
    fault = ProviderFault("server_error", times=3, status=status)
    async with ProviderServer([FakeReply("ok")], faults=[fault]) as server:
        assert [(await ask(server, "chat")).status for _ in range(4)] == [status] * 3 + [200]


async def test_fault_32_overloaded_for_ever():
    async with ProviderServer([], faults=[ProviderFault("overloaded", times=-1)]) as server:
        assert [(await ask(server, "anthropic")).status for _ in range(5)] == [529] * 5


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("bad_request", 400),
        ("unauthorized", 401),
        ("forbidden", 403),
        ("not_found", 404),
        ("too_large", 413),
        ("context_too_long", 400),
    ],
)
@each_dialect
async def test_fault_33_34_35_refusals_in_the_words_of_each_service(dialect, name, status):
    async with ProviderServer([FakeReply("ok")], faults=[name]) as server:
        refused = await ask(server, dialect)
        assert refused.status == status
        assert refused.json["error"]["message"]
        assert said(dialect, await ask(server, dialect)) == "ok"


async def test_fault_34_a_key_that_was_rotated():
    async with ProviderServer([FakeReply("ok")], api_key="new") as server:
        assert (await ask(server, "chat")).status == 401
        HEADERS["authorization"] = "Bearer new"
        try:
            assert (await ask(server, "chat")).status == 200
        finally:
            del HEADERS["authorization"]


async def test_fault_36_refused_connections_and_back_again():
    async with ProviderServer([FakeReply("ok")]) as server:
        await server.stop_listening()
        with pytest.raises(ConnectFailed):
            await ask(server, "chat")
        await server.listen()
        assert said("chat", await ask(server, "chat")) == "ok"


@pytest.mark.parametrize("name", ["no_answer", "reset"])
async def test_fault_36_connections_that_end_before_an_answer(name):
    async with ProviderServer([FakeReply("ok")], faults=[name]) as server:
        with pytest.raises(Disconnected) as caught:
            await ask(server, "chat")
        assert caught.value.bytes_received == -1


async def stream_until_it_breaks(server: ProviderServer, dialect: str) -> list[tuple[bytes, bytes]]:
    """The events before the disconnect, which has to come."""
    client, reader = Client(), SSEReader()
    events: list[tuple[bytes, bytes]] = []
    body = json.dumps(request(dialect)).encode()

    async def consume() -> None:
        async with client.post(server.url + PATHS[dialect], HEADERS, body) as response:
            async for piece in response:
                events.extend(reader.feed(piece))

    with pytest.raises(Disconnected):
        await consume()
    return events


@pytest.mark.parametrize(
    ("name", "seen", "unseen"),
    [
        ("disconnect_after_headers", b"", b"{"),
        ("disconnect_in_thinking", b"Hm, ", b"Let me"),
        ("disconnect_in_text", b"Let me", b"add."),
        ("disconnect_in_arguments", b"add", b"message_stop"),
    ],
)
@each_dialect
async def test_fault_37_38_39_disconnects_at_their_place(dialect, name, seen, unseen):
    calls = (FakeCall("add", {"a": 1, "b": 2}),)
    reply = FakeReply(("Let me ", "add."), thinking=("Hm, ", "hm"), calls=calls)
    async with ProviderServer([reply], faults=[name]) as server:
        events = b"".join(data for _, data in await stream_until_it_breaks(server, dialect))
        assert seen in events
        assert unseen not in events
        assert said(dialect, await ask(server, dialect)) == "Let me add."


@each_dialect
async def test_fault_40_a_stream_without_its_final_event(dialect):
    async with ProviderServer(
        [FakeReply("ok"), FakeReply("ok")], faults=["no_final_event"]
    ) as server:
        cut, whole = await ask(server, dialect), await ask(server, dialect)
    assert said(dialect, cut) == said(dialect, whole) == "ok"
    assert len(cut.events) < len(whole.events)


@pytest.mark.parametrize(
    "name",
    ["crlf", "cr", "bom", "comments", "no_space", "more_fields", "multi_line", "split_bytes"],
)
@each_dialect
async def test_fault_41_strange_forms_say_the_same(dialect, name):
    async with ProviderServer([CALLING], faults=[name]) as server:
        answer = await ask(server, dialect)
    assert said(dialect, answer) == "Let me add."


async def test_fault_41_an_event_of_five_megabytes_and_one_without_its_blank_line():
    faults = [ProviderFault("big_event"), ProviderFault("missing_blank_line", at=1)]
    async with ProviderServer([FakeReply("x"), FakeReply("ok")], faults=faults) as server:
        assert len(said("anthropic", await ask(server, "anthropic"))) == 5 * 1024 * 1024
        assert (await ask(server, "anthropic")).events[-1][0] == b"message_delta"


@pytest.mark.parametrize("name", ["not_json", "truncated_json"])
@each_dialect
async def test_fault_42_an_event_that_is_not_json(dialect, name):
    async with ProviderServer([CALLING], faults=[name]) as server:
        answer = await ask(server, dialect)
        with pytest.raises(ValueError):
            _ = answer.decoded


@each_dialect
async def test_fault_43_an_error_inside_a_stream(dialect):
    async with ProviderServer([CALLING], faults=["error_event"]) as server:
        answer = await ask(server, dialect)
    assert answer.status == 200
    assert "overloaded_error" in json.dumps(answer.decoded[-1])


@pytest.mark.parametrize("value", list(BAD_ARGUMENTS))
async def test_fault_44_bad_arguments_arrive_as_they_are(value):
    fault = ProviderFault("bad_arguments", value=value)
    async with ProviderServer([CALLING], faults=[fault]) as server:
        answer = await ask(server, "chat")
    calls = [
        c["delta"]["tool_calls"][0]["function"]["arguments"]
        for e in answer.decoded
        for c in e["choices"]
        if "tool_calls" in c["delta"]
    ]
    assert "".join(calls) == BAD_ARGUMENTS[value](CALLING.calls[0].raw)


@pytest.mark.parametrize("value", ["same", ""])
@each_dialect
async def test_fault_45_ids_that_repeat_or_are_empty(dialect, value):
    two = FakeReply(calls=(FakeCall("add", {"a": 1}), FakeCall("add", {"a": 2})))
    fault = ProviderFault("same_ids", value=value)
    async with ProviderServer([two], faults=[fault]) as server:
        answer = await ask(server, dialect, stream=False)
    found = [part for part in answer.body.decode().split('"') if part == value]
    assert len(found) >= 2


async def test_fault_47_48_49_empty_replies_cut_calls_and_a_hundred_calls():
    faults = [
        ProviderFault("empty_reply"),
        ProviderFault("max_tokens_in_call", at=1),
        ProviderFault("many_calls", at=2),
    ]
    async with ProviderServer([CALLING] * 3, faults=faults) as server:
        empty, cut, many = [await ask(server, "anthropic") for _ in range(3)]
    kinds = [event["type"] for event in empty.decoded]
    assert kinds == ["message_start", "message_delta", "message_stop"]
    assert cut.decoded[-2]["delta"]["stop_reason"] == "max_tokens"
    starts = [e["content_block"] for e in many.decoded if e["type"] == "content_block_start"]
    assert len({block["id"] for block in starts if block["type"] == "tool_use"}) == 100


@pytest.mark.parametrize(
    ("name", "limits", "which"),
    [
        ("endless", Timeouts(total=0.1), "total"),
        ("pings_only", Timeouts(first_content=0.1), "first_content"),
        ("slow_loris", Timeouts(first_content=0.1), "first_content"),
        ("stall_headers", Timeouts(first_byte=0.1), "first_byte"),
        ("stall_in_text", Timeouts(idle=0.1), "idle"),
    ],
)
@each_dialect
async def test_fault_50_51_streams_that_never_end(dialect, name, limits, which, no_leaks):
    async with ProviderServer([CALLING], faults=[name]) as server:
        client = Client()

        async def consume() -> None:
            body = json.dumps(request(dialect)).encode()
            async with client.post(server.url + PATHS[dialect], HEADERS, body, limits) as response:
                async for _ in response:
                    pass

        with pytest.raises(TimedOut) as caught:
            await consume()
        assert caught.value.kind == which
        await server.wait_until(lambda: server.open_connections == 0)


@each_dialect
async def test_fault_52_a_slow_start_with_pings_and_a_paced_reply_are_whole(dialect):
    faults = [ProviderFault("slow_start"), ProviderFault("paced", at=1, seconds=0.001)]
    async with ProviderServer([CALLING] * 2, faults=faults) as server:
        assert said(dialect, await ask(server, dialect)) == "Let me add."
        assert said(dialect, await ask(server, dialect)) == "Let me add."


@pytest.mark.parametrize("name", ["no_usage", "zero_usage", "negative_usage"])
@each_dialect
async def test_fault_54_usage_absent_zero_or_negative(dialect, name):
    async with ProviderServer([FakeReply("ok", usage=FakeUsage(7, 5))], faults=[name]) as server:
        answer = await ask(server, dialect, stream=False)
    usage = answer.json.get("usage")
    assert (usage is None) == (name == "no_usage")
    if usage is not None:
        assert all(n <= 0 for n in usage.values() if isinstance(n, int))


async def test_fault_55_redirects_and_a_page_instead_of_an_answer():
    faults = [ProviderFault("redirect"), ProviderFault("html", at=1)]
    async with ProviderServer([FakeReply("ok")], faults=faults) as server:
        with pytest.raises(BadRedirect, match=r"elsewhere\.invalid"):
            await ask(server, "anthropic")
        page = await ask(server, "anthropic")
        assert (page.status, page.headers["content-type"]) == (200, "text/html")
        assert said("anthropic", await ask(server, "anthropic")) == "ok"


@each_dialect
async def test_fault_35_a_small_context_window(dialect):
    async with ProviderServer([FakeReply("ok")], limits=ServerLimits(context_window=50)) as server:
        assert said(dialect, await ask(server, dialect)) == "ok"
        long = [{"role": "user", "content": "word " * 100}]
        key = "input" if dialect == "responses" else "messages"
        refused = await ask(server, dialect, **{key: long})
        assert refused.status == 400
        assert "50" in refused.json["error"]["message"]


@each_dialect
async def test_a_compressed_stream_is_read_all_the_same(dialect):
    async with ProviderServer([CALLING], faults=["gzip"]) as server:
        assert said(dialect, await ask(server, dialect)) == "Let me add."


async def test_leaving_the_server_ends_every_connection(no_leaks):
    server = ProviderServer([FakeReply("ok")], faults=["stall_headers"])
    async with server:
        asking = asyncio.create_task(ask(server, "chat"))
        await server.wait_until(lambda: len(server.requests) == 1)
    with pytest.raises(Disconnected):
        await asking


def test_every_fault_has_a_test_here():
    source = inspect.getsource(sys.modules[__name__])
    assert [name for name in FAULTS if f'"{name}"' not in source] == []


def test_the_provider_runs_as_a_process_of_its_own(tmp_path):
    script = tmp_path / "script.json"
    script.write_text('{"replies": [{"text": "Hi"}], "faults": [{"name": "overloaded"}]}')
    log = tmp_path / "log.jsonl"
    command = [sys.executable, "-m", "treadle.testing.provider", "--script", str(script)]
    with subprocess.Popen([*command, "--log", str(log)], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        url = run.stdout.readline().strip()

        async def talk() -> list[int]:
            body = json.dumps(request("chat")).encode()
            statuses = []
            for _ in range(2):
                async with Client().post(url + PATHS["chat"], HEADERS, body) as response:
                    statuses.append(response.status)
                    await response.read()
            return statuses

        assert asyncio.run(talk()) == [529, 200]
        written = log.read_text()  # while it runs
        run.send_signal(signal.SIGTERM)
    assert run.returncode == 0
    assert [json.loads(line)["path"] for line in written.splitlines()] == [PATHS["chat"]] * 2
    assert log.read_text() == written


def test_the_help_of_the_process_shows_a_script_that_it_can_read() -> None:
    command = [sys.executable, "-m", "treadle.testing.provider", "--help"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    example = shown[shown.index('{"replies"') : shown.index("\n\n  replies")]
    script = msgspec.json.decode(example, type=ScriptFile)
    assert [reply.stop_reason() for reply in script.replies] == ["tool_use", "end_turn"]
    assert script.faults == (ProviderFault("rate_limited", at=1),)


def test_the_help_says_from_where_requests_are_counted():
    assert '"at" is the first request that has it, counted from 0' in EPILOG
