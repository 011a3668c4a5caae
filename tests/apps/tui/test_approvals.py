"""Approvals: the risk of a call, the whole file, edits for a session, several calls in a list."""

from __future__ import annotations

import os
from typing import Any

import pytest
from rich.text import Text

from tests.apps.tui.harness import (
    StoppedClock,
    exists,
    read_file,
    running_app,
    scripted,
    write_file,
)
from treadle.apps.conversation.approval_text import (
    format_risk_marks,
    list_approval_options,
    list_risk_lines,
    open_network,
)
from treadle.apps.conversation.choices import ChoiceOption
from treadle.apps.conversation.conversation import Conversation
from treadle.apps.conversation.state.blocks import ToolCallBlock
from treadle.apps.tui.plain_questions import parse_call_answer
from treadle.apps.tui.render import diffs
from treadle.apps.tui.render.palette import DARK, NONE
from treadle.core.contracts.policy import Risk
from treadle.core.steps import PendingApproval
from treadle.core.transcript.content import ToolCall
from treadle.models.scripted import Say, ScriptElement
from treadle.sessions.detached.background import NO_CHOICES, save_choices
from treadle.sessions.library import Library

LONG = "".join(f"line {number}\n" for number in range(1, 41))


def bash(command: str) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": command}


def edit(path: str, old: str, new: str) -> tuple[str, dict[str, Any]]:
    return "edit", {"file_path": path, "old_string": old, "new_string": new}


def approval(*risks: Risk, wider_mode: str = "") -> PendingApproval:
    call = ToolCall("1", "edit", "{}")
    return PendingApproval(call, "[edit]", "", ("Edit(/a)",), risks=risks, wider_mode=wider_mode)


def test_the_risks_of_a_call_are_lines_the_gravest_first():
    risks = [Risk("write", "log"), Risk("network", "a.org"), Risk("send", "a.org")]
    found = approval(*risks, Risk("recursive_delete", "b"), Risk("recursive_delete", "c"))
    assert [(line.text, line.is_marked) for line in list_risk_lines(found)] == [
        ("deletes with all that is in it: b, c", True),
        ("sends data: a.org", True),
        ("writes: log", False),
    ]
    assert format_risk_marks(found) == "! recursive delete, sends data"


def test_a_target_is_named_once():
    risks = [Risk("no_network", one) for one in ("origin", "origin main", "origin", "origins")]
    (line,) = list_risk_lines(approval(*risks))
    assert line.text.endswith(": origin main, origins")


def test_what_the_sandbox_prevents_is_said_before():
    found = approval(Risk("outside", "/x"), Risk("not_kept", "/x"), Risk("no_network", "a.org"))
    written, network, outside = [line.text for line in list_risk_lines(found)]
    assert written.startswith("not kept by the sandbox")
    assert written.endswith(": /x")
    assert network.startswith("fails, since the sandbox has no network")
    assert outside == "outside of the folder: /x"
    assert format_risk_marks(found) == "! not kept by the sandbox and 2 more"


def test_a_command_that_needs_the_network_can_be_run_with_it():
    call = ToolCall("1", "bash", '{"command": "gh pr create"}')
    found = PendingApproval(call, "", "", (), risks=(Risk("no_network"),))
    assert open_network(found) == {"command": "gh pr create", "sandbox": "network"}
    options = list_approval_options(found, is_child=False)
    assert [(one.key, one.value) for one in options][:3] == [
        ("n", "deny"),
        ("y", "once"),
        ("o", "network"),
    ]
    assert "network" not in [one.value for one in list_approval_options(found, is_child=True)]
    assert open_network(approval(Risk("network"))) is None
    [line] = list_risk_lines(found)
    assert "--network" in line.text


async def test_o_runs_a_command_with_the_network(monkeypatch):
    model = scripted([Say(calls=[bash("gh --nonsense a; true")]), "Done."])
    async with running_app(monkeypatch, model, flags={"sandbox": "auto"}) as on:
        if on.app.session.sandbox_problem:
            pytest.skip(f"no sandbox here: {on.app.session.sandbox_problem}")
        await on.send("go")
        await on.sees("Yes, with the network for this command")
        await on.press("o", "enter")
        await on.sees("can send what it reads to any host")
        await on.press("y", "enter")
        await on.sees("Done.")
    assert '"sandbox":"network"' in str(model.requests[-1].transcript[-1])


def test_a_harmless_call_shows_no_risk():
    assert list_risk_lines(approval()) == []
    assert format_risk_marks(approval(Risk("write", "a"))) == ""


def test_edits_can_be_allowed_for_the_session():
    labels = [
        o.label for o in list_approval_options(approval(wider_mode="accept-edits"), is_child=False)
    ]
    assert "Yes, and allow edits in this session" in labels
    of_child = list_approval_options(approval(wider_mode="accept-edits"), is_child=True)
    assert [option.value for option in of_child] == ["once", "deny", "reason", "stop"]


