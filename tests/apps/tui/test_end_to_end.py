"""One story of the real program in a real terminal: keys are typed, screens are read.

It goes through what the terminal offers; while a dialog is open the terminal becomes small and
large again. The chapters share one folder, and most of them one running program. What the model
says is in story.py; a command `./hold NAME` runs until the story writes the file NAME.
"""

import asyncio
import signal
import subprocess
from contextlib import closing

import pytest

from tests.apps.tui.harness import exists, read_file, write_file
from tests.apps.tui.story import CODE, GIVEN, Story, StoryModel, list_texts, to_sequence
from tests.apps.tui.test_prompt_keys import PNG
from tests.apps.tui.tmux import Terminal, needs_tmux, wait_for_draft
from tests.patience import until_in_thread
from treadle.testing.provider.server import ProviderServer

pytestmark = [needs_tmux, pytest.mark.slow]
SIZE = (120, 40)


async def test_a_user_goes_through_all_that_the_terminal_offers(own_place):
    async with ProviderServer(StoryModel(), strict=False) as server:
        with closing(Terminal(own_place, SIZE)) as terminal:
            story = Story(terminal, SIZE, server)
            for chapter in CHAPTERS:
                await asyncio.to_thread(chapter, story)


def the_first_screen_says_what_applies_here(story: Story) -> None:
    on = story.on
    story.run(*GIVEN)
    on.sees("Do you trust the files in this folder?")
    story.shake("Do you trust")
    on.answer("y", "Enter")
    on.sees("folder   /", "trust    trusted", "mode     ask: ", "sandbox  off: ")
    on.sees("claude-sonnet-4-5, $3 in, $15 out per million tokens")
    until_in_thread(lambda: on.screen().count("\n  › ") == 3, on.screen)  # things to try
    on.sees("/help lists commands", "\n›\n")
    on.shows_title("cwd")
    story.shows_color(to_sequence("light"))  # the terminal has a white background


def the_prompt_has_keys_an_editor_and_pictures(story: Story) -> None:
    on = story.on
    on.type("?")
    on.sees("shift+tab")
    on.press("Escape")
    on.sees("shift+tab", gone=True)
    on.paste("plan.png")
    on.sees(f"▀ plan.png · 1 × 1 · {len(PNG)} B")
    on.sees("› [image 1: plan.png]")
    on.clear("plan.png")
    on.paste("a line of text\n" * 700_000)  # 10 MB
    on.sees("[paste 2: 700,000 lines]")
    on.clear("[paste")
    on.send("/vim")
    on.sees("vim keys are on")
    on.sees("INSERT · ask")
    on.type("one two")
    on.press("Escape")
    on.sees("NORMAL · ask")
    on.type("0dw")
    on.sees("› two\n")
    on.type("cc/vim")
    on.press("Enter")
    on.sees("vim keys are off")
    on.type("write")
    on.press("C-g")
    on.sees("› write the notes\n")


def a_call_needs_an_approval(story: Story) -> None:
    on = story.on
    on.press("Enter")
    on.sees("Allow write notes.txt?", "1 + line 1\n", "▸ y Yes")
    on.shows_title("cwd · needs your answer")
    story.wrote("\a")  # the window does not report its focus: the bell
    assert not exists("notes.txt")
    story.shake("Allow write notes.txt?")
    on.answer("y", "Enter")
    on.sees("The notes are written.")
    on.send("correct them")
    screen = on.sees("Allow edit notes.txt?", "20 - line 20\n", "20 + twenty\n", "▸ y Yes")
    assert "   1   line 1\n" not in screen
    on.answer("w")
    on.sees("   1   line 1\n")
    on.type("w")
    on.sees("   1   line 1\n", gone=True)
    on.press("t", "Enter")  # edits are allowed in this session: the next one opens no question
    on.sees("The notes are corrected.")
    on.sees("✗ edit notes.txt")  # the first edit could not be applied: no question
    on.sees("accept-edits ·")
    assert "twenty" in read_file("notes.txt")
    assert "thirty" in read_file("notes.txt")


def several_calls_are_answered_together(story: Story) -> None:
    on = story.on
    on.press("BTab", "BTab", "BTab")
    on.sees("\nask ·")
    on.send("publish it")
    on.sees("3 calls need your approval", "git push --force origin main  ! force push")
    on.sees("rm -rf build  ! recursive delete")
    on.answer("Space", "Down", "Enter")
    on.sees("Run this command?  ! recursive delete", "! deletes with all that is in it: build")
    story.shake("Run this command?")
    on.press("Escape")
    on.sees("3 calls need your approval")
    on.answer("Space")
    on.sees("1 [x]", "▸ 2 [x]")
    on.press("n", "Enter")
    on.sees("Why not?")
    on.send("too dangerous")
    on.sees("Why not?", gone=True)
    on.sees("Run this command?")
    on.answer("y", "Enter")
    on.sees("One of three is done.")
    assert exists("made.txt")


