"""What a hook says reaches the program that called the agent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.apps.program import run
from treadle import Agent, AwaitingInput, TurnFinished
from treadle.apps.console import exit_codes
from treadle.core.contracts.hook import Block, HookAnswer, HookInput
from treadle.core.errors import InputBlocked
from treadle.core.loop.turn_end import MAX_STOP_HOOK_BLOCKS
from treadle.core.transcript.items import Item
from treadle.models import Scripted
from treadle.policy.hooks.function_hook import hook
from treadle.testing.provider import ProviderServer


@hook("user_prompt_submit")
def no_secrets(hook_input: HookInput) -> HookAnswer | None:
    return Block("it contains a password") if "password" in hook_input.data["prompt"] else None


async def test_a_blocked_prompt_raises_with_the_reason_of_the_hook():
    agent = Agent(Scripted([]), hooks=[no_secrets])
    with pytest.raises(InputBlocked, match="a hook blocked the message: it contains a password"):
        await agent.run("my password is x")
    with pytest.raises(InputBlocked) as raised:
        await agent.run("my password is x", output=int)
    assert raised.value.reason == "it contains a password"


async def test_a_blocked_message_of_a_chat_leaves_the_history_as_it_was():
    agent, messages = Agent(Scripted(["Hello."]), hooks=[no_secrets]), list[Item]()
    driver = agent.start(prompt="Hi")
    await driver.next()
    messages[:] = driver.transcript
    driver.submit("my password is x")
    step = await driver.next()
    assert isinstance(step, AwaitingInput)
    assert step.blocked == "it contains a password"
    assert list(driver.transcript) == messages
    step = await driver.next()
    assert isinstance(step, AwaitingInput)
    assert step.blocked == ""
    await driver.aclose()


async def test_the_events_of_a_blocked_prompt_end_with_the_reason():
    agent = Agent(Scripted([]), hooks=[no_secrets])
    with pytest.raises(InputBlocked):
        async with agent.stream("my password is x") as events:
            seen = [event async for event in events]
    last = seen[-1]
    assert isinstance(last, TurnFinished)
    assert last.result.reason == "aborted"
    assert last.result.metadata == {"blocked": True, "detail": "it contains a password"}


async def test_a_stop_hook_that_never_agrees_is_named_in_the_result():
    @hook("stop")
    def never(hook_input: HookInput) -> HookAnswer:
        return Block("the tests still fail")

    model = Scripted(["Done."] * (MAX_STOP_HOOK_BLOCKS + 1))
    result = await Agent(model, hooks=[never]).run("x")
    assert result.turn.metadata["stop_hook"] == "the tests still fail"


async def test_the_program_says_why_a_hook_blocked_the_prompt():
    entry = {"hooks": [{"type": "command", "command": "echo not on Sundays >&2; exit 2"}]}
    file = Path.home() / ".treadle" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"hooks": {"UserPromptSubmit": [entry]}}))
    async with ProviderServer([]) as server:
        ran = await run(server, "-p", "go", "--quiet")
    assert ran.code == exit_codes.ERROR
    assert "a hook blocked the message: not on Sundays" in ran.err
    assert server.requests == []
