"""A session that is a dry run: what was recorded is decided on at once, and then carried out."""

from __future__ import annotations

import asyncio
import json

from tests.apps.tui.harness import exists, read_file, running_app, scripted, write_file
from treadle.models.scripted import Say

EDIT = ("edit", {"file_path": "a.txt", "old_string": "one", "new_string": "two"})
COMMAND = ("bash", {"command": "cat a.txt >> effects"})
WRITE = ("write", {"file_path": "new.txt", "content": "new\n"})


async def test_recorded_calls_are_edited_chosen_and_carried_out(monkeypatch):
    write_file("a.txt", "one\n")
    calls = [Say(calls=[one]) for one in (EDIT, COMMAND, WRITE)]
    model = scripted([*calls, "All is done.", "You are welcome."])
    async with running_app(monkeypatch, model, size=(110, 45)) as on:
        await on.send("/apply")
        await on.sees("no recorded calls wait")
        await on.send("/dry-run on")
        await on.sees("ask, dry run")
        await on.send("go")
        await on.sees("dry run: 3 calls recorded, nothing is changed; /apply shows them")
        assert read_file("a.txt") == "one\n"
        await on.idle()
        await on.send("/apply")
        await on.sees("Carry out 3 recorded calls?")
        await on.sees("+two")
        await on.press("n", "enter")
        await on.sees("nothing is carried out")
        edited = json.dumps({"command": "cat a.txt a.txt >> effects"})
        await on.send(f"/apply edit 2 {edited}")
        await on.sees("edited: ")
        await on.press("s", "enter")
        await on.until(lambda: on.app.prompt.text == "/apply 1,2,3")
        on.app.prompt.clear()
        await on.send("/apply 1,2")
        await on.sees("2 calls of 2 carried out.")
        await on.sees("Not to be carried out: write")
        await on.idle()
        assert (read_file("a.txt"), read_file("effects")) == ("two\n", "two\ntwo\n")
        assert not exists("new.txt")
        assert len(model.requests) == 4  # the recorded calls cost nothing
        await on.send("/detach")
        await on.sees("a run in the background is no dry run")
        await on.send("thanks")
        await on.sees("You are welcome.")
        await on.idle()
        await on.send("/dry-run off")
        await on.sees("no dry run: what the agent does is done")
        await on.send("/apply all")
        await on.sees("/dry-run on continues it")


async def test_a_side_question_is_for_the_model_while_calls_are_carried_out(monkeypatch):
    waiting = ("bash", {"command": "mkfifo gate; cat gate"})
    model = scripted([Say(calls=[waiting]), "Done.", "It waits at a gate."])
    async with running_app(monkeypatch, model, size=(110, 45)) as on:
        await on.send("/dry-run on")
        await on.sees("ask, dry run")
        await on.send("go")
        await on.sees("1 call recorded")
        await on.idle()
        await on.send("/apply all")
        await on.until(lambda: exists("gate"))
        await on.send("/btw What does it do?")
        await on.sees("It waits at a gate.")
        await asyncio.to_thread(write_file, "gate", "opened\n")
        await on.sees("1 call of 1 carried out.")
        await on.idle()


async def test_a_file_that_changed_since_ends_it(monkeypatch):
    write_file("a.txt", "one\n")
    model = scripted([Say(calls=[EDIT]), Say(calls=[WRITE]), "Done.", "Hello."])
    async with running_app(monkeypatch, model, size=(110, 45)) as on:
        await on.send("/dry-run on")
        await on.sees("ask, dry run")
        await on.send("go")
        await on.sees("2 calls recorded")
        await on.idle()
        write_file("new.txt", "mine\n")
        await on.send("/apply all")
        await on.sees("1 call of 2 carried out. write: changed since the dry run: ")
        await on.idle()
        assert (read_file("a.txt"), read_file("new.txt")) == ("two\n", "mine\n")
        await on.send("hi")
        await on.sees("Hello.")
