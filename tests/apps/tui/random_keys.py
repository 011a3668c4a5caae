"""Types at random moments over runs with approvals, and records which key answered which question.

The clock of the app is the typist's own, so that thousands of keys at the speed of a person take
minutes, not hours. A key may be handled long after it was typed: the app is busy, or the question
was drawn in between. Used by test_random_keys.py and benchmarks/random_keys.py.
"""

from __future__ import annotations

import random
import time
from typing import Any

import msgspec
from rich.text import Text
from textual import events
from textual.widget import Widget

from tests.apps.tui.harness import RunningApp, StoppedClock
from treadle.apps.tui.widgets.choices import Choices
from treadle.core.contracts.model import ModelRequest
from treadle.models.scripted import Pause, Say, ScriptElement

READ_SECONDS = 0.5  # in less time no person has read a question
LETTERS = "abeghilmnorstuyy12345? "
NAMED = ("enter",) * 6 + ("up", "down", "escape", "backspace", "tab", "left", "ctrl+o")


class Answer(msgspec.Struct, frozen=True):
    """`seen_for` is how long the question was on the screen when the key was typed."""

    key: str
    value: str
    seen_for: float


class Typist:
    """Presses keys; `answers` are those that the questions got, `refusals` counts the escapes."""

    def __init__(self, on: RunningApp, clock: StoppedClock, seed: int) -> None:
        self.on = on
        self.clock = clock
        self.answers: list[Answer] = []
        self.refusals = self.keys = self.questions = 0
        self._random = random.Random(seed)
        self._first_drawn: dict[Widget, float] = {}
        self._by_itself: set[Widget] = set()
        self._current: tuple[str, float] = ("", 0.0)  # the key that is handled, when it was typed
        self._watch()

    def _watch(self) -> None:
        """Record what is drawn and answered, independently of the app's own guard."""
        app: Any = self.on.app
        show, submit, handle = app.show_dialog, app.dialogs.submit_answer, app.on_event

        async def show_dialog(*widgets: Widget, by_user: bool, is_touched: bool) -> None:
            if not by_user:
                self._by_itself.add(widgets[-1])
                self.questions += 1
            await show(*widgets, by_user=by_user, is_touched=is_touched)

        def submit_answer(value: str | None) -> None:
            widget = app.footer.dialog
            if widget in self._by_itself:
                self._record(widget, value)
            submit(value)

        async def on_event(event: events.Event) -> None:
            if isinstance(event, events.Key) and not event.is_forwarded:
                typed_at = self.clock.now - (time.monotonic() - event.time)
                self._current = event.key, getattr(event, "typed_at", typed_at)
            await handle(event)

        app.show_dialog, app.dialogs.submit_answer = show_dialog, submit_answer
        app.on_event = on_event
        render = Choices.render

        def render_choices(widget: Choices) -> Text:
            self._first_drawn.setdefault(widget, self.clock.now)
            return render(widget)

        Choices.render = render_choices  # type: ignore[method-assign, assignment]
        self._render = render

    def stop(self) -> None:
        Choices.render = self._render  # type: ignore[method-assign]

    def _record(self, widget: Widget, value: str | None) -> None:
        key, typed_at = self._current
        if value is None:
            self.refusals += 1
            return
        drawn_at = self._first_drawn.get(widget, float("inf"))
        self.answers.append(Answer(key, value, typed_at - drawn_at))

    async def type(self, count: int, pauses: list[Pause], answers: int = 0) -> None:
        """Press so many keys, and until so many questions are answered. They come in bursts;
        replies of the model come before, between and after them."""
        app: Any = self.on.app
        while self.keys < count or len(self.answers) < answers:
            if app._conversation is not None and app.conversation.is_idle:
                app._send("go on")
            if self._random.random() < 0.5:
                self._release(pauses)
            burst = [self._choose_key() for _ in range(self._random.randint(1, 6))]
            times = []
            for _ in burst:  # a person: five keys a second, and sometimes a rest
                self.clock.now += self._random.expovariate(5)
                times.append(self.clock.now)
            for name, typed_at in zip(burst, times, strict=True):
                self._post(name, typed_at)
            self.keys += len(burst)
            self._release(pauses)
            await self.on.pilot.pause(self._random.choice((0, 0.01, 0.04, 0.08)))
            if self._random.random() < 0.5:
                await self._rest()

    async def _rest(self) -> None:
        """Look at the screen; often a question that is there is then answered."""
        app: Any = self.on.app
        await self.on.pilot.pause(0.04)
        if app.dialogs.is_open and (app.prompt.text or app.transcript.has_focus):
            self._press_now("escape")
            await self.on.pilot.pause()
        self.clock.now += self._random.choice((0.1, 0.4, 0.6, 0.6, 3.0))
        app.footer.update_focus()
        if app.dialogs.is_open:
            self._press_now(self._random.choice("yynta1"))
            self._press_now("enter")

    def _press_now(self, name: str) -> None:
        self.keys += 1
        self._post(name, self.clock.now)

    def _choose_key(self) -> str:
        return self._random.choice(NAMED if self._random.random() < 0.3 else LETTERS)

    def _post(self, name: str, typed_at: float) -> None:
        is_text = len(name) == 1
        key = {" ": "space", "?": "question_mark"}.get(name, name)
        event = events.Key(key, name if is_text else None)
        event.time = time.monotonic() - (self.clock.now - typed_at)
        event.typed_at = typed_at  # type: ignore[attr-defined]
        self.on.app.post_message(event)

    def _release(self, pauses: list[Pause]) -> None:
        for pause in pauses:
            pause.release()
        pauses.clear()


def make_script(pauses: list[Pause]) -> Any:
    """Most replies ask for an approval, some for two; each waits for the typist."""
    count = 0

    def reply(request: ModelRequest) -> ScriptElement:
        nonlocal count
        count += 1
        pause = Pause()
        pauses.append(pause)
        if count % 4 == 0:
            return ["That is done. ", pause]
        calls = [("bash", {"command": f"touch made-{count}.txt"})]
        if count % 3 == 0:
            calls.append(("bash", {"command": f"touch more-{count}.txt"}))
        return [Say("I do it.", calls=calls), pause]

    return reply
