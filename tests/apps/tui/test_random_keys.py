"""No approval is answered by a key that was typed before the question could be read."""

from tests.apps.tui.harness import StoppedClock, running_app, scripted
from tests.apps.tui.random_keys import READ_SECONDS, Typist, make_script
from treadle.models.scripted import Pause


async def test_no_key_answers_a_question_that_could_not_be_read(monkeypatch):
    clock, pauses = StoppedClock(), list[Pause]()
    async with running_app(monkeypatch, scripted(make_script(pauses)), clock=clock) as on:
        typist = Typist(on, clock, seed=15)
        try:
            await typist.type(80, pauses, answers=4)
        finally:
            typist.stop()
        too_early = [answer for answer in typist.answers if answer.seen_for < READ_SECONDS]
        assert too_early == []
