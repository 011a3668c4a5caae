"""examples/chat_server.py as a process: many chats, a `kill -9` in an answer, no effect twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from treadle.testing import FakeCall, FakeReply, ProviderServer
from treadle.testing.provider import ProviderFault, ReceivedRequest

PROGRAM = Path(__file__).parents[2] / "examples/chat_server.py"


def answer(request: ReceivedRequest) -> FakeReply:
    """Books a table when it is asked for one; else tells what it knows of the conversation."""
    messages = request.json["messages"]
    assert isinstance(messages, list)
    said = str(messages[-1]["content"])
    if "tool_result" in said:
        return FakeReply("Your table is booked. " * 10)
    if wanted := re.search(r"A table for (\d), (\w+)", said):
        arguments: dict[str, object] = {"guest": wanted[2], "seats": int(wanted[1])}
        return FakeReply("One moment. ", calls=(FakeCall("book_table", arguments),))
    return FakeReply(f"I know {len(messages)} messages.")


@contextlib.asynccontextmanager
async def serve(provider: ProviderServer) -> AsyncIterator[tuple[Process, httpx.AsyncClient]]:
    keys = {"ANTHROPIC_BASE_URL": provider.url, "ANTHROPIC_API_KEY": "k"}
    command = [sys.executable, "-P", str(PROGRAM), "anthropic/claude-sonnet-5-5", "0"]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, stderr=PIPE, env={**os.environ, **keys}
    )
    assert process.stderr is not None
    try:
        while not (
            found := re.search(r"http://[\d.:]+", (await process.stderr.readline()).decode())
        ):
            assert process.returncode is None
        async with httpx.AsyncClient(base_url=found[0], timeout=None) as client:
            yield process, client
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def say(client: httpx.AsyncClient, chat: str, message: str) -> str:
    response = await client.post(f"/chats/{chat}", content=message)
    assert response.status_code == 200
    return response.text


def read_bookings() -> list[str]:
    return sorted(Path("bookings.txt").read_text().splitlines())


async def test_it_goes_on_after_kill_9_in_the_middle_of_an_answer():
    # The requests of ada and bob come first, two for each booking; the sixth is cut in its text.
    faults = [ProviderFault("stall_in_text", at=5)]
    async with ProviderServer(answer, faults=faults) as provider:
        async with serve(provider) as (process, client):
            await asyncio.gather(
                say(client, "ada", "A table for 2, Ada"), say(client, "bob", "A table for 3, Bob")
            )
            async with client.stream("POST", "/chats/cleo", content="A table for 4, Cleo") as cut:
                texts = cut.aiter_text()
                text = ""
                while "Your" not in text:
                    text += await anext(texts)
                busy = await client.post("/chats/cleo", content="Hello?")
                assert (busy.status_code, "cleo" in busy.text) == (409, True)
                process.send_signal(signal.SIGKILL)
                assert await process.wait() == -signal.SIGKILL
                with pytest.raises(httpx.HTTPError):
                    await anext(texts)
        async with serve(provider) as (process, client):
            assert "Your table is booked." in await say(client, "cleo", "")
            for chat in ("ada", "bob", "cleo"):
                assert await say(client, chat, "Thank you") == "I know 5 messages."
            assert await say(client, "dora", "Hello") == "I know 1 messages."
        assert provider.violations == []
    assert read_bookings() == ["Ada 2", "Bob 3", "Cleo 4"]


async def test_a_reader_who_leaves_interrupts_the_answer_and_the_chat_goes_on():
    faults = [ProviderFault("stall_in_text", at=1)]
    async with ProviderServer(answer, faults=faults) as provider, serve(provider) as (_, client):
        async with client.stream("POST", "/chats/ada", content="A table for 2, Ada") as cut:
            await provider.wait_until(lambda: len(provider.generation_requests) == 2)
            await anext(cut.aiter_text())
        await provider.wait_until(lambda: provider.open_connections == 0)
        while (response := await client.post("/chats/ada", content="Hi")).status_code == 409:
            pass  # the session is being closed
        assert response.text == "I know 5 messages."
        assert "there is nothing to answer" in (await client.post("/chats/ada")).text
        wrong = await client.post("/chats/a%20b", content="Hi")
        assert (wrong.status_code, "cannot be the id" in wrong.text) == (400, True)
    assert read_bookings() == ["Ada 2"]
