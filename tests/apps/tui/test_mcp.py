"""MCP servers at the terminal: prompts as commands, resources after @, questions, logs."""

from __future__ import annotations

import json
from pathlib import Path

from tests.apps.tui.harness import RunningApp, running_app, scripted
from tests.tools.mcp.helpers import raw
from treadle.models import Say
from treadle.models.scripted import Pause

FORM = {
    "message": "Who are you?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
}


def configure(server: dict[str, object] | None = None) -> None:
    settings = Path.home() / ".treadle" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    allow = {"permissions": {"allow": ["mcp__raw__*"]}}
    settings.write_text(json.dumps({"mcpServers": {"raw": server or raw()}, **allow}))


async def wait_up(on: RunningApp) -> None:
    await on.until(
        lambda: any(one.status.state == "up" for one in on.app.session.servers.list_servers()),
        "the server",
    )


async def test_prompts_are_commands_and_resources_are_completed(monkeypatch):
    configure()
    model = scripted(["a poem", "read"])
    async with running_app(monkeypatch, model, size=(110, 40)) as on:
        await wait_up(on)
        await on.send("/mcp")
        await on.sees("raw: up, ")
        await on.type("/raw:po")
        await on.sees("Writes a poem.")
        await on.press("escape", "ctrl+u")
        await on.send("/raw:poem")
        await on.sees("poem needs topic")
        await on.send("/raw:poem looms")
        await on.sees("a poem")
        assert model.requests[0].transcript[0].text == "A poem about looms."
        await on.idle()
        await on.type("look at @mem")
        await on.sees("@raw:memo://1")
        await on.press("tab", "enter")
        await on.sees("read")
        texts = [getattr(item, "text", "") for item in model.requests[-1].transcript]
        assert any("remember" in text for text in texts)


async def test_a_form_of_a_server_is_a_question_and_logs_are_shown_on_demand(monkeypatch):
    configure()
    use_form = {"name": "mcp__raw__form", "arguments": FORM}
    noise = {"name": "mcp__raw__noise", "arguments": {}}
    model = scripted(
        [Say(calls=[("use_tool", use_form)]), Say(calls=[("use_tool", noise)]), "ok", "I cannot."]
    )
    async with running_app(monkeypatch, model, size=(110, 40)) as on:
        await wait_up(on)
        await on.send("go")
        await on.sees("The MCP server raw asks: Who are you?")
        await on.press("enter")
        await on.sees("name (may be empty)")
        await on.press(*"Ada", "enter")
        await on.sees("ok")
        results = [getattr(item, "text", "") for item in model.requests[-1].transcript]
        assert any('"Ada"' in text for text in results)
        await on.send("/mcp raw")
        await on.sees("error db a error")
        await on.sees("raw: up, ")
        await on.send("/mcp other")
        await on.sees("there is no MCP server 'other'")
        await on.send("read @raw:memo://9 and @rav:memo://1")
        await on.sees("@raw:memo://9 is not attached: the server raw has no resource memo://9")
        await on.sees("@rav:memo://1 is not attached: there is no MCP server 'rav'")


async def test_the_first_request_does_not_wait_for_a_server_which_the_activity_names(monkeypatch):
    configure({"command": "sleep", "args": ["1000"]})
    pause = Pause()
    async with running_app(monkeypatch, scripted([["Hello", pause, " there."]])) as on:
        await on.send("hi")
        await on.sees("Hello")
        await on.sees("MCP starting: raw")
        pause.release()
        await on.sees("Hello there.")
        assert on.app.session.servers.list_starting() == ("raw",)
