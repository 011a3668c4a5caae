"""The inline mode in a real terminal: the conversation is in its scrollback."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.tui import harness
from tests.apps.tui.harness import exists
from tests.apps.tui.tmux import Terminal, needs_tmux
from treadle.apps.tui.inline import InlineApp
from treadle.core.events import (
    Event,
    ReplyDiscarded,
    RequestStarted,
    TextDelta,
    ToolCallRequested,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from treadle.core.transcript.content import Text, ToolCall
from treadle.core.transcript.items import ToolResultItem
from treadle.testing.provider.script import FakeCall, FakeReply
from treadle.testing.provider.server import ProviderServer

IDS = ("s", "t", 0)
WIDE = "A paragraph with wide characters, 漢字, and a few more words."
TALK = "\n\n".join(f"Paragraph {number} has some words." for number in range(40))
WRITE = FakeCall("write", {"file_path": "a.txt", "content": "one\ntwo\n"})
STORY = [FakeReply("I write it.", calls=(WRITE,)), FakeReply(WIDE), FakeReply(TALK)]


async def test_a_block_is_printed_once_when_it_is_complete_also_after_a_discarded_reply(
    monkeypatch,
):
    monkeypatch.setattr(harness, "TerminalApp", InlineApp)
    async with harness.running_app(monkeypatch) as on:
        app, conversation = on.app, on.app.conversation
        assert isinstance(app, InlineApp)

        async def printed_after(*events: Event) -> list[str]:
            for event in events:
                conversation.on_event(event)
            app._draw_frame()
            lines = [strip.text.strip() for strip in app._scrollback]
            app._scrollback.clear()
            return [line for line in lines if line]

        await printed_after()
        start = (TurnStarted(*IDS), RequestStarted(*IDS, "m"))
        assert await printed_after(*start, TextDelta(*IDS, "First.\n\nSecond")) == ["First."]
        assert await printed_after(TextDelta(*IDS, " part")) == []
        cut_off = "· the reply above was cut off; it is written again"
        discarded = (ReplyDiscarded(*IDS, 18), RequestStarted(*IDS, "m"))
        again = TextDelta(*IDS, "Other.\n\nSecond part")
        assert await printed_after(*discarded, again) == [cut_off, "Other."]
        call = ToolCallRequested(*IDS, ToolCall("c", "bash", '{"command":"ls"}'))
        assert await printed_after(call, ToolStarted(*IDS, "c", "bash", "bash: ls")) == [
            "Second part"
        ]
        conversation.on_event(ToolFinished(*IDS, "c", "bash", "a.txt"))
        conversation.on_item(0, ToolResultItem("c", "bash", (Text("a.txt"),)))
        assert await printed_after() == ["● bash ls  a.txt"]


@pytest.fixture
def terminal(own_place: Path, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    made = Terminal(own_place, request.param)
    yield made
    made.close()


@needs_tmux
@pytest.mark.slow
@pytest.mark.parametrize("terminal", [(40, 18)], indirect=True)
async def test_the_conversation_is_in_the_scrollback_and_the_prompt_below_it(terminal):
    async with ProviderServer(STORY, strict=False) as server:
        await asyncio.to_thread(_work_inline, terminal, server)


def _work_inline(terminal: Terminal, server: ProviderServer) -> None:
    env = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
    env["NO_COLOR"] = "1"
    given = ("--inline", "--model=claude-sonnet-4-5", "--sandbox=off", "--theme=dark")
    terminal._tmux("set-option", "-g", "focus-events", "on")
    terminal.type("echo before")
    terminal.press("Enter")
    terminal.run(*given, env=env)
    terminal.sees("Do you trust the files in this")
    terminal.answer("y", "Enter")
    terminal.sees("sandbox  off")  # the first screen
    assert not re.search(r"\x1b\[[0-9;]*[34]8;", terminal.colored_screen())  # NO_COLOR
    terminal.type("write two lines")
    terminal.press("Enter")
    terminal.sees("Allow write a.txt?")
    terminal.resize(40, 15)
    screen = terminal.sees("▸ ")
    assert "Allow write" in screen
    assert "\nask · " in screen  # all of it fits
    terminal.answer("y", "Enter")
    terminal.sees("漢字, and a few more words.")
    assert exists("a.txt")
    terminal.sees("esc interrupts", gone=True)
    terminal.press("C-z")
    terminal.sees("topped")
    terminal.type("fg; echo ended with $?")
    terminal.press("Enter")
    terminal.sees("\n" + "─" * 40 + "\n›")
    terminal.type("talk")
    terminal.press("Enter")
    terminal.sees("Paragraph 39 has some words.")
    terminal.sees("esc interrupts", gone=True)
    terminal.resize(30, 15)
    terminal.sees("\n" + "─" * 30 + "\n›")
    history = terminal.history()
    for number in range(40):
        assert history.count(f"Paragraph {number} has") == 1
    assert history.count("› write two lines") == history.count("● write a.txt") == 1
    assert (
        history.count("sandbox  off")
        == history.count("Do you trust")
        == history.count("Allow write")
        == 0
    )
    terminal.type("/quit")
    terminal.press("Enter")
    terminal.sees("ended with 0")
    history = terminal.history()
    assert "Paragraph 39 has" in history  # the conversation stays
    assert "ask · anthropic" not in history  # the app is gone
    assert "^[[" not in history  # what the terminal answered