def find_styles(line: Text, word: str) -> set[str]:
    at = line.plain.index(word)
    return {str(span.style) for span in line.spans if span.start <= at < span.end}


def test_a_diff_has_the_colours_of_its_language():
    text = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-def old(): pass\n+def new(): pass"
    removed, added = diffs.render_diff(text, 40, DARK, highlights=True)
    assert str(DARK.keyword) in find_styles(added, "def")
    assert str(DARK.keyword) in find_styles(removed, "def")
    assert added.plain.startswith("   1 + def new(): pass")
    plain = diffs.render_diff(text, 40, NONE, highlights=True)
    assert [line.plain.rstrip() for line in plain] == [removed.plain.rstrip(), added.plain.rstrip()]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("2", ("open", [1])),
        ("y 1,3", ("once", [0, 2])),
        ("y 1, 3", ("once", [0, 2])),
        ("n all", ("deny", [0, 1, 2])),
        ("Y ALL", ("once", [0, 1, 2])),
        ("y", None),
        ("y 4", None),
        ("all", None),
        ("1,2", None),
        ("please stop", None),
        ("", None),
    ],
)
def test_a_line_answers_for_several_calls(line: str, answer: object):
    options = [ChoiceOption(str(place), f"call {place}") for place in range(3)]
    assert parse_call_answer(options, line) == answer


async def test_several_calls_are_listed_opened_marked_and_answered(monkeypatch):
    calls = [bash("rm -rf build"), bash("touch a.txt"), bash("touch b.txt"), bash("touch c.txt")]
    model = scripted([Say(calls=calls), "Done."])
    async with running_app(monkeypatch, model, size=(80, 24)) as on:
        await on.send("go")
        await on.sees("4 calls need your approval")
        assert "bash rm -rf build  ! recursive delete" in on.screen()
        await on.press("enter")
        await on.sees("Run this command?  ! recursive delete")
        assert "! deletes with all that is in it: build" in on.screen()
        await on.press("escape")
        await on.sees("4 calls need your approval")
        await on.press("space", "n", "enter")
        await on.sees("Why not?")
        await on.press("enter")
        await on.sees("3 calls need your approval")
        await on.press("space", "down", "space", "y", "enter")
        await on.sees("Run this command?")
        await on.press("y", "enter")
        await on.sees("Done.")
    assert all(exists(name) for name in ("a.txt", "b.txt", "c.txt"))


async def test_without_a_mark_y_and_n_answer_the_call_at_the_cursor(monkeypatch):
    calls = [bash("touch a.txt"), bash("touch b.txt"), bash("touch c.txt")]
    async with running_app(monkeypatch, scripted([Say(calls=calls), "Done."])) as on:
        await on.send("go")
        await on.sees("3 calls need your approval")
        await on.press("down", "y", "enter")
        await on.sees("2 calls need your approval")
        await on.press("n", "enter")
        await on.sees("Why not?")
        await on.press("enter")
        await on.sees("Run this command?")
        await on.press("y", "enter")
        await on.sees("Done.")
    assert [exists(name) for name in ("a.txt", "b.txt", "c.txt")] == [False, True, True]


async def test_allowing_edits_for_the_session_answers_the_other_edits(monkeypatch):
    for name in ("a.txt", "b.txt", "c.txt"):
        write_file(name, LONG)
    script: list[ScriptElement] = [
        Say(calls=[edit("a.txt", "line 20\n", "A\n"), edit("b.txt", "line 20\n", "B\n")]),
        Say(calls=[edit("c.txt", "line 20\n", "C\n")]),
        "Done.",
    ]
    async with running_app(monkeypatch, scripted(script), size=(80, 40)) as on:
        await on.send("go")
        await on.sees("2 calls need your approval")
        await on.press("enter")
        await on.sees("w: whole file")
        assert "line 1\n" not in on.screen()
        await on.press("w")
        await on.sees("   1   line 1\n")
        assert "w: changed lines" in on.screen()
        await on.press("w")
        await on.until(lambda: "   1   line 1\n" not in on.screen())
        await on.press("t", "enter")
        await on.sees("Done.")
        assert on.app.session.permissions.mode == "accept-edits"
    assert [read_file(f"{n}.txt").count("\n") for n in "abc"] == [40, 40, 40]
    assert "C" in read_file("c.txt")


async def test_shift_tab_in_an_edit_question_allows_edits_in_this_session(monkeypatch):
    write_file("a.txt", LONG)
    clock = StoppedClock()
    model = scripted([Say(calls=[edit("a.txt", "line 20\n", "A\n")]), "Done."])
    async with running_app(monkeypatch, model, clock=clock) as on:
        await on.send("go")
        await on.sees("Allow edit a.txt?")
        await on.press("shift+tab")  # too early to have read it: only the mode changes
        await on.sees("accept-edits")
        assert on.app.dialogs.is_open
        on.app.session.permissions.change_mode("ask")
        clock.now += 10
        await on.press("shift+tab")
        await on.sees("Done.")
        assert on.app.session.permissions.mode == "accept-edits"
    assert "A\n" in read_file("a.txt")


