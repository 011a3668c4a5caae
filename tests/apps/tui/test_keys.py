"""Every key does what the help says it does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.tui.harness import exists, make_usage, read_file, running_app, scripted, write_file
from treadle.apps.conversation.block_text import plain_text
from treadle.apps.conversation.completion import fuzzy_match
from treadle.apps.settings.folder_rules import open_trust_store
from treadle.apps.tui import app
from treadle.core.transcript.items import to_user_item
from treadle.models.scripted import Pause, Say, ScriptElement

BASH = ("bash", {"command": "touch made.txt"})


async def test_enter_sends_and_the_reply_is_shown(monkeypatch):
    async with running_app(monkeypatch, scripted(["Hello, *you*."])) as on:
        await on.send("hi")
        await on.sees("Hello, you.")
        await on.idle()
        assert "› hi" in on.screen()
        assert on.app.prompt.text == ""


@pytest.mark.parametrize("key", ["shift+enter", "alt+enter", "ctrl+j"])
async def test_a_new_line_does_not_send(monkeypatch, key):
    async with running_app(monkeypatch) as on:
        await on.type("one")
        await on.press(key, "t", "w", "o")
        assert on.app.prompt.text == "one\ntwo"


async def test_a_backslash_at_the_end_begins_a_new_line(monkeypatch):
    async with running_app(monkeypatch) as on:
        await on.type("one\\")
        await on.press("enter", "t")
        assert on.app.prompt.text == "one\nt"


async def test_up_and_down_walk_through_what_was_typed(monkeypatch):
    async with running_app(monkeypatch, scripted(["a", "b"])) as on:
        await on.send("first")
        await on.idle()
        await on.send("second")
        await on.idle()
        await on.type("draft")
        await on.press("up")
        assert on.app.prompt.text == "second"
        await on.press("up")
        assert on.app.prompt.text == "first"
        await on.press("down", "down")
        assert on.app.prompt.text == "draft"


async def test_shift_tab_changes_the_mode(monkeypatch):
    async with running_app(monkeypatch) as on:
        seen = [on.app.session.permissions.mode]
        for _ in range(4):
            await on.press("shift+tab")
            seen.append(on.app.session.permissions.mode)
        assert seen == ["ask", "accept-edits", "plan", "auto", "ask"]
        await on.sees("asks before every action")


async def test_escape_interrupts_at_once_and_the_partial_reply_stays(monkeypatch):
    pause = Pause()
    async with running_app(monkeypatch, scripted([["Half a ", pause, "word"], "More."])) as on:
        await on.send("go")
        await on.until(pause.reached.is_set)
        await on.press("escape")
        await on.sees("interrupted")
        assert not on.app.conversation.view.is_busy
        assert "Half a" in on.screen()
        await on.send("go on")
        await on.sees("More.")


async def test_escape_clears_what_is_typed_and_up_brings_it_back(monkeypatch):
    async with running_app(monkeypatch) as on:
        await on.type("something long")
        await on.press("escape")
        assert on.app.prompt.text == ""
        await on.press("up")
        assert on.app.prompt.text == "something long"


async def test_escape_twice_on_an_empty_prompt_rewinds_and_the_message_can_be_edited(monkeypatch):
    async with running_app(monkeypatch, scripted(["one", "two", "three"])) as on:
        for text in ("first", "second"):
            await on.send(text)
            await on.idle()
        await on.press("escape")
        await on.sees("esc again to rewind")
        await on.press("escape")
        await on.sees("Rewind to before")
        await on.sees("no file would change")
        await on.press("enter")
        await on.sees("rewound to before turn 2")
        assert on.app.prompt.text == "second"
        assert "two" not in on.screen()
        assert len(on.app.conversation.driver.transcript) == 2


async def test_a_command_typed_after_a_rewind_replaces_the_old_message(monkeypatch):
    model = scripted(["1", "2"])
    async with running_app(monkeypatch, model) as on:
        await on.send("one")
        await on.idle()
        await on.press("escape", "escape")
        await on.sees("Rewind to before")
        await on.press("enter")
        await on.sees("typing replaces the message")
        assert on.app.prompt.text == "one"
        await on.press(*"/redo")
        assert on.app.prompt.text == "/redo"
        await on.press("enter")
        await on.sees("nothing to redo")
        assert len(model.requests) == 1


@pytest.mark.parametrize("action", ["undo", "redo", "rewind"])
async def test_in_a_new_session_there_is_nothing_to_undo_yet(monkeypatch, action):
    async with running_app(monkeypatch) as on:
        await on.send(f"/{action}")
        await on.sees(f"nothing to {action} yet: this session is new")


async def test_going_back_can_take_the_files_along(monkeypatch):
    write = Say(calls=[("write", {"file_path": "a.txt", "content": "new\n"})])
    async with running_app(
        monkeypatch, scripted([write, "done"]), flags={"permission_mode": "accept-edits"}
    ) as on:
        await on.send("make it")
        await on.sees("done")
        await on.idle()
        assert read_file("a.txt") == "new\n"
        await on.press("escape", "escape")
        await on.sees("- a.txt")
        await on.press("enter")
        await on.sees("1 file would change")
        await on.press("b", "enter")
        await on.sees("rewound to before turn 1; files: removed a.txt")
        assert not exists("a.txt")


async def test_going_back_says_whose_changes_they_are_and_leaves_those_of_the_user(monkeypatch):
    calls = [("write", {"file_path": name, "content": "new\n"}) for name in ("a.txt", "b.txt")]
    flags: dict[str, object] = {"permission_mode": "accept-edits"}
    async with running_app(monkeypatch, scripted([Say(calls=calls), "done"]), flags=flags) as on:
        await on.send("make it")
        await on.sees("done")
        await on.idle()
        write_file("b.txt", "new\nand mine\n")
        write_file("own.txt", "mine\n")
        await on.press("escape", "escape")
        await on.sees("- b.txt  (you changed it, too: left alone)")
        await on.sees("  own.txt  (you added it: left alone)")
        await on.press("enter")
        await on.sees("▸ c Conversation only")
        await on.sees("Conversation and files, and delete b.txt too (it contains your changes)")
        await on.press("b", "enter")
        await on.sees("rewound to before turn 1; files: removed a.txt")
        assert (exists("a.txt"), read_file("b.txt")) == (False, "new\nand mine\n")
        assert read_file("own.txt") == "mine\n"
        await on.press("escape")  # clears the prompt
        await on.send("/redo")
        await on.sees("redid what the last rewind changed: restored a.txt")
        assert read_file("a.txt") == "new\n"


async def test_ctrl_c_stops_then_clears_then_leaves(monkeypatch):
    pause = Pause()
    async with running_app(monkeypatch, scripted([["x", pause]])) as on:
        await on.send("go")
        await on.until(pause.reached.is_set)
        await on.press("ctrl+c")
        await on.sees("interrupted")
        await on.press("ctrl+c")
        await on.sees("ctrl+c again to quit")  # what it stopped was not the first of two
        await on.type("typed")
        await on.press("ctrl+c")
        assert on.app.prompt.text == ""
        await on.press("ctrl+c")
        await on.sees("ctrl+c again to quit")
        await on.press("ctrl+c")
        await on.until(lambda: on.app._exit, "the end")
        assert on.app.return_code == 0


async def test_ctrl_d_leaves_only_from_an_empty_prompt(monkeypatch):
    async with running_app(monkeypatch) as on:
        await on.type("ab")
        await on.press("home", "ctrl+d")
        assert on.app.prompt.text == "b"
        await on.press("escape", "ctrl+d")
        await on.until(lambda: on.app._exit, "the end")


async def test_a_message_sent_while_it_works_waits_and_is_steered_in(monkeypatch):
    pause = Pause()
    model = scripted([[Say("I begin.", calls=[("ls", {})]), pause], "I heard you."])
    async with running_app(monkeypatch, model) as on:
        await on.send("go")
        await on.until(pause.reached.is_set)
        await on.send("and mind the tests")
        await on.sees("↳ and mind the tests")
        pause.release()
        await on.sees("I heard you.")
        await on.idle()
        assert "↳" not in on.screen()
        assert model.requests[-1].transcript[-1].text == "and mind the tests"


async def test_two_equal_queued_messages_are_each_accepted_once(monkeypatch):
    pauses = [Pause(), Pause()]
    model = scripted([[Say("x", calls=[("ls", {})]), pauses[0]], ["y", pauses[1]], "End."])
    async with running_app(monkeypatch, model) as on:
        await on.send("go")
        await on.until(pauses[0].reached.is_set)
        await on.send("again")
        pauses[0].release()
        await on.until(pauses[1].reached.is_set)
        assert not on.app.conversation.view.queued_messages
        for _ in range(2):
            await on.send("again")
        assert len(on.app.conversation.view.queued_messages) == 2
        pauses[1].release()
        await on.sees("End.")
        await on.idle()
        assert not on.app.conversation.view.queued_messages


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_an_interrupt_gives_the_queued_messages_back_into_the_prompt(monkeypatch, key):
    pause = Pause()
    model = scripted([["Half", pause], "More."])
    async with running_app(monkeypatch, model) as on:
        await on.send("go")
        await on.until(pause.reached.is_set)
        await on.send("first")
        await on.send("second")
        await on.type("third")
        await on.press(key)
        await on.sees("interrupted")
        await on.idle()
        assert on.app.prompt.text == "first\nsecond\nthird"
        assert len(model.requests) == 1
        await on.press("enter")
        await on.sees("More.")
        assert model.requests[-1].transcript[-1].text == "first\nsecond\nthird"


async def test_up_takes_the_last_queued_message_back_to_edit_it(monkeypatch):
    pause = Pause()
    model = scripted([[Say("x", calls=[("ls", {})]), pause], "End."])
    async with running_app(monkeypatch, model) as on:
        await on.send("go")
        await on.until(pause.reached.is_set)
        await on.send("first")
        await on.send("second")
        await on.press("up")
        await on.until(lambda: on.app.prompt.text == "second")
        assert on.app.conversation.view.queued_messages == ("first",)
        await on.press("!", "enter")
        await on.sees("↳ second!")
        pause.release()
        await on.sees("End.")
        texts = [item.text for item in model.requests[-1].transcript[-2:]]
        assert texts == ["first", "second!"]


async def test_up_takes_a_queued_message_back_before_the_text_in_the_prompt(monkeypatch):
    pause = Pause()
    async with running_app(monkeypatch, scripted([["Half", pause], "More."])) as on:
        await on.send("go")
        await on.until(pause.reached.is_set)
        await on.send("queued")
        await on.type("typed")
        await on.press("up")
        await on.until(lambda: on.app.prompt.text == "queued\ntyped")
        assert not on.app.conversation.view.queued_messages


async def test_an_interrupt_while_browsing_gives_back_the_queue_and_the_draft_once(monkeypatch):
    pause = Pause()
    async with running_app(monkeypatch, scripted([["Half", pause], "More."])) as on:
        await on.send("go")
        await on.until(pause.reached.is_set)
        await on.type("typed")
        await on.press("up")
        assert on.app.prompt.text == "go"
        on.app.conversation.submit(to_user_item("queued"))
        await on.press("ctrl+c")
        await on.sees("interrupted")
        assert on.app.prompt.text == "queued\ntyped"


@pytest.mark.parametrize("key", ["ctrl+c", "enter"])
async def test_a_draft_is_not_lost_when_an_earlier_message_is_cleared_or_sent(monkeypatch, key):
    async with running_app(monkeypatch, scripted(["a", "b"])) as on:
        await on.send("first")
        await on.idle()
        await on.type("a long draft")
        await on.press("up", key)
        await on.idle()
        await on.until(lambda: on.app.prompt.text == "")
        await on.press("up", "up")
        assert on.app.prompt.text == "a long draft"


async def test_the_list_of_queued_messages_closes_when_the_queue_changes(monkeypatch):
    pause = Pause()
    model = scripted([[Say("x", calls=[("ls", {})]), pause], "End."])
    async with running_app(monkeypatch, model) as on:
        await on.send("go")
        await on.until(pause.reached.is_set)
        await on.send("later")
        await on.send("/queue")
        await on.sees("Queued messages")
        await on.press("ctrl+c")
        await on.until(lambda: not on.app.dialogs.is_open, "the end of the list")
        await on.sees("the queue has changed, so its list was closed")
        assert on.app.prompt.text == "later"


async def test_a_queued_message_can_be_removed(monkeypatch):
    pause = Pause()
    model = scripted([[Say("x", calls=[("ls", {})]), pause], "End."])
    async with running_app(monkeypatch, model) as on:
        await on.send("/queue")
        await on.sees("no message is queued")
        await on.send("go")
        await on.until(pause.reached.is_set)
        await on.send("first")
        await on.send("second")
        await on.send("/queue")
        await on.sees("Queued messages")
        await on.press("1", "r")
        await on.until(lambda: on.app.conversation.view.queued_messages == ("second",))
        pause.release()
        await on.sees("End.")
        assert model.requests[-1].transcript[-1].text == "second"


@pytest.mark.parametrize("text", ["// a comment", "/ alone", "!"])
async def test_double_slash_slash_space_and_a_lone_exclamation_mark_are_sent(monkeypatch, text):
    model = scripted(["Seen."])
    async with running_app(monkeypatch, model) as on:
        await on.send(text)
        await on.sees("Seen.")
        assert model.requests[-1].transcript[-1].text == text


async def test_y_allows_once(monkeypatch):
    async with running_app(monkeypatch, scripted([Say(calls=[BASH]), "made"])) as on:
        await on.send("go")
        await on.sees("Run this command?")
        assert not exists("made.txt")
        await on.press("y", "enter")
        await on.sees("made")
        await on.idle()
        assert exists("made.txt")


async def test_a_allows_always_and_keeps_the_rule_that_was_shown(monkeypatch):
    calls: list[ScriptElement] = [Say(calls=[BASH]), "one", Say(calls=[BASH]), "two"]
    async with running_app(monkeypatch, scripted(calls)) as on:
        await on.send("go")
        await on.sees("Yes, and always allow: ")
        await on.press("a", "enter")
        await on.sees("Allow this always?")
        await on.press("enter")
        await on.sees("one")
        await on.idle()
        await on.send("again")
        await on.sees("two")
        assert "touch" in read_file(".treadle/settings.local.json")


async def test_t_allows_for_this_session_and_saves_nothing(monkeypatch):
    calls: list[ScriptElement] = [Say(calls=[BASH]), "one", Say(calls=[BASH]), "two"]
    async with running_app(monkeypatch, scripted([*calls, Say(calls=[BASH]), "three"])) as on:
        await on.send("go")
        await on.sees("Yes, and allow it in this session")
        await on.press("t", "enter")
        await on.sees("one")
        await on.idle()
        await on.send("again")
        await on.sees("two")
        await on.idle()
        assert not exists(".treadle/settings.local.json")
        await on.send("/clear")
        await on.send("and in another session")
        await on.sees("Run this command?")


@pytest.mark.parametrize("is_trusted", [True, False])
async def test_always_allow_holds_at_the_next_start_however_the_folder_was_trusted(
    monkeypatch, is_trusted
):
    write_file(".treadle/settings.json", '{"permissions": {"allow": ["Bash(make:*)"]}}')
    if is_trusted:  # before there was a rule, as by `treadle trust` in an empty folder
        open_trust_store().trust(Path.cwd())
    else:
        open_trust_store().decline(Path.cwd())
    model = scripted([Say(calls=[BASH]), "one", Say(calls=[BASH]), "two"])
    for answer, reply in (("a", "one"), ("", "two")):
        async with running_app(monkeypatch, model, trusted=False, size=(120, 30)) as on:
            await on.until(lambda: on.app._conversation is not None, "the session")
            await on.sees("that allows commands is not active. To activate it: treadle trust")
            await on.send("go")
            if answer:
                await on.sees("Yes, and always allow: ")
                await on.press(answer, "enter")
                await on.sees("Allow this always?")
                await on.press("enter")
            await on.sees(reply)


async def test_e_edits_the_command_before_it_runs(monkeypatch):
    async with running_app(monkeypatch, scripted([Say(calls=[BASH]), "ok"])) as on:
        await on.send("go")
        await on.sees("Edit first")
        await on.press("e", "enter")
        await on.sees("edit command, then press enter to run it")
        await on.press(*["backspace"] * 8, *"other", "enter")
        await on.sees("ok")
        await on.idle()
        assert exists("other") or exists("touch other")
        assert not exists("made.txt")


async def test_keys_are_not_shown_but_where_consent_is_asked(monkeypatch):
    token = "ghp_" + "a1B2" * 9
    write_file("config.ini", f"token = {token}\n")
    script: list[ScriptElement] = [
        Say(calls=[("read", {"file_path": "config.ini"})]),
        Say(calls=[("bash", {"command": f"touch {token}"})]),
        "Done.",
    ]
    async with running_app(monkeypatch, scripted(script)) as on:
        await on.send("go")
        await on.sees("Run this command?")
        assert f"touch {token}" in on.screen()
        await on.press("y", "enter")
        await on.sees("Done.")
        await on.idle()
        await on.send(f"!echo {token}")
        await on.until(lambda: bool(on.app.shell_commands.recent_outputs), "its end")
        assert "touch [redacted]" in on.screen()
        shown = [plain_text(one) for one in on.app.conversation.view.blocks]
        assert "token = [redacted]" in "\n".join(shown)
        assert token not in "\n".join(shown[:-1])  # the last is what was typed
        assert shown[-1].endswith("\n[redacted]")


async def test_a_question_shows_what_would_not_be_seen(monkeypatch):
    write = ("write", {"file_path": "a.txt", "content": "a\u202e\u200bb\ufe0fc\n"})
    script: list[ScriptElement] = [Say(calls=[write]), "Done."]
    async with running_app(monkeypatch, scripted(script)) as on:
        await on.send("go")
        await on.sees("Allow write")
        await on.sees("a\\u202e\\u200bb\\ufe0fc")
        await on.press("y", "enter")
        await on.sees("Done.")


async def test_a_question_fits_on_a_tiny_screen(monkeypatch):
    async with running_app(monkeypatch, scripted([Say(calls=[BASH]), "made"]), size=(20, 10)) as on:
        await on.send("go")
        await on.sees("esc stops the turn")
        await on.sees("touch made.txt")  # what is approved, and how to read the rest
        await on.sees("(pgdn)")
        await on.press("up")
        await on.sees("r No, with a")
        assert on.app.screen.max_scroll_y == 0
        assert on.screen().split("\n")[-1].startswith("ask")


async def test_a_new_search_replaces_the_one_before(monkeypatch):
    async with running_app(monkeypatch, scripted(["One two three."])) as on:
        await on.send("count")
        await on.sees("One two three.")

        async def search(word: str) -> None:
            await on.press("ctrl+f")
            await on.sees("Search")
            await on.press(*word, "enter")
            await on.until(lambda: on.app.transcript.viewport.search_text == word, word)
            await on.sees("n: match above")

        await search("two")
        await search("three")


async def test_n_denies_with_a_reason_that_the_model_reads(monkeypatch):
    model = scripted([Say(calls=[BASH]), "I understand."])
    async with running_app(monkeypatch, model) as on:
        await on.send("go")
        await on.sees("No, with a reason")
        await on.press("r", "enter")
        await on.sees("Why not?")
        await on.press(*"later", "enter")
        await on.sees("I understand.")
        assert "later" in model.requests[-1].transcript[-1].text
        assert not exists("made.txt")


async def test_fault_80_escape_at_an_approval_stops_the_turn(monkeypatch):
    async with running_app(monkeypatch, scripted([Say(calls=[BASH]), "again"])) as on:
        await on.send("go")
        await on.sees("Run this command?")
        await on.press("escape")
        await on.sees("interrupted")
        await on.idle()
        assert not exists("made.txt")
        assert on.app.prompt.has_focus
        await on.send("hello")
        await on.sees("again")


async def test_fault_88_an_answer_after_the_question_is_gone_changes_nothing(monkeypatch):
    async with running_app(monkeypatch, scripted([Say(calls=[BASH]), "later"])) as on:
        await on.send("go")
        await on.sees("Run this command?")
        question = on.app.conversation.questions.waiting[0]
        on.app.conversation.interrupt()
        await on.idle()
        on.app.conversation.questions.approve(question)
        await on.until(lambda: not on.app.dialogs.is_open, "the end of the dialog")
        assert not exists("made.txt")


async def test_an_edit_is_shown_as_a_diff_before_and_after(monkeypatch):
    write_file("a.py", "one\ntwo\nthree\n")
    edit = {"file_path": "a.py", "old_string": "two", "new_string": "2"}
    script: list[ScriptElement] = [
        Say(calls=[("read", {"file_path": "a.py"})]),
        Say(calls=[("edit", edit)]),
        "edited",
    ]
    async with running_app(monkeypatch, scripted(script)) as on:
        await on.send("go")
        await on.sees("Allow edit a.py?")
        assert "2 - two" in on.screen()
        assert "2 + 2" in on.screen()
        await on.press("y", "enter")
        await on.sees("edited")
        await on.sees("edit a.py  +1 -1")
        assert "2 + 2" in on.screen()


async def test_the_model_can_ask_and_is_answered(monkeypatch):
    ask = {"question": "Which one?", "options": ["red", "blue"]}
    model = scripted([Say(calls=[("ask", ask)]), "thanks"])
    async with running_app(monkeypatch, model) as on:
        await on.send("go")
        await on.sees("or type an answer")
        await on.press("down", "enter")
        await on.sees("thanks")
        assert "blue" in model.requests[-1].transcript[-1].text


async def test_tab_and_arrows_take_what_is_offered_after_a_slash(monkeypatch):
    async with running_app(monkeypatch) as on:
        await on.press("slash", "c", "o")
        await on.sees("/cost")
        await on.press("down", "tab")
        assert on.app.prompt.text.startswith("/co")
        assert on.app.prompt.text.endswith(" ")


async def test_an_at_sign_offers_files(monkeypatch):
    write_file("src/view.py")
    async with running_app(monkeypatch) as on:
        await on.until(lambda: bool(on.app.prompt.project_files), "the files")
        await on.press(*"see", "space", "at", *"vie")
        await on.sees("@src/view.py")
        await on.press("tab")
        assert on.app.prompt.text == "see @src/view.py "


async def test_a_key_takes_the_file_of_the_whole_text_also_while_many_are_searched(monkeypatch):
    async with running_app(monkeypatch) as on:
        prompt = on.app.prompt
        await on.until(lambda: prompt._listed_at > 0, "the files")
        prompt.project_files = [f"src/part_{number}.py" for number in range(60_000)]
        await on.press("at", *"59999", "tab")  # no time to search in between
        assert prompt.text == "@src/part_59999.py "
        write_file("src/later.py")
        prompt._listed_at = 0.0  # a file of later is found, too
        await on.press("ctrl+u", "at", *"later")
        await on.sees("@src/later.py")


def test_a_search_that_is_not_wanted_any_more_ends():
    seen: list[str] = []

    def names() -> Iterator[str]:
        for number in range(60_000):
            seen.append(f"part_{number}")
            yield seen[-1]

    assert fuzzy_match("part", names(), is_stale=lambda: len(seen) > 1_000) == []
    assert len(seen) < 3_000


async def test_an_exclamation_mark_runs_a_command_and_the_model_gets_its_output(monkeypatch):
    model = scripted(["I see."])
    async with running_app(monkeypatch, model) as on:
        await on.send("!echo from-here")
        await on.sees("from-here")
        await on.until(lambda: bool(on.app.shell_commands.recent_outputs), "its end")
        await on.send("look")
        await on.sees("I see.")
        message = model.requests[0].transcript[0]
        assert "from-here" in message.text
        assert on.screen().split("› look")[1].count("from-here") == 1  # the command, not its output


async def test_a_new_session_gets_no_output_of_a_command_of_the_one_before(monkeypatch):
    model = scripted(["I see."])
    async with running_app(monkeypatch, model) as on:
        await on.send("!echo from-here")
        await on.until(lambda: bool(on.app.shell_commands.recent_outputs), "its end")
        earlier = on.app.conversation
        await on.send("/clear")
        await on.until(lambda: on.app._conversation not in (None, earlier), "the new session")
        await on.send("look")
        await on.sees("I see.")
        assert "from-here" not in model.requests[0].transcript[0].text


async def test_the_status_line_follows_the_branch(monkeypatch):
    write_file(".git/HEAD", "ref: refs/heads/first\n")
    switch = {"command": "echo ref: refs/heads/third > .git/HEAD"}
    model = scripted([Say(calls=[("bash", switch)]), "Done."])
    async with running_app(monkeypatch, model, size=(160, 24)) as on:
        await on.sees("(first)")
        await on.send("!echo ref: refs/heads/second > .git/HEAD")
        await on.sees("(second)")
        await on.send("go")
        await on.sees("Run this command?")
        await on.press("y", "enter")
        await on.sees("(third)")


async def test_ctrl_b_moves_a_command_to_the_background_and_its_end_wakes_the_agent_once(
    monkeypatch,
):
    first = ("bash", {"command": "echo begun; until [ -e go ]; do sleep 0.05; done; echo ready"})
    again = ("bash", {"command": "until [ -e later ]; do sleep 0.05; done", "background": True})
    model = scripted(
        [Say(calls=[first]), "I wait.", Say("It ended.", calls=[again]), "Woken.", "Hello."]
    )
    async with running_app(monkeypatch, model, flags={"permission_mode": "auto"}) as on:
        await on.send("go")
        await on.until(lambda: "  begun\n" in on.screen(), "the output")
        await on.press("ctrl+b")
        await on.sees("I wait.")
        await on.idle()
        assert "Running as task t1" in str(model.requests[1].transcript[-1])
        write_file("go")
        await on.sees("Woken.")  # without a message
        assert any("ready" in getattr(one, "text", "") for one in model.requests[2].transcript)
        await on.idle()
        write_file("later")  # that task began in a turn that nobody asked for
        await on.until(lambda: not on.app.conversation.view.tasks, "its end")
        await on.pilot.pause()
        assert len(model.requests) == 4
        await on.send("hi")
        await on.sees("Hello.")


async def test_ctrl_b_works_again_after_the_first_command_has_ended(monkeypatch):
    wait = "echo begun {0}; until [ -e {0} ]; do sleep 0.05; done"
    calls = [("bash", {"command": wait.format(name)}) for name in ("one", "two")]
    model = scripted([Say(calls=calls[:1]), "A.", "B.", Say(calls=calls[1:]), "C.", "D."])
    async with running_app(monkeypatch, model, flags={"permission_mode": "auto"}) as on:
        for name, first, last in (("one", "A.", "B."), ("two", "C.", "D.")):
            await on.send("go")
            await on.sees(f"  begun {name}\n")
            await on.press("ctrl+b")
            await on.sees(first)
            await on.idle()
            write_file(name)
            await on.sees(last)
            await on.idle()


async def test_a_task_does_not_wake_the_agent_if_the_setting_is_off(monkeypatch):
    call = ("bash", {"command": "until [ -e go ]; do sleep 0.05; done", "background": True})
    model = scripted([Say(calls=[call]), "I wait."])
    flags = {"permission_mode": "auto", "wake": False}
    async with running_app(monkeypatch, model, flags=flags) as on:
        await on.send("go")
        await on.sees("I wait.")
        await on.idle()
        write_file("go")
        await on.until(lambda: not on.app.conversation.view.tasks, "its end")
        await on.pilot.pause()
        assert len(model.requests) == 2


async def test_ctrl_b_says_that_a_command_of_the_user_stays(monkeypatch):
    async with running_app(monkeypatch, scripted([])) as on:
        await on.send("!echo begun; sleep 60")
        await on.until(lambda: "  begun\n" in on.screen(), "the output")
        await on.press("ctrl+b")
        await on.sees("a command of yours cannot be moved to the background; esc stops it")
        await on.press("escape")
        await on.idle()


async def test_a_long_paste_is_shown_as_a_placeholder(monkeypatch):
    model = scripted(["ok"])
    text = "\n".join(f"line {number}" for number in range(40))
    async with running_app(monkeypatch, model) as on:
        on.app.prompt.insert(on.app.prompt.attachments.add_paste(text))
        await on.sees("[paste 1: 40 lines]")
        await on.press("enter")
        await on.sees("ok")
        assert model.requests[0].transcript[0].text == text


async def test_a_cleared_prompt_with_a_long_paste_comes_back_whole_in_the_next_session(monkeypatch):
    text = "".join(f"line {number}\n" for number in range(300))
    history = Path.cwd() / "history.jsonl"
    async with running_app(monkeypatch, scripted(["ok"]), history_file=history) as on:
        on.app.prompt.insert(on.app.prompt.attachments.add_paste(text))
        await on.sees("[paste 1: 300 lines]")
        await on.press("escape")
    model = scripted(["ok"])
    async with running_app(monkeypatch, model, history_file=history) as on:
        await on.press("up")
        await on.until(lambda: on.app.prompt.text == "[paste 1: 300 lines]")
        await on.press("enter")
        await on.sees("ok")
        assert model.requests[0].transcript[0].text.strip() == text.strip()


async def test_ctrl_o_opens_the_last_call(monkeypatch):
    write_file("seen.txt")
    async with running_app(monkeypatch, scripted([Say(calls=[("ls", {})]), "done"])) as on:
        await on.send("go")
        await on.sees("done")
        await on.idle()
        folded = on.screen()
        await on.press("ctrl+o")
        await on.until(lambda: on.screen() != folded, "opening")
        assert "seen.txt" in on.screen()
        await on.press("ctrl+o")
        await on.until(lambda: on.screen() == folded, "folding")


async def test_the_text_above_can_be_walked_opened_copied_and_left(monkeypatch):
    write_file("seen.txt")
    async with running_app(monkeypatch, scripted([Say(calls=[("ls", {})]), "the end"])) as on:
        await on.send("go")
        await on.sees("the end")
        await on.idle()
        await on.press("tab")
        assert on.app.transcript.has_focus
        await on.press("up", "enter")
        await on.sees("seen.txt")
        await on.press("down", "c")
        await on.sees("copied 7 characters")
        assert on.app.clipboard == "the end"
        await on.press("escape")
        assert on.app.prompt.has_focus


async def test_pages_and_the_way_back_to_the_end(monkeypatch):
    text = "\n\n".join(f"Paragraph {number}." for number in range(60))
    async with running_app(monkeypatch, scripted([text])) as on:
        await on.send("go")
        await on.sees("Paragraph 59.")
        await on.idle()
        await on.press("pageup", "pageup")
        await on.until(lambda: "Paragraph 59." not in on.screen(), "scrolling")
        assert "↓ end" in on.screen()
        await on.press("ctrl+up", "ctrl+down", "pagedown")
        await on.press("ctrl+end")
        await on.sees("Paragraph 59.")
        await on.press("tab", "home")
        await on.sees("› go")


async def test_what_is_read_does_not_move_while_more_arrives(monkeypatch):
    pause = Pause()
    first = "\n\n".join(f"Paragraph {number}." for number in range(60))
    async with running_app(monkeypatch, scripted([[first, pause, "\n\nand more\n\n" * 20]])) as on:
        await on.send("go")
        await on.until(pause.reached.is_set)
        await on.sees("Paragraph 59.")
        await on.press("pageup")
        await on.until(lambda: "Paragraph 59." not in on.screen(), "scrolling")
        top = on.screen().split("\n")[:8]
        pause.release()
        await on.idle()
        assert on.screen().split("\n")[:8] == top


async def test_ctrl_f_finds_a_word_also_inside_a_folded_call(monkeypatch):
    write_file("needle.txt")
    text = "\n\n".join(f"Paragraph {number}." for number in range(60))
    async with running_app(monkeypatch, scripted([Say(calls=[("ls", {})]), text])) as on:
        await on.send("go")
        await on.sees("Paragraph 59.")
        await on.idle()
        await on.press("ctrl+f")
        await on.sees("Search")
        await on.press(*"NEEDLE", "enter")
        await on.sees("needle.txt")
        await on.press("escape", "ctrl+f", *["backspace"] * 6, *"zebra", "enter")
        await on.sees("no matches for 'zebra'")


async def test_ctrl_y_copies_the_last_reply_as_markdown(monkeypatch):
    text = "Look:\n\n```py\nx = 1\n```\n\nDone."
    async with running_app(monkeypatch, scripted([text])) as on:
        await on.send("go")
        await on.sees("Done.")
        await on.idle()
        await on.press("ctrl+y")
        assert on.app.clipboard == text


async def test_ctrl_t_lists_the_todos(monkeypatch):
    todos = [{"content": "look", "status": "completed"}, {"content": "mend", "status": "pending"}]
    async with running_app(
        monkeypatch, scripted([Say(calls=[("todo", {"todos": todos})]), "ok"])
    ) as on:
        await on.send("go")
        await on.sees("☐ mend")
        await on.idle()
        await on.press("ctrl+t")
        await on.sees("☑ look")


@pytest.mark.parametrize("size", [(20, 6), (20, 24), (1, 1), (10, 3), (200, 60)])
async def test_no_size_of_a_terminal_breaks_it(monkeypatch, size):
    script: list[ScriptElement] = [
        Say("# Some\n\n| a | b |\n|--|--|\n| c | d |", calls=[BASH], usage=make_usage(9_000)),
        "ok",
    ]
    async with running_app(monkeypatch, scripted(script), size=size) as on:
        await on.send("go")
        await on.until(lambda: bool(on.app.conversation.questions.waiting), "the question")
        await on.until(lambda: on.app.dialogs.is_open, "the dialog")
        await on.pilot.resize_terminal(40, 15)
        await on.pilot.resize_terminal(*size)
        await on.press("y", "enter")
        await on.idle()
        await on.press("ctrl+l")


async def test_escape_after_a_picker_does_not_rewind(monkeypatch):
    async with running_app(monkeypatch, scripted(["one"])) as on:
        await on.send("first")
        await on.idle()
        await on.send("/mode")
        await on.sees("Permission mode")
        await on.press("escape")
        await on.until(lambda: not on.app.dialogs.is_open, "the end of the dialog")
        await on.press("escape")
        await on.sees("press esc again to rewind")
        assert not on.app.dialogs.is_open


async def test_escape_that_cleared_the_prompt_is_not_the_first_of_two(monkeypatch):
    async with running_app(monkeypatch, scripted(["one"])) as on:
        await on.send("first")
        await on.idle()
        await on.type("text")
        await on.press("escape", "escape")
        await on.sees("press esc again to rewind")
        assert not on.app.dialogs.is_open
        await on.press("escape")
        await on.sees("Rewind to before")


async def test_space_marks_several_answers_of_a_question(monkeypatch):
    ask = {"question": "Which ones?", "options": ["red", "blue", "green"], "multi_select": True}
    model = scripted([Say(calls=[("ask", ask)]), "thanks"])
    async with running_app(monkeypatch, model) as on:
        await on.send("go")
        await on.sees("space marks, enter sends the marked ones, or type an answer")
        await on.press("enter")  # nothing is marked: nothing is answered
        await on.press("space", "down", "down", "space")
        await on.sees("1 [x] red")
        await on.sees("2 [ ] blue")
        await on.press("enter")
        await on.sees("thanks")
        assert "The user answered: red, green" in model.requests[-1].transcript[-1].text


@pytest.mark.parametrize("key", ["ctrl+c", "escape"])
async def test_a_users_command_can_be_stopped_and_the_next_message_names_its_output(
    monkeypatch, key
):
    async with running_app(monkeypatch, scripted(["Seen."])) as on:
        await on.send("!echo begun; sleep 60")
        await on.sees("  begun")
        await on.press(key)
        await on.sees("  stopped")
        assert "exit code None" not in on.screen()
        await on.send("!echo done; exit 3")
        await on.sees("exit code 3")
        await on.send("look")
        await on.sees("[I ran `echo done; exit 3` myself; exit code 3, output:… (")
        await on.sees("Seen.")


async def test_ctrl_f_searches_while_an_approval_is_open_and_the_approval_comes_back(monkeypatch):
    model = scripted(["Hello there.", Say(calls=[BASH]), "made"])
    async with running_app(monkeypatch, model) as on:
        await on.send("hi")
        await on.idle()
        await on.send("go")
        await on.sees("Run this command?")
        await on.press("ctrl+f")
        await on.sees("Search")
        await on.press(*"there", "enter")
        await on.sees("esc returns to the question")
        await on.sees("Run this command?")
        assert (on.app.prompt.text, exists("made.txt")) == ("", False)
        await on.press("escape")
        await on.press("y", "enter")
        await on.sees("made")


async def test_while_the_model_asks_the_status_says_that_it_waits_for_the_user(monkeypatch):
    model = scripted([Say(calls=[("ask", {"question": "Which one?"})]), "thanks"])
    async with running_app(monkeypatch, model) as on:
        await on.send("go")
        await on.sees("waiting for your answer")
        await on.press(*"red", "enter")
        await on.sees("thanks")


async def test_the_hint_to_quit_goes_away(monkeypatch):
    monkeypatch.setattr(app, "QUIT_SECONDS", 0.1)
    async with running_app(monkeypatch) as on:
        await on.press("ctrl+c")
        await on.until(lambda: on.app.status_area.hint == "", "the end of the hint")
        monkeypatch.setattr(app, "QUIT_SECONDS", 60.0)
        await on.press("ctrl+c")
        await on.sees("press ctrl+c again to quit")
        assert not on.app._exit
