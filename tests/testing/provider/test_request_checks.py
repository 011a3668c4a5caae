import base64

import pytest

from tests.testing.provider.exchanges import ask
from treadle.testing.provider import FakeCall, FakeReply, FakeThinking, ProviderServer, ServerLimits
from treadle.testing.provider.dialects.anthropic import sign_thinking
from treadle.testing.provider.dialects.openai_responses import encrypt_thinking

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 100).decode()


def user(*blocks):
    return {"role": "user", "content": list(blocks) or "Hello"}


def assistant(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def text(words="words"):
    return {"type": "text", "text": words}


def call(id="t1", name="add"):
    return {"type": "tool_use", "id": id, "name": name, "input": {}}


def result(id="t1"):
    return {"type": "tool_result", "tool_use_id": id, "content": "3"}


def thinking(thought="hm", signed=None):
    sign = sign_thinking(thought) if signed is None else signed
    return {"type": "thinking", "thinking": thought, "signature": sign}


def image(data=PNG, kind="image/png"):
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def system(*blocks):
    return {"role": "system", "content": list(blocks) or "Note"}


async def verdict(dialect, rules=None, **changes):
    async with ProviderServer([FakeReply("ok")], limits=rules) as server:
        answer = await ask(server, dialect, **changes)
        assert bool(server.violations) == (answer.status >= 400)
        return "" if answer.status == 200 else answer.json["error"]["message"]


@pytest.mark.parametrize(
    "messages",
    [
        [user()],
        [user(), assistant(text()), user()],
        [user(), assistant(thinking(), text(), call()), user(result(), text())],
        [user(), assistant(call("a"), call("b")), user(result("b"), result("a"))],
        [user(text(), image())],
        [user(), assistant({"type": "redacted_thinking", "data": "x"}, text()), user()],
        [user(), system()],
        [user(), assistant(call()), user(result()), system(text()), assistant(text()), user()],
    ],
)
async def test_valid_anthropic_histories_pass(messages):
    assert await verdict("anthropic", messages=messages, model="claude-opus-5") == ""


@pytest.mark.parametrize(
    ("model", "messages", "complaint"),
    [
        ("claude-opus-4-7", [user(), system()], "role 'system' is not supported on this model"),
        ("claude-opus-5", [system(), user()], "first message"),
        ("claude-opus-5", [user(), assistant(text()), system()], "must follow a user message"),
        ("claude-opus-5", [user(), system(), user()], "must be last or precede"),
        ("claude-opus-5", [user(), system(image())], "only text blocks"),
    ],
)
async def test_a_system_message_inside_an_anthropic_history_has_its_places(
    model, messages, complaint
):
    assert complaint in await verdict("anthropic", messages=messages, model=model)


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([], "at least one message"),
        ([assistant(text())], "first message"),
        ([user(), user()], "alternate"),
        ([user(text(""))], "non-whitespace"),
        ([{"role": "user", "content": " \n"}], "non-whitespace"),
        ([user(), assistant(), user()], "non-empty content"),
        ([user(), assistant(call()), user()], "without `tool_result`"),
        ([user(), assistant(call()), user(text(), result())], "come first"),
        ([user(), assistant(call()), user(result(), result())], "must be unique"),
        ([user(result())], "unexpected `tool_use_id`"),
        ([user(), assistant(call(), call()), user(result())], "ids must be unique"),
        (
            [user(), assistant(call()), user(result()), assistant(call()), user(result())],
            "ids must be unique",
        ),
        ([user(), assistant(call("a b")), user(result("a b"))], "pattern"),
        ([user(), assistant(call("")), user(result(""))], "pattern"),
        ([user(), assistant(thinking(signed=""), text()), user()], "Invalid `signature`"),
        ([user(), assistant(thinking(signed="other"), text()), user()], "Invalid `signature`"),
        ([user(), assistant(text(), thinking()), user()], "final block"),
        ([user(), assistant({**text(), "stray": 1}), user()], "Extra inputs"),
        ([user(image(data="???"))], "base64"),
        ([user(image(kind="image/jpeg"))], "appears to be"),
        ([user(*[image()] * 3)], "too many images"),
        ([user(*[{**text(), "cache_control": {"type": "ephemeral"}}] * 5)], "maximum of 4"),
    ],
)
async def test_fault_33_invalid_anthropic_histories_are_refused_for_their_reason(
    messages, complaint
):
    assert complaint in await verdict("anthropic", ServerLimits(max_images=2), messages=messages)


