"""The keys of the prompt: history search, the editor, the list of keys, vim keys, the queue."""

import os
import stat
from pathlib import Path

import pytest
from textual import events

from tests.apps.tui.harness import RunningApp, StoppedClock, make_editor, running_app, scripted
from treadle.apps.tui import prompt_screen
from treadle.apps.tui.app import TerminalApp
from treadle.apps.tui.input.drafts import Drafts, make_draft
from treadle.core.transcript.items import UserItem
from treadle.models.scripted import Pause, Say

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108020000009077"
    "53de0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)


def write_image(name: str, data: bytes) -> None:
    Path(name).write_bytes(data)


# ------------------------------------------------------------------ order


BURSTS = {
    ("a", "b", "c", "backspace", "d"): "abd",
    ("a", "b", "c", "left", "left", "x"): "axbc",
    ("o", "l", "d", "ctrl+u", "n", "e", "w"): "new",
    ("a", "space", "b", "ctrl+w", "c"): "a c",
    ("a", "b", "home", "x", "delete"): "xb",
    ("a", "escape", "b"): "b",
    ("a", "ctrl+c", "b"): "b",
}


@pytest.mark.parametrize("keys", BURSTS)
async def test_keys_that_arrive_together_keep_their_order(monkeypatch, keys: tuple[str, ...]):
    async with running_app(monkeypatch) as on:
        for key in keys:
            character = key if len(key) == 1 else " " if key == "space" else None
            on.app.post_message(events.Key(key, character))
        await on.until(lambda: on.app.prompt.text == BURSTS[keys], "the text")
        await on.pilot.pause()
        assert on.app.prompt.text == BURSTS[keys]


@pytest.mark.parametrize("trusted", [True, False])
async def test_what_is_typed_before_the_screen_is_there_is_in_the_prompt(monkeypatch, trusted):
    def type_early(app: TerminalApp) -> None:
        for key in ("y", "e", "s", "ctrl+j"):  # enter, as a terminal that is not yet raw sends it
            app.post_message(events.Key(key, key if len(key) == 1 else None))

    monkeypatch.setattr(TerminalApp, "on_load", type_early, raising=False)
    async with running_app(monkeypatch, trusted=trusted) as on:
        await on.until(lambda: on.app.prompt.text == "yes\n", "the text")
        if not trusted:  # it did not answer the question
            await on.sees("Do you trust the files in this folder?")
            assert on.app.prompt.text == "yes\n"


# ------------------------------------------------------------------ history


async def test_ctrl_r_searches_earlier_messages_as_a_shell_does(monkeypatch, tmp_path):
    history = tmp_path / "history.jsonl"
    history.write_text('"fix the parser"\n"run the tests"\n"fix the lexer"\n')
    async with running_app(monkeypatch, history_file=history) as on:
        await on.type("half a thought")
        await on.press("ctrl+r", *"fix")
        await on.sees("search earlier messages: fix")
        assert on.app.prompt.text == "fix the lexer"
        await on.press("ctrl+r")
        assert on.app.prompt.text == "fix the parser"
        await on.press("ctrl+r")
        await on.sees("no older message has it")
        assert on.app.prompt.text == "fix the parser"
        await on.press("escape")
        assert on.app.prompt.text == "half a thought"
        await on.press("ctrl+r", *"tests", "enter")
        assert on.app.prompt.text == "run the tests"  # not sent yet
        await on.until(lambda: "search earlier" not in on.screen(), "the end of the search")
        await on.press("ctrl+r", *"zzz")
        await on.sees("no message has it")
        await on.press("backspace", "ctrl+c")
        assert on.app.prompt.text == "run the tests"
        await on.press("ctrl+r", *"lex", "right", "!")
        assert on.app.prompt.text == "fix the lexer!"
        on.app.post_message(events.Paste("x" * 10_000_000))
        await on.sees("[paste 1: 10,000,000 characters]")