def test_a_long_line_of_a_diff_is_complete_in_an_approval():
    code = "x = 1" + " " * 150 + '; import os; os.system("evil")'
    text = f"--- a/a.py\n+++ b/a.py\n@@ -0,0 +1 @@\n+{code}"
    lines = diffs.render_diff(text, 40, DARK, highlights=True, wraps=True)
    assert all(line.cell_len <= 40 for line in lines)
    assert "".join(line.plain[7:] for line in lines).rstrip() == code
    assert [line.plain[:7] for line in lines[:2]] == ["   1 + ", "       "]


async def test_paging_on_a_small_screen_shows_every_line_of_what_is_approved(monkeypatch):
    command = "\n".join(f"touch number{place}" for place in range(1, 31))
    model = scripted([Say(calls=[bash(command)]), "Done."])
    seen: set[str] = set()
    async with running_app(monkeypatch, model, size=(40, 15)) as on:
        await on.send("go")
        await on.sees("Run this command?")
        for _ in range(60):
            seen |= {line.strip() for line in on.screen().split("\n")}
            if "end (pgup)" in on.screen():
                break
            await on.press("pagedown")
            await on.pilot.pause()
        await on.press("escape")
        await on.idle()
    assert {f"touch number{place}" for place in range(1, 31)} <= seen


async def test_an_edit_on_a_small_screen_begins_at_the_first_changed_line(monkeypatch):
    write_file("a.txt", LONG)
    model = scripted([Say(calls=[edit("a.txt", "line 20\n", "A\n")]), "Done."])
    async with running_app(monkeypatch, model, size=(40, 15)) as on:
        await on.send("go")
        await on.sees("Allow edit a.txt?")
        await on.sees("20 - line 20")
        assert "19   line 19" not in on.screen()
        for _ in range(4):
            await on.press("pageup")
        await on.sees("17   line 17")
        await on.press("escape")


async def test_a_text_that_was_left_with_escape_is_there_again(monkeypatch):
    model = scripted([Say(calls=[bash("touch a.txt")]), "Done."])
    async with running_app(monkeypatch, model) as on:
        await on.send("go")
        await on.sees("Run this command?")
        await on.press("e", "enter")
        await on.sees("bash: edit command")
        await on.press("x", "escape")
        await on.sees("Run this command?")
        await on.press("r", "enter")
        await on.sees("Why not?")
        await on.press("l", "a", "escape")
        await on.sees("Run this command?")
        await on.press("r", "enter")
        await on.sees("Why not?")
        assert "\nla\n" in on.screen()
        await on.press("escape")
        await on.sees("Run this command?")
        await on.press("e", "enter")
        await on.sees("bash: edit command")
        await on.press("enter")
        await on.sees("Done.")
    assert exists("a.txtx")


async def test_the_list_of_calls_comes_back_as_it_was_left(monkeypatch):
    calls = [bash("touch a.txt"), bash("touch b.txt"), bash("touch c.txt")]
    async with running_app(monkeypatch, scripted([Say(calls=calls), "Done."])) as on:
        await on.send("go")
        await on.sees("3 calls need your approval")
        await on.press("space", "down", "enter")
        await on.sees("Run this command?")
        await on.press("escape")
        await on.sees("1 [x] bash touch a.txt\n▸ 2 [ ] bash touch b.txt")
        await on.press("escape")
        await on.idle()


async def test_after_an_approval_tab_selects_the_last_block(monkeypatch):
    model = scripted([Say(calls=[bash("touch a.txt")]), "Done.\n\n```\ncode\n```"])
    async with running_app(monkeypatch, model) as on:
        await on.send("go")
        await on.sees("Run this command?")
        await on.press("y", "enter")
        await on.sees("code")
        await on.idle()
        await on.press("tab", "c")
        await on.sees("copied 5 characters")


async def test_ctrl_d_quits_at_an_open_approval_and_answers_nothing(monkeypatch):
    model = scripted([Say(calls=[bash("touch made")]), "Done."])
    async with running_app(monkeypatch, model) as on:
        await on.send("go")
        await on.sees("Yes, this once")
        await on.type("ab")
        await on.press("ctrl+d")
        assert not on.app._exit
        await on.press("escape", "ctrl+d")
        await on.until(lambda: on.app._exit, "the end")
        session_id = on.app.resume_hint.split()[-1]
    assert not exists("made")
    states: list[str] = []
    resume = Conversation.resume

    def note_and_resume(conversation: Conversation) -> None:
        blocks = conversation.view.blocks
        states.extend(one.state for one in blocks if isinstance(one, ToolCallBlock))
        resume(conversation)

    monkeypatch.setattr(Conversation, "resume", note_and_resume)
    os.close(save_choices(Library().find(session_id), NO_CHOICES))  # as /detach does
    async with running_app(monkeypatch, model, resume=session_id) as on:
        await on.sees("Yes, this once")
        assert states == ["waiting"]
        await on.press("y", "enter")
        await on.sees("Done.")
    assert exists("made")
