"""The plain mode in this process: its first screen, agents at work, the editor for plans."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path

import pytest

from tests.apps.tui.harness import make_editor, scripted, use
from tests.apps.tui.test_agents_view import BYPASS, make_background_model
from tests.patience import until
from treadle.apps.conversation.plans import find_accepted_plan
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.tui import plain as plain_mode
from treadle.apps.tui.options import TerminalOptions
from treadle.apps.tui.plain import PlainFrontend
from treadle.core.contracts.model import Model
from treadle.models.scripted import Pause, Say


class Screen(StringIO):
    def isatty(self) -> bool:
        return True


class Keyboard:
    """In place of standard input: the test types the lines."""

    def __init__(self, on_line: Callable[[str | None], None]) -> None:
        self.on_line = on_line

    def read_available(self) -> str:
        return ""

    def read_waiting(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


class RunningPlain:
    def __init__(self, frontend: PlainFrontend, screen: Screen) -> None:
        self.frontend = frontend
        self._screen = screen
        self._seen = 0

    @property
    def shown(self) -> str:
        """What was printed since the last line was typed."""
        return self._screen.getvalue()[self._seen :]

    async def type(self, line: str, answer: str) -> str:
        """Type a line and wait for a text that is printed after it; all that was printed."""
        self._seen = len(self._screen.getvalue())
        self.frontend._on_line(line)
        return await self.sees(answer)

    async def sees(self, text: str) -> str:
        await until(lambda: text in self.shown, f"{text!r}")
        return self.shown


@asynccontextmanager
async def running_plain(
    monkeypatch: pytest.MonkeyPatch, model: Model, flags: dict[str, object] | None = None
) -> AsyncIterator[RunningPlain]:
    """The plain mode in the current folder, which is trusted."""
    use(monkeypatch, model)
    monkeypatch.setattr(plain_mode, "LineReader", Keyboard)
    session = HostedSession(Path.cwd(), {"sandbox": "off", **(flags or {})})
    session.trust.give()
    screen = Screen()
    frontend = PlainFrontend(session, TerminalOptions(), screen)
    frontend._is_tty = True
    running = asyncio.ensure_future(frontend.run())
    try:
        on = RunningPlain(frontend, screen)
        await on.sees("] > ")
        yield on
    finally:
        frontend.quit()
        await running


async def test_a_new_session_begins_with_its_facts_and_a_number_continues_an_earlier_one(
    monkeypatch,
):
    async with running_plain(monkeypatch, scripted(["Paris."])) as on:
        for line in (
            "Folder: ",
            "Trust: trusted",
            "Model: scripted, $3 in, $15 out per million tokens",
            "Mode: ask",
            "Sandbox: off: commands can reach all that you can",
            "Things to try:",
            "/help lists the commands.",
        ):
            assert line in on.shown
        assert "Last sessions" not in on.shown
        await on.type("capital of France?", "Paris.")
        await on.sees("] > ")
    async with running_plain(monkeypatch, scripted(["Two."])) as on:
        assert "Last sessions here; a number and enter continues one:" in on.shown
        assert "  1 capital of France?, " in on.shown
        assert ", 1 turn\n" in on.shown
        await on.type("1", "You: capital of France?")
        await on.sees("Paris.")
        assert "Folder: " not in on.shown
        await on.type("1", "Two.")  # now it is a message


async def test_an_agent_is_listed_shown_watched_steered_and_stopped(monkeypatch):
    pause = Pause()
    model = make_background_model(pause)
    async with running_plain(monkeypatch, model, BYPASS) as on:
        await on.type("/agents", "no agent is at work; these can be started:")
        await on.type("/agents stop 1", "there is no agent or task '1' at work; /agents lists")
        await on.type("/agents dance", "usage:")
        await on.type("go", "Begun.")
        await pause.reached.wait()
        listed = await on.type("/agents", "/agents stop N        stops it")
        assert "1 task: general: look around  writing, " in listed
        shown = await on.type("/agents show 1", "I look.")
        assert "look\n\nI look." in shown
        await on.type("/agents say 1 hurry", "message sent")
        await on.type("/agents say 1", "usage: /agents say 1 TEXT")
        await on.type("/agents watch 1", "watching 1 task: general: look around; /agents watch off")
        await on.sees("[1] You: look\n")
        await on.type("/agents watch off", "no agent is watched")
        await on.type("/agents watch 1", "[1] You: look\n")
        await on.type("/agents stop 1", "stopped")
        await on.sees("[1] I look.\n")
        await on.sees("1 task: general: look around  stopped, ")
        await on.sees(") was stopped")
        await on.type("/agents stop 1", "it has ended already")
        await on.type("/agents say 1 hurry", "only an agent at work takes a message")


async def test_a_plan_is_edited_in_the_editor_and_a_failure_is_told(monkeypatch):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", make_editor("more", 'printf "\\n2. Test it" >> "$1"'))
    model = scripted([Say(calls=[("present_plan", {"plan": "1. Rename it"})]), "I begin."])
    async with running_plain(monkeypatch, model, {"permission_mode": "plan"}) as on:
        shown = await on.type("rename it", "Accept it? 1 to 6: ")
        assert "  4 Edit the plan in your editor [g]" in shown
        await on.type("g", "1. Rename it\n2. Test it\n")
        await on.sees("Accept it? 1 to 6: ")
        monkeypatch.setenv("EDITOR", make_editor("emptying", ': > "$1"'))
        await on.type("g", "The edited plan was empty: the plan is unchanged.")
        await on.sees("Accept it? 1 to 6: ")
        await on.type("m", "I begin.")
        history = on.frontend.conversation.driver.history
        assert find_accepted_plan(history) == "1. Rename it\n2. Test it"


async def test_a_question_of_an_agent_is_answered_by_the_user(monkeypatch):
    question = {"question": "Which one?", "options": ["red", "blue"]}
    replies = [
        Say(calls=[("task", {"description": "paint", "prompt": "paint it"})]),
        Say(calls=[("ask", question)]),
        Say("Painted."),
        Say("It is done."),
    ]
    model = scripted(replies)
    async with running_plain(monkeypatch, model, BYPASS) as on:
        await on.type("go", "Which one? 1 to 3")
        await on.type("2", "It is done.")
        session = on.frontend.session.driver.session_id
    begun, asked, answered, _ = model.requests
    assert session not in (asked.session_id, answered.session_id)
    assert answered.transcript[-1].text == "The user answered: blue"
    # The same tools, so that the provider reads them from its cache.
    assert asked.tools == begun.tools
