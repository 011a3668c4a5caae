from __future__ import annotations

from pathlib import Path

import pytest

import treadle
from tests.tools.mcp.helpers import raw, served
from treadle.apps.conversation.commands.mcp_prompts import (
    expand_prompt,
    list_prompt_commands,
    list_resource_mentions,
    parse_prompt_arguments,
)
from treadle.core.errors import ConfigError
from treadle.models import Scripted
from treadle.tools.mcp.catalog import McpPrompt, McpPromptArgument


async def test_a_mentioned_resource_is_shown_to_the_model(own_place: Path):
    model = Scripted(["done"])
    settings = {"server_wait": 30}
    agent = treadle.coding_agent(own_place, model=model, mcp={"raw": raw()}, settings=settings)
    async with agent:
        await agent.run("what says @raw:memo://1, and @raw:memo://9? Not a@raw:memo://1.")
    texts = "\n".join(getattr(item, "text", "") for item in model.requests[0].transcript)
    assert '<resource server="raw" uri="memo://1">' in texts
    assert "remember" in texts
    assert "[@raw:memo://9 is not attached: the server raw has no resource memo://9" in texts
    assert texts.count("<resource ") == 1


async def test_prompts_are_commands_and_resources_are_completed(own_place: Path):
    async with served(own_place) as server:
        early = await expand_prompt([server], "raw:poem", "rain", 600)  # it is still starting
        assert early is not None
        assert early.text == "A poem about rain."
        assert list_prompt_commands([server]) == [("raw:poem", "topic Writes a poem.", "topic")]
        assert list_resource_mentions([server]) == ["raw:memo://1"]
        message = await expand_prompt([server], "raw:poem", "looms", 600)
        assert message is not None
        assert message.text == "A poem about looms."
        assert await expand_prompt([server], "other:poem", "", 600) is None
        with pytest.raises(ConfigError, match=r"raw has no such prompt \(it has /raw:poem\)"):
            await expand_prompt([server], "raw:other", "", 600)
        with pytest.raises(ConfigError, match=r"poem needs topic: topic=\.\.\."):
            await expand_prompt([server], "raw:poem", "", 600)


async def test_a_prompt_of_a_server_that_is_not_up_says_why(own_place: Path):
    async with served(own_place) as server:
        with pytest.raises(ConfigError, match=r"/raw:poem: MCP server raw is still starting"):
            await expand_prompt([server], "raw:poem", "", 0)


def test_arguments_are_given_by_position_or_name():
    prompt = McpPrompt(
        "p", arguments=(McpPromptArgument("a", is_required=True), McpPromptArgument("b"))
    )
    assert parse_prompt_arguments(prompt, "x") == {"a": "x"}
    with pytest.raises(ConfigError, match=r"p needs a: a=\.\.\. \[b=\.\.\.\]"):
        parse_prompt_arguments(prompt, "")
    assert parse_prompt_arguments(prompt, "b=2 x") == {"a": "x", "b": "2"}
    assert parse_prompt_arguments(prompt, "'x y' z and more") == {"a": "x y", "b": "z and more"}
    assert parse_prompt_arguments(prompt, "it's") == {"a": "it's"}
    with pytest.raises(ConfigError, match="takes no arguments"):
        parse_prompt_arguments(McpPrompt("p"), "x")
