"""The reference servers of the protocol's authors, through an agent: every feature of them."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.node_programs import PACKAGES, find_node, find_program
from tests.tools.mcp.helpers import Log, call, context, served, workspace
from treadle import Agent
from treadle.core.contracts.tool import ToolContext
from treadle.core.transcript import NoticeItem, ToolResultItem
from treadle.core.transcript.content import Image, Text
from treadle.models import Say, Scripted
from treadle.tools.builtin.conversation.ask import UserQuestion
from treadle.tools.mcp import McpServer
from treadle.tools.mcp.client_options import McpClientOptions, SamplingReply, SamplingRequest
from treadle.tools.mcp.resource_tool import ResourceUpdates

EVERYTHING = "@modelcontextprotocol/server-everything/dist/index.js"
FILESYSTEM = "@modelcontextprotocol/server-filesystem/dist/index.js"
TYPESCRIPT = str(Path(__file__).with_name("typescript_server.cjs"))
MEMORY = "@modelcontextprotocol/server-memory/dist/index.js"

pytestmark = pytest.mark.slow


class Person:
    """Answers questions, and remembers them."""

    def __init__(self) -> None:
        self.questions: list[str] = []
        self.pages: list[str] = []

    async def ask(self, question: UserQuestion) -> str:
        self.questions.append(question.question)
        labels = [choice.label for choice in question.choices]
        if "name" in question.question.lower() and not labels:
            return "Ada"
        return labels[0] if labels else ""


async def sample(request: SamplingRequest, _: ToolContext | None) -> SamplingReply:
    return SamplingReply(f"reply to: {request.messages[-1].text}", "scripted")


@asynccontextmanager
async def everything(
    folder: Path, transport: str, person: Person, *, killed: bool = False
) -> AsyncIterator[McpServer]:
    """The server, up; with `killed` its process has just been killed."""
    program = find_program(EVERYTHING)
    saved = folder / "saved"

    def save(name: str, data: bytes) -> str:
        saved.mkdir(exist_ok=True)
        (saved / name).write_bytes(data)
        return str(saved / name)

    options = McpClientOptions(
        roots=(folder,), sampler=sample, open_url=person.pages.append, save_file=save
    )
    async with workspace(folder) as place:
        config: dict[str, Any] = {"command": program[0], "args": [program[1], "stdio"]}
        web = None
        if transport == "http":
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            argv = [*program, "streamableHttp"]
            null = Path("/dev/null").open("r+b")  # noqa: ASYNC230, SIM115
            files = dict.fromkeys((0, 1, 2), null.fileno())
            web = await place.spawn(argv, files, env={"PORT": str(port)})
            null.close()
            config = {"url": f"http://127.0.0.1:{port}/mcp"}
        log = Log()
        server = McpServer(
            "every",
            config,
            start=place.spawn,
            options=options,
            on_change=log,
            delays=(0.3,) * 50,
            required=False,
        )
        await server.open()
        try:
            await log.until("up")
            while not any("roots" in tool.spec.name for tool in server.tools()):
                await log.until("up", after=len(log.seen))  # it adds tools when it knows us
            if killed and web is not None:
                await web.kill_and_wait()
            yield server
        finally:
            await server.aclose()
            if web is not None:
                await web.kill_and_wait()


async def run_calls(server: McpServer, person: Person, calls: list[tuple[str, Any]]) -> list[Any]:
    """The results of calls that a model makes in one turn each."""
    script = [Say(calls=[(f"mcp__every__{name}", given)]) for name, given in calls]
    agent = Agent(
        Scripted([*script, "done"]),
        [server],
        services={"ask": person.ask},
        mutators=[ResourceUpdates([server])],
    )
    result = await agent.run("go")
    return [item for item in result.transcript if isinstance(item, ToolResultItem | NoticeItem)]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_every_feature_of_the_everything_server_works(own_place: Path, transport: str):
    person = Person()
    async with everything(own_place, transport, person) as server:
        calls: list[tuple[str, Any]] = [
            ("echo", {"message": "hi"}),
            ("get-sum", {"a": 2, "b": 3}),
            ("get-tiny-image", {}),
            ("get-annotated-message", {"messageType": "success", "includeImage": True}),
            ("get-resource-links", {"count": 2}),
            ("get-resource-reference", {"resourceType": "Text", "resourceId": 1}),
            ("get-structured-content", {"location": "Chicago"}),
            ("get-roots-list", {}),
            ("trigger-long-running-operation", {"duration": 0.2, "steps": 2}),
            ("trigger-sampling-request", {"prompt": "why", "maxTokens": 20}),
            ("trigger-elicitation-request", {}),
            ("trigger-url-elicitation", {"url": "https://example.org/a"}),
            ("trigger-url-elicitation", {"url": "https://example.org/b", "errorPath": True}),
            ("simulate-research-query", {"topic": "looms", "ambiguous": False}),
            ("toggle-simulated-logging", {}),
            ("gzip-file-as-resource", {"name": "a.gz", "data": "data:text/plain,hello",
                                       "outputType": "resource"}),
            ("read_resource", {}),
            ("read_resource", {"uri": "demo://resource/dynamic/text/1"}),
            ("get-env", {}),
            ("toggle-subscriber-updates", {}),  # of the resource that was read
        ]  # fmt: skip
        items = await run_calls(server, person, calls)
        results = [item for item in items if isinstance(item, ToolResultItem)]
        assert [item.text for item in results if getattr(item, "is_error", False)] == []
        texts = [item.text for item in results]
        assert len(results) == len(calls)
        assert "hi" in texts[0]
        assert "5" in texts[1]
        assert any(isinstance(part, Image) for part in results[2].content)
        assert any(isinstance(part, Image) for part in results[3].content)
        assert "demo://resource/dynamic/" in texts[4]
        assert "demo://resource/dynamic/text/1" in texts[5]
        assert results[6].data == {"structured_content": json.loads(texts[6])}
        assert own_place.as_uri() in texts[7]
        assert "completed" in texts[8]
        assert "reply to: " in texts[9]
        assert "Ada" in texts[10]
        assert person.pages[0] == "https://example.org/a"
        assert person.pages[-1] == "https://example.org/b"
        assert "looms" in texts[13]
        assert (own_place / "saved" / "a.gz").read_bytes()[:2] == b"\x1f\x8b"
        assert "demo://resource/static/document/" in texts[16]
        assert "dynamic/text/1" in texts[17]
        offered = {tool.spec.name.removeprefix("mcp__every__") for tool in server.tools()}
        used = {name for name, _ in calls}
        assert offered == used
        assert server.logs
        notices = [item.text for item in items if isinstance(item, NoticeItem)]
        while not notices:  # the report comes on a stream of its own, and is told before a request
            await asyncio.sleep(0.05)
            more = await run_calls(server, person, [("echo", {"message": "hi"})])
            notices = [item.text for item in more if isinstance(item, NoticeItem)]
        assert "have changed since they were read" in notices[0]
        assert "- every: demo://resource/dynamic/text/1" in notices[0]

        assert {prompt.name for prompt in server.catalog.prompts} == {
            "simple-prompt", "args-prompt", "completable-prompt", "resource-prompt"
        }  # fmt: skip
        [message] = await server.get_prompt("args-prompt", {"city": "Bern", "state": "BE"})
        assert isinstance(message.content, Text)
        assert "Bern" in message.content.text
        proposed = await server.complete_argument("completable-prompt", "department", "Eng")
        assert proposed == ["Engineering"]
        resource = await server.get_prompt(
            "resource-prompt", {"resourceType": "Text", "resourceId": "1"}
        )
        assert len(resource) == 2


async def test_a_server_of_the_older_protocol_that_dies_is_known_as_down_at_once(own_place: Path):
    """By its stream: no call is made."""
    async with everything(own_place, "http", Person(), killed=True) as server:
        while server.status.state == "up":
            await server._changed.wait()
        assert server.status.state in ("down", "starting")


async def test_a_call_that_runs_long_becomes_a_background_task(own_place: Path):
    person = Person()
    async with everything(own_place, "stdio", person) as server:
        research = next(t for t in server.tools() if "research" in t.spec.name)
        assert research.spec.detachable
        assert research.spec.detach_after == 60.0
        reports: list[str] = []
        output = await research.call({"topic": "x"}, context(reports.append))
        assert reports
        assert "x" in str(output.content)


async def test_what_a_server_on_the_typescript_sdk_does_wrong_is_read(own_place: Path):
    find_program("@modelcontextprotocol/sdk/package.json")
    config = {"command": find_node(), "args": [TYPESCRIPT, str(PACKAGES)]}
    async with served(own_place, config=config, name="ts") as server:
        assert await server.wait_ready(), server.status.summary
        assert len(server.tools()) == 12
        assert any("the tool bad is left out" in message.text for message in server.logs)
        assert (await call(server, "half")).content == "a \ufffd b"
        assert (await call(server, "flood")).content == "flood"
        assert (await call(server, "tool9")).content == "tool9"
        assert server.status.state == "up"
        assert len(server.logs) <= 500


async def test_two_reference_servers_in_one_session(own_place: Path):
    note = "threads\n" * 6_000
    (own_place / "note.txt").write_text(note)
    files, memory = find_program(FILESYSTEM), find_program(MEMORY)
    async with workspace(own_place) as place:
        servers = [
            McpServer("files", {"command": files[0], "args": [files[1], str(own_place)]},
                      start=place.spawn, root=own_place),
            McpServer("memory", {"command": memory[0], "args": [memory[1]],
                                 "env": {"MEMORY_FILE_PATH": str(own_place / "memory.json")}},
                      start=place.spawn, root=own_place),
        ]  # fmt: skip
        await asyncio.gather(*(server.open() for server in servers))
        assert await asyncio.gather(*(server.wait_ready() for server in servers)) == [True, True]
        entity = {"name": "loom", "entityType": "tool", "observations": ["weaves"]}
        model = Scripted([
            Say(calls=[("mcp__files__read_text_file", {"path": str(own_place / "note.txt")}),
                       ("mcp__memory__create_entities", {"entities": [entity]})]),
            Say(calls=[("mcp__memory__search_nodes", {"query": "loom"})]),
            "done",
        ])  # fmt: skip
        agent = Agent(model, list(servers))
        result = await agent.run("go")
        await agent.aclose()
    texts = [item.text for item in result.transcript if isinstance(item, ToolResultItem)]
    assert texts[0] == note  # once, though the server says it as text and as structured content
    assert "weaves" in texts[2]
