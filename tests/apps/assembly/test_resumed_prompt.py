"""A session that began headless and is resumed at the terminal, and the other way round."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from treadle.apps.assembly import SessionOptions, build_agent
from treadle.apps.settings.settings import Settings
from treadle.core.errors import ConfigError
from treadle.core.steps import Finished
from treadle.testing.provider import FakeReply, ProviderServer

SETTINGS = Settings(model="anthropic/claude-sonnet-4-5")


async def use(prompt: str, *, interactive: bool, resume: str | None = None) -> None:
    options = SessionOptions(interactive=interactive, resume=resume, checkpoints=False)
    session = await build_agent(SETTINGS, Path.cwd(), options)
    driver = session.start(prompt)
    try:
        step = await driver.next()
        assert isinstance(step, Finished)
        assert step.result.error is None
    finally:
        await driver.aclose()
        await session.aclose()


@pytest.mark.parametrize("began_interactive", [False, True])
async def test_another_host_keeps_tools_and_instructions_and_appends_a_notice(
    began_interactive: bool, monkeypatch: pytest.MonkeyPatch
):
    async with ProviderServer([FakeReply("fine")] * 4) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        await use("one", interactive=began_interactive)
        await use("two", interactive=not began_interactive, resume="")
        await use("three", interactive=not began_interactive, resume="")
        await use("four", interactive=began_interactive, resume="")
    bodies: list[Any] = [json.loads(request.body) for request in server.requests]
    for body in bodies[1:]:
        assert body["tools"][-1]["name"] == bodies[0]["tools"][-1]["name"]
        assert [tool["name"] for tool in body["tools"]] == [
            tool["name"] for tool in bodies[0]["tools"]
        ]
        assert body["system"] == bodies[0]["system"]
    assert "ask" in [tool["name"] for tool in bodies[0]["tools"]]
    assert "cannot answer" not in str(bodies[0]["system"])
    told = [str(body["messages"]).count('kind="attendance"') for body in bodies]
    headless_first = not began_interactive
    assert told == [headless_first + n for n in (0, 1, 1, 2)]  # once for each change
    words = "cannot answer questions" if began_interactive else "can answer questions"
    assert words in str(bodies[1]["messages"])


async def test_the_caller_of_a_request_is_the_host(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    for interactive, caller in ((True, "terminal"), (False, "headless")):
        options = SessionOptions(interactive=interactive)
        session = await build_agent(SETTINGS, Path.cwd(), options)
        assert session.agent.config.caller == caller
        await session.store.aclose()
        await session.aclose()


@pytest.mark.parametrize("model", ["anthropic/claude-sonnet-4-5", "anthropic/claude-opus-4-5"])
async def test_another_model_that_continues_a_session_is_named(
    model: str, monkeypatch: pytest.MonkeyPatch
):
    async with ProviderServer([FakeReply("fine")]) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        await use("one", interactive=False)
    session = await build_agent(Settings(model=model), Path.cwd(), SessionOptions(resume=""))
    told = [note for note in session.session_warnings if "until now" in note]
    await session.abandon()
    before = SETTINGS.model
    expected = f"this session used {before} until now; {model} continues it"
    assert told == ([] if model == before else [expected])


async def test_an_embedded_model_does_not_take_over_a_session(monkeypatch: pytest.MonkeyPatch):
    async with ProviderServer([FakeReply("fine")]) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        await use("one", interactive=False)
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    for name in ("OLLAMA_HOST", "LMSTUDIO_BASE_URL", "LLAMACPP_BASE_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with pytest.raises(ConfigError, match="this session used anthropic/claude-sonnet-4-5"):
        await build_agent(Settings(), Path.cwd(), SessionOptions(resume=""))
    named = Settings(model="embedded/smollm2-135m")
    session = await build_agent(named, Path.cwd(), SessionOptions(resume=""))
    assert any("until now" in note for note in session.session_warnings)
    await session.abandon()
