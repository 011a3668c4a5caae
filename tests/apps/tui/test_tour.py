"""The tour: the user presses the real keys, and nothing is left behind."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.apps.tui.harness import PatientClock, RunningApp
from tests.patience import PATIENCE
from treadle.apps.tui import frontend
from treadle.apps.tui.options import TerminalOptions
from treadle.apps.tui.tour import main
from treadle.apps.tui.tour.app import (
    BROKEN,
    FILE,
    FIXED,
    STEPS,
    Tour,
    TourApp,
    TourFacts,
    make_tour_session,
)
from treadle.core import extras


@asynccontextmanager
async def running_tour(
    monkeypatch: pytest.MonkeyPatch, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[RunningApp]:
    monkeypatch.setattr(frontend, "CLOSE_TIMEOUT", PATIENCE)
    with main.temporary_home() as folder:
        app = TourApp(make_tour_session(folder), TerminalOptions(theme="dark"), PatientClock())
        async with app.run_test(size=size) as pilot:
            running = RunningApp(app, pilot, folder)
            await running.until(lambda: app._conversation is not None, "the session")
            yield running
            if not app._exit:
                await app._close(0)


async def test_the_tour_goes_through_prompt_approval_undo_modes_and_rewind(monkeypatch):
    async with running_tour(monkeypatch) as on:
        file = on.folder / FILE
        await on.sees("tour 1/7 · Prompt")
        await on.send("fix greet.py")
        await on.sees("tour 2/7 · Approval")
        await on.sees("Allow edit greet.py?")
        assert file.read_text() == BROKEN
        await on.press("y", "enter")
        await on.sees("tour 3/7 · Undo")
        assert file.read_text() == FIXED
        await on.send("/undo")
        await on.sees("tour 4/7 · Modes")
        assert file.read_text() == BROKEN
        await on.press("shift+tab")
        await on.sees("tour 5/7 · Work without questions")
        await on.idle()
        await on.send("fix it again")
        await on.sees("tour 6/7 · Rewind")
        assert file.read_text() == FIXED
        await on.press("escape", "escape")
        await on.sees("Rewind to before this message")
        await on.press("down", "enter")
        await on.sees("would change")
        await on.press("b", "enter")
        await on.sees("tour 7/7 · The end")
        assert file.read_text() == BROKEN
        assert on.app.prompt.text == "fix greet.py"
        await on.press("ctrl+d")
        await on.until(lambda: on.app._exit, "the end of the tour")


def shows_text(on: RunningApp, text: str) -> bool:
    """Whether the screen shows all of the text, on any number of lines."""
    return " ".join(text.split()) in " ".join(on.screen().split())


async def test_on_a_small_screen_instruction_and_prompt_are_seen(monkeypatch):
    async with running_tour(monkeypatch, size=(40, 15)) as on:
        app = on.app
        assert isinstance(app, TourApp)
        monkeypatch.setattr(app.tour, "update", lambda facts: False)
        await on.until(lambda: app.first_screen is not None, "the first screen")
        for position, step in enumerate(STEPS):
            app.tour.position = position
            app._show_step()
            await on.sees(f"tour {position + 1}/7 · {step.title}")
            await on.until(lambda: "\nask · tour" in on.screen(), "the status line")
            await on.until(partial(shows_text, on, step.text), step.text)
            await on.until(lambda: "─\n›\n" in on.screen(), "the prompt")


async def test_a_call_that_was_denied_can_be_tried_again(monkeypatch):
    async with running_tour(monkeypatch, size=(40, 15)) as on:
        await on.send("fix it")
        await on.sees("Allow edit greet.py?")
        await on.until(lambda: "Look at the diff" not in on.screen(), "room for the question")
        await on.press("n", "enter")
        await on.press("enter")
        await on.sees("I did not change the file")
        await on.idle()
        await on.send("fix it")
        await on.sees("Allow edit greet.py?")
        await on.press("y", "enter")
        await on.sees("tour 3/7")


def test_the_home_of_the_user_is_neither_read_nor_written_and_all_is_removed(monkeypatch):
    monkeypatch.setenv("TREADLE_THEME", "light")
    monkeypatch.setenv("XDG_STATE_HOME", "/nowhere")
    home, here = os.environ["HOME"], Path.cwd()
    with main.temporary_home() as folder:
        assert Path.cwd() == folder
        assert Path.home() == folder.parent
        assert "TREADLE_THEME" not in os.environ
        assert "XDG_STATE_HOME" not in os.environ
        (folder / "left.txt").write_text("x")
    assert not folder.parent.exists()
    assert os.environ["HOME"] == home
    assert os.environ["TREADLE_THEME"] == "light"
    assert Path.cwd() == here


def test_a_step_is_left_only_when_it_is_done():
    tour = Tour()
    assert not tour.update(TourFacts())
    assert tour.update(TourFacts(messages=1))
    assert not tour.update(TourFacts(messages=1, text=FIXED, is_busy=True))
    assert tour.update(TourFacts(messages=1, text=FIXED))
    assert tour.step is STEPS[2]


def test_without_a_terminal_the_tour_says_that_it_needs_one(capsys):
    assert main.run([]) == 2
    assert "needs one" in capsys.readouterr().err
    assert main.run(["--help"]) == 0
    assert "nothing is left behind" in capsys.readouterr().out
    assert main.run(["fast"]) == 2


def test_without_the_full_screen_the_tour_names_the_command_that_installs_it(monkeypatch, capsys):
    monkeypatch.setattr(extras, "is_installed", lambda extra: False)
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(main, "sys", SimpleNamespace(stdin=terminal, stdout=terminal))
    assert main.run([]) == 2
    told = "treadle tour: the extra 'tui' (the full screen) is not installed: pip install"
    assert told in capsys.readouterr().err
