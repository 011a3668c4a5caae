"""`treadle --resume` without an id: a list of the sessions, by title, with a preview."""

from tests.apps.tui.harness import StoppedClock, running_app, scripted
from treadle.apps.conversation.choices import ChoiceOption
from treadle.apps.tui.render.palette import DARK
from treadle.apps.tui.widgets.choices import Choices


async def _make_sessions(monkeypatch, *prompts: str) -> None:
    for prompt in prompts:
        async with running_app(monkeypatch, scripted([f"Answer to {prompt}."])) as on:
            await on.send(prompt)
            await on.sees(f"Answer to {prompt}.")
            await on.idle()


async def test_the_list_shows_titles_and_the_last_messages_of_the_marked_session(monkeypatch):
    await _make_sessions(monkeypatch, "mend the roof", "paint the door")
    async with running_app(monkeypatch, picks_session=True) as on:
        await on.sees("Resume a session (esc starts a new one)")
        await on.sees("Answer to paint the door.")  # the preview of the newest
        assert "mend the roof" in on.screen()
        await on.press("down")
        await on.sees("Answer to mend the roof.")
        await on.press(*"paint")  # typing searches
        await on.until(lambda: "mend the roof" not in on.screen())
        await on.press("enter")
        await on.until(lambda: on.app._conversation is not None)
        await on.sees("› paint the door")
        assert "Resume a session" not in on.screen()


async def test_what_is_typed_before_the_list_can_be_read_is_for_the_prompt(monkeypatch):
    await _make_sessions(monkeypatch, "mend the roof")
    clock = StoppedClock()
    async with running_app(monkeypatch, picks_session=True, clock=clock) as on:
        await on.sees("Resume a session")
        await on.press(*"then the door", "enter")
        await on.sees("› then the door")
        assert on.app._conversation is None
        clock.now += 60
        await on.press("up", "enter")
        await on.until(lambda: on.app._conversation is not None, "the session")
        assert on.app.prompt.text == "then the door"


async def test_escape_starts_a_new_session_and_without_sessions_one_starts_at_once(monkeypatch):
    async with running_app(monkeypatch, picks_session=True) as on:
        await on.sees("there is no session in this folder yet; this is a new one")
    await _make_sessions(monkeypatch, "mend the roof")
    async with running_app(monkeypatch, picks_session=True, size=(40, 15)) as on:
        await on.sees("Answer to mend the roof.")
        await on.press("escape")
        await on.until(lambda: on.app._conversation is not None)
        assert "Answer to mend the roof." not in on.screen()


def test_a_filter_keeps_the_last_used_session_first():
    names = ["rename the parser", "a parser", "parse r"]
    options = [ChoiceOption(str(place), name) for place, name in enumerate(names)]
    choices = Choices("Sessions", options, DARK, filterable=True)
    choices._apply_filter("parser")
    assert [option.value for option in choices.matching_options] == ["0", "1", "2"]
