"""Faults 30 to 56 where the model layer answers for them: each becomes the right error or reply.

Retries, fallbacks and turns stand in the loop and have their own tests.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.patience import LIMITS, PATIENCE
from treadle.core.contracts.model import (
    ModelEvent,
    ModelOptions,
    ModelRequest,
    ModelTextDelta,
    ModelToolCallRequested,
    PartQuarantined,
    Reply,
)
from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import (
    AccessDenied,
    BadRequest,
    ContextTooLong,
    ModelError,
    Overloaded,
    RateLimited,
    StreamBroken,
    Unreachable,
)
from treadle.core.transcript import (
    AssistantItem,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    ToolResultItem,
    Transcript,
    to_user_item,
)
from treadle.lib.http.timeouts import Timeouts
from treadle.models.anthropic import Anthropic
from treadle.testing import provider
from treadle.testing.provider import (
    BAD_ARGUMENTS,
    FakeCall,
    ProviderFault,
    ProviderServer,
    unused_url,
)

ADD = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})
REPLY = provider.FakeReply(
    "Some words, more than one piece of them", calls=(FakeCall("add", {"a": 1}),)
)


class Asked:
    """What came of one request: the events before the end, and the reply or the error."""

    def __init__(self) -> None:
        self.events: list[ModelEvent] = []
        self.item: AssistantItem | None = None
        self.error: ModelError | None = None

    @property
    def ready(self) -> list[str]:
        return [e.call.id for e in self.events if isinstance(e, ModelToolCallRequested)]

    @property
    def text(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, ModelTextDelta))


async def ask(
    *faults: ProviderFault | str,
    reply: provider.FakeReply = REPLY,
    limits: Timeouts | None = None,
    transcript: Transcript | None = None,
) -> Asked:
    async with ProviderServer([reply], faults=faults) as server:
        return await ask_at(server.url, limits, transcript)


async def ask_at(
    url: str, limits: Timeouts | None = None, transcript: Transcript | None = None
) -> Asked:
    who = Anthropic("claude-sonnet-4-5", base_url=url, api_key="k", timeouts=limits)
    result = Asked()
    request = ModelRequest(transcript or Transcript([to_user_item("hi")]), tools=(ADD,))
    try:
        async for event in who.stream(request):
            if isinstance(event, Reply):
                result.item = event.item
            else:
                result.events.append(event)
    except ModelError as error:
        result.error = error
    assert (result.item is None) is (result.error is not None), "exactly one of both"
    return result


@pytest.mark.parametrize(
    ("form", "seconds"),
    [("seconds", 7), ("absent", None), ("negative", 0), ("huge", 1e9), ("fraction", 0.5)],
)
async def test_fault_30_a_rate_limit_says_when_to_come_back(form: str, seconds: float | None):
    asked = await ask(ProviderFault("rate_limited", value=provider.make_retry_after(form)))
    assert isinstance(asked.error, RateLimited)
    assert asked.error.retry_after == seconds


async def test_fault_30_a_date_counts_from_now():
    asked = await ask(ProviderFault("rate_limited", value=provider.make_retry_after("date")))
    assert asked.error is not None
    assert asked.error.retry_after == pytest.approx(7, abs=2)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 529])
async def test_fault_31_trouble_of_the_provider_passes(status: int):
    asked = await ask(ProviderFault("server_error", status=status))
    assert isinstance(asked.error, Overloaded)
    assert asked.error.status == status


async def test_fault_31_every_attempt_has_the_same_key():
    async with ProviderServer([REPLY] * 2, faults=["overloaded"]) as server:
        who = Anthropic("m", base_url=server.url, api_key="k")
        for _ in range(2):
            request = ModelRequest(
                Transcript([to_user_item("hi")]), tools=(ADD,), idempotency_key="turn-1.1"
            )
            try:
                [event async for event in who.stream(request)]
            except Overloaded:
                pass
    assert [r.headers["idempotency-key"] for r in server.requests] == ["turn-1.1"] * 2


async def test_fault_33_a_part_of_the_history_that_is_refused_by_name_is_left_out():
    transcript = Transcript(
        [to_user_item("a"), AssistantItem((Text("b"),)), to_user_item("c"), to_user_item("d")]
    )
    fault = ProviderFault("bad_request", message="messages.2.content.1: not to my taste")
    asked = await ask(fault, transcript=transcript)
    assert asked.error is None
    assert [(e.position, e.part) for e in asked.events if isinstance(e, PartQuarantined)] == [
        (3, 0)
    ]


@pytest.mark.parametrize("name", ["unauthorized", "forbidden"])
async def test_fault_34_a_key_that_is_not_accepted(name: str):
    asked = await ask(name)
    assert isinstance(asked.error, AccessDenied)
    # With a valid key it is not the key that is wrong.
    assert ("ANTHROPIC_API_KEY" in str(asked.error)) is (name == "unauthorized")


@pytest.mark.parametrize("name", ["too_large", "context_too_long"])
async def test_fault_35_too_long_is_told_apart_from_other_refusals(name: str):
    assert isinstance((await ask(name)).error, ContextTooLong)


async def test_fault_36_no_connection():
    assert isinstance((await ask_at(unused_url())).error, Unreachable)
    tls = unused_url().replace("http:", "https:")
    assert isinstance((await ask_at(tls)).error, Unreachable)


async def test_fault_36_a_server_without_tls_behind_an_https_address():
    async with ProviderServer([REPLY]) as server:
        asked = await ask_at(server.url.replace("http:", "https:"), Timeouts(connect=0.3))
    assert isinstance(asked.error, Unreachable)


@pytest.mark.parametrize("name", ["no_answer", "reset", "disconnect_after_headers"])
async def test_fault_37_a_disconnect_before_the_first_event(name: str):
    asked = await ask(name)
    assert isinstance(asked.error, (StreamBroken, Unreachable))
    assert asked.events == []


async def test_fault_38_a_disconnect_in_the_middle_of_text():
    asked = await ask("disconnect_in_text")
    assert isinstance(asked.error, StreamBroken)
    assert asked.text
    assert asked.text != REPLY.text


async def test_fault_39_a_disconnect_inside_arguments_announces_no_call():
    asked = await ask("disconnect_in_arguments")
    assert isinstance(asked.error, StreamBroken)
    assert asked.ready == []


async def test_fault_40_a_stream_without_its_final_event_is_not_a_success():
    assert isinstance((await ask("no_final_event")).error, StreamBroken)


async def test_fault_40_a_last_event_without_its_blank_line_is_read():
    asked = await ask("missing_blank_line")
    assert asked.error is None
    assert asked.item is not None
    assert asked.item.text == REPLY.text


STRANGE = ["crlf", "cr", "bom", "comments", "no_space", "more_fields", "multi_line", "split_bytes"]


@pytest.mark.parametrize("name", STRANGE)
async def test_fault_41_strange_but_legal_streams_give_the_same_reply(name: str):
    plain, strange = await ask(), await ask(name)
    assert strange.item == plain.item
    assert strange.events == plain.events


async def test_fault_41_an_event_of_five_megabytes():
    asked = await ask("big_event")
    assert asked.item is not None
    assert len(asked.item.text) == 5 * 1024 * 1024


@pytest.mark.parametrize("name", ["not_json", "truncated_json"])
async def test_fault_42_an_event_that_is_not_json(name: str):
    assert isinstance((await ask(name)).error, StreamBroken)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("overloaded_error", Overloaded),
        ("api_error", Overloaded),
        ("rate_limit_error", RateLimited),
        ("invalid_request_error", BadRequest),
        ("something_new", StreamBroken),
    ],
)
async def test_fault_43_an_error_inside_the_stream(kind: str, error: type[ModelError]):
    asked = await ask(ProviderFault("error_event", value=kind))
    assert type(asked.error) is error


@pytest.mark.parametrize("chunk", [0, 1])
async def test_fault_43_what_came_before_the_error_is_told_however_the_bytes_are_cut(chunk: int):
    faults = [
        ProviderFault("error_event", count=4),
        *([ProviderFault("split_bytes")] if chunk else []),
    ]
    asked = await ask(*faults)
    assert isinstance(asked.error, Overloaded)
    assert asked.text == REPLY.text[:24]


@pytest.mark.parametrize("form", sorted(BAD_ARGUMENTS))
async def test_fault_44_bad_arguments_arrive_as_written_and_say_what_is_wrong(form: str):
    asked = await ask(ProviderFault("bad_arguments", value=form))
    assert asked.item is not None
    (call,) = asked.item.calls
    assert asked.ready == [call.id]
    is_readable = form in ("empty_object", "empty", "huge")
    assert (call.arguments is not None) is is_readable
    assert bool(call.problem) is not is_readable


@pytest.mark.parametrize("given", ["same", ""])
async def test_fault_45_ids_are_unique_from_the_first_event_on(given: str):
    calls = tuple(FakeCall("add", {"a": n}) for n in range(3))
    before = Transcript(
        [
            to_user_item("hi"),
            AssistantItem((ToolCall("same", "add", "{}"),)),
            ToolResultItem("same", "add", (Text("1"),)),
        ]
    )
    asked = await ask(
        ProviderFault("same_ids", value=given),
        reply=provider.FakeReply(calls=calls),
        transcript=before,
    )
    assert asked.item is not None
    ids = [call.id for call in asked.item.calls]
    assert len(set(ids)) == 3
    assert not {"", "same"} & set(ids)
    assert asked.ready == ids


async def test_fault_47_an_empty_reply_is_an_empty_item():
    asked = await ask("empty_reply")
    assert asked.item is not None
    assert (asked.item.content, asked.item.stop) == ((), "end_turn")


async def test_fault_48_the_output_limit_inside_a_call():
    asked = await ask("max_tokens_in_call")
    assert asked.item is not None
    assert (asked.item.stop, asked.item.calls, asked.ready) == ("max_tokens", (), [])


async def test_fault_49_a_hundred_calls_in_one_reply():
    asked = await ask("many_calls")
    assert asked.item is not None
    assert len({call.id for call in asked.item.calls}) == 100
    assert asked.ready == [call.id for call in asked.item.calls]


@pytest.mark.parametrize("limit", ["total", "max_bytes"])
async def test_fault_50_an_endless_stream_is_ended(limit: str):
    for seconds in LIMITS:  # until it lasted long enough for its first text
        limits = Timeouts(total=seconds) if limit == "total" else Timeouts(max_bytes=20_000)
        asked = await ask("endless", limits=limits)
        assert isinstance(asked.error, StreamBroken)
        if asked.text:
            return
    raise AssertionError("there was no text")


@pytest.mark.parametrize(
    ("fault", "limits"),
    [
        (ProviderFault("pings_only"), Timeouts(first_content=0.2)),
        (ProviderFault("stall_in_text"), Timeouts(idle=0.2)),
        (ProviderFault("stall_headers"), Timeouts(first_byte=0.2)),
        (ProviderFault("slow_loris", seconds=0.01), Timeouts(total=0.3)),
    ],
)
async def test_fault_51_pings_and_dribble_do_not_count_as_content(
    fault: ProviderFault, limits: Timeouts
):
    asked = await ask(fault, limits=limits)
    assert isinstance(asked.error, StreamBroken)


async def test_fault_52_long_thinking_is_not_killed_while_pings_arrive():
    limits = Timeouts(idle=PATIENCE, first_content=PATIENCE)  # far above the pace of the pings
    asked = await ask(ProviderFault("slow_start", count=250, seconds=0.01), limits=limits)
    assert asked.item is not None


@pytest.mark.parametrize("name", ["no_usage", "negative_usage"])
async def test_fault_54_without_usage_the_cost_is_unknown_not_wrong(name: str):
    asked = await ask(name)
    assert asked.item is not None
    usage = asked.item.usage
    assert usage.cost is None
    assert min(usage.input, usage.output, usage.cache_read, usage.cache_write) >= 0


async def test_fault_54_no_tokens_cost_nothing():
    asked = await ask("zero_usage")
    assert asked.item is not None
    assert asked.item.usage.cost == 0


async def test_fault_55_a_redirect_elsewhere_never_carries_the_key():
    async with ProviderServer([REPLY]) as elsewhere:
        fault = ProviderFault("redirect", value=elsewhere.url + "/v1/messages")
        asked = await ask(fault)
        assert elsewhere.requests == []
    assert isinstance(asked.error, Unreachable)


async def test_fault_55_a_web_page_instead_of_the_api():
    asked = await ask("html")
    assert isinstance(asked.error, Unreachable)
    assert "web page" in str(asked.error)


async def test_fault_56_signatures_of_another_provider_are_not_sent():
    theirs = AssistantItem(
        (
            Thinking("secret thoughts", "foreign-signature", origin="openai"),
            RedactedThinking("foreign-seal", "openai"),
            Text("said"),
            ToolCall("fc_1|call", "add", '{"a": 1}'),
        )
    )
    answer = ToolResultItem("fc_1|call", "add", (Text("2"),))
    async with ProviderServer([provider.FakeReply("on")]) as server:
        who = Anthropic("claude-sonnet-4-5", base_url=server.url, api_key="k")
        request = ModelRequest(
            Transcript([to_user_item("go"), theirs, answer]),
            tools=(ADD,),
            options=ModelOptions(thinking=2000),
        )
        [event async for event in who.stream(request)]
    assert server.violations == []
    sent = server.requests[0].body.decode()
    assert "foreign" not in sent
    assert "secret thoughts" not in sent
    messages: Any = json.loads(sent)["messages"]
    assert messages[1]["content"][1]["id"] == messages[2]["content"][0]["tool_use_id"]


async def test_a_cancel_works_in_the_middle_of_an_answer():
    async with ProviderServer([REPLY], faults=["stall_in_text"]) as server:
        task = asyncio.create_task(ask_at(server.url))
        await server.wait_until(lambda: len(server.requests) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.wait_until(lambda: server.open_connections == 0)
