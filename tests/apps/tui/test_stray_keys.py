"""A key that was on its way when a dialog opens never answers it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from textual import events

from tests.apps.tui.harness import RunningApp, StoppedClock, exists, running_app, scripted
from tests.patience import PATIENCE
from treadle.apps.settings.folder_rules import is_trusted
from treadle.apps.tui import footer
from treadle.apps.tui.widgets.text_entry import TextEntry
from treadle.models.scripted import Pause, Say, ScriptElement

BASH = ("bash", {"command": "touch made.txt"})


class WatchedApp(RunningApp):
    """The app with a clock that stands still."""

    def __init__(self, on: RunningApp, clock: StoppedClock) -> None:
        super().__init__(on.app, on.pilot, on.folder)
        self._clock = clock

    async def pass_time(self, seconds: float) -> None:
        await self.drawn()
        self._clock.now += seconds
        self.app.footer.update_focus()
        await self.pilot.pause()


@asynccontextmanager
async def approval(
    monkeypatch: pytest.MonkeyPatch, *, typed: str = "", more: ScriptElement = "made"
) -> AsyncIterator[WatchedApp]:
    """The app with an approval that has just opened, while `typed` stood in the prompt."""
    clock, pause = StoppedClock(), Pause()
    model = scripted([[Say(calls=[BASH]), pause], more])
    async with running_app(monkeypatch, model, clock=clock) as running:
        on = WatchedApp(running, clock)
        await on.send("go")
        await on.until(pause.reached.is_set)
        await on.press(*typed)
        pause.release()
        await on.sees("Run this command?")
        yield on


def is_open(on: RunningApp) -> bool:
    return on.app.dialogs.is_open and not exists("made.txt")


async def test_typing_goes_on_in_the_prompt_when_an_approval_opens(monkeypatch):
    async with approval(monkeypatch, typed="stop") as on:
        await on.press("space", *"it", "enter")
        await on.sees("↳ stop it")
        assert is_open(on)
        await on.press(*"yea", "enter")  # too soon after the last key
        assert is_open(on)
        await on.sees("↳ yea")
        await on.pass_time(1)
        await on.press("y", "enter")
        await on.sees("made")
        assert exists("made.txt")


@pytest.mark.parametrize("key", ["y", "a", "e", "n", "1"])
async def test_the_first_half_second_of_an_approval_belongs_to_the_prompt(monkeypatch, key):
    async with approval(monkeypatch) as on:
        await on.press(key)
        assert on.app.prompt.text == key
        assert is_open(on)
        await on.sees("your message is not sent: enter sends it, esc clears it")
        await on.until(lambda: "esc stops the turn" not in on.screen(), "one meaning of esc")


async def test_enter_is_no_yes_in_the_first_half_second(monkeypatch):
    async with approval(monkeypatch) as on:
        await on.press("enter", "enter")
        assert is_open(on)
        await on.pass_time(0.6)
        await on.press("enter")
        await on.sees("made")


async def test_an_unsent_message_keeps_every_letter_until_it_is_sent_or_cleared(monkeypatch):
    async with approval(monkeypatch, typed="fix") as on:
        await on.pass_time(60)
        await on.press("space", *"any", "enter")
        await on.sees("↳ fix any")
        assert is_open(on)
        await on.pass_time(60)
        await on.press("x")  # no answer: the beginning of another message
        await on.pass_time(60)
        await on.press("y")
        assert on.app.prompt.text == "xy"
        await on.press("escape")
        assert on.app.prompt.text == ""
        assert is_open(on)
        await on.pass_time(1)
        await on.press("y", "enter")
        await on.sees("made")


async def test_an_arrow_key_selects_the_approval_and_the_unsent_message_stays(monkeypatch):
    async with approval(monkeypatch, typed="later") as on:
        await on.press("down")  # too soon: it moves in the prompt
        await on.press("enter")
        await on.sees("↳ later")
        await on.press(*"more")
        await on.pass_time(1)
        await on.press("down")
        await on.sees("▸ y Yes, this once")
        await on.sees("your message is not sent; enter takes the marked answer")
        await on.press("enter")
        await on.sees("made")
        assert exists("made.txt")
        assert on.app.prompt.text == "more"


async def test_a_number_moves_to_an_answer_and_enter_takes_it(monkeypatch):
    async with approval(monkeypatch, more="I see.") as on:
        await on.pass_time(1)
        await on.press("6", "enter")
        await on.sees("Why not?")
        await on.press("enter")
        await on.sees("I see.")
        assert not exists("made.txt")


async def test_an_approval_opened_from_a_list_needs_an_answer_of_its_own(monkeypatch):
    other = ("bash", {"command": "touch other.txt"})
    clock = StoppedClock()
    model = scripted([Say(calls=[BASH, other]), "Both."])
    async with running_app(monkeypatch, model, clock=clock) as running:
        on = WatchedApp(running, clock)
        await on.send("go")
        await on.sees("2 calls need your approval")
        await on.press("y", "*", "y")  # too early: the list takes no keys yet
        await on.press("escape")  # clears what was typed
        await on.pass_time(1)
        await on.press("enter")
        await on.sees("Run this command?")
        await on.press("y", "enter")
        assert len(on.app.conversation.questions.waiting) == 2
        await on.pass_time(1)
        await on.press("y", "enter")
        await on.until(lambda: len(on.app.conversation.questions.waiting) == 1)
        await on.sees("touch other.txt")
        await on.press("y", "enter")
        assert on.app.conversation.questions.waiting
        assert on.app.prompt.text == ""  # keys for a dialog are no message
        await on.pass_time(1)
        await on.press("y", "enter")
        await on.sees("Both.")


async def test_an_edited_command_is_not_run_by_the_next_enter(monkeypatch):
    async with approval(monkeypatch) as on:
        await on.pass_time(1)
        await on.press("e", "enter")
        await on.sees("edit command")
        await on.press("enter")
        assert is_open(on)
        await on.pass_time(1)
        await on.press("enter")
        await on.sees("made")


async def test_a_letter_only_marks_and_a_word_goes_to_the_prompt(monkeypatch):
    async with approval(monkeypatch) as on:
        await on.pass_time(1)
        await on.press("a")
        await on.sees("▸ a Yes, and always allow: ")
        await on.press(*"lso")
        await on.pass_time(60)
        assert on.app.prompt.text == "also"
        await on.press("enter")
        await on.sees("↳ also")
        await on.pass_time(60)
        await on.press("n", "backspace", "a", "enter")  # a key that is taken back marks nothing
        await on.sees("Saved for you, in .treadle/settings.local.json")
        await on.press("enter", "enter")  # not the second answer: it could not be read
        assert is_open(on)
        await on.press("n", "enter")
        await on.sees("Run this command?")
        assert is_open(on)
        assert not exists(".treadle/settings.local.json")


async def test_no_is_marked_where_something_is_deleted(monkeypatch):
    remove = ("bash", {"command": "rm -rf build"})
    model = scripted([Say(calls=[remove]), "I see."])
    async with running_app(monkeypatch, model, clock=StoppedClock()) as running:
        on = WatchedApp(running, running.app.footer.clock)  # type: ignore[arg-type]
        await on.send("go")
        await on.sees("Run this command?")
        await on.pass_time(1)
        await on.sees("▸ n No, and go on without it")
        await on.press("enter")
        await on.sees("I see.")
        assert "denied" in model.requests[-1].transcript[-1].text


async def test_a_text_that_is_sent_answers_the_models_question(monkeypatch):
    ask = {"question": "Which one?", "options": ["red", "blue"]}
    clock = StoppedClock()
    model = scripted([Say(calls=[("ask", ask)]), "thanks"])
    async with running_app(monkeypatch, model, clock=clock) as running:
        on = WatchedApp(running, clock)
        await on.send("go")
        await on.sees("or type an answer")
        await on.pass_time(1)
        await on.press(*"2 shades")
        await on.sees("enter sends it as your answer")
        await on.press("enter")
        await on.sees("thanks")
        assert "The user answered: 2 shades" in model.requests[-1].transcript[-1].text


async def test_keys_typed_before_the_trust_question_do_not_answer_it(monkeypatch):
    clock = StoppedClock()
    async with running_app(monkeypatch, trusted=False, clock=clock) as running:
        on = WatchedApp(running, clock)
        await on.sees("Do you trust")
        await on.press(*"yes", "enter")
        assert on.app.dialogs.is_open
        assert not is_trusted(on.folder)
        await on.pass_time(60)
        await on.press("down", "enter")
        await on.until(lambda: on.app._conversation is not None, "the session")
        assert is_trusted(on.folder)
        assert on.app.prompt.text == "yes"


async def test_a_question_of_the_model_is_not_answered_by_typing(monkeypatch):
    ask = {"question": "Which one?", "options": ["red", "blue"]}
    clock = StoppedClock()
    model = scripted([Say(calls=[("ask", ask)]), "thanks"])
    async with running_app(monkeypatch, model, clock=clock) as running:
        on = WatchedApp(running, clock)
        await on.send("go")
        await on.sees("Which one?")
        await on.press("2", "enter")
        await on.sees("↳ 2")
        assert on.app.dialogs.is_open
        await on.pass_time(1)
        await on.press("2", "enter")
        await on.sees("thanks")
        assert "blue" in model.requests[-1].transcript[-2].text


async def test_a_picker_does_not_take_the_enter_that_opened_it_twice(monkeypatch):
    clock = StoppedClock()
    async with running_app(monkeypatch, clock=clock) as running:
        on = WatchedApp(running, clock)
        await on.send("/mode")
        await on.sees("Permission mode")
        await on.press("enter")
        assert on.app.dialogs.is_open
        await on.press("down", "enter")
        await on.until(lambda: on.app.session.permissions.mode == "accept-edits", "the mode")


async def test_browsing_the_transcript_answers_nothing(monkeypatch):
    clock, pause = StoppedClock(), Pause()
    model = scripted(["Hello.", [Say(calls=[BASH]), pause], "made"])
    async with running_app(monkeypatch, model, clock=clock) as running:
        on = WatchedApp(running, clock)
        await on.send("hi")
        await on.sees("Hello.")
        await on.idle()
        await on.send("go")
        await on.until(pause.reached.is_set)
        await on.press("tab")
        pause.release()
        await on.sees("Run this command?")
        await on.pass_time(60)
        await on.press("up", "enter", "n")
        assert is_open(on)
        await on.sees("esc returns to the question")
        await on.until(lambda: "esc stops the turn" not in on.screen(), "one meaning of esc")
        await on.press("escape")
        await on.pass_time(1)
        await on.press("y", "enter")
        await on.sees("made")


async def test_a_paste_into_a_dialog_goes_to_the_prompt(monkeypatch):
    from textual import events

    async with approval(monkeypatch) as on:
        await on.pass_time(1)
        on.app.post_message(events.Paste("yes\nn"))
        await on.until(lambda: on.app.prompt.text == "yes\nn", "the text")
        assert is_open(on)


async def test_an_approval_waits_until_the_list_of_the_queue_is_closed(monkeypatch):
    clock, pause = StoppedClock(), Pause()
    model = scripted([[Say(calls=[BASH]), pause], "made"])
    async with running_app(monkeypatch, model, clock=clock) as running:
        on = WatchedApp(running, clock)
        await on.send("go")
        await on.until(pause.reached.is_set)
        await on.send("msg A")
        await on.send("/queue")
        await on.sees("Queued messages")
        pause.release()
        await on.until(lambda: bool(on.app.conversation.questions.waiting), "the approval")
        await on.pass_time(1)
        await on.press("e", "enter")
        await on.until(lambda: on.app.prompt.text == "msg A", "the message to edit")
        await on.sees("Run this command?")
        assert is_open(on)


async def test_a_menu_waits_until_both_steps_of_an_open_approval_are_done(monkeypatch):
    async with approval(monkeypatch) as on:
        await on.press(*"/mode", "enter")
        await on.pass_time(1)
        await on.press("e", "enter")
        await on.sees("edit command")
        await on.pass_time(1)
        await on.press("enter")
        await on.sees("Permission mode")
        assert on.app.session.permissions.mode == "ask"


async def test_what_is_typed_right_after_an_answer_is_in_the_prompt_whole(monkeypatch):
    async with approval(monkeypatch, more="Not made.") as on:
        await on.pass_time(1)
        for key in ("n", "enter", "y", "o", "u"):  # the dialog is still there for the last three
            on.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await on.sees("Not made.")
        await on.until(lambda: on.app.prompt.text == "you", "the text")
        assert not exists("made.txt")


def hold_mounts(monkeypatch: pytest.MonkeyPatch, on: RunningApp) -> Pause:
    """The next widgets of the footer are not there before the pause is released."""
    place, pause = on.app.query_one("#footer"), Pause()
    mount_all = place.mount_all

    async def hold(*widgets: Any, **options: Any) -> None:
        await mount_all(*widgets, **options)
        await pause.wait()

    monkeypatch.setattr(place, "mount_all", hold)
    return pause


def typed_reason(on: RunningApp) -> str:
    return "".join(entry.text for entry in on.app.query(TextEntry))


async def test_a_text_typed_while_its_dialog_opens_goes_there(monkeypatch):
    async with approval(monkeypatch) as on:
        await on.pass_time(1)
        pause = hold_mounts(monkeypatch, on)
        await on.press("r", "enter")
        await on.until(pause.reached.is_set)
        monkeypatch.setattr(footer, "OPENING_SECONDS", PATIENCE)
        on.app.post_message(events.Key("x", "x"))
        for _ in range(100):
            await asyncio.sleep(0)  # nothing but the pause holds the key
        pause.release()
        await on.until(lambda: typed_reason(on) == "x", "the reason")
        assert on.app.prompt.text == ""
        assert is_open(on)


async def test_a_question_that_ends_while_its_dialog_opens_leaves_the_screen(monkeypatch):
    async with running_app(monkeypatch, scripted([Say(calls=[BASH]), "later"])) as on:
        pause = hold_mounts(monkeypatch, on)
        await on.send("go")
        await on.until(pause.reached.is_set)
        on.app.conversation.interrupt()
        await on.until(lambda: not on.app.dialogs.is_open, "the end of the dialog")
        await on.until(lambda: "Run this command?" not in on.screen(), "the prompt alone")
        pause.release()
        await on.type("next")
        assert on.app.prompt.text == "next"