# ------------------------------------------------------------------ editor


async def test_ctrl_g_opens_the_editor_with_the_message(monkeypatch):
    editor = make_editor("upper", 'tr a-z A-Z < "$1" > "$1.new" && mv "$1.new" "$1"')
    monkeypatch.setenv("EDITOR", editor)
    monkeypatch.delenv("VISUAL", raising=False)
    async with running_app(monkeypatch) as on:
        await on.type("a message")
        await on.press("ctrl+g")
        await on.until(lambda: on.app.prompt.text == "A MESSAGE", "the new text")
        monkeypatch.setenv("VISUAL", make_editor("more", 'printf "one\\ntwo" > "$1"'))
        await on.press("ctrl+x", "ctrl+e")
        await on.until(lambda: on.app.prompt.text == "one\ntwo", "the new text")


@pytest.mark.parametrize(
    ("editor", "message"),
    [
        ("", "no editor is set: set VISUAL or EDITOR"),
        ("no-such-editor -w", "the editor 'no-such-editor' is not found"),
        ("'half", "EDITOR is not a command"),
        ("failing", "the editor failed with exit code 3; the text is unchanged"),
        ("endless", "the edited text is too long: 11.0 MB"),
        ("removing", "the edited text cannot be read"),
    ],
)
async def test_an_editor_that_fails_leaves_the_message(monkeypatch, editor, message):
    make_editor("failing", 'echo other > "$1"; exit 3')
    make_editor("endless", 'head -c 11000000 /dev/zero > "$1"')
    make_editor("removing", 'rm "$1"')
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor)
    monkeypatch.setenv("PATH", f"{Path.home()}:/usr/bin:/bin")
    async with running_app(monkeypatch, size=(120, 24)) as on:
        await on.type("a message")
        await on.press("ctrl+g")
        await on.sees(message)
        assert on.app.prompt.text == "a message"


async def test_the_editor_is_no_program_of_the_project_and_gets_no_secrets(monkeypatch):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "./project-editor")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-secret")
    make_editor("project-editor", 'echo owned > "$1"', Path.cwd())
    async with running_app(monkeypatch) as on:
        await on.type("a message")
        await on.press("ctrl+g")
        await on.sees("is not found")
        monkeypatch.setenv("EDITOR", make_editor("env", 'env > "$1"; stat -c %a "$1" >> "$1"'))
        await on.press("ctrl+g")
        await on.until(lambda: on.app.prompt.text != "a message", "the new text")
        text = on.app.attachments.expand_pastes(on.app.prompt.text)
        assert "sk-ant-secret" not in text
        assert text.endswith("\n600")


# ------------------------------------------------------------------ the list of keys


@pytest.mark.parametrize("size", [(80, 40), (40, 15)])
async def test_a_question_mark_on_an_empty_prompt_shows_the_keys(monkeypatch, size):
    async with running_app(monkeypatch, size=size) as on:
        await on.press("?")
        await on.sees("shift+tab")
        await on.press("h")  # closes it, and is the beginning of a message
        await on.until(lambda: "shift+tab" not in on.screen(), "the end of the list")
        assert on.app.prompt.text == "h"
        await on.press("?")
        assert on.app.prompt.text == "h?"
        await on.press("backspace", "backspace", "?", "escape")
        assert on.app.prompt.text == ""
        await on.press("?", "?")
        assert on.app.prompt.text == "?"


# ------------------------------------------------------------------ vim keys


