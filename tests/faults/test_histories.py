"""Histories that came from elsewhere, and what a run leaves loaded."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from treadle.core.contracts.model import ModelRequest, Reply
from treadle.core.transcript import AssistantItem, Text, ToolResultItem, Transcript, to_user_item
from treadle.models import Anthropic, OpenAIChat, OpenAIResponses
from treadle.testing.provider import FakeReply as Scripted
from treadle.testing.provider import ProviderServer


async def test_fault_29_an_answer_without_its_call_is_left_out_of_the_request():
    orphan = ToolResultItem("gone", "look", (Text("seen"),))
    history = Transcript(
        [to_user_item("go"), orphan, AssistantItem((Text("ok"),)), orphan, to_user_item("on")]
    )
    async with ProviderServer([Scripted(text="fine")] * 3) as server:
        for model in (
            Anthropic("claude-sonnet-4-5", base_url=server.url, api_key="k"),
            OpenAIChat("gpt-4.1", base_url=f"{server.url}/v1", api_key="k"),
            OpenAIResponses("gpt-4.1", base_url=f"{server.url}/v1", api_key="k"),
        ):
            events = [event async for event in model.stream(ModelRequest(history))]
            last = events[-1]
            assert isinstance(last, Reply)
            assert last.item.text == "fine"
            await model.aclose()
        assert server.violations == []
        assert all(b"gone" not in request.body for request in server.requests)


RUN = """
import asyncio, sys
from treadle import Agent, tool
from treadle.models import Anthropic, OpenAIChat, OpenAIResponses

@tool(effect="pure")
async def add(a: int, b: int) -> int:
    return a + b

async def main(url):
    for model in (
        Anthropic("claude-sonnet-4-5", base_url=url, api_key="k"),
        OpenAIChat("gpt-4.1", base_url=url + "/v1", api_key="k"),
        OpenAIResponses("gpt-4.1", base_url=url + "/v1", api_key="k"),
    ):
        result = await Agent(model, [add]).run("go")
        assert result.text == "fine", result
        await model.aclose()

asyncio.run(main(sys.argv[1]))
heavy = {"anthropic", "openai", "httpx", "httpx2", "aiohttp", "pydantic", "mcp", "textual"}
print(*sorted(heavy & set(sys.modules)))
"""


async def test_no_provider_sdk_is_loaded_by_a_run():
    async with ProviderServer([Scripted(text="fine")] * 3) as server:
        ran = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", RUN, server.url],
            capture_output=True,
            text=True,
            check=False,
        )
    assert (ran.stdout.strip(), ran.stderr) == ("", "")
    assert ran.returncode == 0