def a_command_shows_what_it_prints(story: Story) -> None:
    on = story.on
    on.send("/permissions add Bash(./hold:*)")
    on.sees("+ allow Bash(./hold:*)")
    on.send("show me")
    screen = on.sees("  out 6")
    assert "out 3" not in screen
    on.shows_title("cwd · working")
    write_file("show")
    on.sees("✻ thought", "6 lines\n  out 4\n  out 5\n  out 6", "That is all of it.")
    on.sees("esc interrupts", gone=True)
    story.wrote("\x1b]8;")  # a link
    on.press("C-o")
    on.sees("  out 1")
    on.press("C-o")
    on.sees("  out 1", gone=True)
    on.press("Tab")
    on.sees("▌ That is all of it.")
    on.type("c")
    on.sees("copied 14 characters")
    until_in_thread(lambda: on.clipboard() == CODE, on.clipboard)
    on.type("i")
    on.sees("copied", gone=True)
    on.send("print a lot")
    on.sees("running bash")
    on.type("keys are shown meanwhile")
    on.sees("› keys are shown meanwhile")
    on.press("C-u")
    write_file("flood")
    on.sees("The flood is over.")


def messages_wait_in_a_queue(story: Story) -> None:
    on = story.on
    on.send("work on it")
    on.sees("running bash")
    for text in ("be brief", "be quick", "be kind"):
        on.send(text)
        on.sees(f"↳ {text}")
    on.send("/queue")
    on.sees("Queued messages, 1 of 3")
    story.shake("▸ 1 be brief")
    on.press("S-Down")
    on.sees("▸ 2 be brief")
    on.type("r")
    on.sees("Queued messages, 2 of 2")
    on.press("Up")
    on.sees("▸ 1 be quick")
    on.type("e")
    on.sees("› be quick\n")
    on.type("er")
    on.press("Enter")
    on.sees("↳ be quicker")
    write_file("work")
    on.sees("I heard what you said.")
    assert list_texts(story.server.requests[-1])[-2:] == ["be kind", "be quicker"]
    on.press("C-r")
    on.type("bri")
    on.sees("› be brief\n")  # it was removed from the queue, and is not lost
    on.press("Escape")
    on.sees("be brief", gone=True)
    on.send("work again")
    on.sees("running bash")
    for number in range(8):
        on.press(f"message{number}", "Enter")
        on.sees(f"↳ message{number}\n")
    on.press("Escape")
    on.sees("interrupted", "message7\n")  # all are back in the prompt
    on.clear("message")


def a_plan_is_changed_and_accepted(story: Story) -> None:
    on = story.on
    on.send("/mode plan")
    on.sees("\nplan ·")
    on.send("plan it")
    on.sees("The plan is ready. Accept it?", "1. Change a.py")
    story.shake("The plan is ready.")
    on.answer("n", "Enter")
    on.sees("What should change?")
    on.send("make it shorter")
    on.sees("What should change?", gone=True)
    on.sees("The plan is ready. Accept it?")
    assert b"wants this changed: make it shorter" in story.server.requests[-1].body
    on.answer("e", "Enter")
    on.sees("Edit the plan; ")
    on.type(" twice")
    on.press("Enter")
    on.sees("2. Run the tests twice\n")
    on.answer("y", "Enter")
    on.sees("It is renamed.")
    on.sees("\naccept-edits ·")
    assert exists("a.py")
    on.send("/compact")
    on.sees("compacted")
    on.send("/plan")
    on.sees("2. Run the tests twice")
    on.send("what is next")
    on.sees("The next step is to run the tests.")
    assert b"2. Run the tests twice" in story.server.requests[-1].body


def an_agent_is_watched_steered_and_stopped(story: Story) -> None:
    on = story.on
    on.send("send a scout")
    on.sees("◐ task scout: look around")
    on.press("C-b")
    on.sees("Agents and tasks at work", "▸ 1 task: scout: look around  running bash")
    story.shake("Agents and tasks at work")
    on.press("1", "Enter")
    on.sees("watching task")
    on.sees("I look into it.")
    on.type("s")
    on.sees("Message to task")
    on.send("hurry up")
    on.sees("watching task")
    write_file("scout")
    on.sees("I hurry.")
    assert "hurry up" in list_texts(story.server.requests[-1])
    on.type("x")
    on.sees("Stop task")
    on.press("y", "Enter")
    on.sees("stopped,")
    on.press("Escape")
    on.sees("Agents and tasks at work")
    on.press("Escape")
    on.sees("Agents and tasks at work", gone=True)
    on.sees("The scout has come home.")