async def test_vim_keys_edit_the_prompt_and_the_status_line_shows_the_mode(monkeypatch):
    model = scripted(["Hello."])
    async with running_app(monkeypatch, model, has_vim_keys=True) as on:
        await on.sees("INSERT")
        await on.press(*"one two", "escape")
        await on.sees("NORMAL")
        await on.press("b", "d", "w", "0", "x", "u", "ctrl+r")
        assert on.app.prompt.text == "ne "
        await on.press("escape", "v", "l")
        await on.sees("VISUAL")
        assert on.app.prompt.selected_text == "ne"
        await on.press("d", "i", *"hi", "escape", "enter")
        await on.sees("Hello.")
        await on.sees("INSERT")
        assert model.requests[-1].transcript[0].text == "hi"
        await on.press("escape", "k")  # as the arrow key: the history
        await on.until(lambda: on.app.prompt.text == "hi", "the message before")
        await on.press("escape", "A", *" there")
        assert on.app.prompt.text == "hi there"


async def test_vim_toggles_the_keys_and_saves_the_setting(monkeypatch):
    async with running_app(monkeypatch) as on:
        await on.send("/vim")
        await on.sees("vim keys are on")
        await on.press("escape", *"ihello")
        assert on.app.prompt.text == "hello"
        config = Path.home() / ".treadle/config.toml"
        assert config.read_text() == "vim_keys = true\n"
        on.app.prompt.clear_text()
        await on.send("/vim")
        await on.sees("vim keys are off")
        assert config.read_text() == "vim_keys = false\n"


# ------------------------------------------------------------------ the queue


async def queue_messages(on: RunningApp, pause: Pause, *texts: str) -> None:
    await on.send("go")
    await on.until(pause.reached.is_set)
    for text in texts:
        await on.send(text)


def queued(on: RunningApp) -> list[str]:
    return [item.text for item in on.app.conversation.list_queued()]


async def test_queued_messages_are_moved_removed_and_edited_by_keys(monkeypatch):
    pause = Pause()
    model = scripted([["Working", pause], "done"])
    async with running_app(monkeypatch, model) as on:
        await queue_messages(on, pause, "one", "two", "three", "/queue")
        await on.sees("shift+↑ shift+↓ move")
        await on.press("shift+down", "shift+down")
        assert queued(on) == ["two", "three", "one"]
        await on.press("shift+up", "r")
        assert queued(on) == ["two", "three"]
        await on.sees("▸ 2 three")
        await on.press("up", "e")
        await on.until(lambda: on.app.prompt.text == "two", "the message")
        assert queued(on) == ["three"]
        assert on.app.prompt.prompt_history.lines[-1] == "one"  # removed, not lost
        pause.release()
        await on.sees("done")
        assert model.requests[-1].transcript[-1].text == "three"


async def test_the_list_of_the_queue_closes_when_its_message_is_accepted(monkeypatch):
    first, second = Pause(), Pause()
    call = Say(calls=[("ls", {})])
    model = scripted([[call, first], ["More", second], "done"])
    async with running_app(monkeypatch, model) as on:
        await queue_messages(on, first, "one", "/queue")
        await on.sees("Queued messages")
        first.release()
        await on.sees("the queue has changed, so its list was closed")
        assert not on.app.dialogs.is_open
        second.release()


async def test_two_hundred_queued_messages_are_shown_moved_and_given_back(monkeypatch):
    pause = Pause()
    model = scripted([["Working", pause], "done"])
    async with running_app(monkeypatch, model, clock=StoppedClock(), size=(40, 15)) as on:
        await queue_messages(on, pause)
        for number in range(200):
            on.app._send(f"message {number}")
        await on.until(lambda: len(queued(on)) == 200)
        await on.send("/queue")
        await on.sees("▸ 1 message 0")
        await on.sees("Queued messages, 1 of 200")
        await on.sees("e edit · r remove · shift+↑↓ move · esc")
        await on.press("end")
        await on.sees("Queued messages, 200 of 200")
        await on.press("home", "up", "shift+up")
        assert queued(on)[-2:] == ["message 199", "message 198"]
        await on.press("escape", "escape")
        await on.until(lambda: not queued(on), "the interrupt")
        text = on.app.attachments.expand_pastes(on.app.prompt.text)
        assert text.count("message ") == 200


