"""What a provider can do wrong, done to both OpenAI APIs over a real socket."""

from collections.abc import Callable

import pytest

from treadle.core.contracts.model import (
    Model,
    ModelEvent,
    ModelRequest,
    ModelToolCallRequested,
    Reply,
)
from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import ModelError, Overloaded, StreamBroken, Unreachable
from treadle.core.transcript import AssistantItem, Transcript, to_user_item
from treadle.lib.http.timeouts import Timeouts
from treadle.models.openai_chat.model import OpenAIChat
from treadle.models.openai_responses.model import OpenAIResponses
from treadle.testing.provider import BAD_ARGUMENTS, FakeCall, ProviderFault, ProviderServer
from treadle.testing.provider import FakeReply as Answer

TOOLS = (ToolSpec("add", "Add.", {"type": "object", "properties": {}}),)
SCRIPT = [
    Answer(
        "A text that is long enough to be cut.",
        thinking="Hm, let me think about it for a while.",
        calls=(FakeCall("add", {"a": 1, "b": "ä" * 40}), FakeCall("add", {"a": 2})),
    )
]
APIS: dict[str, Callable[..., Model]] = {
    "chat": lambda url, **more: OpenAIChat("m", base_url=url, **more),
    "responses": lambda url, **more: OpenAIResponses("m", base_url=url, **more),
}
IMPATIENT = Timeouts(first_byte=0.2, first_content=0.2, idle=0.2, total=5.0, max_bytes=64 << 20)


async def ask(
    api: str, *faults: ProviderFault | str, timeouts: Timeouts | None = None
) -> tuple[list[ModelEvent], AssistantItem]:
    async with ProviderServer(SCRIPT, faults=faults) as server:
        model = APIS[api](server.url + "/v1", timeouts=timeouts)
        request = ModelRequest(Transcript([to_user_item("x")]), tools=TOOLS)
        events = [event async for event in model.stream(request)]
        assert server.violations == []
    assert isinstance(events[-1], Reply)
    return events, events[-1].item


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("no_answer", StreamBroken),
        ("reset", StreamBroken),
        ("stall_headers", StreamBroken),
        ("disconnect_after_headers", StreamBroken),
        ("disconnect_in_text", StreamBroken),
        ("disconnect_in_thinking", StreamBroken),
        ("disconnect_in_arguments", StreamBroken),
        ("no_final_event", StreamBroken),
        ("stall_in_text", StreamBroken),
        ("not_json", StreamBroken),
        ("truncated_json", StreamBroken),
        ("pings_only", StreamBroken),
        ("html", Unreachable),
        ("redirect", Unreachable),
        (ProviderFault("error_event", value="overloaded_error"), Overloaded),
        (ProviderFault("server_error", status=503), Overloaded),
    ],
)
async def test_what_spoils_an_answer_is_a_typed_error(api, fault, kind):
    waits = fault in ("stall_headers", "stall_in_text", "pings_only")
    with pytest.raises(ModelError) as caught:
        await ask(api, fault, timeouts=IMPATIENT if waits else None)

    assert isinstance(caught.value, kind)


@pytest.mark.parametrize(
    "fault",
    [
        "crlf",
        "cr",
        "bom",
        "comments",
        "no_space",
        "more_fields",
        "multi_line",
        "split_bytes",
        "gzip",
    ],
)
async def test_fault_41_the_same_events_in_any_form_are_the_same_reply(api, fault):
    assert await ask(api, fault) == await ask(api)


@pytest.mark.parametrize("spoiled", BAD_ARGUMENTS)
async def test_fault_44_arguments_are_handed_on_as_they_were_written(api, spoiled):
    events, reply = await ask(api, ProviderFault("bad_arguments", value=spoiled))

    ready = [event.call for event in events if isinstance(event, ModelToolCallRequested)]
    assert len(reply.calls) == 2
    assert sorted(call.id for call in ready) == sorted(call.id for call in reply.calls)
    assert all(call in reply.calls for call in ready)


async def test_fault_45_calls_with_the_same_id_get_their_own(api):
    for shared in ("twin", ""):
        _, reply = await ask(api, ProviderFault("same_ids", value=shared))
        assert len({call.id for call in reply.calls}) == 2


async def test_fault_48_the_limit_inside_a_call(api):
    _, reply = await ask(api, "max_tokens_in_call")

    assert reply.stop == "max_tokens"
    assert all(call.problem is None for call in reply.calls)


async def test_fault_49_a_hundred_calls_come_in_order(api):
    _, reply = await ask(api, "many_calls")

    assert len({call.id for call in reply.calls}) >= 100


@pytest.mark.parametrize("fault", ["no_usage", "zero_usage", "negative_usage"])
async def test_fault_54_usage_that_says_nothing(api, fault):
    _, reply = await ask(api, fault)

    assert reply.usage.input >= 0
    assert fault == "zero_usage" or reply.usage.cost is None