def commands_change_what_applies(story: Story) -> None:
    on = story.on
    for line, answer in (
        ("/budget 10", "$10"),
        ("/config reduced_motion on", "reduced_motion = on is written"),
        ("/permissions add deny Read(.env)", "+ deny Read(.env)"),
        ("/permissions remove Read(.env)", "- deny Read(.env)"),
        ("/theme dark-contrast", "dark-contrast"),
        ("/btw is all well?", "Aside: all is well."),
    ):
        on.send(line)
        on.sees(answer)
    story.shake("Aside: all is well.")
    on.press("Escape")
    on.sees("Aside:", gone=True)
    story.shows_color(to_sequence("dark-contrast"))
    subprocess.run(["git", "init", "-q"], check=True)
    on.send("/review")
    on.sees("One finding: a.py:1.")
    on.send("/init")
    on.sees("Allow write AGENTS.md?", "1 + Use make.")  # also where edits are accepted
    assert "Aside" not in story.server.requests[-1].body.decode()
    on.answer("y", "Enter")
    on.sees("Project notes are written.")


def nothing_is_lost_when_it_is_killed(story: Story) -> None:
    on = story.on
    story.slow_down_next_reply()
    on.send("talk")
    on.sees("I begin to talk.")
    on.type("a draft of mine")
    on.sees("› a draft of mine")
    wait_for_draft("a draft of mine")
    on.kill()
    story.end(137)
    story.run(*GIVEN, "--continue")
    on.sees("› talk", "the last turn is not finished", "› a draft of mine")
    on.clear("a draft of mine")
    on.send("go on")
    on.sees("I go on where I was.")
    on.send("clean up")
    on.sees("Run this command?")
    on.kill(signal.SIGHUP)
    story.end(143)
    assert not exists("cleaned.txt")


def the_conversation_stays_in_the_scrollback(story: Story) -> None:
    on = story.on
    story.run(*GIVEN, "--inline", "fix")  # one word is a prompt
    on.sees("Run this command?")
    story.shake("Run this command?")
    on.answer("y", "Enter")
    on.sees("It is fixed.")
    on.sees("esc interrupts", gone=True)
    on.send("/quit")
    on.sees("ended with 0")
    history = on.history()
    for line in ("› fix\n", "  I fix it.\n", "● bash touch fixed.txt", "  It is fixed.\n"):
        assert history.count(line) == 1
    assert "Run this command?" not in history
    on.renew()


def a_session_is_continued_by_one_key_or_from_a_list(story: Story) -> None:
    on = story.on
    story.run(*GIVEN)
    on.sees("continue (alt+1, or 1 and enter)", "  1 fix", "  2 write the notes")
    on.press("M-2")
    on.sees("› clean up")
    on.type("another draft")
    on.sees("› another draft")
    on.kill(signal.SIGHUP)
    story.end(143)
    story.run(*GIVEN, "--resume")
    on.sees("Resume a session", "▸ fix", "It is fixed.")  # with a preview
    story.shake("Resume a session")
    on.type("notes")
    on.sees("It is fixed.", gone=True)
    on.sees("▸ write the notes")
    on.press("Enter")
    on.sees("› clean up", "› another draft")
    on.press("C-c", "C-c", "C-c")
    story.end(0)


def an_answer_on_the_command_line_is_written_as_it_comes(story: Story) -> None:
    story.slow_down_next_reply()
    story.run(*GIVEN, "-p", "talk")
    screen = story.on.sees("I begin to talk.")
    assert "ended with" not in screen
    story.on.press("C-c")
    story.end(130)


def the_tour_teaches_by_doing(story: Story) -> None:
    on = story.on
    story.run("tour")
    on.sees("tour 1/7 · Prompt", "ask · tour")
    on.send("fix greet.py")
    on.sees("tour 2/7 · Approval", "Allow edit greet.py?")
    on.answer("y", "Enter")
    on.sees("tour 3/7 · Undo")
    on.send("/undo")
    on.sees("tour 4/7 · Modes")
    on.press("BTab")
    on.sees("tour 5/7 · Work without questions")
    on.send("fix it again")
    on.sees("tour 6/7 · Rewind")
    on.press("Escape")
    on.sees("esc again")
    on.press("Escape")
    on.sees("Rewind to before this message")
    on.press("Down", "Enter")
    on.sees("would change")
    on.press("b", "Enter")
    on.sees("tour 7/7 · The end")
    on.clear("› fix")
    on.press("C-d")
    story.end(0)


CHAPTERS = (
    the_first_screen_says_what_applies_here,
    the_prompt_has_keys_an_editor_and_pictures,
    a_call_needs_an_approval,
    several_calls_are_answered_together,
    a_command_shows_what_it_prints,
    messages_wait_in_a_queue,
    a_plan_is_changed_and_accepted,
    an_agent_is_watched_steered_and_stopped,
    commands_change_what_applies,
    nothing_is_lost_when_it_is_killed,
    the_conversation_stays_in_the_scrollback,
    a_session_is_continued_by_one_key_or_from_a_list,
    an_answer_on_the_command_line_is_written_as_it_comes,
    the_tour_teaches_by_doing,
)
