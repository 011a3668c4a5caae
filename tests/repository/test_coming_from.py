"""The programs of docs/coming-from.md are run: three with each library, and one of ours."""

from __future__ import annotations

import os
import re
import signal
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.preloaded import start_preloaded
from treadle.testing import FakeCall, FakeReply, ProviderServer
from treadle.testing.provider import ReceivedRequest

PAGE = Path(__file__).parents[2] / "docs/coming-from.md"
PROGRAM = re.compile(r"<!-- program: (\w+) with ([\w-]+) -->\n```python\n(.*?)```", re.DOTALL)
PROGRAMS = {(title, library): code for title, library, code in PROGRAM.findall(PAGE.read_text())}
LIBRARIES = ["treadle", "pydantic-ai", "openai-agents"]
IMPORTS = {
    "treadle": "import treadle",
    "pydantic-ai": "import pydantic_ai.models.openai",
    "openai-agents": "import agents",
}
# The others take some seconds to import: one worker does it.
EACH_LIBRARY = pytest.mark.parametrize(
    "library",
    [
        "treadle",
        *(
            pytest.param(n, marks=[pytest.mark.slow, pytest.mark.xdist_group(n)])
            for n in LIBRARIES[1:]
        ),
    ],
)


async def run(server: ProviderServer, title: str, library: str, *arguments: str) -> str:
    status, out, err = await start(server, library, PROGRAMS[title, library], *arguments)
    assert status == 0, err
    return out


async def start(
    server: ProviderServer, library: str, code: str, *arguments: str, typed: str = ""
) -> tuple[int | None, str, str]:
    settings = {
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "OPENAI_API_KEY": "k",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",  # it would send traces to OpenAI
    }
    env = {**os.environ, **settings}
    process = await start_preloaded(IMPORTS[library], code, *arguments, env=env, stdin=PIPE)
    out, err = await process.communicate(typed.encode())
    return process.returncode, out.decode(), err.decode()


def test_every_library_has_every_program():
    titles = ("tool", "output", "conversation")
    shared = [(title, library) for title in titles for library in LIBRARIES]
    assert list(PROGRAMS) == [*shared, ("approval", "treadle")]


@EACH_LIBRARY
async def test_an_agent_calls_a_tool(library: str):
    replies = [FakeReply(calls=(FakeCall("weather", {"city": "Graz"}),)), FakeReply("Sunny.")]
    async with ProviderServer(replies) as server:
        assert await run(server, "tool", library) == "Sunny.\n"
        assert "Graz: sunny, 24 degrees" in server.requests[-1].body.decode()
        assert server.violations == []


@EACH_LIBRARY
async def test_an_answer_has_a_type_and_a_tool_gets_what_it_depends_on(library: str):
    def answer(request: ReceivedRequest) -> FakeReply:
        body = request.body.decode()
        if "2 seats booked" not in body:
            return FakeReply(calls=(FakeCall("book", {"seats": 2}),))
        if "final_result" in body:  # the tool with which pydantic-ai gets its output
            return FakeReply(calls=(FakeCall("final_result", {"seats": 2, "euros": 24}),))
        return FakeReply('{"seats": 2, "euros": 24}')

    async with ProviderServer(answer) as server:
        assert await run(server, "output", library) == "2 24 [2]\n"
        assert server.violations == []


@EACH_LIBRARY
async def test_a_conversation_goes_on_in_another_process(library: str):
    async with ProviderServer([FakeReply("Hello, Ada."), FakeReply("You are Ada.")]) as server:
        assert await run(server, "conversation", library, "I am Ada.") == "Hello, Ada.\n"
        assert await run(server, "conversation", library, "Who am I?") == "You are Ada.\n"
        last = server.requests[-1].body.decode()
        assert all(text in last for text in ("I am Ada.", "Hello, Ada.", "Who am I?"))
        assert server.violations == []


@pytest.mark.parametrize(("typed", "result"), [("yes", "Post is booked"), ("no", "too expensive")])
async def test_a_streamed_run_asks_for_an_approval(typed: str, result: str):
    replies = [FakeReply(calls=(FakeCall("book", {"hotel": "Post"}),)), FakeReply("That is all.")]
    async with ProviderServer(replies) as server:
        program = PROGRAMS["approval", "treadle"]
        status, out, err = await start(server, "treadle", program, typed=f"{typed}\n")
        assert (status, out) == (0, "[book: Post]? That is all."), err
        assert result in server.requests[-1].body.decode()
        assert server.violations == []


PAY = """
import os, signal, sys

def pay(euros: int) -> str:
    "Pay an amount."
    with open("bank.txt", "a") as bank:
        bank.write("paid")
    if sys.argv[1] == "Pay five":
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"

"""
# The line of each conversation program that makes the agent, with the tool.
WITH_PAY = {
    "treadle": ("store=", "tools=[__import__('treadle').tool(pay)], store="),
    "pydantic-ai": ('Agent("openai:gpt-6.1-sol")', 'Agent("openai:gpt-6.1-sol", tools=[pay])'),
    "openai-agents": (
        'model="gpt-6.1-sol")',
        'model="gpt-6.1-sol", tools=[__import__("agents").function_tool(pay)])',
    ),
}


@EACH_LIBRARY
async def test_what_a_kill_in_a_tool_leaves_is_as_the_page_says(library: str):
    before, after = WITH_PAY[library]
    program = PROGRAMS["conversation", library]
    assert program.count(before) == 1
    code = PAY + program.replace(before, after)

    def answer(request: ReceivedRequest) -> FakeReply:
        if "function_call_output" in request.body.decode():
            return FakeReply("Done.")
        return FakeReply(calls=(FakeCall("pay", {"euros": 5}),))

    async with ProviderServer(answer) as server:
        status, _, _ = await start(server, library, code, "Pay five")
        assert status == -signal.SIGKILL
        status, out, err = await start(server, library, code, "Go on")
        assert (status, out) == (0, "Done.\n"), err
        first_after = server.requests[1].body.decode()
    assert ("Pay five" in first_after) == (library != "pydantic-ai")
    assert ("outcome unknown" in first_after) == (library == "treadle")
    payments = read_payments()
    assert payments == (1 if library == "treadle" else 2)
    name = {"treadle": "Treadle"}.get(library, library)
    assert re.search(rf"^\| {name} \|.*\| {payments} \|$", PAGE.read_text(), re.MULTILINE)


def read_payments() -> int:
    return Path("bank.txt").read_text().count("paid")
