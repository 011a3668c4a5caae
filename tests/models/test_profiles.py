"""A model is asked for what its maker's own agent asks for: recorded requests of these agents."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from treadle.core.contracts.model import ModelNotified, ModelOptions, ModelRequest, Reply
from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import BadRequest
from treadle.core.transcript import NoticeItem, Transcript, to_user_item
from treadle.models import Anthropic, Gemini, OpenAIResponses
from treadle.models.profiles import PROFILES
from treadle.models.provider_base.codec import Codec
from treadle.models.provider_base.effort import find_accepted_effort
from treadle.models.provider_base.http_model import HTTPModel
from treadle.testing.provider import FakeReply, ProviderServer
from treadle.testing.provider.dialects.request_checks import RequestViolation

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "peer_requests.json").read_text())
CLAUDE = [row for row in RECORDED if row["agent"].startswith("Claude Code")]
GEMINI = [row for row in RECORDED if row["agent"].startswith("Gemini CLI")]
CODEX = [row for row in RECORDED if row["agent"].startswith("Codex")]
TOOL = ToolSpec("add", "Add.", {"type": "object", "properties": {}})
PATCH = ToolSpec("apply_patch", "Patch.", TOOL.schema, text_argument="patch", grammar="start: /x/")


def sent(codec: Codec, *notices: NoticeItem) -> dict[str, Any]:
    transcript = Transcript([to_user_item("say hi"), *notices])
    request = ModelRequest(transcript, tools=(TOOL, PATCH), options=ModelOptions(thinking="auto"))
    body: dict[str, Any] = json.loads(b"".join(codec.encode_request(request).body))
    return body


@pytest.mark.parametrize("peer", CLAUDE, ids=[row["model"] for row in CLAUDE])
def test_claude_is_asked_as_claude_code_asks(peer: dict[str, Any]):
    body = sent(Anthropic(peer["model"], api_key="k").codec, NoticeItem("Plan.", "mode"))
    assert [message["role"] for message in body["messages"]] == peer["roles"]
    ours, theirs = body["thinking"], peer["thinking"]
    assert body["context_management"] == peer["context_management"]
    if "budget_tokens" in theirs:  # the answer gets room of its own besides the budget
        assert ours["budget_tokens"] == theirs["budget_tokens"]
        assert body["max_tokens"] >= peer["max_tokens"]
        return
    assert ours["type"] == theirs["type"]
    assert body["output_config"]["effort"] == peer["effort"]
    assert body["max_tokens"] == peer["max_tokens"]


@pytest.mark.parametrize("peer", CODEX, ids=[row["model"] for row in CODEX])
def test_gpt_is_asked_as_codex_asks(peer: dict[str, Any]):
    body = sent(OpenAIResponses(peer["model"], api_key="k").codec, NoticeItem("Plan.", "mode"))
    ours = body["reasoning"]
    assert ours["effort"] == peer["reasoning"]["effort"]
    assert ours.get("context") == peer["reasoning"].get("context")
    assert body["text"]["verbosity"] == peer["verbosity"]
    for name in ("include", "store", "max_output_tokens"):
        assert body.get(name) == peer.get(name, body.get(name))
    custom = [tool["name"] for tool in body["tools"] if tool["type"] == "custom"]
    assert custom == peer.get("custom_tools", custom)
    assert body["input"][-1]["role"] == "developer"
    assert "developer" in peer.get("roles", ["developer"])


@pytest.mark.parametrize("peer", GEMINI, ids=[row["model"] for row in GEMINI])
def test_gemini_is_asked_as_gemini_cli_asks(peer: dict[str, Any]):
    ours = sent(Gemini(peer["model"], api_key="k").codec)["generationConfig"]
    level = ours["thinkingConfig"].get("thinkingLevel")
    if level is not None:
        ours["thinkingConfig"]["thinkingLevel"] = level.upper()
    assert ours == peer["generationConfig"]


def test_a_temperature_of_the_caller_replaces_all_of_gemini_cli():
    request = ModelRequest(
        Transcript([to_user_item("x")]), options=ModelOptions(thinking="auto", temperature=0.2)
    )
    codec = Gemini("gemini-3.8-flash", api_key="k").codec
    config = json.loads(b"".join(codec.encode_request(request).body))["generationConfig"]
    assert {key: config.get(key) for key in ("temperature", "topP", "topK")} == {
        "temperature": 0.2,
        "topP": None,
        "topK": None,
    }


@pytest.mark.parametrize(
    "model",
    [
        Gemini("gemini-2.0-flash", api_key="k"),
        Gemini("gemini-1.5-pro", api_key="k"),
        Anthropic("claude-3-5-haiku-20241022", api_key="k"),
        OpenAIResponses("gpt-4o", api_key="k"),
    ],
    ids=lambda model: model.card.name,
)
def test_a_model_that_does_not_think_is_not_asked_to(model: HTTPModel):
    body = sent(model.codec)
    asked = {"thinking", "reasoning", "thinkingConfig"} & {*body, *body.get("generationConfig", {})}
    assert not asked


def test_each_row_of_the_table_has_its_source_and_date():
    assert not [start for start, profile in PROFILES if "2026-" not in profile.source]


class Picky(ProviderServer):
    """Refuses efforts above medium, in the words of each provider."""

    def _check_request(self, request: Any, *others: Any) -> list[RequestViolation]:
        fields = json.loads(request.body)
        if (effort := fields.get("output_config", {}).get("effort")) in ("high", "xhigh", "max"):
            text = f"output_config.effort: This model does not support effort level {effort}."
            return [RequestViolation("", text)]
        if (effort := fields.get("reasoning", {}).get("effort")) in ("none", "high", "xhigh"):
            text = (
                f"Unsupported value: '{effort}' is not supported with this model. Supported values "
                "are: 'minimal', 'low', and 'medium'."
            )
            return [RequestViolation("reasoning.effort", text)]
        config = fields.get("generationConfig", {}).get("thinkingConfig", {})
        if (level := config.get("thinkingLevel")) == "minimal":
            text = (
                f"Thinking level {level.upper()} is not supported for this model. Please retry "
                "with other thinking level."
            )
            return [RequestViolation("", text)]
        if level == "high":
            text = (
                f"{level!r} is not a supported thinking level for this model. Allowed values are: "
                "medium, low."
            )
            return [RequestViolation("", text)]
        return []


def read_effort(body: dict[str, Any]) -> str:
    """The effort in a request of any format."""
    if config := body.get("generationConfig"):
        return str(config["thinkingConfig"].get("thinkingLevel", ""))
    fields: dict[str, Any] = body.get("output_config") or body["reasoning"]
    return str(fields["effort"])


@pytest.mark.parametrize(
    ("name", "wish", "efforts"),
    [
        ("claude-opus-5", "max", ["max", "xhigh", "high", "medium", "medium"]),
        ("gpt-5.5", "xhigh", ["xhigh", "medium", "medium"]),
        ("gpt-5.5", "none", ["none", "minimal", "minimal"]),
        ("gpt-5.5", "auto", ["medium", "medium"]),
        ("gpt-5.5", 30_000, ["high", "medium", "medium"]),
        ("claude-opus-5", 30_000, ["high", "medium", "medium"]),
        ("gemini-3.8-flash", "minimal", ["minimal", "low", "low"]),
        ("gemini-3.8-flash", "high", ["high", "medium", "medium"]),
        ("gemini-3.8-flash", 30_000, ["high", "medium", "medium"]),
    ],
)
async def test_an_effort_that_is_refused_is_lowered_and_told_once(
    name: str, wish: str | int, efforts: list[str]
):
    model: HTTPModel
    request = ModelRequest(Transcript([to_user_item("x")]), options=ModelOptions(thinking=wish))
    async with Picky([FakeReply("a"), FakeReply("b")]) as server:
        if name.startswith("claude"):
            model = Anthropic(name, api_key="k", base_url=server.url)
        elif name.startswith("gemini"):
            model = Gemini(name, api_key="k", base_url=server.url)
        else:
            model = OpenAIResponses(name, api_key="k", base_url=f"{server.url}/v1", quirks="openai")
        told = []
        for _ in range(2):
            events = [event async for event in model.stream(request)]
            assert isinstance(events[-1], Reply)
            told += [event.text for event in events if isinstance(event, ModelNotified)]
        await model.aclose()
    assert [read_effort(json.loads(one.body)) for one in server.requests] == efforts
    steps = list(dict.fromkeys(efforts))
    assert told == [
        f"the model refuses the effort {high!r}: {low!r} is used instead"
        for high, low in pairwise(steps)
    ]


async def test_an_effort_that_is_accepted_after_all_is_used_again():
    class Changing(ProviderServer):
        def _check_request(self, request: Any, *others: Any) -> list[RequestViolation]:
            takes = "minimal" if len(self.requests) < 3 else "low"
            effort = json.loads(request.body)["reasoning"]["effort"]
            text = f"Unsupported value: '{effort}'. Supported values are: '{takes}'."
            return [] if effort == takes else [RequestViolation("reasoning.effort", text)]

    request = ModelRequest(Transcript([to_user_item("x")]), options=ModelOptions(thinking="low"))
    async with Changing([FakeReply("a"), FakeReply("b"), FakeReply("c")]) as server:
        model = OpenAIResponses("gpt-5.5", api_key="k", base_url=f"{server.url}/v1")
        for _ in range(3):
            assert isinstance([event async for event in model.stream(request)][-1], Reply)
        await model.aclose()
    efforts = [read_effort(json.loads(one.body)) for one in server.requests]
    assert efforts == ["low", "minimal", "minimal", "low", "low"]


@pytest.mark.parametrize(("wish", "next_effort"), [("xhigh", "high"), ("max", "medium")])
def test_the_efforts_that_anthropic_lists_are_known(wish: str, next_effort: str):
    others = {"xhigh": "high, low, max, medium", "max": "low, medium"}[wish]
    text = f"This model does not support effort level {wish!r}. Supported levels: {others}."
    assert find_accepted_effort(wish, BadRequest("refused", provider_message=text)) == next_effort


@pytest.mark.parametrize(
    ("wish", "text", "next_effort"),
    [
        ("minimal", "Thinking level MINIMAL is not supported for this model. Please", "low"),
        ("low", "Thinking level LOW is not supported for this model.", None),
        ("max", "Thinking level HIGH is not supported for this model.", "medium"),
        ("minimal", "Allowed values are: MEDIUM, LOW, HIGH. The thinking level is wrong.", "low"),
        ("max", "'high' is not a supported thinking level. Allowed values are: low.", "low"),
        ("high", "Thinking level is not supported for this model.", ""),
        ("high", "Thinking budget is not supported for this model.", None),
    ],
)
def test_refusals_in_googles_words_are_known(wish: str, text: str, next_effort: str | None):
    assert find_accepted_effort(wish, BadRequest("refused", provider_message=text)) == next_effort


async def test_a_model_that_takes_no_thinking_level_is_asked_without_one():
    class WithoutLevels(ProviderServer):
        def _check_request(self, request: Any, *others: Any) -> list[RequestViolation]:
            is_refused = b"thinkingLevel" in request.body
            text = "Thinking level is not supported for this model."
            return [RequestViolation("", text)] if is_refused else []

    request = ModelRequest(Transcript([to_user_item("x")]), options=ModelOptions(thinking="auto"))
    async with WithoutLevels([FakeReply("a"), FakeReply("b")]) as server:
        model = Gemini("gemini-flash-latest", api_key="k", base_url=server.url)
        told, *events = [event async for event in model.stream(request)]
        assert told == ModelNotified("the model refuses the effort 'high': it is asked for none")
        assert isinstance(events[-1], Reply)
        assert isinstance([event async for event in model.stream(request)][-1], Reply)
        await model.aclose()
    assert [read_effort(json.loads(one.body)) for one in server.requests] == ["high", "", ""]


async def test_a_refusal_that_no_effort_mends_is_raised():
    class Stubborn(ProviderServer):
        def _check_request(self, request: Any, *others: Any) -> list[RequestViolation]:
            return [RequestViolation("reasoning.effort", "Unknown parameter: reasoning.effort")]

    request = ModelRequest(Transcript([to_user_item("x")]), options=ModelOptions(thinking="medium"))
    async with Stubborn([]) as server:
        model = OpenAIResponses("gpt-5.5", api_key="k", base_url=f"{server.url}/v1")
        with pytest.raises(BadRequest, match="Unknown parameter"):
            async for _ in model.stream(request):
                pass
        await model.aclose()
    assert len(server.requests) == 2  # with medium, and with low