async def test_fault_33_the_rest_of_an_anthropic_request_is_judged_too():
    tool = {"name": "add", "input_schema": {"type": "object"}}
    assert "max_tokens" in await verdict("anthropic", max_tokens=0)
    assert "Extra inputs" in await verdict("anthropic", stray=True)
    assert "unique" in await verdict("anthropic", tools=[tool, tool])
    assert "pattern" in await verdict("anthropic", tools=[{**tool, "name": "a.b"}])
    assert "schema" in await verdict("anthropic", tools=[{"name": "add", "input_schema": {}}])
    budget = {"type": "enabled", "budget_tokens": 5000}
    assert "max_tokens" in await verdict("anthropic", thinking=budget)
    unthought = [user(), assistant(call()), user(result())]
    budget = {"type": "enabled", "budget_tokens": 2000}
    found = await verdict("anthropic", thinking=budget, messages=unthought)
    assert "Expected `thinking`" in found
    assert "image exceeds" in await verdict(
        "anthropic", ServerLimits(max_image_bytes=10), messages=[user(image())]
    )


def chat_call(id="c1", arguments="{}"):
    function = {"name": "add", "arguments": arguments}
    made = {"id": id, "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [made]}


def chat_result(id="c1"):
    return {"role": "tool", "tool_call_id": id, "content": "3"}


async def test_fault_33_chat_histories():
    async def said(*messages):
        return await verdict("chat", messages=list(messages))

    start = {"role": "user", "content": "Hello"}
    assert await said(start, chat_call(), chat_result()) == ""
    assert await said({"role": "system", "content": "x"}, start) == ""
    assert "must be followed" in await said(start, chat_call())
    assert "must be followed" in await said(start, chat_call(), start, chat_result())
    assert "response to a preceding" in await said(start, chat_result())
    assert "unique" in await said(start, chat_call(), chat_result(), chat_call(), chat_result())
    assert "non-empty" in await said(start, chat_call(""), chat_result(""))
    assert "not valid JSON" in await said(start, chat_call(arguments="{"), chat_result())
    assert "null" in await said(start, {"role": "assistant", "content": None})
    assert "too short" in await said({"role": "user", "content": []})
    assert "Invalid value" in await said({"role": "robot", "content": "x"})
    bad_image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert "appears to be" in await said({"role": "user", "content": [bad_image]})


async def test_fault_33_responses_histories():
    async def said(*items, **more):
        return await verdict("responses", input=list(items), **more)

    start = {"role": "user", "content": "Hello"}
    call_item = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": "3"}
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    sealed = {**reasoning, "encrypted_content": encrypt_thinking("hm")}
    assert await said(start, call_item, output) == ""
    assert await said(start, sealed, call_item, output, store=False) == ""
    assert "No tool output" in await said(start, call_item)
    assert "No tool call" in await said(start, output)
    assert "unique" in await said(start, call_item, output, call_item, output)
    assert "required following" in await said(start, sealed)
    assert "not persisted" in await said(start, reasoning, call_item, output, store=False)
    foreign = {**reasoning, "encrypted_content": "gAAAA"}
    assert "verified" in await said(start, foreign, call_item, output)
    assert "not found" in await said(start, previous_response_id="resp_none")
    wrong = {"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}
    assert "Invalid value" in await said(start, wrong)


async def test_a_stored_response_is_known_by_its_id():
    async with ProviderServer(
        [FakeReply(calls=(FakeCall("add", {}, id="c9"),)), FakeReply("5")]
    ) as server:
        await ask(server, "responses")
        output = {"type": "function_call_output", "call_id": "c9", "output": "5"}
        answer = await ask(server, "responses", previous_response_id="resp_0000", input=[output])
        assert answer.status == 200


async def test_what_the_provider_said_can_be_said_back():
    reply = FakeReply(parts=(FakeThinking("Let me see"), FakeCall("add", {"a": 1})))
    async with ProviderServer([reply, FakeReply("done")]) as server:
        first = (await ask(server, "anthropic", stream=False)).json
        call_id = first["content"][1]["id"]
        messages = [user(), assistant(*first["content"]), user(result(call_id))]
        assert (await ask(server, "anthropic", messages=messages)).status == 200
        assert server.violations == []
