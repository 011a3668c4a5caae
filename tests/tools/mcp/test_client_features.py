"""What a server may ask of its client: questions, replies, logs, resources, prompts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.tools.mcp.helpers import call, served
from treadle import Agent
from treadle.core.contracts.tool import ToolContext
from treadle.core.errors import ToolError
from treadle.core.transcript import NoticeItem
from treadle.core.transcript.content import Text
from treadle.models import Say, Scripted
from treadle.tools.builtin.conversation.ask import UserQuestion
from treadle.tools.mcp import McpServer
from treadle.tools.mcp.client_options import McpClientOptions, SamplingReply, SamplingRequest
from treadle.tools.mcp.resource_tool import ResourceUpdates

FORM = {
    "message": "Who are you?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Your name"},
            "age": {"type": "integer", "minimum": 1, "maximum": 150},
            "color": {"type": "string", "enum": ["r", "g"], "enumNames": ["red", "green"]},
            "news": {"type": "boolean", "default": True},
            "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}},
            "mail": {"type": "string", "format": "email"},
        },
        "required": ["name"],
    },
}


class Person:
    """Gives these answers, one after the other."""

    def __init__(self, *answers: str | None) -> None:
        self._answers = list(answers)
        self.questions: list[UserQuestion] = []

    async def ask(self, question: UserQuestion) -> str | None:
        self.questions.append(question)
        return self._answers.pop(0)


async def ask_form(server: McpServer, person: Person | None, **form: Any) -> dict[str, Any]:
    tool = next(tool for tool in server.tools() if tool.spec.name.endswith("__form"))
    services = {"ask": person.ask} if person is not None else {}
    there = ToolContext("s", "t", "c", "k", print, lambda: None, lambda _: None, services=services)
    answer: dict[str, Any] = json.loads(str((await tool.call(form, there)).content))
    return answer


async def test_a_form_is_asked_field_by_field_and_a_wrong_answer_again(own_place: Path):
    person = Person("Answer", "Ada", "many", "200", "36", "green", "", "a, c", "")
    async with served(own_place) as server:
        await server.wait_ready()
        answer = await ask_form(server, person, **FORM)
    assert answer["action"] == "accept"
    assert answer["content"] == {
        "name": "Ada", "age": 36, "color": "g", "news": True, "tags": ["a", "c"]
    }  # fmt: skip
    first = person.questions[0]
    assert first.question.startswith("The MCP server raw asks: Who are you?")
    assert "Your name" in first.question
    assert [choice.label for choice in first.choices] == ["Answer", "Refuse"]
    assert "A whole number is needed." in person.questions[3].question
    assert "from 1 to 150" in person.questions[4].question


async def test_the_user_may_refuse_a_form_or_close_it(own_place: Path):
    async with served(own_place) as server:
        await server.wait_ready()
        assert (await ask_form(server, Person("Refuse"), **FORM))["action"] == "decline"
        assert (await ask_form(server, Person(None), **FORM))["action"] == "cancel"
        assert (await ask_form(server, Person("Answer", None), **FORM))["action"] == "cancel"
        assert (await ask_form(server, None, **FORM))["action"] == "cancel"
        assert (await ask_form(server, Person("Answer", "", "", ""), **FORM))["action"] == "cancel"


async def test_a_page_is_opened_only_after_the_user_has_seen_its_address(own_place: Path):
    opened: list[str] = []
    options = McpClientOptions(open_url=opened.append)
    link = {"mode": "url", "message": "Pay", "elicitationId": "1"}
    async with served(own_place, options=options) as server:
        await server.wait_ready()
        person = Person("Refuse", "Open the page")
        assert (await ask_form(server, person, url="https://a.test/?x", **link))["action"] == (
            "decline"
        )
        assert opened == []
        await ask_form(server, person, url="https://a.test/?x", **link)
        assert opened == ["https://a.test/?x"]
        assert "https://a.test/?x" in person.questions[0].question
        bad = await ask_form(server, person, url="file:///etc/passwd", **link)
        assert bad["action"] == "decline"
        asked = len(person.questions)
        hidden = await ask_form(server, person, url=f"https://a.test/{'x' * 3000}?to", **link)
        assert hidden["action"] == "decline"  # nobody would see the end of it
        assert len(person.questions) == asked


async def test_a_form_that_makes_no_sense_is_an_error_for_the_server(own_place: Path):
    async with served(own_place) as server:
        await server.wait_ready()
        form = {"message": "?", "requestedSchema": {
            "type": "object",
            "properties": {"a": {"type": "string", "oneOf": [{"title": "x"}]}}}}  # fmt: skip
        answer = await ask_form(server, Person("Answer", "x"), **form)
        assert "code" in answer


async def test_the_time_limit_of_a_call_rests_while_the_user_thinks(own_place: Path):
    async with served(own_place) as server:
        await server.wait_ready()
        thinking = asyncio.Event()

        class SlowPerson(Person):
            async def ask(self, question: UserQuestion) -> str | None:
                [running] = server._current_connection.callbacks.calls  # type: ignore[union-attr]
                assert running.deadline.when() is None
                thinking.set()
                return "Refuse"

        await ask_form(server, SlowPerson(), **FORM)
        assert thinking.is_set()


async def test_a_server_gets_a_reply_of_the_model(own_place: Path):
    seen: list[tuple[SamplingRequest, ToolContext | None]] = []

    async def sample(request: SamplingRequest, there: ToolContext | None) -> SamplingReply:
        seen.append((request, there))
        if len(seen) > 1:
            raise ToolError("not today")
        return SamplingReply("a rhyme", "m1")

    async with served(own_place, options=McpClientOptions(sampler=sample)) as server:
        await server.wait_ready()
        answer = json.loads(str((await call(server, "sample", text="sky")).content))
        assert answer["content"]["text"] == "a rhyme"
        assert answer["model"] == "m1"
        request, there = seen[0]
        assert (request.server, request.system_prompt, request.max_tokens) == ("raw", "Rhyme.", 50)
        assert request.messages[0].text == "sky"
        assert there is not None
        refused = json.loads(str((await call(server, "sample", text="sky")).content))
        assert refused["message"] == "not today"


async def test_a_server_learns_only_of_what_it_gets(own_place: Path):
    options = McpClientOptions(can_ask=False)
    async with served(own_place, options=options) as server:
        await server.wait_ready()
        answer = json.loads(str((await call(server, "sample", text="sky")).content))
        assert "not supported" in answer["message"].lower()


async def test_log_messages_are_kept_for_who_asks(own_place: Path):
    async with served(own_place) as server:
        await server.wait_ready()
        await call(server, "noise")
        assert [(log.level, log.logger, log.text) for log in server.logs] == [
            ("debug", "db", "a debug"), ("info", "db", "a info"), ("error", "db", "a error")
        ]  # fmt: skip
        with pytest.raises(ToolError):
            await call(server, "crash")
        assert len(server.logs) == 3


async def test_the_model_reads_resources_and_is_told_when_they_change(own_place: Path):
    async with served(own_place) as server:
        await server.wait_ready()
        model = Scripted([
            Say(calls=[("mcp__raw__read_resource", {})]),
            Say(calls=[("mcp__raw__read_resource", {"uri": "memo://1"})]),
            Say(calls=[("mcp__raw__touch", {})]),
            Say(calls=[("mcp__raw__read_resource", {"uri": "memo://9"})]),
            "done",
        ])  # fmt: skip
        agent = Agent(model, [server], mutators=[ResourceUpdates([server])])
        result = await agent.run("x")
    texts = [item.text for item in result.transcript if item.__class__.__name__ != "UserItem"]
    notes = [item.text for item in result.transcript if isinstance(item, NoticeItem)]
    joined = "\n".join(texts)
    assert "- memo://1: memo" in joined
    assert "- memo://{n} (a pattern): any memo" in joined
    assert "remember" in joined
    assert "has no resource memo://9" in joined
    assert notes == ["These resources have changed since they were read:\n- raw: memo://1"]


async def test_prompts_have_arguments(own_place: Path):
    async with served(own_place) as server:
        await server.wait_ready()
        [prompt] = server.catalog.prompts
        assert (prompt.name, prompt.arguments[0].name, prompt.arguments[0].is_required) == (
            "poem", "topic", True
        )  # fmt: skip
        [message] = await server.get_prompt("poem", {"topic": "looms"})
        assert message.content == Text("A poem about looms.")


async def test_sound_is_kept_as_a_file(own_place: Path):
    def save(name: str, data: bytes) -> str:
        (own_place / name).write_bytes(data)
        return str(own_place / name)

    async with served(own_place, options=McpClientOptions(save_file=save)) as server:
        await server.wait_ready()
        content = (await call(server, "mixed")).content
    assert isinstance(content, tuple)
    file = own_place / "audio.wav"
    assert content[1] == Text(f"[audio: 3 bytes of audio/wav, saved as {file}]")
    assert file.read_bytes() == b"\0\0\0"


def test_a_call_that_is_not_read_only_may_continue_in_the_background():
    from treadle.tools.mcp.tool import make_tool_spec

    def make(read_only: bool, as_task: bool) -> bool:
        return make_tool_spec(
            "t", "", {}, is_read_only=read_only, runs_as_task=as_task, background_after=60
        ).detachable

    assert [make(True, False), make(True, True), make(False, False)] == [False, True, True]