# ------------------------------------------------------------------ drafts


async def test_a_message_that_was_not_sent_is_back_after_a_crash(monkeypatch, tmp_path):
    drafts = tmp_path / "drafts"
    write_image("plan.png", PNG)
    async with running_app(monkeypatch, drafts_dir=drafts) as on:
        await on.type("look at ")
        on.app.post_message(events.Paste("plan.png"))
        on.app.post_message(events.Paste("line\n" * 300))
        await on.sees("[paste 2: 300 lines]")
        await on.until(lambda: len(list(drafts.glob("*.json"))) == 1, "the file")
        (file,) = drafts.glob("*.json")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        async with running_app(monkeypatch, drafts_dir=drafts) as other:
            assert other.app.prompt.text == ""  # the first program still runs
    model = scripted(["I see."])
    async with running_app(monkeypatch, model, drafts_dir=drafts) as on:
        await on.sees("the message that you had not sent is back")
        assert on.app.prompt.text == "look at [image 1: plan.png] [paste 2: 300 lines]"
        await on.press("enter")
        await on.sees("I see.")
        assert list(drafts.glob("*.json")) == []
        sent = model.requests[-1].transcript[0]
        assert sent.text.count("line") == 300
        assert isinstance(sent, UserItem)
        assert len(sent.content) == 2
    assert list(drafts.iterdir()) == []
    log = b"".join(file.read_bytes() for file in Path.home().rglob("journal*.jsonl"))
    assert b"drafts" not in log


@pytest.mark.parametrize("keys", [("ctrl+u", "ctrl+d"), ("ctrl+c", "ctrl+c", "ctrl+c")])
async def test_a_prompt_that_was_cleared_right_before_the_end_does_not_come_back(
    monkeypatch, tmp_path, keys
):
    drafts = tmp_path / "drafts"
    monkeypatch.setattr(prompt_screen, "DRAFT_SECONDS", 3600.0)
    async with running_app(monkeypatch, drafts_dir=drafts) as on:
        await on.type("draft abc")
        await on.app._draft.save()
        assert len(list(drafts.glob("*.json"))) == 1
        await on.press(*keys)
        await on.until(lambda: on.app._exit, "the end")
    assert list(drafts.iterdir()) == []


def test_the_locks_of_killed_programs_without_a_draft_are_removed(tmp_path):
    place = tmp_path / "drafts"
    place.mkdir()
    (place / "killed.lock").touch()
    os.utime(place / "killed.lock", (0, 0))
    running, drafts = Drafts(place, tmp_path), Drafts(place, tmp_path)
    running.save(make_draft("s", "first", {}))
    running.remove()  # it still holds its lock
    drafts.save(make_draft("s", "second", {}))
    assert not (place / "killed.lock").exists()
    assert len(list(place.glob("*.lock"))) == 2
    running.close()
    drafts.close()


def test_a_draft_that_a_thread_saves_while_the_program_ends_is_not_kept(tmp_path):
    drafts = Drafts(tmp_path / "drafts", tmp_path)
    drafts.save(make_draft("s", "first", {}))
    drafts.remove()
    drafts.close()
    assert drafts.save(make_draft("s", "first", {})) == ""
    assert list((tmp_path / "drafts").iterdir()) == []


# ------------------------------------------------------------------ images


async def test_a_dropped_image_is_shown_with_its_name_pixels_and_size(monkeypatch):
    write_image("plan.png", PNG)
    write_image("broken.png", PNG[:30])
    async with running_app(monkeypatch) as on:
        on.app.post_message(events.Paste("plan.png"))
        await on.sees(f"▀ plan.png · 1 × 1 · {len(PNG)} B")
        on.app.post_message(events.Paste("broken.png"))
        await on.sees("broken.png · 1 × 1 · 30 B")
        on.app.prompt.clear_text()
        await on.until(lambda: "×" not in on.screen(), "the end of the lines")
