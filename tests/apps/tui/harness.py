"""Runs the full screen in tests: the real host, a scripted model, and a screen to read."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.patience import PATIENCE
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.settings.settings import Settings
from treadle.apps.tui import frontend
from treadle.apps.tui.app import TerminalApp
from treadle.apps.tui.options import TerminalOptions
from treadle.core.contracts.model import Model, ModelCard
from treadle.core.transcript.usage import Usage
from treadle.models.scripted import ModelScript, Scripted

CARD = ModelCard("scripted", window=200_000, input_price=3.0, output_price=15.0)

SIZES = ((80, 24), (120, 40), (40, 15))


def scripted(script: ModelScript) -> Scripted:
    return Scripted(script, card=CARD)


class PatientClock:
    """A clock on which every key comes long after the one before."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += 10.0
        return self._now


class StoppedClock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class RunningApp:
    """The app in a folder of its own."""

    def __init__(self, app: TerminalApp, pilot: Pilot[int], folder: Path) -> None:
        self.app = app
        self.pilot = pilot
        self.folder = folder

    async def type(self, text: str) -> None:
        """Type without sending."""
        self.app.prompt.insert(text)
        await self.pilot.pause()

    async def send(self, text: str) -> None:
        await self.type(text)
        await self.press("enter")

    async def press(self, *keys: str) -> None:
        """Press keys; the dialog of a question that waits is open and drawn before."""
        await self.drawn()
        await self.pilot.press(*keys)

    async def until(self, holds: Callable[[], bool], what: str = "it") -> None:
        """Wait until a condition holds; on failure the screen is printed."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if holds():
                return
            await self.pilot.pause(0.01)
        raise AssertionError(f"{what} did not happen; the screen:\n{self.screen()}")

    async def drawn(self) -> None:
        """Wait until the keys reach what the conversation waits for."""
        await self.until(self._takes_keys, "the dialog")

    def _takes_keys(self) -> bool:
        if self.app.dialogs.is_open:
            return self.app.footer.key_guard.is_drawn
        conversation = self.app._conversation
        return conversation is None or not conversation.questions.waiting

    async def sees(self, text: str) -> None:
        await self.until(lambda: text in self.screen(), f"{text!r}")

    async def idle(self) -> None:
        await self.until(
            lambda: (
                self.app._conversation is not None
                and not self.app.conversation.view.is_busy
                and not self.app._is_frame_due
            ),
            "the end of the turn",
        )

    def screen(self) -> str:
        """The screen as text."""
        strips = self.app.screen._compositor.render_strips(self.app.size)
        return "\n".join(strip.text.rstrip() for strip in strips)


def _is_shown(app: TerminalApp) -> bool:
    """Whether a session is shown, a new one with its first screen."""
    conversation = app._conversation
    return conversation is not None and (
        app.first_screen is not None or len(conversation.driver.history) > 0
    )


def write_file(name: str, text: str = "") -> None:
    """Write a file into the current folder."""
    file = Path(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def make_editor(name: str, script: str, place: Path | None = None) -> str:
    """A program that stands for an editor; it gets the file as $1."""
    file = (place or Path.home()) / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return str(file)


def exists(name: str) -> bool:
    return Path(name).exists()


def read_file(name: str) -> str:
    return Path(name).read_text(encoding="utf-8")


@asynccontextmanager
async def running_app(
    monkeypatch: pytest.MonkeyPatch,
    model: Model | None = None,
    *,
    size: tuple[int, int] = (80, 24),
    trusted: bool = True,
    resume: str | None = None,
    flags: dict[str, object] | None = None,
    theme: str = "dark",
    clock: Callable[[], float] | None = None,
    history_file: Path | None = None,
    picks_session: bool = False,
    drafts_dir: Path | None = None,
    has_vim_keys: bool = False,
    keys: dict[str, object] | None = None,
) -> AsyncIterator[RunningApp]:
    """The app in the current folder, which is trusted unless a test says otherwise."""
    folder = Path.cwd()
    use(monkeypatch, model or scripted(["Hello."]))
    monkeypatch.setattr(frontend, "CLOSE_TIMEOUT", PATIENCE)  # a busy machine may close slowly
    session = HostedSession(folder, {"sandbox": "off", **(flags or {})})
    if trusted:
        session.trust.give()
    options = TerminalOptions(
        resume=resume,
        theme=theme,
        history_file=history_file,
        drafts_dir=drafts_dir,
        has_vim_keys=has_vim_keys,
        keys=keys or {},
        picks_session=picks_session,
    )
    app = TerminalApp(session, options, clock or PatientClock())
    async with app.run_test(size=size) as pilot:
        running = RunningApp(app, pilot, folder)
        if trusted and not picks_session:
            await running.until(lambda: _is_shown(app), "the session")
            await pilot.pause()
        yield running
        if not app._exit:
            await app._close(0)


def use(monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
    async def chosen(settings: Settings) -> tuple[Model, str]:
        return model, "scripted: says what the test wants"

    monkeypatch.setattr(sys.modules["treadle.apps.assembly.assemble"], "choose_model", chosen)


def make_usage(tokens: int, output: int = 120) -> Usage:
    return Usage(input=tokens, output=output, requests=1, cost=tokens * 3e-6)
